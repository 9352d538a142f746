package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Hold is what may keep a site from being changed now.
type Hold struct {
	Stop    tko.SiteStop
	Freezes []tko.Freeze
	Apart   string // why a rollout keeps the site apart; "" if none does
}

// Reason says for users why nothing may change at a site at a time, and how that ends; "" if it may.
func (h Hold) Reason(site tko.Site, now time.Time) string {
	if h.Stop.Any() {
		return h.Stop.Reason
	}
	if f, frozen := tko.Frozen(h.Freezes, site.Metadata, now); frozen {
		return fmt.Sprintf("it is frozen until %s by %q (%s): wait, or end that with tko unfreeze %s", f.Until.UTC().Format(time.RFC3339), f.By.Who, f.Reason, f.ID)
	}
	if tko.Suspended(site.Metadata) {
		return tko.SuspendedText(tko.KindSite, string(site.ID))
	}
	return h.Apart
}

// IsDue reports whether the meta-scheduler would deliver a deployment to its site.
func IsDue(d tko.Deployment) bool { return d.Prepared && d.Approved && !tko.Suspended(d.Metadata) }

// Stays reports whether a site keeps what it has of a deployment that isn't due. What it has of
// others is removed.
func Stays(d tko.Deployment) bool { return tko.Suspended(d.Metadata) || d.StaysAtSite() }

// SiteRow returns the row of a site. ErrDenied if values of Secrets were withheld from the caller.
func SiteRow(site tko.Site) (Row, error) {
	content, err := contentOf(tko.KindSite, string(site.ID), site.Stamp.Revision, site.Package)
	return Row{Site: &Site{ID: site.ID, UID: site.Stamp.UID, Metadata: site.Metadata, Content: content}}, err
}

// DeploymentRow returns the row of a deployment: with its package if it is due, and otherwise one
// that is kept. ok is false if the site is to remove what it has of it. ErrDenied as of SiteRow.
func DeploymentRow(d tko.Deployment) (row Row, ok bool, err error) {
	of := &Deployment{ID: d.ID, UID: d.Stamp.UID, Parent: d.Parent, Template: d.Template, Metadata: d.Metadata, Replaced: d.Replaced}
	if !IsDue(d) {
		of.Kept, of.Revision = true, d.Stamp.Revision
		return Row{Deployment: of}, Stays(d), nil
	}
	of.Content, err = contentOf(tko.KindDeployment, string(d.ID), d.Stamp.Revision, d.Package)
	return Row{Deployment: of}, true, err
}

func contentOf(kind tko.Kind, id string, revision int64, pkg krm.Package) (Content, error) {
	content, err := NewContent(revision, pkg)
	if err == nil && krm.MayBeRedacted(content.Package) {
		err = tko.Errorf(tko.ErrDenied, "the package of %s %q has values of Secrets, for which you lack the right to read them (the role secret)", kind, id)
	}
	return content, err
}

// reportable are the conditions of reports that the server takes over.
var reportable = []string{tko.ConditionScheduled, tko.ConditionHealthy}

// Taken returns the conditions of a state that the server takes over, about its revision.
func (s State) Taken() []tko.Condition {
	var all []tko.Condition
	for _, typ := range reportable {
		for _, c := range s.Conditions {
			if c.Type == typ {
				all = append(all, tko.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, ObservedRevision: s.Revision})
			}
		}
	}
	return all
}

// Has reports whether a state has a condition of a type.
func (s State) Has(typ string) bool {
	return slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Type == typ })
}

// CheckState returns an ErrInvalid unless an agent of a site may report a state.
func CheckState(s State, site tko.SiteID) error { return checkState(s, site) }

// CheckBundle returns an ErrInvalid unless a row may be in a bundle for a site.
func (r Row) CheckBundle(site tko.SiteID) error { return r.check(TypeBundle, site) }

// DocumentDigest returns the digest of the JSON of a row without its package, as agents and servers
// compare them.
func DocumentDigest(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}
