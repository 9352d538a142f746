package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// An Inventory makes manifests of sites from records of its origins. One goroutine at
// a time uses it.
type Inventory struct {
	settings Settings
	editable []tko.Pattern
	grace    time.Duration
	parts    []*part

	dirty     bool   // an origin was read since the revision was made
	revision  string // of what follows; "" if there is none
	sites     []Site
	manifests []manifest.Manifest
	notes     []string
}

// A part is an origin with its mapping, and the sites that were read from it last.
type part struct {
	settings OriginSettings
	origin   origin
	mapper   *mapper
	tag      string
	sites    []Site
}

// New returns an Inventory, without reading its origins. The error is an ErrInvalid.
func New(s Settings, access remote.Access) (*Inventory, error) {
	if len(s.From) == 0 || len(s.From) > maxOrigins {
		return nil, tko.Errorf(tko.ErrInvalid, "inventory.from has %d elements: use 1 to %d", len(s.From), maxOrigins)
	}
	editable, err := s.editable()
	if err != nil {
		return nil, err
	}
	grace, err := s.grace()
	if err != nil {
		return nil, err
	}
	i := &Inventory{settings: s, editable: editable, grace: grace}
	names := map[string]bool{}
	makes := false
	for n, settings := range s.From {
		if err := settings.check(); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "inventory.from[%d]: %w", n, err)
		}
		if names[settings.Name] {
			return nil, tko.Errorf(tko.ErrInvalid, "inventory.from[%d]: another origin has the name %q: set name", n, settings.Name)
		}
		names[settings.Name], makes = true, makes || !settings.Enrich
		p := &part{settings: settings}
		var err error
		if p.mapper, err = newMapper(settings.Map); err == nil {
			p.origin, err = newOrigin(settings, access, s.Source)
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "inventory.from[%d] (%s): %w", n, settings.Name, err)
		}
		i.parts = append(i.parts, p)
	}
	if !makes {
		return nil, tko.Errorf(tko.ErrInvalid, "all elements of inventory.from have enrich: at least one must make sites")
	}
	return i, nil
}

// URL returns what the status of the source shows: the addresses of the origins.
func (i *Inventory) URL() string {
	var all []string
	for _, p := range i.parts {
		at := p.settings.Address()
		if p.settings.File != "" {
			at = p.settings.File
		}
		all = append(all, at)
	}
	return strings.Join(all, ", ")
}

// Subscription reports whether servers of origins are to report changes, and why one
// doesn't.
func (i *Inventory) Subscription() (wanted bool, err error) {
	var problems []error
	for _, p := range i.parts {
		if s, ok := p.origin.(subscriber); ok {
			here, err := s.subscription()
			wanted = wanted || here
			if err != nil {
				problems = append(problems, fmt.Errorf("inventory %q: %w", p.settings.Name, err))
			}
		}
	}
	return wanted, errors.Join(problems...)
}

// Close ends the subscriptions of origins. They are made again when the inventory is read.
func (i *Inventory) Close(ctx context.Context) error {
	var problems []error
	for _, p := range i.parts {
		if s, ok := p.origin.(subscriber); ok {
			problems = append(problems, s.unsubscribe(ctx))
		}
	}
	return errors.Join(problems...)
}

// Editable returns patterns of the parts of sites that users may set.
func (i *Inventory) Editable() []tko.Pattern { return i.editable }

// maxProblems is how many problems of one origin an error lists.
const maxProblems = 20

// Revision reads the origins and returns a digest of the sites. If one of them can't be
// read completely, or a record can't be mapped, it returns an error, and the sites of
// the last revision stay. An inventory without sites is an error, too, unless the
// settings allow it.
func (i *Inventory) Revision(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("the inventory could not be read within %s", readTimeout))
	defer cancel()
	for _, p := range i.parts {
		changed, err := p.read(ctx)
		i.dirty = i.dirty || changed // also if a later origin fails
		if err != nil {
			return "", fmt.Errorf("inventory %q: %w: all sites stay as they are", p.settings.Name, remote.Cause(ctx, err))
		}
	}
	if !i.dirty && i.revision != "" {
		return i.revision, nil
	}
	for _, p := range i.parts {
		if len(p.sites) == 0 && !p.settings.Enrich && !p.settings.AllowEmpty && !i.settings.AllowEmpty {
			i.revision = ""
			return "", tko.Errorf(tko.ErrInvalid, "inventory %q has no sites: all sites stay as they are. If it is meant to be empty, set allowEmpty: true", p.settings.Name)
		}
	}
	sites, notes := merge(i.parts)
	manifests := make([]manifest.Manifest, len(sites))
	sum := sha256.New()
	for n, s := range sites {
		m, err := manifest.Of(s.at, tko.Put{Kind: tko.KindSite, ID: s.ID, Template: tko.TemplateID(s.Template), Metadata: s.Metadata, Package: s.Package})
		if err != nil {
			return "", err
		}
		m.Origins = s.Origins
		manifests[n] = m
		fmt.Fprintf(sum, "%s %s", m.Name, m.Digest)
		for _, part := range slices.Sorted(maps.Keys(s.Origins)) {
			fmt.Fprintf(sum, " %q %q", part, s.Origins[part])
		}
		fmt.Fprintln(sum)
	}
	i.sites, i.manifests, i.notes, i.dirty = sites, manifests, notes, false
	i.revision = "sites@sha256:" + hex.EncodeToString(sum.Sum(nil))
	return i.revision, nil
}

// Reread is Revision without the help of earlier readings: each origin is read completely,
// even if it reports that nothing has changed.
func (i *Inventory) Reread(ctx context.Context) (string, error) {
	for _, p := range i.parts {
		p.tag = ""
	}
	return i.Revision(ctx)
}

// Grace returns for how long values that users set at a removed site are saved, for the
// case that the inventory has it again.
func (i *Inventory) Grace() time.Duration { return i.grace }

// Manifests returns the sites of a revision, in the order of their IDs, and notes about
// contradictions between origins.
func (i *Inventory) Manifests(revision string) ([]manifest.Manifest, []string, error) {
	if revision != i.revision {
		return nil, nil, fmt.Errorf("revision %s of the inventory was replaced: it is read again", revision)
	}
	return i.manifests, i.notes, nil
}

// Sites returns the sites of the last revision, in the order of their IDs, and notes
// about contradictions between origins.
func (i *Inventory) Sites() ([]Site, []string) { return i.sites, i.notes }

// read reads and maps the records, if they have changed.
func (p *part) read(ctx context.Context) (changed bool, err error) {
	records, tag, err := p.origin.read(ctx, p.tag)
	if err != nil {
		return false, err
	}
	if records == nil && tag == p.tag {
		return false, nil
	}
	sites := make([]Site, 0, len(records))
	first := map[string]int{}
	var wrong []error
	for n, r := range records {
		if len(wrong) == maxProblems {
			wrong = append(wrong, errors.New("there may be more"))
			break
		}
		s, ok, err := p.mapper.site(ctx, r)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "record %d: %w", n+1, err))
			continue
		}
		if !ok {
			continue
		}
		if other, twice := first[s.ID]; twice {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "records %d and %d both become site %q: make map.id unique", other, n+1, s.ID))
			continue
		}
		first[s.ID] = n + 1
		s.at = fmt.Sprintf("%s record %d", p.settings.Name, n+1)
		s.Origins = map[string]string{}
		for part := range s.parts() {
			s.Origins[part] = p.settings.Name
		}
		sites = append(sites, s)
	}
	if err := errors.Join(wrong...); err != nil {
		return false, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	p.sites, p.tag = sites, tag
	return true, nil
}

// parts returns the texts of a site's parts, by their names in Origins.
func (s Site) parts() map[string]string {
	parts := map[string]string{}
	if s.Template != "" {
		parts["template"] = s.Template
	}
	if len(s.Package) > 0 {
		parts["package"] = fmt.Sprintf("%d resources", len(s.Package))
	}
	for key, value := range s.Metadata {
		parts["metadata."+key] = value
	}
	return parts
}

// maxNotes is how many contradictions are listed.
const maxNotes = 10

// merge merges the sites of all parts by ID: each part of a site is that of the
// earliest origin that has it. Where a later origin differs, there is a note.
func merge(all []*part) (sites []Site, notes []string) {
	merged := map[string]*Site{}
	contradictions := 0
	for _, p := range all {
		for _, s := range p.sites {
			if merged[s.ID] == nil && !p.settings.Enrich {
				merged[s.ID] = &Site{ID: s.ID, Metadata: map[string]string{}, Origins: map[string]string{}, at: s.at}
			}
		}
	}
	for _, p := range all {
		for _, s := range p.sites {
			known := merged[s.ID]
			if known == nil {
				continue // only enriched
			}
			have := known.parts()
			for part, value := range s.parts() {
				if was, taken := have[part]; taken {
					if part != "package" && was != value {
						contradictions++
						notes = append(notes, fmt.Sprintf("site %q: %s is %q in %s, and %q in %s: the former takes precedence", s.ID, part, was, known.Origins[part], value, p.settings.Name))
					}
					continue
				}
				known.Origins[part] = p.settings.Name
				switch key, isMetadata := strings.CutPrefix(part, "metadata."); {
				case isMetadata:
					known.Metadata[key] = value
				case part == "template":
					known.Template = value
				default:
					known.Package = s.Package
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(merged)) {
		sites = append(sites, *merged[id])
	}
	slices.Sort(notes)
	if more := contradictions - maxNotes; more > 0 {
		notes = append(notes[:maxNotes:maxNotes], fmt.Sprintf("and %d more contradictions between the inventories", more))
	}
	return sites, notes
}
