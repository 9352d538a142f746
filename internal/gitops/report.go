package gitops

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
)

// A source with [Spec.Forge] reports to the server of its repository, after each
// reconciliation and under its claim: the status of the revision's commit, with the end of
// what it began, and the plans of pull requests. Failures of reports don't fail the source.

// savedReports are what was reported.
type savedReports struct {
	// Wanted is the newest status of the revision; Posted is what the server has.
	Wanted savedStatus `json:"wanted,omitzero"`
	Posted savedStatus `json:"posted,omitzero"`
	// Plans are those of open pull requests, by their numbers.
	Plans map[string]savedPlan `json:"plans,omitempty"`
	// NotBefore is when the server is asked again, after Failures in a row; with Limited, the
	// server permits no request before.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Limited   bool      `json:"limited,omitempty"`
	Failures  int       `json:"failures,omitempty"`
}

// savedStatus is a status of a commit.
type savedStatus struct {
	Commit      string `json:"commit,omitempty"`
	State       string `json:"state,omitempty"`
	Description string `json:"description,omitempty"`
}

const (
	reportTimeout  = 2 * time.Minute // of one round
	reportFirst    = 30 * time.Second
	reportMost     = time.Hour // the largest pause after failures; each doubles it
	planContext    = "/plan"   // ends the context of the statuses of plans
	maxPlansOnce   = 10        // planned in one round
	maxPlansStored = 500       // pull requests of one source
)

// report reports what isn't reported yet, and saves that.
func (l *reconciliation) report(ctx context.Context) {
	if l.spec.Forge == nil || l.spec.Suspend {
		if l.spec.Forge == nil && l.state.Reports != nil {
			l.state.Reports = nil
			l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionReported)
			l.saveReports(ctx)
		}
		return
	}
	if l.state.Reports == nil {
		l.state.Reports = &savedReports{}
	}
	r := l.state.Reports
	if l.decided {
		if s, ok := statusOf(l.status); ok {
			r.Wanted = s
		}
	}
	if time.Now().Before(r.NotBefore) && (r.Limited || !l.enqueued) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reportTimeout, fmt.Errorf("the reports did not end within %s", reportTimeout))
	defer cancel()
	session, err := l.spec.Forge.Open(ctx)
	if err == nil {
		err = l.reportStatus(ctx, session)
		if limited := (*forge.LimitedError)(nil); !errors.As(err, &limited) {
			err = errors.Join(err, l.reportPlans(ctx, session))
		}
	}
	if errors.Is(err, errClaim) {
		return
	}
	l.reported(ctx, err)
	l.saveReports(ctx)
}

// saveReports saves the state. A failure is no more than logged: the next round finds what
// the server has.
func (l *reconciliation) saveReports(ctx context.Context) {
	if err := l.save(ctx); err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "what was reported could not be saved: it is checked at the server again", "err", err)
	}
}

// reported sets when to report again, and the condition.
func (l *reconciliation) reported(ctx context.Context, err error) {
	r := l.state.Reports
	if err == nil {
		r.NotBefore, r.Limited, r.Failures = time.Time{}, false, 0
		l.status.Conditions = tko.WithoutCondition(l.status.Conditions, tko.ConditionReported)
		return
	}
	limited := (*forge.LimitedError)(nil)
	r.Limited = errors.As(err, &limited)
	if r.Limited {
		r.NotBefore = limited.Until.UTC()
	} else {
		wait := min(reportFirst<<min(r.Failures, 10), reportMost)
		r.NotBefore, r.Failures = time.Now().Add(spread(wait)).UTC(), r.Failures+1
	}
	l.log.WarnContext(ctx, "the server of the repository doesn't accept reports", "err", err, "again", r.NotBefore)
	l.setCondition(tko.ConditionReported, tko.ConditionFalse, tko.SourceReasonReport, err.Error()+"; tried again after "+r.NotBefore.Format(time.RFC3339))
}

var commitOf = regexp.MustCompile(`^(?:(.+)@)?sha1:([0-9a-f]{40})$`)

// statusOf returns the status of the commit of a source's revision; false if it has none.
func statusOf(s tko.SourceStatus) (savedStatus, bool) {
	m := commitOf.FindStringSubmatch(s.Attempted)
	c := tko.FindCondition(s.Conditions, tko.ConditionReady)
	if m == nil || c == nil {
		return savedStatus{}, false
	}
	state := forge.Pending
	switch {
	case c.Status == tko.ConditionTrue && s.Applied == s.Attempted:
		state = forge.Success
	case c.Status != tko.ConditionFalse:
	default:
		switch c.Reason {
		case tko.SourceReasonApproval, tko.SourceReasonHeld, tko.SourceReasonRollout, tko.SourceReasonProgressing, tko.SourceReasonDependency:
		default:
			state = forge.Failure
		}
	}
	return savedStatus{Commit: m[2], State: state, Description: forge.Status{Description: c.Message}.Line().Description}, true
}

// reportStatus sets the status of the revision's commit. A commit whose end will never come,
// because another revision took its place, is cancelled.
func (l *reconciliation) reportStatus(ctx context.Context, session *forge.Session) error {
	r := l.state.Reports
	if r.Wanted == r.Posted || r.Wanted.Commit == "" {
		return nil
	}
	if old := r.Posted; old.Commit != "" && old.Commit != r.Wanted.Commit && old.State == forge.Pending {
		err := l.setStatus(ctx, session, savedStatus{old.Commit, forge.Cancelled, fmt.Sprintf("commit %.12s took its place", r.Wanted.Commit)})
		if err != nil {
			return err
		}
	}
	if err := l.setStatus(ctx, session, r.Wanted); err != nil {
		return err
	}
	r.Posted = r.Wanted
	return nil
}

// setStatus sets a status in the context of the source. One that the server refuses for good,
// as for a commit that a forced push removed, is only logged.
func (l *reconciliation) setStatus(ctx context.Context, session *forge.Session, s savedStatus) error {
	f := l.spec.Forge
	err := session.SetStatus(ctx, s.Commit, forge.Status{Context: f.Context(l.spec.Name), State: s.State, Description: s.Description, Target: f.Target()})
	if errors.Is(err, tko.ErrInvalid) {
		l.log.WarnContext(ctx, "the status of a commit was refused", "commit", s.Commit, "err", err)
		return nil
	}
	return err
}

// branchOf returns the branch of a revision; "" if it isn't of one.
func branchOf(revision string) string {
	m := commitOf.FindStringSubmatch(revision)
	if m == nil || strings.HasPrefix(m[1], "tags/") {
		return ""
	}
	return m[1]
}
