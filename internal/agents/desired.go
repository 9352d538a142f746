package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// An entry is an entity of what a site shall have: the site, whose ID is "", or a deployment.
type entry struct {
	digest   string // of the document
	pkg      string // digest of the package; "": the site keeps what it has of it
	document []byte // nil if it isn't known, only that the agent has it
}

// A desired state is what a site shall have.
type desired struct {
	cursor  int64
	entries map[string]entry
	missing int    // deployments that are not due
	hold    string // why nothing may change there; then there are no entries
	keep    bool   // nothing is removed: the store was restored from a backup
}

// desired determines what a site shall have now, with the rules of bundles.
func (s *Server) desired(ctx context.Context, id tko.SiteID, uid string) (d desired, err error) {
	select {
	case s.compute <- struct{}{}:
		defer func() { <-s.compute }()
	case <-ctx.Done():
		return d, context.Cause(ctx)
	}
	var hold bundle.Hold
	if d.cursor, err = s.backend.Position(ctx); err != nil { // before the site is read: what changes later gets a greater position
		return d, err
	}
	if hold.Stop, err = s.backend.SiteStop(ctx, id); err != nil {
		return d, err
	}
	site, err := s.backend.Site(ctx, id, 0)
	if deleted := tko.FindCondition(site.Stamp.Conditions, tko.ConditionDeleting); errors.Is(err, tko.ErrNotFound) || err == nil && (site.Stamp.UID != uid || deleted != nil && deleted.Status == tko.ConditionTrue) {
		d.hold = fmt.Sprintf("site %q was deleted: what runs there stays, until tko-agent is stopped and it is removed there", id)
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if hold.Freezes, err = s.backend.Freezes(ctx); err != nil {
		return d, err
	}
	if hold.Apart, err = s.backend.SiteHold(ctx, id); err != nil {
		return d, err
	}
	mode, err := s.holdOf(ctx, id)
	if err != nil {
		return d, err
	}
	d.keep = mode != ""
	_, agentErr := trigger.OfAgent(site.Package)
	switch reason := hold.Reason(site, time.Now()); {
	case reason != "":
		d.hold = reason
	case mode == tko.HoldAll:
		d.hold = "the server's store was restored from a backup: see tko hold list, and release the site with tko hold release"
	case site.AwaitedTemplate != "" && site.Template == "":
		d.hold = fmt.Sprintf("site %q waits for its template %q", id, site.AwaitedTemplate)
	case agentErr != nil:
		d.hold = agentErr.Error()
	}
	if d.hold != "" {
		return d, nil
	}
	return d, s.entries(ctx, site, &d)
}

// entries reads the entries of a site.
func (s *Server) entries(ctx context.Context, site tko.Site, d *desired) error {
	d.entries = map[string]entry{}
	row, err := bundle.SiteRow(site)
	if err == nil {
		err = d.add("", row)
	}
	if err != nil {
		return err
	}
	at := tko.DeploymentSelect{Sites: []string{tko.LiteralPattern(string(site.ID))}}
	for one, err := range s.backend.Deployments(ctx, at, tko.ListOptions{Packages: true}) {
		if err != nil {
			return err
		}
		if !bundle.IsDue(one) {
			d.missing++
		}
		row, ok, err := bundle.DeploymentRow(one)
		if err == nil && ok {
			err = d.add(string(one.ID), row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a row, without its package.
func (d *desired) add(id string, row bundle.Row) error {
	var e entry
	switch {
	case row.Site != nil:
		e.pkg, row.Site.Package = row.Site.Digest, nil
	case row.Deployment != nil:
		e.pkg, row.Deployment.Package = row.Deployment.Digest, nil
	}
	document, err := json.Marshal(row)
	if err != nil {
		return err
	}
	e.document, e.digest = document, bundle.DocumentDigest(document)
	d.entries[id] = e
	return nil
}

// digestOf returns the digest of all entries.
func digestOf(entries map[string]entry) string {
	sum := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		_, _ = io.WriteString(sum, id+"\x00"+entries[id].digest+"\n") // a hash doesn't fail
	}
	return hex.EncodeToString(sum.Sum(nil))
}
