package record

import (
	"time"
)

// A Longer is a policy that retains the changes of the deployments that it selects longer
// than [Retention.Changes].
type Longer struct {
	Name string
	Keep time.Duration
	// Select selects deployments by IDs, Templates, Sites, Metadata, TemplateMetadata and
	// SiteMetadata; it has no other filters.
	Select Query
}

// Matches reports whether a policy selects a deployment with its template and site, which
// are zero if they don't exist.
func (l *Longer) Matches(deployment, template, site Record) bool {
	related := func(r Record, by Query) bool {
		return len(by.Metadata) == 0 || r.Revision != 0 && by.Matches(r)
	}
	return l.Select.Matches(deployment) &&
		related(template, Query{Kind: template.Kind, Scope: l.Select.Scope, Metadata: l.Select.TemplateMetadata}) &&
		related(site, Query{Kind: site.Kind, Scope: l.Select.Scope, Metadata: l.Select.SiteMetadata})
}

// LongerSize says what a policy retains that would have been removed without it.
type LongerSize struct {
	Policy               string
	Deployments, Changes int64
	Bytes                int64 // about, of the log with its indexes; 0 if the database can't tell
}
