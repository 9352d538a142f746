package krm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

func TestPackageHasAtMostOneDeploymentResource(t *testing.T) {
	t.Parallel()
	const other = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: deployment}}\n---\n"
	const head = "{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: "
	tests := map[string]struct {
		why     string
		yaml    string
		found   bool
		wantErr string
	}{
		"none":    {why: "it is added later", yaml: other},
		"one":     {why: "wherever it is", yaml: other + head + "deployment}}", found: true},
		"two":     {why: "which would count?", yaml: head + "deployment}}\n---\n" + head + "deployment}}", wantErr: "resource 2 (deployment.nephio.org/v1alpha1 Deployment \"deployment\"): is a second"},
		"another": {why: "also of another name", yaml: head + "deployment}}\n---\n" + head + "other}}", wantErr: "is a second Deployment resource, after resource 1"},
		"named":   {why: "it has one name", yaml: head + "other}}", wantErr: `metadata.name: must be "deployment"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := parse(t, tt.yaml).Deployment()
			if tt.wantErr != "" {
				if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q (%s)", err, tt.wantErr, tt.why)
				}
				return
			}
			if err != nil || (r != nil) != tt.found {
				t.Errorf("%v, %v (%s)", r, err, tt.why)
			}
		})
	}
}

func TestStateIsReadFromTheDeploymentResource(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	truth := func(b bool) *bool { return &b }
	tests := map[string]struct {
		why     string
		yaml    string
		want    krm.DeploymentState
		wantErr string
	}{
		"nothing":         {why: "an absent field is nil", yaml: "metadata: {name: deployment}"},
		"nulls":           {why: "nulls say nothing", yaml: "metadata: {name: deployment, annotations: null}\nspec: {templateId: null}"},
		"all":             {why: "all is read", yaml: "metadata: {annotations: {nephio.org/prepared: 'true', nephio.org/approved: 'false', nephio.org/approve: Manual}}\nspec: {templateId: t, siteId: s}", want: krm.DeploymentState{Template: text("t"), Site: text("s"), Prepared: truth(true), Approved: truth(false), Approve: krm.Manual}},
		"empty":           {why: "empty removes, which isn't absent", yaml: "spec: {siteId: ''}", want: krm.DeploymentState{Site: text("")}},
		"number":          {why: "an unquoted number is no ID", yaml: "spec: {siteId: 5}", wantErr: "spec.siteId: must be text, but is the number 5"},
		"spec is a list":  {why: "nothing can be read from it", yaml: "spec: []", wantErr: "spec: must be a map"},
		"unquoted true":   {why: "annotations are text", yaml: "metadata: {annotations: {nephio.org/prepared: true}}", wantErr: "must be text, but is true; put it in quotes"},
		"prepared maybe":  {why: "it is or it isn't", yaml: "metadata: {annotations: {nephio.org/prepared: maybe}}", wantErr: `nephio.org/prepared: must be one of false or true, but is "maybe"`},
		"approved empty":  {why: "that is no value", yaml: "metadata: {annotations: {nephio.org/approved: ''}}", wantErr: "must be one of false or true"},
		"approve never":   {why: "that is no value", yaml: "metadata: {annotations: {nephio.org/approve: Never}}", wantErr: "must be one of Default, Auto or Manual"},
		"metadata a text": {why: "nothing can be read from it", yaml: "metadata: x", wantErr: "metadata: must be a map, but is text"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := parse(t, "apiVersion: deployment.nephio.org/v1alpha1\nkind: Deployment\n"+tt.yaml)[0]
			got, err := krm.ReadDeployment(r)
			if tt.wantErr != "" {
				if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q (%s)", err, tt.wantErr, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (%s)", diff, tt.why)
			}
		})
	}
}

func TestDeploymentStateIsSetAndRemoved(t *testing.T) {
	t.Parallel()
	const ns = "{apiVersion: v1, kind: Namespace, metadata: {name: ns}}\n---\n"
	const head = "apiVersion: deployment.nephio.org/v1alpha1\nkind: Deployment\n"
	full := ns + head + "metadata: {name: deployment, annotations: {nephio.org/prepared: 'true', nephio.org/approved: 'true'}}\nspec: {templateId: t, siteId: s}"
	tests := map[string]struct {
		why                string
		have               string
		template, site     string
		prepared, approved bool
		want               string
		without            string
	}{
		"added":        {why: "it is added where it is missing", have: ns, template: "t", site: "s", prepared: true, approved: true, want: full, without: ns + head + "metadata: {name: deployment}"},
		"nothing":      {why: "an empty state removes the fields", have: ns, want: ns + head + "metadata: {name: deployment}", without: ns + head + "metadata: {name: deployment}"},
		"cleared":      {why: "empty and false remove", have: full, want: ns + head + "metadata: {name: deployment}", without: ns + head + "metadata: {name: deployment}"},
		"other fields": {why: "other fields stay, in their places", have: head + "metadata: {name: deployment, annotations: {nephio.org/prepared: 'false', x: y}}\nspec: {siteId: old, more: 1}\n---\n" + ns, site: "s", want: head + "metadata: {name: deployment, annotations: {x: y}}\nspec: {siteId: s, more: 1}\n---\n" + ns, without: head + "metadata: {name: deployment, annotations: {x: y}}\nspec: {more: 1}\n---\n" + ns},
		"the same":     {why: "an equal state changes nothing", have: full, template: "t", site: "s", prepared: true, approved: true, want: full, without: ns + head + "metadata: {name: deployment}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := parse(t, tt.have)
			was := have.Clone()
			got := have.WithDeployment(tt.template, tt.site, tt.prepared, tt.approved)
			if diff := cmp.Diff(parse(t, tt.want), got); diff != "" {
				t.Errorf("with: %s (%s)", diff, tt.why)
			}
			without := got.WithoutDeploymentState()
			if diff := cmp.Diff(parse(t, tt.without), without); diff != "" {
				t.Errorf("without: %s (%s)", diff, tt.why)
			}
			if diff := cmp.Diff(got, without.WithDeployment(tt.template, tt.site, tt.prepared, tt.approved)); diff != "" {
				t.Errorf("with, without and with again: %s (%s)", diff, tt.why)
			}
			if !cmp.Equal(was, have) {
				t.Errorf("the input was changed (%s)", tt.why)
			}
		})
	}
}

func TestWithoutDeploymentStateAddsNothing(t *testing.T) {
	t.Parallel()
	p := parse(t, "{apiVersion: v1, kind: Namespace}")
	if diff := cmp.Diff(p, p.WithoutDeploymentState()); diff != "" {
		t.Error(diff)
	}
}

func TestEqualPackagesHaveEqualDigests(t *testing.T) {
	t.Parallel()
	one, encoded, err := krm.DigestOf(parse(t, "{a: 1, bb: 2, c: {d: 1.5, e: []}}"))
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := krm.DigestOf(parse(t, "{c: {e: [], d: 1.5}, bb: 2, a: 1}"))
	if err != nil || one != two {
		t.Errorf("equal packages have digests %x and %x (%v)", one, two, err)
	}
	again, err := krm.Decode(krm.CBOR, encoded, krm.Limits{})
	if err != nil || len(again) != 1 {
		t.Errorf("%v, %v", again, err)
	}
	if three, _, _ := krm.DigestOf(parse(t, "{a: 1.0, bb: 2, c: {d: 1.5, e: []}}")); three == one {
		t.Error("1.0 and 1 have the same digest")
	}
}
