package krm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

func configMap(data map[string]any) krm.Resource {
	return krm.Resource{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "example"},
		"data":     data,
	}
}

// Python's cbor2 wrote the files: see testdata/cbor/generate.py.
func TestCBORFromPythonIsDecoded(t *testing.T) {
	t.Parallel()
	var deep any = "end"
	for range 150 {
		deep = map[string]any{"properties": deep}
	}
	many := map[string]any{}
	for i := range 300 {
		many[fmt.Sprintf("k%d", i)] = fmt.Sprintf("v%dx", i)
	}
	one := func(data map[string]any) krm.Package { return krm.Package{configMap(data)} }
	dates := map[string]any{"time": "2024-02-29T12:30:15Z", "micro": "2024-02-29T12:30:15.250000Z", "date": "2024-02-29"}
	tests := map[string]struct {
		why     string
		want    krm.Package
		wantErr string
	}{
		"empty":     {why: "no resources is a package"},
		"plain":     {why: "all plain types", want: one(map[string]any{"text": "größe", "yes": true, "no": false, "none": nil, "list": []any{int64(1), "two", []any{}}, "map": map[string]any{}})},
		"numbers":   {why: "the ends of 64 bits, and floats stay floats", want: one(map[string]any{"zero": int64(0), "minus": int64(-1), "max": int64(9223372036854775807), "min": int64(-9223372036854775808), "half": 1.5, "single": 100000.5, "double": 0.1, "whole": 5.0})},
		"canonical": {why: "floats of 16 bits", want: one(map[string]any{"half": 1.5, "double": 0.1, "a": int64(1), "bb": int64(2)})},
		"too-large": {why: "a number that a resource can't hold is refused", wantErr: "resource 1: data.number: the number 9223372036854775808 does not fit"},
		"too-small": {why: "also below zero", wantErr: "resource 1: data.number: the number -9223372036854775809 does not fit"},
		"bignum":    {why: "also as a bignum", wantErr: "resource 1: data.number: the number 1180591620717411303424 does not fit"},
		"nan":       {why: "JSON and YAML 1.2 readers have none", wantErr: "data.number: NaN is not a number"},
		"infinity":  {why: "JSON and YAML 1.2 readers have none", wantErr: "data.number: +Inf is not a number"},
		"dates":     {why: "a date is text, as it is in YAML", want: one(dates)},
		"timestamps": {why: "also where it is a number", want: one(map[string]any{
			"time": "2024-02-29T12:30:15Z", "micro": "2024-02-29T12:30:15.25Z", "date": "2024-02-29", "old": "1969-12-31",
		})},
		"bytes":                  {why: "Kubernetes writes bytes as base64", want: one(map[string]any{"secret": "AGh1bnRlcjL/", "empty": ""})},
		"uuid":                   {why: "a UUID is known by its text", want: one(map[string]any{"id": "6f1b7a3e-2c55-4d8e-9a67-0d8b3f1f2a10"})},
		"address":                {why: "an address too", want: one(map[string]any{"ip": "10.0.0.1"})},
		"decimal":                {why: "a decimal that prints the same as a float is one", want: one(map[string]any{"number": 1.25, "cents": 0.1})},
		"decimal-long":           {why: "one with more digits would lose them", wantErr: "the number 12345678901234567890123 does not fit"},
		"undefined":              {why: "nothing is nothing", want: one(map[string]any{"nothing": nil})},
		"set":                    {why: "tags that say nothing to us are passed over", want: one(map[string]any{"values": []any{"one"}})},
		"self-described":         {why: "the magic number of CBOR has no meaning", want: one(map[string]any{"a": int64(1)})},
		"unknown-tag":            {why: "an unknown tag is ignored", want: one(map[string]any{"a": "text"})},
		"null-entries":           {why: "skipped as null documents are", want: one(map[string]any{"a": int64(1)})},
		"integer-key":            {why: "the receiver could not tell 80 from \"80\"", wantErr: "resource 1: data.ports: has a key that is an integer; keys must be text"},
		"indefinite":             {why: "streaming encoders don't know the length", want: one(map[string]any{"list": []any{int64(1), int64(2)}, "map": map[string]any{"a": "b"}})},
		"chunked":                {why: "streaming encoders write texts in chunks", want: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"b": "YWI="}}}},
		"shared":                 {why: "cbor2 can write a value once", want: one(map[string]any{"one": map[string]any{"app": "web"}, "two": map[string]any{"app": "web"}, "list": []any{map[string]any{"app": "web"}}})},
		"cyclic":                 {why: "no package can contain itself", wantErr: "data.cyclic.self: contains itself"},
		"string-references":      {why: "repeated strings are written once", want: one(map[string]any{"a": "same same", "b": "same same"})},
		"string-references-many": {why: "the more there are, the longer a string must be to be one", want: krm.Package{configMap(many), configMap(many)}},
		"deep":                   {why: "as deep as a large CRD", want: one(map[string]any{"schema": deep})},
	}
	files, err := filepath.Glob("testdata/cbor/*.cbor")
	if err != nil || len(files) != len(tests) {
		t.Fatalf("%d files, %d tests, %v", len(files), len(tests), err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile("testdata/cbor/" + name + ".cbor")
			if err != nil {
				t.Fatal(err)
			}
			got, err := krm.Decode(krm.CBOR, data, krm.Limits{})
			checkDecoded(t, tt.why, tt.want, got, tt.wantErr, err)
		})
	}
}

// checkDecoded compares a result with the one wanted.
func checkDecoded(t *testing.T, why string, want, got krm.Package, wantErr string, err error) {
	t.Helper()
	if wantErr != "" {
		if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), wantErr) {
			t.Fatalf("error %v, want %q (%s)", err, wantErr, why)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, why)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (%s)", diff, why)
	}
}

func TestSharedCBORValuesAreCopied(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/cbor/shared.cbor")
	if err != nil {
		t.Fatal(err)
	}
	p, err := krm.Decode(krm.CBOR, data, krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p[0].Set("changed", "data", "one", "app")
	if got := p[0].Text("data", "two", "app"); got != "web" {
		t.Errorf("a change of one value changed the other to %q", got)
	}
}

func TestCBORNullIsAPackageWithoutResources(t *testing.T) {
	t.Parallel()
	if p, err := krm.Decode(krm.CBOR, []byte("\xf6"), krm.Limits{}); len(p) > 0 || err != nil {
		t.Errorf("got %v, %v for what Go's encoder makes of a nil slice", p, err)
	}
	if _, err := krm.Decode(krm.CBOR, []byte("\xf6\xf6"), krm.Limits{}); err == nil {
		t.Error("what follows is overlooked")
	}
}

func TestMalformedCBORIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		data string
		want string
	}{
		"a map":              {why: "a package is an array", data: "\xa0", want: "must be an array of maps, but is a map"},
		"text":               {why: "a package is an array", data: "\x61a", want: "must be an array of maps, but is text"},
		"YAML":               {why: "the wrong format is the likeliest mistake", data: "apiVersion: v1\n", want: "must be an array of maps"},
		"item is a number":   {why: "a resource is a map", data: "\x82\xa0\x05", want: "resource 2: must be a map, but is the number 5"},
		"item is an array":   {why: "lists are not nested", data: "\x81\x80", want: "resource 1: must be a map, but is a list"},
		"truncated":          {why: "nothing is stored of half a package", data: "\x82\xa0", want: "ends too early"},
		"truncated head":     {why: "also in the middle of a number", data: "\x81\xa1\x61a\x1b\x00", want: "ends too early"},
		"truncated text":     {why: "also in the middle of a text", data: "\x81\xa1\x63a", want: "ends too early"},
		"no break":           {why: "also without the end of a stream", data: "\x9f\xa0", want: "ends too early"},
		"trailing":           {why: "more data than a package is an error", data: "\x80\x80", want: "goes on for 1 bytes"},
		"duplicate key":      {why: "one of the values would be lost", data: "\x81\xa2\x61a\x01\x61a\x02", want: `has the key "a" twice`},
		"break in an array":  {why: "only indefinite arrays end with it", data: "\x81\xff", want: "malformed at byte 1"},
		"break for a value":  {why: "a key needs its value", data: "\x81\xbf\x61a\xff", want: "malformed"},
		"reserved length":    {why: "not CBOR", data: "\x81\x1c", want: "malformed"},
		"invalid UTF-8":      {why: "text is UTF-8", data: "\x81\xa1\x61a\x61\xff", want: "a: is text that is not UTF-8"},
		"invalid UTF-8 key":  {why: "text is UTF-8", data: "\x81\xa1\x61\xff\x01", want: "not UTF-8"},
		"chunk of bytes":     {why: "chunks are of the same type", data: "\x81\xa1\x61a\x7f\x41a\xff", want: "malformed"},
		"simple value":       {why: "there is nothing to make of it", data: "\x81\xa1\x61a\xe0", want: "a: is the CBOR simple value 0"},
		"no such reference":  {why: "it refers to a later value", data: "\x81\xa1\x61a\xd8\x1d\x05", want: "isn't there"},
		"no such string":     {why: "it refers to a later value", data: "\xd9\x01\x00\x81\xa1\x63abc\xd8\x19\x01", want: "abc: refers to a CBOR string that isn't there"},
		"no namespace":       {why: "nothing is remembered outside of one", data: "\x81\xa1\x63abc\xd8\x19\x00", want: "isn't there"},
		"bytes for a key":    {why: "a key is text", data: "\xd9\x01\x00\x82\xa1\x61a\x43abc\xa1\xd8\x19\x00\x01", want: "has a key that is bytes"},
		"date is a number":   {why: "tag 0 is for text", data: "\x81\xa1\x61a\xc0\x05", want: "is no CBOR date"},
		"time is text":       {why: "tag 1 is for numbers", data: "\x81\xa1\x61a\xc1\x61x", want: "is no CBOR time"},
		"time out of range":  {why: "RFC 3339 has four digits", data: "\x81\xa1\x61a\xc1\x1b\x00\xff\xff\xff\xff\xff\xff\xff", want: "outside"},
		"decimal exponent":   {why: "10 to the 2^63rd has many digits", data: "\x81\xa1\x61a\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01", want: "no float can keep"},
		"bignum of text":     {why: "tag 2 is for bytes", data: "\x81\xa1\x61a\xc2\x61x", want: "is no CBOR bignum"},
		"array of the world": {why: "a length is only a claim", data: "\x81\xa1\x61a\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", want: "ends too early"},
		"map of the world":   {why: "a length is only a claim", data: "\x81\xbb\x7f\xff\xff\xff\xff\xff\xff\xff", want: "ends too early"},
		"text of the world":  {why: "a length is only a claim", data: "\x81\xa1\x61a\x7b\xff\xff\xff\xff\xff\xff\xff\xff", want: "ends too early"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := krm.Decode(krm.CBOR, []byte(tt.data), krm.Limits{})
			if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q (%s)", err, tt.want, tt.why)
			}
		})
	}
}

func TestCBORTagsAreConvertedToValues(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		data string
		want any
	}{
		"positive bignum": {why: "a number that fits is one", data: "\xc2\x42\x01\x00", want: int64(256)},
		"negative bignum": {why: "a number that fits is one", data: "\xc3\x41\x04", want: int64(-5)},
		"base64url":       {why: "the tag sets the encoding of the bytes as text", data: "\xd5\x42\xfb\xff", want: "-_8"},
		"base64":          {why: "the tag sets the encoding of the bytes as text", data: "\xd6\x42\xfb\xff", want: "+/8="},
		"base16":          {why: "the tag sets the encoding of the bytes as text", data: "\xd7\x42\xfb\xff", want: "FBFF"},
		"bigfloat":        {why: "1.5 is 3 times 2 to the -1st", data: "\xc5\x82\x20\x03", want: 1.5},
		"time as float":   {why: "parts of a second stay", data: "\xc1\xfb\x41\xd4\x52\xd9\xec\x20\x00\x00", want: "2013-03-21T20:04:00.5Z"},
		"string twice":    {why: "bytes stay bytes; each namespace counts by itself", data: "\xd9\x01\x00\x84\x43abc\xd9\x01\x00\x82\x63xyz\xd8\x19\x00\xd8\x19\x00\x62no", want: []any{"YWJj", []any{"xyz", "xyz"}, "YWJj", "no"}},
		"half":            {why: "the smallest float of 16 bits", data: "\xf9\x00\x01", want: 5.960464477539063e-08},
		"long head":       {why: "lengths need not be as short as they go", data: "\x1b\x00\x00\x00\x00\x00\x00\x00\x05", want: int64(5)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := krm.Decode(krm.CBOR, []byte("\x81\xa1\x61a"+tt.data), krm.Limits{})
			checkDecoded(t, tt.why, krm.Package{{"a": tt.want}}, got, "", err)
		})
	}
}

// Each input is small, or refused because of its length, and must cost little.
func TestHostileCBORCostsLittle(t *testing.T) {
	t.Parallel()
	nested := func(n int, head, end string) []byte {
		return []byte("\x81\xa1\x61a" + strings.Repeat(head, n) + end)
	}
	// Ten shared lists, each of ten references to the previous one.
	bomb := bytes.NewBufferString("\x81\xa1\x61a\x8b\xd8\x1c\x81\x01")
	for level := range byte(10) {
		bomb.WriteString("\xd8\x1c\x8a")
		for range 10 {
			bomb.Write([]byte{0xd8, 0x1d, level})
		}
	}
	tests := map[string]struct {
		why  string
		data []byte
		want string
	}{
		"nested arrays":     {why: "recursion must end before the stack does", data: nested(100_000, "\x81", "\x01"), want: "nested deeper than the limit of 200 levels"},
		"nested maps":       {why: "recursion must end before the stack does", data: nested(100_000, "\xa1\x61a", "\x01"), want: "nested deeper"},
		"nested indefinite": {why: "recursion must end before the stack does", data: nested(100_000, "\x9f", "\x01"), want: "nested deeper"},
		"nested tags":       {why: "tags recurse too", data: nested(100_000, "\xc6", "\x01"), want: "too many CBOR tags"},
		"nested top tags":   {why: "these don't, but end early", data: []byte(strings.Repeat("\xc6", 100_000)), want: "ends too early"},
		"reference bomb":    {why: "a value that is shared counts each time", data: bomb.Bytes(), want: "more than 400000 values"},
		"claims in claims":  {why: "each level claims all the rest", data: nested(190, "\x9a\x00\x03\xff\x00", strings.Repeat("\x01", 1<<18)), want: "ends too early"},
		"many small values": {why: "a byte of input is far more in memory", data: nested(1, "\x9a\x00\x08\x00\x00", strings.Repeat("\x80", 0x80000)), want: "more than 400000 values"},
		"many, no length":   {why: "the same without a claim", data: nested(1, "\x9f", strings.Repeat("\x80", 0x80000)), want: "more than 400000 values"},
		"many resources":    {why: "each costs work everywhere", data: []byte("\x9a\x00\x02\x00\x00" + strings.Repeat("\xa0", 0x20000)), want: "more than 100000 resources"},
		"100 MB":            {why: "refused by its length alone", data: make([]byte, 100<<20), want: "has 104857600 bytes, the limit is 67108864"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := krm.Decode(krm.CBOR, tt.data, krm.Limits{Values: 400_000})
			if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q (%s)", err, tt.want, tt.why)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// A list that states more items than a package may have values is refused before its items are made.
func TestTooManyCBORValuesAreRefusedByTheirNumber(t *testing.T) { // alone: it counts allocations
	for name, head := range map[string]string{"a list": "\x9a\x00\x01\x00\x00", "a map": "\xba\x00\x01\x00\x00"} {
		data := []byte("\x81\xa1\x61a" + head + strings.Repeat("\x80", 1<<17))
		var err error
		made := testing.AllocsPerRun(1, func() { _, err = krm.Decode(krm.CBOR, data, krm.Limits{Values: 1 << 15}) })
		if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), "more than 32768 values") {
			t.Errorf("%s: error %v, want one that names the limit", name, err)
		}
		if made > 100 {
			t.Errorf("%s: %v values were made before it was refused", name, made)
		}
	}
}
