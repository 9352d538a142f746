package content

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

func yaml(t *testing.T, text string) krm.Package {
	t.Helper()
	pkg, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// deploymentYAML is a Deployment resource.
func deploymentYAML(spec, annotations string) string {
	return `
apiVersion: deployment.nephio.org/v1alpha1
kind: Deployment
metadata: {name: deployment, annotations: {` + annotations + `}}
spec: {` + spec + `}
---
`
}

// facts are the fields of a draft other than its package.
type facts struct {
	Template, Site     string
	Prepared, Approved bool
	Approve            string
}

func factsOf(t *testing.T, d Draft) facts {
	t.Helper()
	resource, err := d.Package.Deployment()
	if err != nil || resource == nil {
		t.Fatalf("the package has no Deployment resource: %v", err)
	}
	state, err := krm.ReadDeployment(resource)
	if err != nil {
		t.Fatal(err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	in := facts{text(state.Template), text(state.Site), IsTrue(state.Prepared), IsTrue(state.Approved), state.Approve}
	out := facts{d.Template, d.Site, d.Prepared, d.Approved, state.Approve}
	if diff := cmp.Diff(out, in); diff != "" {
		t.Errorf("entity and resource are out of step (-entity +resource):\n%s", diff)
	}
	return out
}

func TestRequestOverridesTheStateOfThePackage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		base    string
		request tko.NewDeployment
		merge   string
		want    facts
		wantErr error
	}{
		"nothing": {
			why:  "every deployment's package holds a Deployment resource, whatever it was made from",
			want: facts{},
		},
		"what is asked for": {
			why:     "the request is written into the resource",
			request: tko.NewDeployment{Template: "t", Site: "s", Prepared: true, Approved: true},
			want:    facts{Template: "t", Site: "s", Prepared: true, Approved: true},
		},
		"the request wins": {
			why:     "a package taken from another deployment names that one's template and site",
			request: tko.NewDeployment{Template: "t", Site: "s"},
			merge:   deploymentYAML("templateId: other, siteId: another", ""),
			want:    facts{Template: "t", Site: "s"},
		},
		"the package speaks where the request is silent": {
			why:   "a deployment can be created from a package alone",
			merge: deploymentYAML("templateId: t, siteId: s", `nephio.org/prepared: "true", nephio.org/approved: "true"`),
			want:  facts{Template: "t", Site: "s", Prepared: true, Approved: true},
		},
		"the template's resource stays": {
			why:     "the Deployment resource of a template sets how its deployments are approved",
			base:    deploymentYAML("", "nephio.org/approve: Manual"),
			request: tko.NewDeployment{Template: "t"},
			want:    facts{Template: "t", Approve: "Manual"},
		},
		"two resources": {
			why:     "there is exactly one",
			base:    deploymentYAML("", ""),
			merge:   strings.Replace(deploymentYAML("", ""), "name: deployment", "name: other", 1),
			wantErr: tko.ErrInvalid,
		},
		"an annotation that is neither true nor false": {
			why:     "the state prepared would be ambiguous",
			merge:   deploymentYAML("", "nephio.org/prepared: maybe"),
			wantErr: tko.ErrInvalid,
		},
		"a resource without a kind": {
			why:     "it has no identity to be merged by",
			merge:   "apiVersion: v1\n",
			wantErr: tko.ErrInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.merge == "apiVersion: v1\n" {
				test.request.Merge = krm.Package{{"apiVersion": "v1"}}
			} else {
				test.request.Merge = yaml(t, test.merge)
			}
			d, err := NewDraft(yaml(t, test.base), test.request)
			if !errors.Is(err, test.wantErr) {
				t.Fatalf("error %v, want %v: %s", err, test.wantErr, test.why)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, factsOf(t, d)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestReferencesThatAPackageDoesNotChangeStay(t *testing.T) {
	t.Parallel()
	at := func(template, site string, prepared, approved bool) record.Record {
		return record.Record{Template: template, Site: site, Prepared: prepared, Approved: approved}
	}
	tests := map[string]struct {
		why            string
		start, current record.Record
		pkg            string
		want           facts
		wantErr        error
	}{
		"absent keeps": {
			why:   "a package without a site doesn't move the deployment",
			start: at("t", "s", true, true),
			pkg:   deploymentYAML("", `nephio.org/prepared: "true", nephio.org/approved: "true"`),
			want:  facts{Template: "t", Site: "s", Prepared: true, Approved: true},
		},
		"empty removes": {
			why:   "an empty ID removes the reference",
			start: at("t", "s", false, false),
			pkg:   deploymentYAML(`templateId: "", siteId: ""`, ""),
			want:  facts{},
		},
		"changed moves": {
			why:   "a package with another site moves the deployment",
			start: at("t", "s", false, false),
			pkg:   deploymentYAML("templateId: u, siteId: r", ""),
			want:  facts{Template: "u", Site: "r"},
		},
		"annotations taken off": {
			why:   "this makes the preparer prepare again",
			start: at("t", "s", true, true),
			pkg:   deploymentYAML("", ""),
			want:  facts{Template: "t", Site: "s"},
		},
		"prepared set to false": {
			why:   "the explicit same site; approved is the package's own",
			start: at("", "", true, true),
			pkg:   deploymentYAML("", `nephio.org/prepared: "false", nephio.org/approved: "true"`),
			want:  facts{Approved: true},
		},
		"no Deployment resource": {
			why:   "a missing Deployment resource is restored with all its annotations",
			start: at("t", "s", true, false),
			pkg:   "",
			want:  facts{Template: "t", Site: "s", Prepared: true, Approve: "Manual"},
		},
		"two Deployment resources": {
			why:     "two Deployment resources would be ambiguous",
			start:   at("t", "s", false, false),
			pkg:     deploymentYAML("", "") + strings.Replace(deploymentYAML("", ""), "name: deployment", "name: second", 1),
			wantErr: tko.ErrInvalid,
		},
		"the site was deleted meanwhile": {
			why:     "a modification can always end, without references to deleted entities",
			start:   at("t", "s", false, false),
			current: at("t", "", false, false),
			pkg:     deploymentYAML("templateId: t, siteId: s", ""),
			want:    facts{Template: "t"},
		},
		"the template was deleted meanwhile": {
			why:     "as with sites",
			start:   at("t", "s", false, false),
			current: at("", "s", false, false),
			pkg:     deploymentYAML("templateId: t, siteId: r", ""),
			want:    facts{Site: "r"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			current := test.current
			if current.Template == "" && current.Site == "" {
				current = test.start
			}
			before := yaml(t, deploymentYAML("templateId: t, siteId: s", "nephio.org/approve: Manual"))
			d, err := ChangedDraft(test.start, current, func() (krm.Package, error) { return before, nil }, yaml(t, test.pkg))
			if !errors.Is(err, test.wantErr) {
				t.Fatalf("error %v, want %v: %s", err, test.wantErr, test.why)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, factsOf(t, d)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestLaterMetadataWins(t *testing.T) {
	t.Parallel()
	pkg := yaml(t, "apiVersion: metadata.nephio.org/v1\nkind: NF\nmetadata: {name: a}\nspec: {version: gathered, vendor: gathered}")
	got, err := MetadataOf(pkg,
		map[string]string{"NF.version": "inherited", "NF.vendor": "inherited", "region": "inherited"},
		map[string]string{"NF.vendor": "passed"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"NF.version": "gathered", "NF.vendor": "passed", "region": "inherited"}
	if diff := cmp.Diff(want, got.Effective); diff != "" {
		t.Errorf("template < package < caller (-want +got):\n%s", diff)
	}

	bad := map[string]struct {
		why      string
		metadata map[string]string
	}{
		"empty key":     {"it could be neither shown nor selected", map[string]string{"": "x"}},
		"NUL in key":    {"PostgreSQL has no NUL", map[string]string{"a\x00": "x"}},
		"NUL in value":  {"PostgreSQL has no NUL", map[string]string{"a": "\x00"}},
		"invalid UTF-8": {"it is no text", map[string]string{"a": "\xff"}},
		"long key":      {"indexes have limits", map[string]string{strings.Repeat("k", 513): "x"}},
		"long value":    {"indexes have limits", map[string]string{"a": strings.Repeat("v", 64<<10+1)}},
	}
	for name, test := range bad {
		if _, err := MetadataOf(nil, nil, test.metadata); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: error %v, want an ErrInvalid: %s", name, err, test.why)
		}
	}
}
