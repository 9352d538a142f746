package webapi_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// beyond is a position that JavaScript would round.
const beyond = 1<<62 + 1

// exactNumbers is the limit up to which JavaScript has each whole number.
const exactNumbers = 1 << 53

// enlarge makes each position in a value one that JavaScript would round.
func enlarge(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			if strings.HasSuffix(field.Name, "Position") && value.Kind() == reflect.Int64 {
				value.SetInt(beyond)
			} else if field.IsExported() {
				enlarge(value)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			enlarge(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			enlarge(v.Index(i))
		}
	default:
	}
}

// exact fails for a number that JavaScript rounds, and for a position that isn't a string.
func exact(t *testing.T, path string, value any) {
	t.Helper()
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil && (n > exactNumbers || n < -exactNumbers) {
			t.Errorf("%s is the number %s, which JavaScript rounds: use webapi.Position", path, value)
		}
	case map[string]any:
		for name, part := range value {
			if _, text := part.(string); !text && isPosition(name) {
				t.Errorf("%s.%s is %v, which is no string: use webapi.Position", path, name, part)
			}
			exact(t, path+"."+name, part)
		}
	case []any:
		for _, part := range value {
			exact(t, path+"[]", part)
		}
	}
}

func isPosition(name string) bool { return strings.HasSuffix(strings.ToLower(name), "position") }

func TestPositionsAreStringsInAllResponses(t *testing.T) {
	t.Parallel()
	types := webapi.ResponseTypes()
	found := 0
	for _, name := range slices.Sorted(maps.Keys(types)) {
		for _, f := range webapi.JSONFields(types[name]) {
			if !isPosition(f.Name) {
				continue
			}
			found++
			if f.Type != reflect.TypeFor[webapi.Position]() {
				t.Errorf("%s.%s is of the type %s: use webapi.Position", name, f.Name, f.Type)
			}
		}
	}
	if found < 15 {
		t.Errorf("%d fields are positions, want 15 at least: this test finds them by their names", found)
	}
	exact(t, "/api/about", decoded(t, get(t, &fake{}, io.Discard, http.MethodGet, "/api/about").Body.Bytes()))
	text, err := json.Marshal(struct{ P webapi.Position }{beyond})
	if want := `{"P":"4611686018427387905"}`; err != nil || string(text) != want {
		t.Errorf("a position is %s, %v, want %s", text, err, want)
	}
	var back struct{ P webapi.Position }
	if err := json.Unmarshal(text, &back); err != nil || back.P != beyond {
		t.Errorf("it is read as %d, %v", back.P, err)
	}
}

// computes matches arithmetic with a position, and comparisons of two texts, which aren't in the order of positions.
var computes = regexp.MustCompile(`(Number|parseInt|parseFloat|Math\.\w+)\([^()]*[pP]osition|[pP]osition\)? ([-+*/%]|[<>]=?) [\w(]|[\w)\]] ([-+*/%]|[<>]=?) [\w.?!]*[pP]osition\b|[^\w}]\+[\w.?!]*[pP]osition\b`)

// tsc refuses most arithmetic with strings, but neither Number(position) nor a < b.
func TestTheDashboardDoesNotComputeWithPositions(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]bool{
		"Number(moment.position)": true, "kept.newestPosition - kept.oldestPosition": true, "if (position > newest) tell()": true, "if (newest < data.position) tell()": true,
		"x = +position": true, "Math.max(1, a.position)": true, "BigInt(position)": false, "`after=${position}`": false, "data-position={feed.position} x": false, "position = '-1'": false,
		"position: next.position, complete": false, "old.position === position": false, "(position: string) => x": false, "data.position ?? position": false, "position?: string": false,
	} {
		if got := computes.MatchString(text); got != wrong {
			t.Errorf("%q is arithmetic: %t, want %t", text, got, wrong)
		}
	}
	files, err := filepath.Glob("../../web/src/*.ts*")
	if err != nil || len(files) < 10 {
		t.Fatalf("there are %d files of the dashboard, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "// ")
			if found := computes.FindString(code); found != "" && filepath.Base(file) != "schema.ts" {
				t.Errorf("%s:%d computes with a position: %q: compare with isAfter, and take times and counts from the server", file, n+1, found)
			}
		}
	}
}

func TestTheTimeOfAPositionIsFromTheLog(t *testing.T) {
	t.Parallel()
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	changes := []tko.Change{{Position: 10, Time: at(1000)}, {Position: beyond, Time: at(9000)}}
	tests := map[string]struct {
		why  string
		asOf string
		gone bool
		want int64
	}{
		"of a change":       {why: "positions are no measure of time", asOf: "10", want: 1000},
		"of the newest one": {why: "it is not rounded", asOf: "4611686018427387905", want: 9000},
		"between changes":   {why: "until the next change all is as of the position", asOf: "11", want: 8999},
		"after the newest":  {why: "there is no such moment", asOf: "4611686018427387906", want: 0},
		"before the oldest": {why: "it isn't retained", asOf: "4", want: 0},
		"removed meanwhile": {why: "the log began later when it was read", asOf: "10", gone: true, want: 0},
	}
	for name, test := range tests {
		f := &workFake{head: beyond, oldest: 5, liveFake: liveFake{changes: changes}}
		if test.gone {
			f.changes, f.failure = nil, tko.Errorf(tko.ErrGone, "no longer retained")
		}
		if got := momentOf(t, f, test.asOf); got != test.want {
			t.Errorf("%s: asOf=%s is at %d ms, want %d: %s", name, test.asOf, got, test.want, test.why)
		}
	}
}

func momentOf(t *testing.T, f *workFake, asOf string) int64 {
	t.Helper()
	var moment struct{ AsOfTimestamp int64 }
	if code := call(t, workHandler(f), "GET", "/api/v1/retention?asOf="+asOf, "", &moment); code != http.StatusOK {
		t.Fatalf("asOf=%s: status %d", asOf, code)
	}
	return moment.AsOfTimestamp
}
