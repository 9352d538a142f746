package expression_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/expression"
	"github.com/tko-orchestrator/tko/krm"
)

func TestParametersAreEvaluated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		spec    string
		want    map[string]any
		wantErr string
	}{
		"all": {
			why:  "expressions are evaluated, the rest is as it is",
			spec: `{chart: c, parameters: {a.b: "{{ get('', 'v1', 'Namespace').metadata.name + '-web' }}", count: 3, list: ["{{ 1 }}"], text: plain}}`,
			want: map[string]any{"a.b": "core-web", "count": int64(3), "list": []any{"{{ 1 }}"}, "text": "plain"},
		},
		"none":  {why: "a chart may have its defaults", spec: `{chart: c}`, want: map[string]any{}},
		"null":  {why: "as none", spec: `{chart: c, parameters: null}`, want: map[string]any{}},
		"a map": {why: "they have names", spec: `{parameters: [a]}`, wantErr: `workload.nephio.org/v1alpha1 HelmChart "web": spec.parameters must be a map`},
		"wrong ones": {
			why:     "all problems are reported, in the order of the names",
			spec:    `{parameters: {b: "{{ unknown }}", a: "{{ 1 + }}", c: "{{ 1 }}"}}`,
			wantErr: `workload.nephio.org/v1alpha1 HelmChart "web": spec.parameters.a: expression "1 +": it is not an expression: its syntax is wrong; spec.parameters.b: expression "unknown": `,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pkg, err := krm.Decode(krm.YAML, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: core}}\n---\n{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: web}, spec: "+test.spec+"}"), krm.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := expression.Parameters(pkg[1], pkg)
			if test.wantErr != "" {
				if !errors.Is(err, tko.ErrInvalid) || len(err.Error()) < len(test.wantErr) || err.Error()[:len(test.wantErr)] != test.wantErr {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v %s", test.why, err, diff)
			}
		})
	}
}
