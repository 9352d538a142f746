package krm_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/krm"
)

func TestYAMLIsDecodedToPlainValues(t *testing.T) {
	t.Parallel()
	a, b := krm.Resource{"a": int64(1)}, krm.Resource{"b": int64(2)}
	tests := map[string]struct {
		why     string
		yaml    string
		want    krm.Package
		wantErr string
	}{
		"nothing":               {why: "no data is no resources"},
		"comment":               {why: "a file may say nothing", yaml: "# nothing\n"},
		"null":                  {why: "null documents are skipped", yaml: "---\n---\nnull\n---\n~\n"},
		"one":                   {why: "no separator needed", yaml: "a: 1", want: krm.Package{a}},
		"documents":             {why: "in their order", yaml: "a: 1\n---\nb: 2\n", want: krm.Package{a, b}},
		"empty between":         {why: "Helm's templates leave such documents", yaml: "---\na: 1\n---\n# none\n---\nb: 2\n---\n", want: krm.Package{a, b}},
		"end marker":            {why: "a document may end with dots", yaml: "a: 1\n...\n---\nb: 2\n...\n", want: krm.Package{a, b}},
		"content after marker":  {why: "YAML allows it", yaml: "--- {a: 1}\n--- {b: 2}\n", want: krm.Package{a, b}},
		"directive":             {why: "YAML allows it", yaml: "%YAML 1.1\n---\na: 1\n", want: krm.Package{a}},
		"version 1.2":           {why: "Python's ruamel.yaml writes it when told to", yaml: "%YAML 1.2\n---\na: 1\nx: yes\nz: true\n...\n# second\n%YAML 1.2\n---\nb: 2\n", want: krm.Package{{"a": int64(1), "x": "yes", "z": true}, b}},
		"version 2":             {why: "there is none", yaml: "%YAML 2.0\n---\na: 1\n", wantErr: "incompatible"},
		"directive in text":     {why: "text stays as it is", yaml: "a: |\n  x\nb: '\n%YAML 1.2'\n", want: krm.Package{{"a": "x\n", "b": " %YAML 1.2"}}},
		"Windows":               {why: "files come with CRLF", yaml: "a: 1\r\n---\r\nb: 2\r\n", want: krm.Package{a, b}},
		"byte order mark":       {why: "files come with one", yaml: "\ufeffa: 1\n", want: krm.Package{a}},
		"list":                  {why: "a document may be a list", yaml: "- a: 1\n- null\n- b: 2\n", want: krm.Package{a, b}},
		"empty list":            {why: "of no resources", yaml: "[]"},
		"JSON":                  {why: "JSON is YAML", yaml: `{"a": 1}`, want: krm.Package{a}},
		"v1 List":               {why: "a resource as any other", yaml: "kind: List\nitems: []\n", want: krm.Package{{"kind": "List", "items": []any{}}}},
		"separator in text":     {why: "an indented one is text", yaml: "a: |\n  ---\n  x\n", want: krm.Package{{"a": "---\nx\n"}}},
		"alias":                 {why: "each gets its own", yaml: "x: &x {a: 1}\nz: *x\n", want: krm.Package{{"x": map[string]any{"a": int64(1)}, "z": map[string]any{"a": int64(1)}}}},
		"merge key":             {why: "kubectl reads it", yaml: "x: &x {a: 1, b: 1}\nz: {<<: *x, b: 2}\n", want: krm.Package{{"x": map[string]any{"a": int64(1), "b": int64(1)}, "z": map[string]any{"a": int64(1), "b": int64(2)}}}},
		"merge key, twice":      {why: "a duplicate key is an error next to a merge, too", yaml: "x: &x {a: 1}\nz: {<<: *x, b: 2, b: 3}\n", wantErr: `document 1: z: has the key "b" twice`},
		"merge key, as number":  {why: "1 and 0x1 are the same key", yaml: "x: &x {a: 1}\n---\nx: &x {a: 1}\nz: {<<: *x, a: 2, 1: 2, 0x1: 3}\n", wantErr: `document 2: z: has the key "1" twice`},
		"y is true":             {why: "so kubectl reads it", yaml: "y: 1", want: krm.Package{{"true": int64(1)}}},
		"the ends of 64 bits":   {why: "no number is changed", yaml: "x: 9223372036854775807\nz: -9223372036854775808\n", want: krm.Package{{"x": int64(9223372036854775807), "z": int64(-9223372036854775808)}}},
		"large float":           {why: "text in the form of a float is a float", yaml: "x: 1e20\nz: 1.0e+300", want: krm.Package{{"x": 1e20, "z": 1e300}}},
		"text of many digits":   {why: "quotes make it text", yaml: `x: "18446744073709551616"`, want: krm.Package{{"x": "18446744073709551616"}}},
		"number":                {why: "a resource is a map", yaml: "a: 1\n---\n5", wantErr: "document 2: resource 2: must be a map, but is the number 5"},
		"text":                  {why: "a resource is a map", yaml: "hello", wantErr: "document 1: resource 1: must be a map, but is text"},
		"list in list":          {why: "lists are not nested", yaml: "- - a: 1", wantErr: "must be a map, but is a list"},
		"duplicate key":         {why: "one of the values would be lost", yaml: "a: 1\n---\nb: 2\nb: 3\n", wantErr: `document 2: line 4: key "b" already set in map`},
		"duplicate as text":     {why: "kubectl keeps either, in no order", yaml: `{1: a, "1": b}`, wantErr: `has the key "1" twice`},
		"syntax":                {why: "the line helps", yaml: "a: 1\n---\nb: [\n", wantErr: "document 2: line 3:"},
		"tab":                   {why: "the likeliest mistake", yaml: "a:\n\tb: 1\n", wantErr: "line 2: found character that cannot start any token"},
		"unsigned":              {why: "it doesn't fit", yaml: "a: {b: [0, 18446744073709551615]}", wantErr: "document 1: resource 1: a.b[1]: the number 18446744073709551615 does not fit 64 bits"},
		"too many digits":       {why: "the parser would round it in silence", yaml: "kind: K\napiVersion: v1\na: 99999999999999999999", wantErr: `document 1: resource 1 (v1 K ""): a: the number 99999999999999999999 does not fit`},
		"too many digits below": {why: "the parser would round it in silence", yaml: "a: -99999999999999999999", wantErr: "does not fit"},
		"NaN":                   {why: "JSON has none", yaml: "a: .nan", wantErr: "a: NaN is not a number"},
		"infinity":              {why: "JSON has none", yaml: "a: -.inf", wantErr: "a: -Inf is not a number"},
		"binary":                {why: "bytes are no text", yaml: "a: !!binary /w==", wantErr: "a: is binary"},
		"null key":              {why: "kubectl refuses it", yaml: "a: {null: 1}", wantErr: "a: has a null key"},
		"map key":               {why: "kubectl refuses it", yaml: "? {a: 1}\n: 2\n", wantErr: "invalid map key"},
		"self reference":        {why: "no package can contain itself", yaml: "a: &a [*a]", wantErr: "anchor 'a' value contains itself"},
		"self merge":            {why: "no package can contain itself", yaml: "a: &a\n  <<: *a\n", wantErr: "contains itself"},
		"unknown alias":         {why: "there is nothing to take", yaml: "a: *b", wantErr: "unknown anchor 'b' referenced"},
		"alias of before":       {why: "anchors end with their document", yaml: "a: &a 1\n---\nb: *a\n", wantErr: "document 2: unknown anchor"},
		"CBOR":                  {why: "the wrong format is the likeliest mistake", yaml: "\x81\xa1\x61a\x01", wantErr: "document 1:"},
		"invalid UTF-8":         {why: "text is UTF-8", yaml: "a: \xff", wantErr: "document 1:"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := krm.Decode("", []byte(tt.yaml), krm.Limits{})
			checkDecoded(t, tt.why, tt.want, got, tt.wantErr, err)
		})
	}
}

func TestYAML12ReadsOnlyTrueAndFalseAsBooleans(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		yaml    string
		want    krm.Package
		wantErr string
	}{
		"nothing":        {why: "as Decode"},
		"text":           {why: "1.2 knows none of them", yaml: "[{a: yes, b: no, c: on, d: off, e: y, f: N, g: YES, h: OFF}]", want: krm.Package{{"a": "yes", "b": "no", "c": "on", "d": "off", "e": "y", "f": "N", "g": "YES", "h": "OFF"}}},
		"last":           {why: "nothing comes after it", yaml: "a:\n- y", want: krm.Package{{"a": []any{"y"}}}},
		"keys":           {why: "keys are text too", yaml: "y: 1\nyes: {no: 2}", want: krm.Package{{"y": int64(1), "yes": map[string]any{"no": int64(2)}}}},
		"booleans":       {why: "these are", yaml: "a: true\nb: False\nc: y", want: krm.Package{{"a": true, "b": false, "c": "y"}}},
		"others":         {why: "all else is as ever", yaml: "a: yes\nb: [1, 1.5, ~, null, '', 2020-01-01, {}, []]\nc: |\n  no\n", want: krm.Package{{"a": "yes", "b": []any{int64(1), 1.5, nil, nil, "", "2020-01-01", map[string]any{}, []any{}}, "c": "no\n"}}},
		"alias":          {why: "ruamel.yaml writes them for repeated values", yaml: "a: &a {x: no}\nb: *a\nc: {<<: *a, x: on}\n", want: krm.Package{{"a": map[string]any{"x": "no"}, "b": map[string]any{"x": "no"}, "c": map[string]any{"x": "on"}}}},
		"quoted nulls":   {why: "quoted values are text", yaml: "a: n\nb: [\"null\", '~', \"\", null]\nc: \"null\"\n\"~\": '~'\n", want: krm.Package{{"a": "n", "b": []any{"null", "~", "", nil}, "c": "null", "~": "~"}}},
		"end marker":     {why: "ruamel.yaml writes it when told to", yaml: "%YAML 1.2\n---\na: off\n...\n", want: krm.Package{{"a": "off"}}},
		"duplicate":      {why: "as Decode", yaml: "a: yes\na: no\n", wantErr: "already set"},
		"nested":         {why: "errors inside are found", yaml: "x: [{a: yes, a: no}]\n", wantErr: "already set"},
		"map key":        {why: "as Decode", yaml: "? {a: y}\n: 2\n", wantErr: "cannot be parsed"},
		"self reference": {why: "as Decode", yaml: "b: yes\na: &a [*a]", wantErr: "document 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := krm.DecodeYAML12([]byte(test.yaml), krm.Limits{})
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v, %v; want the error %q: %s", got, err, test.wantErr, test.why)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("got %v, -want +got:\n%s%s", err, diff, test.why)
			}
		})
	}
	if _, err := krm.DecodeYAML12([]byte("a: yes"), krm.Limits{Bytes: 3}); !errors.Is(err, krm.ErrInvalid) {
		t.Errorf("got %v for too many bytes", err)
	}
	if _, err := krm.DecodeYAML12([]byte("a: [[[yes]]]"), krm.Limits{Depth: 3}); !errors.Is(err, krm.ErrInvalid) {
		t.Errorf("got %v for too deep a package", err)
	}
}

func TestYAMLAliasesAreCopied(t *testing.T) {
	t.Parallel()
	p, err := krm.Decode(krm.YAML, []byte("x: &x {a: [one]}\nz: *x\n"), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p[0].Set("changed", "x", "a")
	if got := p[0].Text("z", "a", "0"); got != "one" {
		t.Errorf("a change of one value changed the other to %q", got)
	}
}

// Values are decoded as by sigs.k8s.io/yaml, which kubectl uses.
func TestYAMLIsDecodedAsKubectlDoes(t *testing.T) {
	t.Parallel()
	values := []string{
		"yes", "Yes", "YES", "no", "on", "off", "y", "n", "Y", "true", "TRUE", "tRUE", `"yes"`, "'no'",
		"null", "~", "", "Null", "NULL", "nULL", `"null"`,
		"0", "-0", "+5", "007", "0o17", "0x1F", "0b101", "-0b101", "1_000", "0777", "08", "1__0",
		"1.5", "-1.5e3", ".5", "5.", "1e3", "1E-3", "1.2.3", "1_0.5", "0x", "+", "-", ".", "6.02e23", "e3",
		"12:30", "12:30:45", "190:20:30.15", "2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05", "2024-1-2", "2024-13-45",
		"100m", "1Gi", "10.0.0.0/24", "v1", "a b", "a:b", "<<", "=", "!foo x", "!!str 5", "!!str yes", `!!int "5"`, `!!float "5"`, "!!binary aGk=", "!!timestamp 2024-01-02",
		"[1, yes, 2024-01-02]", "{yes: 1, 2: 3, 1.5: x, null2: y, 2024-01-02: z}", "{true: a}", "{0x10: a}", "{1e3: a}", "{.inf: a}", "{.nan: x}",
		"|\n  text\n  more\n", ">-\n  folded\n  more\n\n", "|+\n  keep\n\n", `"\u00e9\x41\n"`, "'it''s'", "plain\n  over lines",
		"é", "日本", "\"\\U0001F600\"", "&a x", "!!bool yes", "!!bool x", "!!int x", "!!null x", "!!null ''",
	}
	for _, value := range values {
		document := "value: " + value + "\n"
		wantJSON, wantErr := yaml.YAMLToJSONStrict([]byte(document))
		got, err := krm.Decode(krm.YAML, []byte(document), krm.Limits{})
		if wantErr != nil || err != nil {
			if (wantErr == nil) != (err == nil) {
				t.Errorf("%q: error %v, kubectl's %v", value, err, wantErr)
			}
			continue
		}
		gotJSON, err := json.Marshal(got[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(wantJSON), string(gotJSON)); diff != "" {
			t.Errorf("%q: %s", value, diff)
		}
	}
}

// Each input is small, or refused because of its length, and must cost little.
func TestHostileYAMLCostsLittle(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for level := range 9 {
		from, to := string(rune('0'+level)), string(rune('1'+level))
		bomb.WriteString("a" + to + ": &a" + to + " [" + strings.TrimSuffix(strings.Repeat("*a"+from+", ", 10), ", ") + "]\n")
	}
	// The maximum number of references that the parser accepts, in each of many documents.
	small := "a: &a [" + strings.Repeat("x,", 500) + "]\nb: [" + strings.Repeat("*a,", 90) + "]\n---\n"
	tests := map[string]struct {
		why  string
		yaml string
		want string
	}{
		"alias bomb":         {why: "a billion laughs", yaml: bomb.String(), want: "document 1: document contains excessive aliasing"},
		"many alias bombs":   {why: "the parser's limit is for each document, ours for all", yaml: strings.Repeat(small, 15), want: "more than 400000 values"},
		"merge bomb":         {why: "merge keys are references too", yaml: strings.ReplaceAll(strings.ReplaceAll(bomb.String(), "[x, x, x, x, x, x, x, x, x, x]", "{k: [x, x, x, x]}"), "[*", "[<<: *"), want: "document 1:"},
		"nested flow":        {why: "recursion must end before the stack does", yaml: "a: " + strings.Repeat("[", 100_000), want: "exceeded max depth of 10000"},
		"nested flow maps":   {why: "recursion must end before the stack does", yaml: strings.Repeat("{a: ", 100_000), want: "exceeded max depth of 10000"},
		"nested block lists": {why: "recursion must end before the stack does", yaml: "a:\n" + strings.Repeat("- ", 100_000) + "x", want: "exceeded max depth of 10000"},
		"nested below":       {why: "deeper than any resource", yaml: "a: " + strings.Repeat("[", 201) + strings.Repeat("]", 201), want: "nested deeper than the limit of 200 levels"},
		"nested by alias":    {why: "deeper than any resource", yaml: "a: &a " + strings.Repeat("[", 150) + strings.Repeat("]", 150) + "\nb: " + strings.Repeat("[", 60) + "*a" + strings.Repeat("]", 60), want: "nested deeper"},
		"many small values":  {why: "refused before they take a hundredfold in memory", yaml: "a: [" + strings.Repeat("x,", 500_000) + "]", want: "more than 400000 values"},
		"many documents":     {why: "each costs work everywhere", yaml: strings.Repeat("a: 1\n---\n", 12_000), want: "document 10001: the package has more than 10000 resources"},
		"100 MB":             {why: "refused by its length alone", yaml: strings.Repeat(" ", 100<<20), want: "has 104857600 bytes, the limit is 67108864"},
		"long names":         {why: "an error is for people", yaml: "? " + strings.Repeat("k", 1<<20) + "\n: [.nan]", want: "…[0]: NaN"},
		"long key of a map":  {why: "an error is for people", yaml: "? [" + strings.Repeat("k,", 1<<17) + "]\n: 1", want: "invalid map key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := krm.Decode(krm.YAML, []byte(tt.yaml), krm.Limits{Values: 400_000, Resources: 10_000})
			if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q (%s)", err, tt.want, tt.why)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestRepeatedTextCountsAgainstTheLimit(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("z", 1000)
	sharing := "\x82\xa1\x61a\xd8\x1c\x79\x03\xe8" + text + "\xa1\x61b\x98\x64" + strings.Repeat("\xd8\x1d\x00", 100)
	tests := map[string]struct {
		why    string
		format krm.Format
		data   string
	}{
		"YAML":       {why: "a small document would become huge where it is written", format: krm.YAML, data: "a: &a " + text + "\nb: [*a" + strings.Repeat(", *a", 99) + "]\n"},
		"YAML, keys": {why: "keys are text too", format: krm.YAML, data: "a: &a {" + text + ": 1}\nb: [*a" + strings.Repeat(", *a", 99) + "]\n"},
		"CBOR":       {why: "it has references too", format: krm.CBOR, data: sharing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := krm.Decode(test.format, []byte(test.data), krm.Limits{Bytes: 60_000}); err != nil {
				t.Errorf("it is within the limit: %v", err)
			}
			_, err := krm.Decode(test.format, []byte(test.data), krm.Limits{Bytes: 40_000})
			if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), "more than 80000 bytes of text") {
				t.Errorf("error %v: %s", err, test.why)
			}
		})
	}
}

func TestPackagesBeyondTheLimitsAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		limits krm.Limits
		want   string
	}{
		"bytes":     {why: "of the input", limits: krm.Limits{Bytes: 10}, want: "limit is 10"},
		"depth":     {why: "of nesting", limits: krm.Limits{Depth: 1}, want: "limit of 1 levels"},
		"resources": {why: "in all documents", limits: krm.Limits{Resources: 1}, want: "more than 1 resources"},
		"values":    {why: "in all documents", limits: krm.Limits{Values: 4}, want: "more than 4 values"},
	}
	p := krm.Package{{"kind": "A", "x": map[string]any{"y": int64(1)}}, {"kind": "B"}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
				data, err := krm.Encode(format, p)
				if err != nil {
					t.Fatal(err)
				}
				_, err = krm.Decode(format, data, tt.limits)
				if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want %q (%s)", format, err, tt.want, tt.why)
				}
			}
		})
	}
}

// The contract requires that packages of 16 MiB are accepted.
func TestPackageOf16MiBIsDecoded(t *testing.T) {
	t.Parallel()
	var p krm.Package
	for range 3000 {
		p = append(p, krm.Resource{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "web"}},
			"data":     map[string]any{"text": strings.Repeat("a line: of text\n", 400)},
		})
	}
	for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
		data, err := krm.Encode(format, p)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) < 16<<20 {
			t.Fatalf("%s: only %d bytes", format, len(data))
		}
		got, err := krm.Decode(format, data, krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p, got) { // cmp is slow
			t.Errorf("%s: not the same package", format)
		}
	}
}
