package oci

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a Target. The zero value works.
type Options struct {
	Guard      *guard.Guard   // limits which registries may be used; no limit if nil
	Secrets    string         // folder of credentials and CAs; none can be used if empty
	References secret.Sources // resolves references to credentials that are not files
	Leash      *leash.Leash   // what credentials may be used for; no declarations if nil
	Timeout    time.Duration  // of all requests for a site; 5 min if 0
	Log        *slog.Logger   // discarded if nil
}

// A Target publishes the deployments of sites as artifacts. It is safe for concurrent use.
type Target struct {
	options Options
	secrets secret.Store
}

// New makes a Target.
func New(o Options) *Target {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	folder := secret.Folder{Kind: leash.KindGit, Path: o.Secrets, Owner: "meta-scheduler", Flag: "--target-git-secrets"}
	return &Target{options: o, secrets: secret.Store{Folder: folder, Sources: o.References}}
}

// maxRetries is how often a tag is read again that another writer moved.
const maxRetries = 5

// Schedule makes the artifact that a resource of the site's package names hold exactly these
// deployments of the site, and leaves the held ones in it unchanged. It returns the deployments
// that it removed. It is idempotent. ErrInvalid means that the resource must change. ErrConflict
// means that a user must change the tag; other errors may be temporary.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) (removed []tko.DeploymentID, err error) {
	d, err := t.Deliver(ctx, trigger, site, deployments, held...)
	return d.Removed, err
}

// Deliver is Schedule. It returns a delivery, with which the caller can find out whether other
// artifacts have the same contents.
func (t *Target) Deliver(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) (_ puller.Delivery, err error) {
	ctx, span := trail.Start(ctx, "oci.publish")
	defer func() { trail.End(span, err) }()
	d, err := t.open(ctx, trigger, site, deployments, held)
	if err != nil {
		return puller.Delivery{}, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, t.options.Timeout, fmt.Errorf("the registry took longer than %s", t.options.Timeout))
	defer cancel()
	for attempt := 0; ; attempt++ {
		if err = d.once(limited); !errors.Is(err, errMoved) || attempt == maxRetries {
			break
		}
	}
	if err != nil {
		return puller.Delivery{}, d.named(limited, err)
	}
	return puller.Delivery{Removed: d.removed, In: d.in}, nil
}

// open reads a trigger, and makes a delivery.
func (t *Target) open(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (*delivery, error) {
	s, err := readSpec(trigger, site.ID)
	if err != nil {
		return nil, err
	}
	d := &delivery{target: t, spec: s, trigger: trigger.Identity(), site: site, deployments: deployments, asked: held}
	if d.registry, err = t.connect(ctx, s, site.ID); err == nil {
		d.key, err = t.signingKey(ctx, s, site.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", trigger.Identity(), err)
	}
	return d, nil
}

// A delivery is the work on the artifact of a site.
type delivery struct {
	target      *Target
	spec        spec
	trigger     krm.Identity
	registry    *registryClient
	key         *ecdsa.PrivateKey // that signs artifacts; nil if they are not signed
	site        tko.Site
	deployments []tko.Deployment
	asked       []tko.DeploymentID // held, as the caller named them

	// The result of plan, and after success of the delivery.
	held    []tko.DeploymentID
	before  inventory
	files   files // that are to be
	listed  inventory
	removed []tko.DeploymentID
	there   string // digest of the artifact that the tag has; "" if there is none, and needs none
}

// named adds the names of the resource and the artifact to an error.
func (d *delivery) named(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		err = cause
	}
	return fmt.Errorf("%s: artifact %q: %w", d.trigger, d.spec.Reference.String(), err)
}

// once makes one attempt. errMoved if another writer moved the tag meanwhile.
func (d *delivery) once(ctx context.Context) error {
	was, err := d.registry.read(ctx, d.spec.Reference.Reference)
	if err != nil {
		return err
	}
	if err := d.plan(ctx, was); err != nil {
		return err
	}
	d.there = was.digest
	if was.digest == "" && len(d.listed.Deployments) == 0 {
		return nil
	}
	a, err := build(d.files, d.listed, d.spec.MediaType, d.created())
	if err != nil {
		return err
	}
	if was.has(a) {
		return d.sign(ctx, was.digest)
	}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	if err := d.registry.upload(ctx, a); err != nil {
		return err
	}
	if err := d.sign(ctx, a.manifestAt.Digest.String()); err != nil {
		return err
	}
	if now, err := d.registry.resolve(ctx, d.spec.Reference.Reference); err != nil || now != was.digest {
		return cmp.Or(err, errMoved)
	}
	if err := fence.Check(ctx); err != nil { // a site may have been stopped meanwhile
		return err
	}
	if err := d.registry.publish(ctx, a, d.spec.Reference.Reference); err != nil {
		return err
	}
	d.there = a.manifestAt.Digest.String()
	d.target.options.Log.InfoContext(ctx, "published", "artifact", d.spec.Reference.String(), "digest", d.there, "site", string(d.site.ID))
	if now, err := d.registry.resolve(ctx, d.spec.Reference.Reference); err != nil || now != d.there {
		return cmp.Or(err, errMoved)
	}
	return nil
}

// created returns the time of the newest of the changes that the artifact has.
func (d *delivery) created() time.Time {
	at := d.site.Stamp.Updated
	for _, one := range d.deployments {
		if one.Stamp.Updated.After(at) {
			at = one.Stamp.Updated
		}
	}
	return at
}

// plan decides what the artifact is to have instead of what it has.
func (d *delivery) plan(ctx context.Context, was tagged) error {
	d.held, d.removed = d.asked, nil
	d.before, d.listed = inventory{}, inventory{Site: d.site.ID, Deployments: map[tko.DeploymentID]entry{}}
	if was.digest != "" {
		if was.inventory == nil {
			return tko.Errorf(tko.ErrConflict, "the tag has an artifact that TKO did not publish: choose another repository or tag in the spec, or remove the tag from the registry if the artifact is no longer needed")
		}
		d.before = *was.inventory
		if d.before.Site != d.site.ID {
			return tko.Errorf(tko.ErrConflict, "the tag belongs to site %q already: choose another repository or tag in the spec (or remove the tag from the registry if that site no longer exists)", d.before.Site)
		}
	}
	if err := d.keep(ctx, was); err != nil {
		return err
	}
	if err := d.render(); err != nil {
		return err
	}
	for id := range d.before.Deployments {
		if _, ok := d.listed.Deployments[id]; !ok {
			d.removed = append(d.removed, id)
		}
	}
	slices.Sort(d.removed)
	return nil
}

// keep takes over the files of held deployments.
func (d *delivery) keep(ctx context.Context, was tagged) error {
	d.files = files{}
	if slices.Contains(d.held, tko.OtherDeployments) {
		d.held = slices.Clone(d.held)
		for id := range d.before.Deployments {
			if !slices.ContainsFunc(d.deployments, func(one tko.Deployment) bool { return one.ID == id }) && !slices.Contains(d.held, id) {
				d.held = append(d.held, id)
			}
		}
	}
	if !slices.ContainsFunc(d.held, func(id tko.DeploymentID) bool { _, ok := d.before.Deployments[id]; return ok }) {
		return nil
	}
	all, err := d.registry.files(ctx, was)
	if err != nil {
		return err
	}
	for _, id := range d.held {
		listed, ok := d.before.Deployments[id]
		if !ok {
			continue
		}
		d.listed.Deployments[id] = listed
		for _, name := range all.below(layout.DeploymentFolder(id)) {
			d.files[name] = all[name]
		}
	}
	return nil
}

// render adds the files of the deployments to those of held ones.
func (d *delivery) render() error {
	written := layout.Written{}
	for id := range d.listed.Deployments { // held
		folder := layout.DeploymentFolder(id)
		for _, name := range d.files.below(folder) {
			written[name[len(folder)+1:]] = id
		}
	}
	for _, one := range d.deployments {
		all, err := layout.Render(one, written)
		if err != nil {
			return err
		}
		folder := layout.DeploymentFolder(one.ID)
		for _, f := range all {
			d.files[folder+"/"+f.Path()] = f.Data
		}
		now := entry{Revision: one.Stamp.Revision, Digest: d.files.digest(folder)}
		if was, ok := d.before.Deployments[one.ID]; ok && was.Digest == now.Digest {
			now.Revision = was.Revision
		}
		d.listed.Deployments[one.ID] = now
	}
	return nil
}

// in returns what revisions have of the delivery. It reads the configurations of artifacts that
// the tag no longer has from the registry.
func (d *delivery) in(ctx context.Context, revisions []string) (puller.Contents, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.target.options.Timeout, fmt.Errorf("the registry took longer than %s", d.target.options.Timeout))
	defer cancel()
	all := puller.Contents{}
	for _, revision := range revisions {
		digest := puller.DigestOf(revision)
		if _, known := all[revision]; known || digest == "" {
			continue
		}
		there := d.listed
		if digest != d.there {
			found, err := d.registry.read(ctx, digest)
			if err != nil {
				return nil, d.named(ctx, err)
			}
			if found.digest == "" {
				continue // the registry has removed it, or it is of another repository
			}
			there = inventory{}
			if found.inventory != nil && found.inventory.Site == d.site.ID {
				there = *found.inventory
			}
		}
		all[revision] = d.compare(there)
	}
	return all, nil
}

// compare returns what an artifact has of each deployment.
func (d *delivery) compare(there inventory) map[tko.DeploymentID]puller.Content {
	all := make(map[tko.DeploymentID]puller.Content, len(d.deployments))
	for _, one := range d.deployments {
		was, now := there.Deployments[one.ID], d.listed.Deployments[one.ID]
		content := puller.Content{Presence: puller.Earlier, Revision: was.Revision}
		switch {
		case was.Digest == now.Digest:
			content.Presence = puller.Same
		case was.Revision == now.Revision:
			content.Presence = puller.Other
		}
		all[one.ID] = content
	}
	return all
}
