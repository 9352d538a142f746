package notify

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A state is how far a subscription is, as it is stored.
type state struct {
	UID      string    `json:"uid"`
	Position int64     `json:"position"`    // the cursor: changes up to it are reported, or passed over
	At       time.Time `json:"at,omitzero"` // of the change there
	Audited  int64     `json:"audited"`     // likewise, of audit records
	Number   int64     `json:"number"`      // of the newest message
	Pending  *pending  `json:"pending,omitempty"`
	// Told is what was reported last, by what it is about.
	Told map[string]string `json:"told,omitempty"`

	Sent     int64     `json:"sent,omitempty"`
	LastSent time.Time `json:"lastSent,omitzero"`
	LastID   string    `json:"lastId,omitempty"`
	Silenced int       `json:"silenced,omitempty"` // events that the next message counts
	Echoes   int       `json:"echoes,omitempty"`   // likewise

	Failures  int       `json:"failures,omitempty"`
	Error     string    `json:"error,omitempty"`
	NextTry   time.Time `json:"nextTry,omitzero"`
	Since     time.Time `json:"since,omitzero"` // when the destination began to fail, or to accept
	Held      string    `json:"held,omitempty"` // why the owner may not read what is reported
	Problem   string    `json:"problem,omitempty"`
	ProblemAt time.Time `json:"problemAt,omitzero"`
	Gap       string    `json:"gap,omitempty"`
	GapAt     time.Time `json:"gapAt,omitzero"`
	Tried     time.Time `json:"tried,omitzero"` // when the state was saved
}

// A pending is a message that is fixed, and not yet accepted.
type pending struct {
	Number  int64     `json:"number"`
	UpTo    int64     `json:"upTo"`
	Audited int64     `json:"audited"`
	At      time.Time `json:"at,omitzero"`
	Oldest  time.Time `json:"oldest,omitzero"` // of its events
	Fixed   time.Time `json:"fixed"`
}

// stateOf returns the state of a subscription; doc is nil if there is none.
func stateOf(s tko.Subscription, doc []byte) state {
	var st state
	if doc != nil && json.Unmarshal(doc, &st) == nil && st.UID == s.UID {
		return st
	}
	return state{UID: s.UID, Position: s.Begin, Audited: s.BeginAudit, Since: s.Created}
}

// remember notes what was reported.
func (s *state) remember(told map[string]string) {
	if s.Told == nil {
		s.Told = map[string]string{}
	}
	for about, is := range told {
		_, known := s.Told[about]
		if !known && is != "" && len(s.Told) >= maxTold {
			s.forgetEnded()
		}
		switch {
		case is == "":
			delete(s.Told, about)
		case known || len(s.Told) < maxTold:
			s.Told[about] = is
		}
	}
}

// forgetEnded forgets the rollouts that have ended: of these, nothing new is to come, and there
// are ever more of them.
func (s *state) forgetEnded() {
	maps.DeleteFunc(s.Told, func(about, is string) bool {
		ended := strings.HasPrefix(is, "Done:") || strings.HasPrefix(is, "Undone:") || strings.HasPrefix(is, "Cancelled:")
		return ended && strings.HasPrefix(about, aboutRollout)
	})
}

// messageOf returns the message of a tally for a subscription.
func (t *tally) messageOf(subscription string) Message {
	m := t.message()
	m.Subscription = subscription
	m.Title, m.Text = m.title(), m.text()
	return m
}

// Status returns how far a subscription is, from its stored state.
func (*Notifier) Status(s tko.Subscription, doc []byte, head int64) tko.SubscriptionStatus {
	spec, err := Parse(s)
	suspended := err == nil && spec.Suspend
	return statusOf(stateOf(s, doc), suspended, head)
}

func (w *worker) status(head int64) tko.SubscriptionStatus {
	return statusOf(w.state, w.spec.Suspend, head)
}

// gapShown is how long the condition Complete is False after a message with a gap.
const gapShown = 24 * time.Hour

func statusOf(st state, suspended bool, head int64) tko.SubscriptionStatus {
	status := tko.SubscriptionStatus{Sent: st.Sent, LastSent: st.LastSent, LastMessage: st.LastID, Position: st.Position, Attempts: st.Failures, NextTry: st.NextTry}
	if p := st.Pending; p != nil {
		oldest := p.Oldest
		if oldest.IsZero() {
			oldest = p.Fixed
		}
		status.Lag = max(0, time.Since(oldest)).Round(time.Second)
	}
	accepts := tko.Condition{Type: tko.ConditionAccepted, Status: tko.ConditionTrue, Reason: tko.SubscriptionReasonSent, LastTransition: st.Since}
	switch {
	case suspended:
		accepts.Status, accepts.Reason, accepts.Message = tko.ConditionFalse, tko.SubscriptionReasonSuspended, "suspend is set: messages are sent later"
	case st.Held != "":
		accepts.Status, accepts.Reason, accepts.Message = tko.ConditionFalse, tko.SubscriptionReasonHeld, st.Held
	case st.Failures > 0:
		behind := ""
		if head > st.Position {
			behind = fmt.Sprintf("; %d positions of the log are not reported yet", head-st.Position)
		}
		accepts.Status, accepts.Reason = tko.ConditionFalse, tko.SubscriptionReasonFailed
		accepts.Message = fmt.Sprintf("%s (attempt %d since %s, the next at %s)%s", st.Error, st.Failures, st.Since.Format(time.RFC3339), st.NextTry.Format(time.RFC3339), behind)
	case st.Sent == 0:
		accepts.Status, accepts.Reason = tko.ConditionUnknown, tko.SubscriptionReasonWaiting
	}
	rendered := tko.Condition{Type: tko.ConditionRendered, Status: tko.ConditionTrue, Reason: tko.SubscriptionReasonRendered, LastTransition: st.ProblemAt}
	if st.Problem != "" {
		rendered.Status, rendered.Reason, rendered.Message = tko.ConditionFalse, tko.SubscriptionReasonTemplate, st.Problem
	}
	complete := tko.Condition{Type: tko.ConditionComplete, Status: tko.ConditionTrue, Reason: tko.SubscriptionReasonNoGap, LastTransition: st.GapAt}
	switch {
	case st.Gap == "":
	case time.Since(st.GapAt) < gapShown:
		complete.Status, complete.Reason, complete.Message = tko.ConditionFalse, tko.SubscriptionReasonGap, st.Gap
	default:
		complete.LastTransition = st.GapAt.Add(gapShown)
		complete.Message = fmt.Sprintf("the last gap was reported at %s: %s", st.GapAt.Format(time.RFC3339), st.Gap)
	}
	status.Conditions = []tko.Condition{accepts, complete, rendered}
	return status
}
