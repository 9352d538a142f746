package yaml12_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/yaml12"
)

func TestTextStaysWhatTheUserWrote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"region: NO":                       `{"region":"NO"}`,
		"n: 1":                             `{"n":1}`,
		"yes: no":                          `{"yes":"no"}`,
		"on: Off":                          `{"on":"Off"}`,
		"site: 0123":                       `{"site":"0123"}`,
		"site: 00":                         `{"site":"00"}`,
		"time: 12:30:45":                   `{"time":"12:30:45"}`,
		"n: 1_000":                         `{"n":"1_000"}`,
		"n: 0b11":                          `{"n":"0b11"}`,
		"day: 2026-01-02":                  `{"day":"2026-01-02"}`,
		"n: 0o17":                          `{"n":15}`,
		"n: 0x1f":                          `{"n":31}`,
		"n: -12":                           `{"n":-12}`,
		"n: +12":                           `{"n":12}`,
		"n: 1.5e3":                         `{"n":1500}`,
		"n: .5":                            `{"n":0.5}`,
		"n: 007.5":                         `{"n":"007.5"}`,
		"n: 12345678901234567890123":       `{"n":12345678901234567890123}`,
		"b: [true, False, TRUE, \"true\"]": `{"b":[true,false,true,"true"]}`,
		"e: [~, null, '', ]":               `{"e":[null,null,""]}`,
		"1: a\ntrue: b\n2.0: c":            `{"1":"a","true":"b","2.0":"c"}`,
		"s: !!str 12":                      `{"s":"12"}`,
		"a: &x {k: NO}\nb: *x\nc: {<<: *x, l: 1}":   `{"a":{"k":"NO"},"b":{"k":"NO"},"c":{"l":1,"k":"NO"}}`,
		"a: &x {k: 1}\nc: {k: 2, <<: [*x, {m: 3}]}": `{"a":{"k":1},"c":{"k":2,"m":3}}`,
		"# nothing":               `null`,
		"--- \na: 1\n...\n":       `{"a":1}`,
		"a: {}\nb: []":            `{"a":{},"b":[]}`,
		"{\"a\": \"\\u00e9\\n\"}": `{"a":"é\n"}`,
	} {
		got, err := yaml12.ToJSON([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q becomes %s (%v): want %s", text, got, err, want)
		}
	}
}

func TestWhatIsNotClearIsRefused(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += strings.ReplaceAll("C: &C [*P, *P, *P, *P, *P, *P, *P, *P, *P, *P]\n", "C", string(c))
		bomb = strings.ReplaceAll(bomb, "P", string(c-1))
	}
	for text, want := range map[string]string{
		"a: 1\na: 2":       `line 2: the key "a" is there twice`,
		"a: 1\n---\nb: 2":  "second document",
		"[a]: b":           "a key must be text",
		"a: !!binary aGk=": "the tag !!binary has no meaning",
		"a: 1e999":         "too large",
		"a: [":             "line",
		bomb:               "aliases make it more than",
		"a: &a [*a]":       "nested",
		"x: &x {<<: *x}":   "nested",
		strings.Repeat("[", 2000) + strings.Repeat("]", 2000): "nested",
	} {
		if got, err := yaml12.ToJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q becomes %.100s (%v): want an error with %q", text, got, err, want)
		}
	}
}

func TestFieldsTakeWhatTheirTypeNeeds(t *testing.T) {
	t.Parallel()
	type inner struct {
		Name string `json:"name"`
	}
	type settings struct {
		inner
		Ref    string            `json:"ref"`
		On     *bool             `json:"on"`
		Filter map[string]string `json:"filter"`
		List   []string          `json:"list"`
		Any    any               `json:"any"`
		Raw    json.RawMessage   `json:"raw"`
		N      int               `json:"n"`
	}
	var got settings
	text := "name: 2024\nref: 1.10\non: no\nfilter: {NO: 0123, b: true}\nlist: [1, NO, 1e3]\nany: {a: NO, b: 1.10}\nraw: {a: [no]}\nn: 3"
	if err := yaml12.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	no := false
	want := settings{inner{"2024"}, "1.10", &no, map[string]string{"NO": "0123", "b": "true"}, []string{"1", "NO", "1e3"}, map[string]any{"a": "NO", "b": 1.1}, json.RawMessage(`{"a":["no"]}`), 3}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"other: 1": `unknown field "other"`,
		"n: 012":   "field n is a text, and must be a number",
		"n: x":     "field n is a text, and must be a number",
		"list: a":  "field list is a text, and must be a list",
		"on: 1":    "boolean",
	} {
		if err := yaml12.UnmarshalStrict([]byte(text), new(settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v: want one with %q", text, err, want)
		}
	}
	if err := yaml12.Unmarshal([]byte("other: 1\nn: 2"), &got); err != nil || got.N != 2 {
		t.Errorf("n is %d, %v", got.N, err)
	}
	if err := yaml12.Unmarshal(nil, &got); err != nil {
		t.Error(err)
	}
}
