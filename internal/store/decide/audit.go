package decide

import (
	"encoding/hex"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
)

// AuditRecord returns the audit record of a change that a caller makes, without its number, time and position.
func AuditRecord(caller audit.Caller, op tko.Op, before, after *record.Record) audit.Record {
	r := audit.Record{
		Caller: caller, Kind: string(after.Kind), ID: after.ID, Op: string(op), Site: after.Site, Template: after.Template,
		Revision: after.Revision, Why: after.Author.Why,
	}
	if r.Decision == "" {
		r.Decision = audit.Allow
	}
	switch op {
	case tko.OpWritten:
		r.Before, r.After, r.Approved = digestText(before.Digest), digestText(after.Digest), after.Approved
	case tko.OpDeleted:
		r.Before = digestText(before.Digest)
	case tko.OpStatus:
		var changed []string
		for _, now := range after.Conditions {
			if !hasStatus(before.Conditions, now) {
				changed = append(changed, now.Type+"="+now.Status)
			}
		}
		r.Status = strings.Join(changed, ",")
	}
	return r
}

func hasStatus(conditions []tko.Condition, c tko.Condition) bool {
	was := tko.FindCondition(conditions, c.Type)
	return was != nil && was.Status == c.Status && was.ObservedRevision == c.ObservedRevision
}

func digestText(d record.Digest) string {
	if d == (record.Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}
