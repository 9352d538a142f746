// Package criteria turns what users select into queries of records: patterns are parsed, checked and bounded once, for
// all lists, counts and changes of many.
package criteria

import (
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Templates returns the query for what is selected of templates. Errors: ErrInvalid, for patterns and
// cursors.
func Templates(sel tko.TemplateSelect, options tko.ListOptions) (record.Query, error) {
	p := Parser{}
	if err := CheckCount(len(sel.IDs) + len(sel.Metadata)); err != nil {
		return record.Query{}, err
	}
	query := p.Query(tko.KindTemplate, options)
	query.IDs = p.IDs("template ID", sel.IDs)
	query.Metadata = p.Metadata("metadata", sel.Metadata)
	plain(&query, filter.Templates, &sel)
	return query, p.Err
}

// Sites is like Templates, for sites.
func Sites(sel tko.SiteSelect, options tko.ListOptions) (record.Query, error) {
	p := Parser{}
	if err := CheckCount(len(sel.IDs) + len(sel.Templates) + len(sel.Metadata) + len(sel.Conditions)); err != nil {
		return record.Query{}, err
	}
	query := p.Query(tko.KindSite, options)
	query.IDs = p.IDs("site ID", sel.IDs)
	query.Templates = p.IDs("template ID", sel.Templates)
	query.Metadata = p.Metadata("metadata", sel.Metadata)
	query.Conditions = p.conditions(sel.Conditions)
	plain(&query, filter.Sites, &sel)
	return query, p.Err
}

// Deployments is like Templates, for deployments; their children and counts are not read.
func Deployments(sel tko.DeploymentSelect, options tko.ListOptions) (record.Query, error) {
	p := Parser{}
	if err := CheckCount(len(sel.IDs) + len(sel.Templates) + len(sel.Sites) + len(sel.Metadata) + len(sel.TemplateMetadata) + len(sel.SiteMetadata) + len(sel.Conditions)); err != nil {
		return record.Query{}, err
	}
	query := p.Query(tko.KindDeployment, options)
	query.Fields.Deployments, query.Fields.Counts = false, false
	query.Templates = p.IDs("template ID", sel.Templates)
	query.Sites = p.IDs("site ID", sel.Sites)
	query.Metadata = p.Metadata("metadata", sel.Metadata)
	query.TemplateMetadata = p.Metadata("template metadata", sel.TemplateMetadata)
	query.SiteMetadata = p.Metadata("site metadata", sel.SiteMetadata)
	query.Parent = string(sel.Parent)
	plain(&query, filter.Deployments, &sel)
	query.IDs = p.IDs("deployment ID", sel.IDs)
	query.Outdated = sel.Outdated
	query.Conditions = p.conditions(sel.Conditions)
	if sel.Parent != "" && !record.IsDeploymentID(sel.Parent) {
		query.Parent, query.Limit = "", 0 // no deployment has such a parent
	}
	return query, p.Err
}

// plain adds the filters that compare a column.
func plain[S any](q *record.Query, fields []filter.Field[S], sel *S) {
	for _, f := range fields {
		switch {
		case f.Column == "":
		case f.Flag != nil:
			if is := *f.Flag(sel); is != nil {
				if q.Is == nil {
					q.Is = map[string]bool{}
				}
				q.Is[f.Column] = *is
			}
		case f.Since != nil:
			if since := *f.Since(sel); !since.IsZero() {
				if q.Since == nil {
					q.Since = map[string]time.Time{}
				}
				q.Since[f.Column] = since
			}
		}
	}
}

// maxPatterns is the maximum number of patterns of one select: all of them are
// compared with each candidate, and become one statement of the database.
const maxPatterns = 100

// CheckCount returns an ErrInvalid for more patterns than a select may have.
func CheckCount(n int) error {
	if n > maxPatterns {
		return tko.Errorf(tko.ErrInvalid, "the select has %d patterns: use at most %d, or several requests", n, maxPatterns)
	}
	return nil
}

// A Parser parses patterns and retains the first error.
type Parser struct{ Err error }

// Query returns a query for a window of a kind.
func (p *Parser) Query(kind tko.Kind, options tko.ListOptions) record.Query {
	p.Err = CheckAfter(options.Window.After)
	return record.Query{
		Kind:   kind,
		After:  options.Window.After,
		Offset: options.Window.Offset,
		Limit:  LimitOf(options.Window),
		Fields: record.Fields{Package: options.Packages, Deployments: options.Deployments, Counts: options.Counts},
	}
}

// IDs parses patterns of IDs; what says of what, for errors.
func (p *Parser) IDs(what string, texts []string) []tko.Pattern {
	patterns, err := IDPatterns(what, texts)
	if p.Err == nil {
		p.Err = err
	}
	return patterns
}

func (p *Parser) conditions(selects []tko.ConditionSelect) []tko.ConditionSelect {
	for _, c := range selects {
		if err := c.Check(); err != nil && p.Err == nil {
			p.Err = err
		}
	}
	return selects
}

// Metadata parses patterns of values by key; what says of what, for errors.
func (p *Parser) Metadata(what string, texts map[string]string) map[string]tko.Pattern {
	patterns := make(map[string]tko.Pattern, len(texts))
	for key, text := range texts {
		pattern, err := tko.ParseValuePattern(text)
		if err == nil && (key == "" || !record.Storable(key) || !record.Storable(text)) {
			err = tko.Errorf(tko.ErrInvalid, "use a key, and UTF-8 without NUL")
		}
		if err != nil && p.Err == nil {
			p.Err = tko.Errorf(tko.ErrInvalid, "the %s pattern of the key %.40q: %w", what, key, err)
		}
		patterns[key] = pattern
	}
	return patterns
}

// IDPatterns parses patterns of IDs, without duplicates.
func IDPatterns(what string, texts []string) ([]tko.Pattern, error) {
	var patterns []tko.Pattern
	for i, text := range texts {
		if slices.Contains(texts[:i], text) {
			continue
		}
		pattern, err := tko.ParsePattern(text)
		if err == nil && !record.Storable(text) {
			err = tko.Errorf(tko.ErrInvalid, "the pattern %.40q is not plain text: use UTF-8 without NUL", text)
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", what, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// LimitOf returns a window's limit; negative: none.
func LimitOf(w tko.Window) int {
	if w.Max == nil {
		return -1
	}
	return max(*w.Max, -1)
}

// CheckAfter returns an ErrInvalid for a cursor that no entity can have.
func CheckAfter(after string) error {
	if !record.Storable(after) {
		return tko.Errorf(tko.ErrInvalid, "the cursor %.40q is not plain text: use the ID of the last entity of the page before", after)
	}
	return nil
}
