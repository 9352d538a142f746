package schedule

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

type fakeTarget struct{}

func (fakeTarget) Schedule(context.Context, krm.Resource, tko.Site, []tko.Deployment, []tko.DeploymentID) (report.Report, error) {
	return report.Report{}, nil
}

func verdictWith(status, reason, message, note string) report.Outcome {
	return report.Outcome{Status: status, Reason: reason, Message: message, Note: note}
}

func TestConditionsFollowFromTheResultsOfSteps(t *testing.T) {
	t.Parallel()
	trigger := krm.Resource{"apiVersion": "x.plugin.nephio.org/v1", "kind": "X", "metadata": map[string]any{"name": "x"}}
	step := step{trigger: trigger, place: place.Kind{Name: "test", ReportsHealth: true}, target: fakeTarget{}}
	good := report.State{Scheduled: verdictWith("True", "Applied", "2 objects", ""), Healthy: verdictWith("True", "Healthy", "2 objects", "")}
	bad := report.State{Scheduled: verdictWith("False", "Failed", "x is bad", ""), Healthy: verdictWith("False", "Unhealthy", "x is bad", "")}
	noted := report.State{Scheduled: verdictWith("True", "Applied", "2 objects", "corrected x")}
	of := func(a report.State) report.Report {
		r := report.Report{Deployments: map[tko.DeploymentID]report.State{"a": a}}
		r.Attest("a", 1)
		r.AttestSite(1)
		return r
	}
	signed := of(good)
	said := func(typ, status, reason, message string) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: reason, Message: message, ObservedRevision: 1}
	}
	whole := said("Scheduled", "True", "Scheduled", `by x.plugin.nephio.org/v1 X "x"`)
	settled := []tko.Condition{whole}
	down := errors.New("down")
	const unsaid = "no target of the site has reported revision 1: it was not asked, or did not say"
	tests := map[string]struct {
		why        string
		site       []tko.Condition // before
		deployment []tko.Condition // before
		unprepared bool
		unapproved bool
		held       bool // and the target keeps held deployments
		results    []result
		want       []tko.Condition // new of the deployment
		wantSite   []tko.Condition // new of the site
	}{
		"its own": {
			why: "a target that knows how a deployment is says so", results: []result{{report: of(good)}},
			want:     []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Healthy", "True", "Healthy", "2 objects")},
			wantSite: []tko.Condition{whole},
		},
		"bad of two": {
			why: "what isn't good counts", results: []result{{report: of(good)}, {report: of(bad)}},
			want:     []tko.Condition{said("Scheduled", "False", "Failed", "x is bad"), said("Healthy", "False", "Unhealthy", "x is bad")},
			wantSite: []tko.Condition{said("Scheduled", "True", "Scheduled", `by x.plugin.nephio.org/v1 X "x" and 1 more`)},
		},
		"one says nothing of it": {
			why: "it is there if both say so", results: []result{{report: of(good)}, {err: down}},
			want:     []tko.Condition{said("Scheduled", "False", "Failed", `x.plugin.nephio.org/v1 X "x": down`)},
			wantSite: []tko.Condition{said("Scheduled", "False", "Failed", `x.plugin.nephio.org/v1 X "x": down`)},
		},
		"fails with details": {
			why: "the error is for the loop, the details are for people", site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Healthy", "True", "Healthy", "2 objects")},
			results:    []result{{report: of(bad), err: down}},
			want:       []tko.Condition{said("Scheduled", "False", "Failed", "x is bad"), said("Healthy", "False", "Unhealthy", "x is bad")},
			wantSite:   []tko.Condition{said("Scheduled", "False", "Failed", `x.plugin.nephio.org/v1 X "x": down`)},
		},
		"away": {
			why: "applied objects stay scheduled, but their health is unknown", site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Healthy", "True", "Healthy", "2 objects")},
			results: []result{{err: down, report: report.Report{
				Site:        report.State{Healthy: verdictWith("Unknown", "Unreachable", "down", "")},
				Deployments: map[tko.DeploymentID]report.State{"a": {Healthy: verdictWith("Unknown", "Unreachable", "down", "")}},
			}}},
			want:     []tko.Condition{said("Healthy", "Unknown", "Unreachable", "down")},
			wantSite: []tko.Condition{said("Scheduled", "False", "Failed", `x.plugin.nephio.org/v1 X "x": down`), said("Healthy", "Unknown", "Unreachable", "down")},
		},
		"the site asks": {
			why: "a target's word on the site comes first", results: []result{{report: report.Report{
				Site: report.State{Scheduled: verdictWith("False", "WaitsForApproval", "may I?", "")}, Deployments: signed.Deployments, Receipts: signed.Receipts,
			}}},
			want:     []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Healthy", "True", "Healthy", "2 objects")},
			wantSite: []tko.Condition{said("Scheduled", "False", "WaitsForApproval", `x.plugin.nephio.org/v1 X "x": may I?`)},
		},
		"no receipt": {
			why: "a target that says nothing of a deployment has not been asked, or forgot it", results: []result{{}},
			want:     []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid)},
			wantSite: []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid)},
		},
		"a statement without a receipt": {
			why: "only a receipt makes it True", results: []result{{report: report.Report{Deployments: signed.Deployments, Site: report.State{Healthy: good.Healthy}}}},
			want:     []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid), said("Healthy", "Unknown", "NotAsked", unsaid)},
			wantSite: []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid), said("Healthy", "Unknown", "NotAsked", unsaid)},
		},
		"a receipt of an older revision": {
			why: "it says nothing of this one", results: []result{{report: report.Report{Deployments: signed.Deployments, Receipts: map[tko.DeploymentID]report.Receipt{"a": {Delivered: true, Healthy: true}}, SiteReceipt: signed.SiteReceipt}}},
			want:     []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid), said("Healthy", "Unknown", "NotAsked", unsaid)},
			wantSite: []tko.Condition{whole},
		},
		"one of two without a receipt": {
			why: "all must have said so", results: []result{{report: of(good)}, {report: report.Report{SiteReceipt: signed.SiteReceipt}}},
			want:     []tko.Condition{said("Scheduled", "Unknown", "NotAsked", unsaid)},
			wantSite: []tko.Condition{said("Scheduled", "True", "Scheduled", `by x.plugin.nephio.org/v1 X "x" and 1 more`)},
		},
		"removals wait while another deployment fails": {
			why: "who approves must see it", results: []result{{err: down, report: report.Report{
				Deployments: of(bad).Deployments, Removals: verdictWith("False", "WaitsForApproval", "3 of 4 objects", ""),
			}}},
			want:     []tko.Condition{said("Scheduled", "False", "Failed", "x is bad"), said("Healthy", "False", "Unhealthy", "x is bad")},
			wantSite: []tko.Condition{said("Scheduled", "False", "Failed", `x.plugin.nephio.org/v1 X "x": down`), said("RemovalsApproved", "False", "WaitsForApproval", "3 of 4 objects")},
		},
		"a note": {
			why: "the event is reported", site: settled, deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects")},
			results: []result{{report: of(noted)}}, want: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects; corrected x")},
		},
		"a note of before": {
			why: "it is kept until something else is to be said", site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects; corrected x"), said("Healthy", "True", "Healthy", "2 objects")},
			results:    []result{{report: of(good)}},
		},
		"fewer failures": {
			why: "only notes are kept", deployment: []tko.Condition{said("Scheduled", "False", "Failed", "x is bad; y is bad"), said("Healthy", "False", "Unhealthy", "x is bad")},
			results: []result{{report: of(bad)}}, want: []tko.Condition{said("Scheduled", "False", "Failed", "x is bad")}, wantSite: []tko.Condition{whole},
		},
		"kept": {
			why: "it is prepared again, and stays there meanwhile", unprepared: true, site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects")},
			results:    []result{{report: report.Report{Kept: []tko.DeploymentID{"a"}, SiteReceipt: signed.SiteReceipt}}},
		},
		"changed since it was approved": {
			why: "it stays there as it was approved, until that is approved", unapproved: true, site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Approved", "False", tko.ReasonApprovalWithdrawn, "approve it again")},
			held:       true,
		},
		"taken away": {
			why: "its health is no longer known", unapproved: true, site: settled,
			deployment: []tko.Condition{said("Scheduled", "True", "Applied", "2 objects"), said("Healthy", "True", "Healthy", "2 objects")},
			results:    []result{{report: report.Report{SiteReceipt: signed.SiteReceipt}}},
			want: []tko.Condition{
				said("Scheduled", "False", "Unscheduled", `is not prepared and approved: it was taken from site "s"`),
				said("Healthy", "Unknown", "Unscheduled", `is not prepared and approved: it was taken from site "s"`),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tko.Deployment{ID: "a", Prepared: !test.unprepared, Approved: !test.unapproved, Stamp: tko.Stamp{Revision: 1, Conditions: test.deployment}}
			seen := snapshot{site: tko.Site{ID: "s", Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1, Conditions: test.site}}, deployments: []tko.Deployment{d}}
			p := decide(seen, builtins(builtin{place.Kind{GVK: trigger.GVK(), Name: "test", ReportsHealth: true}, fakeTarget{}}))
			if held := len(p.held) > 0; held != (test.held || test.unprepared) {
				t.Errorf("%s: held is %v", test.why, p.held)
			}
			if test.held {
				test.results = []result{{report: report.Report{Kept: p.held, SiteReceipt: signed.SiteReceipt}}}
			}
			for len(p.steps) < len(test.results) {
				p.steps = append(p.steps, step)
			}
			var got, gotSite []tko.Condition
			for _, c := range conclude(seen, p, test.results) {
				if c.kind == tko.KindSite {
					gotSite = append(gotSite, c.condition)
				} else {
					got = append(got, c.condition)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.why, diff)
			}
			if diff := cmp.Diff(test.wantSite, gotSite); diff != "" {
				t.Errorf("%s: site: -want +got:\n%s", test.why, diff)
			}
		})
	}
}

func TestNextReconciliationIsTheEarliestOfItsTimes(t *testing.T) {
	t.Parallel()
	later := func(d time.Duration) result { return result{report: report.Report{Requeue: d}} }
	failed := result{err: errors.New("down"), report: report.Report{Requeue: time.Minute}}
	invalid := result{err: tko.Errorf(tko.ErrInvalid, "bad"), report: report.Report{Requeue: time.Hour}}
	tests := map[string]struct {
		why     string
		resync  time.Duration
		results []result
		want    work.Result
	}{
		"nothing":    {"it is done", 0, []result{{}}, work.Result{Outcome: tko.WorkDone}},
		"the first":  {"who wants to look first decides", time.Hour, []result{later(time.Minute), later(time.Second), {}}, work.Result{Outcome: tko.WorkLater, Retry: time.Second}},
		"everything": {"that is what resync is for", time.Minute, []result{{}}, work.Result{Outcome: tko.WorkLater, Retry: time.Minute}},
		"failed":     {"the target knows when it is worth a try", 0, []result{later(time.Second), failed}, work.Result{Outcome: tko.WorkFailed, Err: failed.err, Retry: time.Minute}},
		"invalid":    {"it is no failure, but the rest is looked after", 0, []result{invalid}, work.Result{Outcome: tko.WorkLater, Retry: time.Hour}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&Scheduler{options: Options{Resync: test.resync}}).next(plan{steps: []step{{}}}, test.results, 0)
			if got.Outcome != test.want.Outcome || got.Retry != test.want.Retry || !errors.Is(got.Err, test.want.Err) {
				t.Errorf("%s: got %v, want %v", test.why, got, test.want)
			}
		})
	}
}
