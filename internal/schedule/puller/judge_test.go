package puller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

var (
	same    = puller.Content{Presence: puller.Same, Revision: 7}
	earlier = puller.Content{Presence: puller.Earlier, Revision: 6}
	absent  = puller.Content{Presence: puller.Earlier}
	other   = puller.Content{Presence: puller.Other, Revision: 7}
)

func found(h puller.Health, why string) puller.Found {
	return puller.Found{Listed: true, Synced: true, Known: true, Health: h, Why: why}
}

var unread = puller.Found{Listed: true, Synced: true}

// A judgement is what is to be said of one deployment with one object.
type judgement struct {
	tool               puller.Tool // Flux if empty
	said               puller.Report
	object             puller.Found
	applied, attempted puller.Content
	want               string // status and reason
	says               string
}

// ready is the report of a tool that has applied a commit.
func ready(change func(*puller.Report)) puller.Report {
	r := puller.Report{Applied: []string{"main@sha1:aaa"}, Attempted: []string{"main@sha1:aaa"}, Health: puller.Healthy}
	if change != nil {
		change(&r)
	}
	return r
}

func failing(r *puller.Report) { r.Health, r.Message = puller.Unhealthy, "it broke" }

var judgements = map[string]judgement{
	"applied, and its object is healthy": {said: ready(nil), object: found(puller.Healthy, ""), applied: same, attempted: same, want: "True Healthy", says: "1 objects are healthy"},
	"applied, and its object starts":     {said: ready(nil), object: found(puller.InProgress, "starts"), applied: same, attempted: same, want: "False InProgress", says: "starts"},
	"applied, and its object fails":      {said: ready(nil), object: found(puller.Unhealthy, "crashes"), applied: same, attempted: same, want: "False Unhealthy", says: "crashes"},
	"not applied":                        {said: ready(nil), object: found(puller.Healthy, ""), applied: earlier, attempted: earlier, want: "False NotYetApplied", says: "has revision 6"},
	"never applied":                      {said: puller.Report{Health: puller.InProgress}, want: "False NotYetApplied", says: "no revision"},
	"a commit without the deployment":    {said: ready(nil), applied: absent, attempted: absent, want: "False NotYetApplied", says: "doesn't have the deployment"},
	"a commit of another branch":         {said: ready(nil), want: "False NotYetApplied", says: "not a revision of what TKO writes"},
	"superseded":                         {said: ready(nil), object: found(puller.Healthy, ""), applied: other, attempted: other, want: "False Superseded", says: "another client"},
	"another kustomization's path":       {said: ready(nil), applied: same, attempted: same, want: "False NotYetApplied", says: "its path must be"},
	"suspended before it was applied": {
		said: ready(func(r *puller.Report) { r.Suspended = true }), applied: earlier, attempted: earlier, want: "Unknown PullSuspended", says: "resume",
	},
	"suspended after it was applied, and its object fails": {
		said: ready(func(r *puller.Report) { r.Suspended = true }), object: found(puller.Unhealthy, "crashes"), applied: same, attempted: same, want: "False Unhealthy",
	},
	"suspended, and only its status is known": {
		said: ready(func(r *puller.Report) { r.Suspended, r.Checks = true, true }), object: unread, applied: same, attempted: same, want: "Unknown PullSuspended",
	},
	"silent": {
		said: ready(func(r *puller.Report) { r.At = now.Add(-31 * time.Minute) }), object: found(puller.Healthy, ""), applied: same, attempted: same, want: "Unknown PullSilent", says: "31m",
	},
	"silent no longer than its interval explains": {
		said: ready(func(r *puller.Report) { r.At, r.Interval = now.Add(-31*time.Minute), 20*time.Minute }), object: found(puller.Healthy, ""), applied: same, attempted: same, want: "True Healthy",
	},
	"a generation that its controller has not seen": {
		said: ready(func(r *puller.Report) { r.Unobserved = true }), object: found(puller.Healthy, ""), applied: same, attempted: same, want: "False NotYetApplied", says: "generation",
	},
	"missing":     {said: puller.Report{Missing: true}, applied: same, want: "Unknown PullMissing", says: "doesn't exist"},
	"unreachable": {said: puller.Report{Unreachable: true, Problem: "time-out"}, object: found(puller.Healthy, ""), applied: same, want: "Unknown Unreachable", says: "time-out"},
	"not allowed": {said: puller.Report{Problem: "forbidden"}, object: found(puller.Healthy, ""), applied: same, want: "Unknown NotObserved", says: "forbidden"},
	"could not be built": {
		said: ready(failing), applied: earlier, attempted: same, want: "False Unhealthy", says: "it broke",
	},
	"applied by an attempt whose check failed, and this object is healthy": {
		said: ready(func(r *puller.Report) { failing(r); r.AttemptApplied, r.Checks = true, true }), object: found(puller.Healthy, ""), applied: earlier, attempted: same, want: "True Healthy",
	},
	"applied by an attempt whose check failed, and only that is known": {
		said: ready(func(r *puller.Report) { failing(r); r.AttemptApplied, r.Checks = true, true }), object: unread, applied: earlier, attempted: same, want: "False Unhealthy", says: "it broke",
	},
	"applied once, before an attempt with other content": {
		said: ready(failing), object: found(puller.Healthy, ""), applied: same, attempted: other, want: "False NotYetApplied", says: "has other content",
	},
	"applied to another cluster, and checked": {
		said: ready(func(r *puller.Report) { r.Elsewhere, r.Checks = true, true }), object: unread, applied: same, attempted: same, want: "True Healthy", says: "all that it applied",
	},
	"applied to another cluster, and not checked": {
		said: ready(func(r *puller.Report) { r.Elsewhere = true }), object: unread, applied: same, attempted: same, want: "Unknown HealthNotChecked", says: "spec.wait",
	},
	"an object that can't be read": {
		said: ready(nil), object: puller.Found{Listed: true, Synced: true, Why: "can't be read"}, applied: same, attempted: same, want: "Unknown HealthNotChecked", says: "can't be read",
	},
	"an object that Argo CD has not synchronized": {
		tool: puller.ArgoCD, said: ready(func(r *puller.Report) { r.Checks = true }), object: puller.Found{Listed: true, Known: true}, applied: same, attempted: earlier, want: "False NotYetApplied", says: "not yet as they are",
	},
	"an object that Argo CD could not apply": {
		tool: puller.ArgoCD, said: ready(failing), object: puller.Found{Listed: true, Known: true}, applied: same, attempted: same, want: "False Unhealthy", says: "it broke",
	},
	"one that Argo CD synchronized earlier": {
		tool: puller.ArgoCD, said: ready(func(r *puller.Report) { r.Health = puller.InProgress }), object: found(puller.Healthy, ""), applied: same, attempted: earlier, want: "True Healthy",
	},
	"an Application of unknown health": {
		tool: puller.ArgoCD, said: ready(func(r *puller.Report) { r.Health, r.Checks = "", true }), object: unread, applied: same, want: "Unknown HealthNotChecked",
	},
}

func TestDeploymentsAreJudgedByTheReportOfTheirTool(t *testing.T) {
	t.Parallel()
	for name, test := range judgements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := puller.Spec{Tool: puller.Flux, Namespace: "flux-system", Name: "lagos", Kubeconfig: trigger.KubeconfigRef{File: "hub"}}
			if test.tool != "" {
				s.Tool = test.tool
			}
			test.said.Objects = []puller.Found{test.object}
			q := puller.Question{Spec: s, Objects: []puller.Object{{Version: "v1", Kind: "ConfigMap", Name: "a"}}}
			got := test.said.Judge(s, q, puller.Commit{Objects: []int{0}, Applied: test.applied, Attempted: test.attempted}, now)
			if got.Status+" "+got.Reason != test.want || !strings.Contains(got.Message, test.says) {
				t.Errorf("got %s %s: %s\nwant %s: …%s…", got.Status, got.Reason, got.Message, test.want, test.says)
			}
		})
	}
}

// Each reason is that of a case, and only the reason of success is True: a reason that is added
// needs a case.
func TestAllReasonsAreJudged(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	for name, test := range judgements {
		status, reason, _ := strings.Cut(test.want, " ")
		reached[reason] = true
		if (status == tko.ConditionTrue) != (reason == trigger.ReasonHealthy) {
			t.Errorf("%s: %s", name, test.want)
		}
	}
	for _, reason := range puller.Reasons {
		if !reached[reason] {
			t.Errorf("no case has the reason %s", reason)
		}
	}
	for reason := range reached {
		if !slices.Contains(puller.Reasons, reason) {
			t.Errorf("%s is missing in puller.Reasons", reason)
		}
	}
}

// Whatever a tool reports, a deployment isn't healthy unless a commit with its content is
// applied, its object is listed, and the report is one of now.
func TestNothingIsHealthyThatIsNotKnown(t *testing.T) {
	t.Parallel()
	contents := []puller.Content{{}, absent, earlier, other, same}
	objects := []puller.Found{{}, unread, {Listed: true, Known: true, Health: puller.Healthy}, found(puller.Healthy, ""), found(puller.InProgress, "x"), found(puller.Unhealthy, "x")}
	n := 0
	for mask := range 1 << 9 {
		for _, health := range []puller.Health{"", puller.Healthy, puller.InProgress, puller.Unhealthy} {
			for _, applied := range contents {
				for _, attempted := range contents {
					for _, object := range objects {
						for _, tool := range []puller.Tool{puller.Flux, puller.ArgoCD} {
							bit := func(i int) bool { return mask&(1<<i) != 0 }
							r := puller.Report{
								Missing: bit(0), Suspended: bit(1), AttemptApplied: bit(2), Checks: bit(3), Elsewhere: bit(4), Unreachable: bit(5), Unobserved: bit(8),
								Applied: []string{"a"}, Attempted: []string{"b"}, Health: health, Objects: []puller.Found{object},
							}
							if bit(6) {
								r.At = now.Add(-time.Hour)
							}
							if r.Unreachable || bit(7) {
								r.Problem = "p"
							}
							q := puller.Question{Objects: []puller.Object{{Kind: "ConfigMap", Name: "a"}}}
							got := r.Judge(puller.Spec{Tool: tool}, q, puller.Commit{Objects: []int{0}, Applied: applied, Attempted: attempted}, now)
							n++
							if got.Status == "" || got.Reason == "" || got.Message == "" {
								t.Fatalf("%+v: %+v", r, got)
							}
							if got.Status != tko.ConditionTrue {
								continue
							}
							there := applied == same || r.AttemptApplied && attempted == same
							stale := !r.At.IsZero() && !r.Suspended
							if !there || r.Missing || r.Unobserved || r.Problem != "" || stale || !object.Listed || !object.Synced || object.Health == puller.Unhealthy || object.Health == puller.InProgress {
								t.Fatalf("%+v with %v, %v: %+v", r, applied, attempted, got)
							}
						}
					}
				}
			}
		}
	}
	if n < 100_000 {
		t.Errorf("only %d cases", n)
	}
}
