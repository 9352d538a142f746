package chart_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/krm"
)

func TestSourcesAreMergedInOrderBelowParameters(t *testing.T) {
	t.Parallel()
	d := chart.NewDeployer(chart.Options{})
	contents := map[chart.Source]map[string]any{
		{"ConfigMap", "plain"}:  {"data": map[string]any{"values.yaml": "a: {x: 1, z: 1}\nb: plain"}},
		{"Secret", "secret"}:    {"data": map[string]any{"pass": "aHVudGVyMg==", "bad": "?"}},
		{"ConfigMap", "binary"}: {"binaryData": map[string]any{"values.yaml": "Yjogb3RoZXI="}},
		{"ConfigMap", "large"}:  {"data": map[string]any{"values.yaml": "a: " + strings.Repeat("x", 600_000)}},
	}
	find := func(s chart.Source) (map[string]any, error) {
		if s.Name == "unreadable" {
			return nil, errors.New("forbidden")
		}
		return contents[s], nil
	}
	tests := map[string]struct {
		why, from string
		want      map[string]any // of values
		invalid   bool
		wantErr   string
	}{
		"all": {
			why:  "the last one wins, and parameters win over all",
			from: "[{kind: ConfigMap, name: plain}, {kind: ConfigMap, name: binary}, {kind: Secret, name: secret, valuesKey: pass, targetPath: a.pass}, {kind: Secret, name: none, optional: true}]",
			want: map[string]any{"a": map[string]any{"x": int64(1), "z": int64(2), "pass": "hunter2"}, "b": "other"},
		},
		"missing":    {why: "it may come", from: "[{kind: Secret, name: none}]", wantErr: `spec.valuesFrom[0]: Secret "n/none", key "values.yaml": it is neither in the packages`},
		"unreadable": {why: "a right may be missing", from: "[{kind: ConfigMap, name: plain}, {kind: Secret, name: unreadable, optional: true}]", wantErr: `spec.valuesFrom[1]: Secret "n/unreadable", key "values.yaml": forbidden`},
		"no key":     {why: "optional is for the object", from: "[{kind: ConfigMap, name: plain, valuesKey: other, optional: true}]", wantErr: `key "other": it has no such key`},
		"no base64":  {why: "the API server refuses it", from: "[{kind: Secret, name: secret, valuesKey: bad}]", wantErr: `key "bad": it is not base64`},
		"no map":     {why: "it is no error of the package", from: "[{kind: Secret, name: secret, valuesKey: pass}]", wantErr: "it is not a map in YAML"},
		"too much":   {why: "the package names too much", from: "[{kind: ConfigMap, name: large}, {kind: ConfigMap, name: large}]", wantErr: "more than 1024 KiB", invalid: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := must(t, "{chart: c, repository: 'https://example.com', parameters: {a.z: 2}, valuesFrom: "+test.from+"}")
			digest, err := d.Resolve(c, "n", find)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, tko.ErrInvalid) != test.invalid || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, c.Spec()["values"]); diff != "" || err != nil || digest != "" {
				t.Errorf("%s: %v %q %s", test.why, err, digest, diff)
			}
			if got := c.Secrets().Show("hunter2, other"); got != krm.Redacted+", other" {
				t.Errorf("only values of Secrets are hidden: %s", got)
			}
		})
	}
}

func TestChartsOfNoOriginAreNamed(t *testing.T) {
	t.Parallel()
	d := chart.NewDeployer(chart.Options{})
	if _, err := d.Resolve(must(t, "{chart: c}"), "n", nil); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "no folder of charts") {
		t.Error(err)
	}
	folder := chart.NewDeployer(chart.Options{Folder: t.TempDir()})
	if _, err := folder.Resolve(must(t, "{chart: c}"), "n", nil); err == nil || errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `"c" in the folder of charts`) {
		t.Errorf("a chart that may come: %v", err)
	}
}
