package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a Target. The zero value works.
type Options struct {
	Guard      *guard.Guard   // limits which repositories may be used; no limit if nil
	Cache      string         // folder for clones of remote repositories; in the user's cache folder if empty
	Secrets    string         // folder of credentials; no credentials if empty
	References secret.Sources // resolves references to credentials that are not files
	Leash      *leash.Leash   // what credentials may be used for; no declarations if nil
	Timeout    time.Duration  // of a remote's response; 30 s if 0. Fetches and pushes may take 20 times as long
	Log        *slog.Logger   // discarded if nil
}

// A Target commits the deployments of sites to their repositories. It is safe for
// concurrent use.
type Target struct {
	options Options
	secrets secret.Store
	mu      sync.Mutex
	groups  map[groupKey]*group
}

// New makes a Target.
func New(o Options) *Target {
	if o.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = os.TempDir()
		}
		o.Cache = filepath.Join(base, "tko", "git")
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	secrets := secret.Store{Folder: secret.Folder{Kind: leash.KindGit, Path: o.Secrets, Owner: "meta-scheduler", Flag: "--target-git-secrets"}, Sources: o.References}
	return &Target{options: o, secrets: secrets, groups: map[groupKey]*group{}}
}

// Schedule makes the repository that a resource of the site's package names hold
// exactly these deployments of the site, and leaves the held ones in it unchanged.
// It returns the deployments that it removed from the repository. It is idempotent.
// ErrInvalid means that the resource must change. ErrConflict means that a user must
// change the contents of the repository; other errors may be temporary.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) (removed []tko.DeploymentID, err error) {
	d, err := t.Deliver(ctx, trigger, site, deployments, held...)
	return d.Removed, err
}

// Deliver is Schedule. It returns a delivery, with which the caller can find out whether other
// commits have the same contents.
func (t *Target) Deliver(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) (puller.Delivery, error) {
	s, r, err := t.read(ctx, trigger, site, deployments, held)
	if err != nil {
		return puller.Delivery{}, err
	}
	g := t.group(s)
	var done *request
	for {
		done = r.again()
		_, err = g.submit(ctx, done)
		if !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return puller.Delivery{}, fmt.Errorf("%s: repository %q: %w", trigger.Identity(), s.URL, err)
	}
	return puller.Delivery{Removed: done.removed, In: delivery{group: g, request: done}.in}, nil
}

// read reads a trigger, and makes the request of the site.
func (t *Target) read(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (spec, *request, error) {
	s, err := readSpec(trigger, site.ID)
	if err != nil {
		return spec{}, nil, err
	}
	if s.Local != "" {
		err = t.options.Guard.Folder(s.Local)
	} else {
		_, _, _, err = t.options.Guard.Git(ctx, s.URL)
	}
	if err != nil {
		return spec{}, nil, fmt.Errorf("%s: spec.url: %w", trigger.Identity(), err)
	}
	r := &request{site: site.ID, path: s.Path, deployments: deployments, held: held, begin: func() error { return fence.Check(ctx) }}
	r.patient = ctx.Value(patientKey{}) != nil
	r.wanted, err = renderAll(deployments, layout.Written{})
	return s, r, err
}

// groupKey has what sites must have in common to share a commit.
type groupKey struct {
	url, branch string
	credentials credentials
	author      author
}

func (t *Target) group(s spec) *group {
	key := groupKey{url: s.URL, branch: s.Branch, credentials: s.Credentials, author: s.Author}
	if s.Local != "" {
		key.url, key.credentials = s.Local, credentials{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.groups[key]
	if !ok {
		g = &group{target: t, spec: s, lock: make(chan struct{}, 1)}
		t.groups[key] = g
	}
	return g
}
