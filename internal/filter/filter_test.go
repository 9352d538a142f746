package filter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestLinesQueriesAndCommandsSelectTheSame(t *testing.T) {
	tests := map[string]struct {
		kind          tko.Kind
		line, command string
		want          tko.DeploymentSelect
	}{
		"patterns": {
			tko.KindDeployment, "template-id=workload/** site-metadata=region=north", "tko deployment list --template-id 'workload/**' --site-metadata region=north",
			tko.DeploymentSelect{Templates: []string{"workload/**"}, SiteMetadata: map[string]string{"region": "north"}},
		},
		"a flag":  {tko.KindDeployment, "prepared=false", "tko deployment list --prepared=false", tko.DeploymentSelect{Prepared: new(bool)}},
		"a space": {tko.KindDeployment, `metadata="owner=Ada Lovelace"`, "tko deployment list --metadata 'owner=Ada Lovelace'", tko.DeploymentSelect{Metadata: map[string]string{"owner": "Ada Lovelace"}}},
		"a quote": {tko.KindDeployment, "site-id=it's", `tko deployment list --site-id 'it'\''s'`, tko.DeploymentSelect{Sites: []string{"it's"}}},
		"a condition": {
			tko.KindDeployment, "condition=Healthy=False", "tko deployment list --condition Healthy=False",
			tko.DeploymentSelect{Conditions: []tko.ConditionSelect{{Type: "Healthy", Status: tko.ConditionFalse}}},
		},
		"nothing": {tko.KindDeployment, "", "tko deployment list", tko.DeploymentSelect{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			query, err := Query(test.line)
			if err != nil {
				t.Fatal(err)
			}
			f, err := Parse(test.kind, query)
			if err != nil {
				t.Fatal(err)
			}
			if got := Line(test.kind, query); got != test.line {
				t.Errorf("the line %q returns as %q", test.line, got)
			}
			if got := f.Command(); got != test.command {
				t.Errorf("the command is %q, want %q", got, test.command)
			}
			if diff := cmp.Diff(test.want, f.Deployments()); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
			if f.IsEmpty() != (test.line == "") {
				t.Errorf("IsEmpty is %v", f.IsEmpty())
			}
		})
	}
}

func TestWrongLinesAreRefused(t *testing.T) {
	for _, line := range []string{"north", "site-id=", `site-id=""`, "=x", `"`, "sit-id=x", "prepared=perhaps", "metadata=region", "parent=a parent=b", "condition=Healthy=Perhaps"} {
		query, err := Query(line)
		if err == nil {
			_, err = Parse(tko.KindDeployment, query)
		}
		if err == nil {
			t.Errorf("the line %q was accepted", line)
		}
	}
}
