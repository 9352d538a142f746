package tko

import (
	"strings"
	"time"
)

// ReasonReported is the reason of conditions that the report of an agent states of a revision: see
// [ReportedCondition].
const ReasonReported = "ReportedByBundle"

const (
	reportedPrefix = "reported by a bundle at "
	agentPrefix    = "reported by its agent at "
	reportedTime   = "2006-01-02T15:04:05.000Z"
)

// ReportedCondition returns a condition as it is written from the report of an agent that is never
// connected: it states of which time it is.
func ReportedCondition(c Condition, at time.Time) Condition {
	c.Message, c.Reason = reportedMessage(reportedPrefix, at, c.Reason, c.Message), ReasonReported
	return c
}

// AgentCondition returns a condition as it is written from the report of an agent that is
// connected: the reason is the agent's, and the message states since when it reports the same.
func AgentCondition(c Condition, at time.Time) Condition {
	c.Message = reportedMessage(agentPrefix, at, c.Message)
	return c
}

// reportedMessage returns the texts that aren't empty, after the time of their report.
func reportedMessage(prefix string, at time.Time, texts ...string) string {
	all := []string{prefix + at.UTC().Format(reportedTime)}
	for _, text := range texts {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ": ")
}

// ReportedAt returns the time of the report that a condition is from, in milliseconds; zero if it
// isn't from one.
func ReportedAt(c *Condition) time.Time {
	if c == nil {
		return time.Time{}
	}
	prefix := agentPrefix
	if c.Reason == ReasonReported {
		prefix = reportedPrefix
	}
	at, _, ok := cutReport(c.Message, prefix)
	if !ok {
		return time.Time{}
	}
	return at
}

// SameReport reports whether two conditions are from reports of a connected agent that state the
// same, whenever.
func SameReport(a, b Condition) bool {
	_, first, ok := cutReport(a.Message, agentPrefix)
	_, second, alike := cutReport(b.Message, agentPrefix)
	return ok && alike && first == second && a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedRevision == b.ObservedRevision
}

// cutReport returns the time of a report, and what follows it in the message.
func cutReport(message, prefix string) (at time.Time, text string, ok bool) {
	text, ok = strings.CutPrefix(message, prefix)
	if !ok || len(text) < len(reportedTime) {
		return time.Time{}, "", false
	}
	at, err := time.Parse(reportedTime, text[:len(reportedTime)])
	return at, text[len(reportedTime):], err == nil
}

// IsReported reports whether a condition is from the report of an agent about the revision that an
// entity has.
func (s Stamp) IsReported(condition string) bool {
	c := FindCondition(s.Conditions, condition)
	return c != nil && c.ObservedRevision == s.Revision && (c.Reason == ReasonReported || !ReportedAt(c).IsZero())
}
