package validate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLiftedSchemasRequireNothing(t *testing.T) {
	tests := map[string]struct {
		why, schema, want string
	}{
		"required":            {"nothing is missing from a part", `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, `{"type":["object","null"],"properties":{"a":{"type":["string","null"]}}}`},
		"a property so named": {"properties are names, not keywords", `{"properties":{"required":{"type":"array"},"oneOf":{"enum":["x"]}}}`, `{"properties":{"required":{"type":["array","null"]},"oneOf":{"enum":["x",null]}}}`},
		"oneOf":               {"alternatives that differ only in required properties become one", `{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"anyOf":[{},{}]}`},
		"oneOf and anyOf":     {"neither is lost", `{"oneOf":[{"type":"string"}],"anyOf":[{"type":"null"}],"allOf":[{"required":["a"]}]}`, `{"allOf":[{},{"anyOf":[{"type":["string","null"]}]}],"anyOf":[{"type":["null","null"]}]}`},
		"not":                 {"what excludes a property still does", `{"not":{"required":["a"]}}`, `{"not":{"required":["a"]}}`},
		"dependencies":        {"a property that asks for another one may wait for it", `{"dependencies":{"a":["b"],"c":{"required":["d"]}},"dependentRequired":{"a":["b"]}}`, `{"dependencies":{"c":{}}}`},
		"lists":               {"the items of lists are parts too", `{"items":[{"required":["a"]}],"additionalItems":false,"additionalProperties":{"required":["a"]}}`, `{"items":[{}],"additionalItems":false,"additionalProperties":{}}`},
		"no schema":           {"a broken schema is not for us to mend", `{"properties":5,"allOf":[3],"type":7,"enum":"x"}`, `{"properties":5,"allOf":[3],"type":7,"enum":"x"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var schema, want any
			if err := json.Unmarshal([]byte(test.schema), &schema); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, relax(schema)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestDurationsOfKubernetesAndJSONSchemaAreValid(t *testing.T) {
	for text, want := range map[string]bool{
		"1h30m": true, "5s": true, "-1.5h": true, "3 days": true, "1w": true, "PT1H30M": true, "P1Y2M3DT4H": true, "P2W": true,
		"": false, "soon": false, "P": false, "PT": false, "P1DT": false, "5": false, "0": true,
	} {
		if got := checkDuration(text) == nil; got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
	if err := checkDuration(5); err != nil {
		t.Errorf("the format refused a number: %v, want that left to the type", err)
	}
}
