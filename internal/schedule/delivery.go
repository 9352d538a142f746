package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of what the condition Delivered names.
const (
	namedUndelivered  = 5
	namedPlaceholders = 3
	maxNamed          = 200 // bytes of a name or path
)

// intentGroups are the groups of nephio.org whose resources are for TKO and its plugins, and
// never for sites. Those of plugins end with ".plugin.nephio.org".
var intentGroups = []string{"deployment.nephio.org", "topology.nephio.org", krm.MetadataGroup, "infra.nephio.org"}

// A delivery counts what of a deployment's package is delivered to its site.
type delivery struct {
	total, delivered int
	local            int      // for local tools
	intent           int      // for TKO and its plugins
	left             []string // what is left out although nothing else handles it, with the reason
	more             int      // further ones
	functions        int      // of pipelines, that were not run
	kptfiles         []string // with these functions
	placeholders     []string
}

// delivery returns the condition Delivered of a deployment that is scheduled. It is empty if
// all is delivered, and always was.
func (p plan) delivery(d tko.Deployment) report.Outcome {
	was := tko.FindCondition(d.Stamp.Conditions, tko.ConditionDelivered)
	scheduled := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
	of := p.count(d.Package)
	// Packages are searched for placeholders once, not in each reconciliation.
	if was != nil || scheduled == nil || scheduled.ObservedRevision != d.Stamp.Revision || scheduled.Status != tko.ConditionTrue {
		of.seekPlaceholders(d.Package)
	}
	text := of.String()
	switch {
	case of.isWhole() && was == nil:
		return report.Outcome{}
	case of.isWhole():
		return report.Outcome{Status: tko.ConditionTrue, Reason: tko.ReasonDelivered, Message: text}
	}
	return report.Outcome{Status: tko.ConditionFalse, Reason: tko.ReasonDeliveredPartly, Message: text}
}

func (p plan) count(pkg krm.Package) delivery {
	var of delivery
	for _, r := range pkg {
		of.functionsOf(r)
		if items, err := r.Items(); err == nil && len(items) > 0 && r.Annotation(krm.AnnotationLocal) != "true" {
			for _, item := range (krm.Package{r}).Deployable() {
				of.add(item, p.leaves(item))
			}
			continue
		}
		of.add(r, p.leaves(r))
	}
	return of
}

// leaves returns why no target of the site delivers a resource; "" if one does.
func (p plan) leaves(r krm.Resource) string {
	if slices.ContainsFunc(p.steps, func(s step) bool { return s.target == nil || s.place.Takes(r) }) {
		return ""
	}
	switch gvk := r.GVK(); {
	case gvk.Group == "workload.nephio.org" && gvk.Kind == "HelmChart":
		return "no target of the site installs charts"
	case r.IsLocal():
		return "its group stays here without " + krm.AnnotationDeploy + `: "true"`
	}
	return "no target of the site takes resources of its kind"
}

func (of *delivery) add(r krm.Resource, leaves string) {
	gvk := r.GVK()
	if gvk == krm.DeploymentGVK {
		return
	}
	of.total++
	switch {
	case r.Annotation(krm.AnnotationLocal) == "true":
		of.local++
	case slices.Contains(intentGroups, gvk.Group) || tko.IsPluginGroup(gvk.Group) || gvk.Orchestration() && r.IsPrepared():
		of.intent++
	case leaves == "":
		of.delivered++
	case len(of.left) < namedUndelivered:
		of.left = append(of.left, printable.Short(r.Identity().String(), maxNamed)+" ("+leaves+")")
	default:
		of.more++
	}
}

func (of *delivery) functionsOf(r krm.Resource) {
	if n := r.FunctionsNotRun(); n > 0 {
		of.functions += n
		of.kptfiles = append(of.kptfiles, printable.Short(fmt.Sprintf("%q", r.Name()), maxNamed))
	}
}

func (of *delivery) seekPlaceholders(pkg krm.Package) {
	for _, r := range pkg.Deployable() {
		if tko.IsCRD(r.GVK()) || r.GVK() == krm.DeploymentGVK {
			continue // descriptions may name placeholders
		}
		for _, path := range r.Placeholders(namedPlaceholders - len(of.placeholders)) {
			of.placeholders = append(of.placeholders, printable.Short(r.Identity().String()+" "+path, maxNamed))
		}
	}
}

func (of *delivery) isWhole() bool {
	return len(of.left)+of.functions+len(of.placeholders) == 0
}

// String returns the text of the condition.
func (of *delivery) String() string {
	parts := []string{fmt.Sprintf("delivered %d of %s", of.delivered, quantity(of.total, "resource"))}
	if of.functions > 0 {
		parts = append(parts, fmt.Sprintf("%s not run: annotate the Kptfile %s with %s: %s, or with %s if they have run elsewhere",
			quantity(of.functions, "pipeline function"), printable.Short(strings.Join(of.kptfiles, ", "), 2*maxNamed), krm.AnnotationPipeline, krm.PipelineRun, krm.PipelineSkip))
	}
	if len(of.left) > 0 {
		text := "not delivered: " + strings.Join(of.left, ", ")
		if of.more > 0 {
			text += fmt.Sprintf(", and %d more", of.more)
		}
		parts = append(parts, text)
	}
	if len(of.placeholders) > 0 {
		parts = append(parts, "placeholders that nothing has filled, such as "+strings.Join(of.placeholders, ", "))
	}
	if of.local > 0 {
		parts = append(parts, fmt.Sprintf("%s for local tools (%s)", quantity(of.local, "resource"), krm.AnnotationLocal))
	}
	if of.intent > 0 {
		parts = append(parts, quantity(of.intent, "resource")+" for TKO and its plugins")
	}
	return strings.Join(parts, "; ")
}

func quantity(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
