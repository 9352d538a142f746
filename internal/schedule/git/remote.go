package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// remote is a repository on a server, with a bare local clone of one branch. Only
// the objects of the clone are used: each commit reads the tip from the server. Of
// TKO's own commits, the clone has only the objects that the next one is built
// from.
type remote struct {
	server  gitclient.Remote
	dir     string // of the clone
	branch  plumbing.ReferenceName
	storage *filesystem.Storage
	timeout time.Duration // of a response

	session *session // of the last tip
	refs    *packp.AdvRefs
}

// A session is used by one goroutine at a time: one that was given up may
// continue.
type session struct {
	transport.ReceivePackSession

	use sync.Mutex
}

// drop closes the session, as soon as nothing uses it.
func (r *remote) drop() {
	s := r.session
	r.session = nil
	if s == nil {
		return
	}
	if s.use.TryLock() {
		defer s.use.Unlock()
		_ = s.Close()
		return
	}
	go func() {
		s.use.Lock()
		defer s.use.Unlock()
		_ = s.Close()
	}()
}

// using calls a function that uses a session (see [within]).
func using[T any](ctx context.Context, limit time.Duration, s *session, do func(context.Context) (T, error)) (T, error) {
	s.use.Lock()
	return within(ctx, limit, func(ctx context.Context) (T, error) {
		defer s.use.Unlock()
		return do(ctx)
	}, nil)
}

// cacheDir returns the folder of the clone of a branch.
func cacheDir(cache string, s spec) string {
	digest := sha256.Sum256([]byte(s.URL + "\x00" + s.Branch))
	return filepath.Join(cache, hex.EncodeToString(digest[:12])+".git")
}

// openRemote opens the clone. It creates an empty one if there is no usable one.
func openRemote(dir string, s spec, a gitclient.Auth, g *guard.Guard, timeout time.Duration) (*remote, error) {
	r := &remote{server: gitclient.Remote{URL: s.URL, Auth: a, Guard: g}, dir: dir, branch: plumbing.NewBranchReferenceName(s.Branch), timeout: timeout}
	if !gitclient.IsBare(dir) {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("making room for the clone: %w", err)
		}
		if err := createBare(dir, r.branch); err != nil {
			return nil, err
		}
	}
	r.storage = openStorage(dir)
	return r, nil
}

func (r *remote) objects() storer.EncodedObjectStorer { return r.storage }

func (r *remote) close() {
	r.drop()
	_ = r.storage.Close()
}

func (r *remote) tip(ctx context.Context) (plumbing.Hash, error) {
	r.drop()
	ctx, location, proxy, err := r.server.Guard.Git(ctx, r.server.URL)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	ep, err := transport.NewEndpoint(location)
	if err != nil {
		return plumbing.ZeroHash, tko.Errorf(tko.ErrInvalid, "spec.url is not a URL")
	}
	ep.Proxy = proxy
	c, err := client.NewClient(ep)
	if err != nil {
		return plumbing.ZeroHash, tko.Errorf(tko.ErrInvalid, "spec.url has a scheme that isn't supported")
	}
	// some transports ignore the context while they connect
	opened, err := within(ctx, r.timeout, func(context.Context) (transport.ReceivePackSession, error) {
		return c.NewReceivePackSession(ep, r.server.Auth.Method)
	}, func(s transport.ReceivePackSession) { _ = s.Close() })
	if err != nil {
		return plumbing.ZeroHash, r.server.Auth.Hide(fmt.Errorf("connecting: %w", err))
	}
	r.session = &session{ReceivePackSession: opened}
	r.refs, err = using(ctx, r.timeout, r.session, opened.AdvertisedReferencesContext)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		r.refs, err = packp.NewAdvRefs(), nil
	}
	if err != nil {
		return plumbing.ZeroHash, r.server.Auth.Hide(fmt.Errorf("reading the branches: %w", err))
	}
	tip := r.refs.References[r.branch.String()]
	if tip.IsZero() || r.storage.HasEncodedObject(tip) == nil {
		return tip, nil
	}
	if err := r.fetch(ctx); err != nil {
		return plumbing.ZeroHash, err
	}
	return tip, nil
}

func (r *remote) fetch(ctx context.Context) error {
	_, err := within(ctx, transferTime*r.timeout, func(ctx context.Context) (struct{}, error) {
		// A storage of its own, as it may continue when it is given up.
		storage := openStorage(r.dir)
		defer func() { _ = storage.Close() }()
		return struct{}{}, r.server.Fetch(ctx, storage, 0, config.RefSpec("+"+r.branch.String()+":"+r.branch.String()))
	}, nil)
	if err != nil {
		return r.server.Auth.Hide(fmt.Errorf("fetching: %w", err))
	}
	// the fetch may have added packs that the storage doesn't know yet
	r.storage.Reindex()
	return nil
}

// move pushes the new objects. The server refuses if the branch has moved since it
// was read.
func (r *remote) move(ctx context.Context, from, to plumbing.Hash, added *staging) error {
	var pack bytes.Buffer
	if _, err := packfile.NewEncoder(&pack, added, false).Encode(added.order, 0); err != nil {
		return fmt.Errorf("packing the commit: %w", err)
	}
	request := packp.NewReferenceUpdateRequestFromCapabilities(r.refs.Capabilities)
	if r.refs.Capabilities.Supports(capability.Sideband64k) {
		_ = request.Capabilities.Set(capability.Sideband64k) // can't fail: it takes no argument
	}
	request.Commands = []*packp.Command{{Name: r.branch, Old: from, New: to}}
	request.Packfile = io.NopCloser(&pack)
	ctx, _, _, err := r.server.Guard.Git(ctx, r.server.URL)
	if err != nil {
		return err
	}
	opened := r.session
	push := func(ctx context.Context) (*packp.ReportStatus, error) { return opened.ReceivePack(ctx, request) }
	if _, err := using(ctx, transferTime*r.timeout, opened, push); err != nil {
		pushed := r.server.Auth.Hide(fmt.Errorf("pushing: %w", err))
		now, err := r.tip(ctx)
		switch {
		case err != nil:
			return pushed
		case now == to:
			// the push succeeded, only the response was lost
		case now != from:
			return errMoved
		default:
			return pushed
		}
	}
	// the commit is stored last: if it is there, so is all that the next one needs
	if err := added.store(func(hash plumbing.Hash) bool { return added.keep[hash] }); err != nil {
		return fmt.Errorf("updating the clone: %w", err)
	}
	if err := r.storage.SetReference(plumbing.NewHashReference(r.branch, to)); err != nil {
		return fmt.Errorf("updating the clone: %w", err)
	}
	return nil
}

// transferTime is the timeout of a transfer, in timeouts of a response.
const transferTime = 20

// within runs a function that may ignore its context. It returns when the context
// ends or the limit is over, even if the function continues; a value that the
// function returns later is discarded.
func within[T any](ctx context.Context, limit time.Duration, do func(context.Context) (T, error), discard func(T)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not answer within %s", limit))
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return r.value, context.Cause(ctx)
		}
		return r.value, guard.GitError(r.err)
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil && discard != nil {
				discard(r.value)
			}
		}()
		var zero T
		return zero, context.Cause(ctx)
	}
}
