package bundle

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Row is a row of a file: one of its fields is set.
type Row struct {
	Site       *Site       `json:"site,omitempty"`
	Deployment *Deployment `json:"deployment,omitempty"`
	State      *State      `json:"state,omitempty"`  // of a report
	Sealed     []byte      `json:"sealed,omitempty"` // another row, encrypted
}

// A Content is a package at a revision.
type Content struct {
	Revision int64  `json:"revision"`
	Digest   string `json:"digest,omitempty"`  // SHA-256 of the package, in hexadecimal digits
	Package  []byte `json:"package,omitempty"` // in CBOR, as TKO stores it
}

// A Site is the site of a bundle.
type Site struct {
	ID       tko.SiteID        `json:"id"`
	UID      string            `json:"uid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Content
}

// A Deployment is a deployment at the site of a bundle.
type Deployment struct {
	ID       tko.DeploymentID   `json:"id"`
	UID      string             `json:"uid"`
	Parent   tko.DeploymentID   `json:"parent,omitempty"`
	Template tko.TemplateID     `json:"template,omitempty"`
	Metadata map[string]string  `json:"metadata,omitempty"`
	Replaced []tko.DeploymentID `json:"replaced,omitempty"`
	// Kept means that the site keeps what it has of the deployment: it has no package.
	Kept bool `json:"kept,omitempty"`
	Content
}

// A State is what an agent reports of an entity.
type State struct {
	Kind       tko.Kind    `json:"kind"`
	ID         string      `json:"id"`
	Revision   int64       `json:"revision"`
	Conditions []Condition `json:"conditions"`
}

// A Condition is a condition that an agent observed.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// NewContent returns the content of a package, with its digest.
func NewContent(revision int64, pkg krm.Package) (Content, error) {
	digest, encoded, err := krm.DigestOf(pkg)
	if err != nil {
		return Content{}, err
	}
	return Content{revision, hex.EncodeToString(digest[:]), encoded}, nil
}

// Read returns the package, if it has the digest.
func (c Content) Read() (krm.Package, error) {
	pkg, err := krm.Decode(krm.CBOR, c.Package, krm.Limits{})
	if err != nil {
		return nil, err
	}
	digest, _, err := krm.DigestOf(pkg)
	if err != nil {
		return nil, err
	}
	if hex.EncodeToString(digest[:]) != c.Digest {
		return nil, tko.Errorf(tko.ErrInvalid, "the package has another digest than the file says")
	}
	return pkg, nil
}

// check checks what must hold of each row of a file for a site.
func (r Row) check(payloadType string, site tko.SiteID) error {
	given := 0
	for _, there := range []bool{r.Site != nil, r.Deployment != nil, r.State != nil} {
		if there {
			given++
		}
	}
	switch {
	case given != 1 || len(r.Sealed) > 0:
		return tko.Errorf(tko.ErrInvalid, "a row is not one site, deployment or state")
	case (payloadType == TypeReport) != (r.State != nil):
		return tko.Errorf(tko.ErrInvalid, "a row is not for files of this type")
	case r.Site != nil && r.Site.ID != site:
		return tko.Errorf(tko.ErrInvalid, "a row is of site %s, and the file is for site %q", bounded(string(r.Site.ID)), site)
	case r.Deployment != nil:
		return checkDeployment(*r.Deployment)
	case r.State != nil:
		return checkState(*r.State, site)
	}
	return nil
}

func checkDeployment(d Deployment) error {
	for _, id := range append([]tko.DeploymentID{d.ID}, d.Replaced...) {
		if err := checkDeploymentID(string(id)); err != nil {
			return err
		}
	}
	if d.Kept != (len(d.Package) == 0 && d.Digest == "") {
		return tko.Errorf(tko.ErrInvalid, "deployment %q has no package and isn't kept, or both", d.ID)
	}
	return nil
}

// checkDeploymentID refuses IDs that TKO doesn't generate: names of files and objects are made of
// them.
func checkDeploymentID(id string) error {
	if err := tko.CheckID("deployment", id); err != nil {
		return err
	}
	if strings.ContainsAny(id, "./:") {
		return tko.Errorf(tko.ErrInvalid, "deployment %q: no deployment has such an ID", id)
	}
	return nil
}

// Reported are the types of conditions that reports have.
var Reported = []string{tko.ConditionScheduled, tko.ConditionHealthy, tko.ConditionDelivered, tko.ConditionCleanedUp, tko.ConditionRemovalsApproved}

func checkState(s State, site tko.SiteID) error {
	switch {
	case s.Kind == tko.KindDeployment:
		if err := checkDeploymentID(s.ID); err != nil {
			return err
		}
	case s.Kind != tko.KindSite || s.ID != string(site):
		return tko.Errorf(tko.ErrInvalid, "it reports on %s %s, which isn't of site %q", bounded(string(s.Kind)), bounded(s.ID), site)
	}
	for i, c := range s.Conditions {
		if slices.ContainsFunc(s.Conditions[:i], func(other Condition) bool { return other.Type == c.Type }) {
			return tko.Errorf(tko.ErrInvalid, "it reports the condition %s of %s %q twice", bounded(c.Type), s.Kind, s.ID)
		}
		if !slices.Contains(Reported, c.Type) || !slices.Contains([]string{tko.ConditionTrue, tko.ConditionFalse, tko.ConditionUnknown}, c.Status) {
			return tko.Errorf(tko.ErrInvalid, "it reports the condition %s=%s on %s %q, which agents don't report", bounded(c.Type), bounded(c.Status), s.Kind, s.ID)
		}
	}
	return nil
}
