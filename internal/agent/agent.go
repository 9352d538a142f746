package agent

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"filippo.io/age"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
)

// An Agent is the agent of a site, with its folder.
type Agent struct {
	folder   *folder
	site     tko.SiteID
	key      ed25519.PrivateKey
	identity string // of age
	log      *slog.Logger
	owner    string                 // file with which the owner of the site holds back changes; "": none
	hold     atomic.Pointer[string] // why nothing may change at the site, as the server says; nil: it may
}

// A Setup is what others need to know of an agent. Nothing of it is secret.
type Setup struct {
	Site      tko.SiteID
	Key       string // public key of its reports
	Recipient string // of age, for encrypted bundles
}

type setupJSON struct {
	Site tko.SiteID `json:"site"`
}

// Init makes the folder of the agent of a site, with keys of its own. If the folder is already
// that of an agent of the site, it only returns what it has. ErrConflict if it is of another site.
func Init(path string, site tko.SiteID) (Setup, error) {
	if err := tko.CheckID("site", string(site)); err != nil {
		return Setup{}, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return Setup{}, err
	}
	f, err := openFolder(path)
	if err != nil {
		return Setup{}, err
	}
	defer f.close()
	if err := f.initialize(site); err != nil {
		return Setup{}, err
	}
	a, err := open(f, nil)
	if err != nil {
		return Setup{}, err
	}
	if a.site != site {
		return Setup{}, tko.Errorf(tko.ErrConflict, "the folder %s is of the agent of site %q: choose another one", path, a.site)
	}
	return a.setup()
}

// initialize writes the files that are missing; the one with the site is the last.
func (f *folder) initialize(site tko.SiteID) error {
	if there, err := f.read(setupFile); err != nil || there != nil {
		return err
	}
	if _, err := os.Stat(f.file(bundleFile)); err == nil {
		return tko.Errorf(tko.ErrConflict, "the folder %s has a bundle and no %s: restore that file, or choose another folder", f.path, setupFile)
	}
	_, key, err := bundle.NewKey()
	if err != nil {
		return err
	}
	secret, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	text, err := json.Marshal(setupJSON{site})
	if err != nil {
		return err
	}
	return errors.Join(f.replace(keyFile, key), f.replace(identity, []byte(secret.String()+"\n")), f.replace(setupFile, text))
}

// Open opens the folder of an agent. The caller must close it.
func Open(path string, log *slog.Logger) (*Agent, error) {
	f, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	a, err := open(f, log)
	if err != nil {
		f.close()
	}
	return a, err
}

func open(f *folder, log *slog.Logger) (*Agent, error) {
	text, err := f.read(setupFile)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, tko.Errorf(tko.ErrNotFound, "the folder %s has no agent: make one with tko-agent init", f.path)
	}
	var setup setupJSON
	if err := json.Unmarshal(text, &setup); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.file(setupFile), err)
	}
	key, err := f.read(keyFile)
	if err != nil {
		return nil, err
	}
	a := &Agent{folder: f, site: setup.Site, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	if a.key, err = bundle.ParseKey(string(key)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.file(keyFile), err)
	}
	secret, err := f.read(identity)
	a.identity = string(secret)
	return a, err
}

// Close lets other processes use the folder.
func (a *Agent) Close() { a.folder.close() }

func (a *Agent) setup() (Setup, error) {
	secret, err := age.ParseX25519Identity(strings.TrimSpace(a.identity))
	if err != nil {
		return Setup{}, fmt.Errorf("reading %s: it is not an identity of age", a.folder.file(identity))
	}
	return Setup{a.site, bundle.PublicText(a.key), secret.Recipient().String()}, nil
}

// Accept makes a bundle the desired state of the site, if one of the keys has signed it, it is for
// the site and not older than the one before, and all of it can be read; otherwise it changes
// nothing. older permits an older one. ErrDenied and ErrConflict are refusals.
func (a *Agent) Accept(ctx context.Context, file string, keys []ed25519.PublicKey, older bool) (bundle.Statement, error) {
	if err := a.copyFrom(ctx, file); err != nil {
		return bundle.Statement{}, fmt.Errorf("copying %s into %s, nothing was changed: %w", file, a.folder.path, err)
	}
	s, err := a.acceptDraft(keys, older)
	if err != nil {
		_ = os.Remove(a.folder.file(bundleFile) + draftSuffix)
		return bundle.Statement{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// copyFrom copies a file before it is verified: what is applied is what was verified, whatever
// becomes of the file.
func (a *Agent) copyFrom(ctx context.Context, file string) error {
	from, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator names the file; a pipe would block
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > bundle.MaxSize {
		return tko.Errorf(tko.ErrInvalid, "it is not a file of at most %d bytes", bundle.MaxSize)
	}
	return a.folder.draft(bundleFile, func(w io.Writer) error {
		n, err := io.Copy(w, io.LimitReader(from, bundle.MaxSize+1))
		if err == nil && n > bundle.MaxSize {
			err = tko.Errorf(tko.ErrInvalid, "it has more than %d bytes", bundle.MaxSize)
		}
		return cmp.Or(err, context.Cause(ctx))
	})
}

func (a *Agent) acceptDraft(keys []ed25519.PublicKey, older bool) (bundle.Statement, error) {
	s, done, err := a.verified(bundleFile+draftSuffix, keys)
	if err != nil {
		return bundle.Statement{}, err
	}
	defer done()
	was, err := a.accepted()
	if err != nil {
		return bundle.Statement{}, err
	}
	if was != nil && s.Statement.Before(*was) && !older {
		return bundle.Statement{}, tko.Errorf(tko.ErrConflict, "it is older than the one that was applied last: it is %s, and that one is %s: carry a newer one, or go back on purpose with --allow-older", s.Statement, was)
	}
	if _, err := a.records(s); err != nil { // all of it can be read
		return bundle.Statement{}, err
	}
	return s.Statement, a.folder.keep(bundleFile)
}

// verified opens a bundle of the folder that is for this agent.
func (a *Agent) verified(name string, keys []ed25519.PublicKey) (b *bundle.File, done func(), err error) {
	file, err := os.Open(a.folder.file(name))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	b, err = bundle.Open(file, info.Size(), bundle.TypeBundle, keys...)
	if err != nil {
		return nil, nil, err
	}
	if b.Statement.Site != a.site {
		return nil, nil, tko.Errorf(tko.ErrDenied, "it is for site %q, and this agent is of site %q: carry the bundle of this site", b.Statement.Site, a.site)
	}
	return b, func() { _ = file.Close() }, nil
}

// accepted returns the statement of the bundle that was accepted last; nil if there is none. It was
// verified when it was accepted, by keys that may have been replaced since.
func (a *Agent) accepted() (*bundle.Statement, error) {
	file, err := os.Open(a.folder.file(bundleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	s, err := bundle.Claimed(file, info.Size(), bundle.TypeBundle)
	if err != nil {
		return nil, fmt.Errorf("the bundle that was applied last, %s: %w", a.folder.file(bundleFile), err)
	}
	return &s, nil
}
