package git

import (
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
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a Target. The zero value works.
type Options struct {
	Guard   *guard.Guard  // says which repositories may be used; all if nil
	Cache   string        // folder for clones of remote repositories; in the user's cache folder if empty
	Secrets string        // folder that credentials are in; there are none if empty
	Timeout time.Duration // how long a remote may take to answer; 30 s if 0. To fetch or push it may take 20 times that
	Log     *slog.Logger  // nowhere if nil
}

// A Target commits what sites should run to their repositories. It is safe for
// concurrent use.
type Target struct {
	options Options
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
	if o.Secrets != "" {
		if absolute, err := filepath.Abs(o.Secrets); err == nil {
			o.Secrets = absolute
		}
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{options: o, groups: map[groupKey]*group{}}
}

// Schedule makes the repository that a resource of the site's package names
// hold exactly these deployments of the site, and answers those that it held
// before and doesn't any more. ErrInvalid says that the resource has to
// change. Any other error may go away without that: by itself, or, if it is
// ErrConflict, when somebody changes what is in the repository. Doing it again
// changes nothing.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment) (removed []tko.DeploymentID, err error) {
	s, err := readSpec(trigger, site.ID)
	if err != nil {
		return nil, err
	}
	if s.Local != "" {
		err = t.options.Guard.Folder(s.Local)
	} else {
		_, _, _, err = t.options.Guard.Git(ctx, s.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: spec.url: %w", trigger.Identity(), err)
	}
	r := &request{site: site.ID, path: s.Path}
	for _, d := range deployments {
		one, err := render(d)
		if err != nil {
			return nil, err
		}
		r.wanted = append(r.wanted, one)
	}
	g := t.group(s)
	for {
		removed, err = g.submit(ctx, r.again())
		if !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: repository %q: %w", trigger.Identity(), s.URL, err)
	}
	return removed, nil
}

// groupKey is what sites must share so that they can share a commit.
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
		g = &group{target: t, spec: s, turn: make(chan struct{}, 1)}
		t.groups[key] = g
	}
	return g
}
