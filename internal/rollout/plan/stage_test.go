package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

func everything(krm.Resource) bool { return true }

func packageOf(t *testing.T, yaml string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Images are found wherever a resource has the specification of a pod, also in custom ones.
func TestImagesOfAllContainersAreFound(t *testing.T) {
	t.Parallel()
	p := packageOf(t, `
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: "a:1"}], initContainers: [{name: b, image: "b:1"}], ephemeralContainers: [{name: c, image: "c:1"}], volumes: [{name: v, image: {reference: "volume:1"}}]}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: "cron@sha256:0123"}, {name: b, image: "a:1"}, {name: none}]}}}}}}
---
{apiVersion: example.com/v1, kind: Custom, metadata: {name: a}, spec: {deep: [{template: {spec: {containers: [{name: a, image: "custom:1"}]}}}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {image: "text:1", containers: "x"}}
---
{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: a}, spec: {chart: "oci://r/c", version: "1.2.3@sha256:4567", parameters: {containers: [{image: "value:1"}]}}}
`)
	want := plan.Needs{Images: []string{"a:1", "b:1", "c:1", "cron@sha256:0123", "custom:1", "volume:1"}, Charts: []string{"oci://r/c 1.2.3@sha256:4567"}}
	if diff := cmp.Diff(want, plan.NeedsOf(p, everything)); diff != "" {
		t.Error(diff)
	}
	if got := plan.NeedsOf(p, func(r krm.Resource) bool { return r.GVK().Kind == "ConfigMap" }); len(got.Images)+len(got.Charts) != 0 {
		t.Errorf("without the others: %v", got)
	}
}

func draft(t *testing.T, site, before, after string) plan.Draft {
	t.Helper()
	d := plan.Draft{Row: plan.Row{Deployment: "d", Kind: plan.Change}, Site: tko.SiteID(site)}
	state := func(images string) *plan.State {
		if images == "" {
			return nil
		}
		var list []string
		for i, image := range strings.Fields(images) {
			list = append(list, fmt.Sprintf("{name: c%d, image: %q}", i, image))
		}
		return &plan.State{Deployment: tko.Deployment{Site: tko.SiteID(site), Package: packageOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: ["+strings.Join(list, ", ")+"]}}")}}
	}
	d.BeforeState, d.AfterState = state(before), state(after)
	return d
}

// What a deployment has already isn't staged, and what can't be staged is counted with the
// reason: never left out in silence.
func TestNewImagesAreStagedAndOthersAreCounted(t *testing.T) {
	t.Parallel()
	s := plan.NewStager()
	row := func(d plan.Draft, hinders, want string) {
		t.Helper()
		images, finding := s.Row(d, everything, hinders)
		if got := strings.Join(images, " "); got != want || finding != "" {
			t.Errorf("%s: %q (%s), want %q", d.Site, got, finding, want)
		}
	}
	row(draft(t, "one", "a:1 b:1", "a:2 b:1"), "", "a:2")
	row(draft(t, "two", "a:1", "a:2 c:1"), "", "a:2 c:1")
	row(draft(t, "two", "", "a:2"), "", "a:2") // created
	row(draft(t, "same", "a:1", "a:1"), "", "")
	moved := draft(t, "here", "d:1", "d:1")
	moved.Site = "there"
	row(moved, "", "d:1")
	row(draft(t, "git", "a:1", "a:2"), "they are written to git", "")
	row(draft(t, "", "a:1", "a:2"), "", "")
	gone := draft(t, "one", "a:1", "")
	gone.Kind = plan.Delete
	row(gone, "", "")
	unknown := draft(t, "one", "a:1", "a:1")
	unknown.Unknown = []string{"plugin p"}
	row(unknown, "", "")

	images, more := s.Images()
	if diff := cmp.Diff([]plan.Image{{Reference: "a:2", Kind: "image", Sites: 3}, {Reference: "c:1", Kind: "image", Sites: 1}, {Reference: "d:1", Kind: "image", Sites: 1}}, images); diff != "" || more != 0 {
		t.Error(diff, more)
	}
	text := strings.Join(s.Warnings(), "\n")
	for _, want := range []string{`at 1 site, such as "git", because they are written to git`, "1 deployment with new images has no site yet", "that preparation adds to 1 deployment"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestImagesAreBounded(t *testing.T) {
	t.Parallel()
	s := plan.NewStager()
	var many []string
	for i := range spec.MaxImages + 1 {
		many = append(many, fmt.Sprintf("i%03d:1", i))
	}
	if _, finding := s.Row(draft(t, "one", "", strings.Join(many, " ")), everything, ""); !strings.Contains(finding, "at most 100 of each deployment") {
		t.Errorf("too many: %q", finding)
	}
	if _, finding := s.Row(draft(t, "one", "", strings.Repeat("i", spec.MaxImage+1)), everything, ""); !strings.Contains(finding, "at most 500") {
		t.Errorf("too long: %q", finding)
	}
	if images, finding := s.Row(draft(t, "one", "", strings.Join(many[1:], " ")), everything, ""); len(images) != spec.MaxImages || finding != "" {
		t.Errorf("%d images, %q", len(images), finding)
	}
	listed, more := s.Images()
	if len(listed) != 50 || more != 50 || !strings.Contains(strings.Join(s.Warnings(), " "), "50 images and charts are not listed") {
		t.Errorf("%d listed, %d more, %v", len(listed), more, s.Warnings())
	}
}
