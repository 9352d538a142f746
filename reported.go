package tko

import (
	"fmt"
	"strings"
	"time"
)

// ReasonReported is the reason of conditions that the report of an agent states of a revision: see
// [ReportedCondition].
const ReasonReported = "ReportedByBundle"

const (
	reportedPrefix = "reported by a bundle at "
	reportedTime   = "2006-01-02T15:04:05.000Z"
)

// ReportedCondition returns a condition as it is written from the report of an agent that is never
// connected: it states of which time it is.
func ReportedCondition(c Condition, at time.Time) Condition {
	message := fmt.Sprintf("%s%s: %s", reportedPrefix, at.UTC().Format(reportedTime), c.Reason)
	if c.Message != "" {
		message += ": " + c.Message
	}
	c.Reason, c.Message = ReasonReported, message
	return c
}

// ReportedAt returns the time of the report that a condition is from, in milliseconds; zero if it
// isn't from one.
func ReportedAt(c *Condition) time.Time {
	if c == nil || c.Reason != ReasonReported {
		return time.Time{}
	}
	text, _ := strings.CutPrefix(c.Message, reportedPrefix)
	if len(text) < len(reportedTime) {
		return time.Time{}
	}
	at, err := time.Parse(reportedTime, text[:len(reportedTime)])
	if err != nil {
		return time.Time{}
	}
	return at
}

// IsReported reports whether a condition is from the report of an agent about the revision that an
// entity has.
func (s Stamp) IsReported(condition string) bool {
	c := FindCondition(s.Conditions, condition)
	return c != nil && c.Reason == ReasonReported && c.ObservedRevision == s.Revision
}
