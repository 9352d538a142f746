package repository

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// Options are the settings of a Repository. URL is required.
type Options struct {
	URL string // https://, http://, ssh:// or user@host:path; file:// on this machine. Without credentials
	// Ref is a branch, a tag, a whole reference (refs/…) or a commit; the
	// repository's HEAD if empty.
	Ref         string
	Credentials Credentials
	CAFile      string // CA certificates, in PEM, for https servers; the system's if empty
	Limits      tree.Limits
	Dir         string        // for the files of revisions; the system's temporary folder if empty
	Timeout     time.Duration // of a response; 1 min if 0. A transfer may take ten times as long
	// Guard limits the hosts. If nil, all are allowed, and folders of this machine.
	Guard *guard.Guard
	// User uses the credentials; Folder has the files that sources in the store name.
	User   leash.User
	Folder string
}

// Credentials name files, which are read for each connection, so they may change.
type Credentials struct {
	Username       string
	PasswordFile   string
	TokenFile      string
	SSHKeyFile     string
	KnownHostsFile string
}

// A Repository is a remote git repository. It is a gitops.Fetcher.
type Repository struct {
	options Options
}

var scp = regexp.MustCompile(`^[^@:/\s]+@[^:/\s]+:[^\s]+$`)

// New returns a Repository, without connecting to it. The error is an ErrInvalid.
func New(o Options) (*Repository, error) {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if !scp.MatchString(o.URL) {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository can't be parsed") // the cause may show a secret
		}
		if _, has := u.User.Password(); has {
			return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository at %q contains a password: put it into a file, and name that", u.Host)
		}
		if u.User != nil && u.Scheme != "ssh" {
			return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository at %q contains a user or token: put it into a file, and name that", u.Host)
		}
		switch u.Scheme {
		case "https", "http", "ssh", "file":
		default:
			return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository has the scheme %q: use https, http, ssh or file", u.Scheme)
		}
	}
	if _, _, _, err := o.Guard.Git(context.Background(), o.URL); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository: %w", err)
	}
	return &Repository{options: o}, o.Credentials.check()
}

// hide returns an error for users: if hosts are limited, without text of the server.
func (r *Repository) hide(err error) error {
	if r.options.Guard == nil {
		return err
	}
	return guard.GitError(err)
}

// Revision returns the repository's current revision, as NAME@sha1:COMMIT, with one
// request. If Ref is a commit, it makes no request and returns sha1:COMMIT.
func (r *Repository) Revision(ctx context.Context) (string, error) {
	if plumbing.IsHash(r.options.Ref) {
		return "sha1:" + r.options.Ref, nil
	}
	refs, err := r.refs(ctx)
	if err != nil {
		return "", err
	}
	name, hash, err := choose(refs, r.options.Ref)
	if err != nil {
		return "", err
	}
	return name.Short() + "@sha1:" + hash.String(), nil
}

// refs returns the references of the repository, with one request.
func (r *Repository) refs(ctx context.Context) ([]*plumbing.Reference, error) {
	remote, err := r.remote()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, fmt.Errorf("the repository did not respond within %s", r.options.Timeout))
	defer cancel()
	refs, err := remote.Refs(ctx)
	if err != nil {
		return nil, remote.Auth.Hide(explain(ctx, r.hide(err)))
	}
	return refs, nil
}

// Commits returns the commits of all tags (tags/NAME) and branches (heads/NAME), with one
// request.
func (r *Repository) Commits(ctx context.Context) (map[string]string, error) {
	refs, err := r.refs(ctx)
	if err != nil {
		return nil, err
	}
	commits := map[string]string{}
	for _, peeled := range []bool{false, true} { // the commit of an annotated tag replaces the tag's own hash
		for _, ref := range refs {
			name, isPeeled := strings.CutSuffix(ref.Name().String(), "^{}")
			name, ok := strings.CutPrefix(name, "refs/")
			if ok && isPeeled == peeled && (strings.HasPrefix(name, Tags) || strings.HasPrefix(name, Branches)) {
				commits[name] = ref.Hash().String()
			}
		}
	}
	return commits, nil
}

// remote returns the remote repository, with the credentials and CAs that the files have now.
func (r *Repository) remote() (gitclient.Remote, error) {
	auth, err := r.auth()
	if err != nil || r.options.CAFile == "" {
		return gitclient.Remote{URL: r.options.URL, Auth: auth, Guard: r.options.Guard}, err
	}
	ca, err := os.ReadFile(r.options.CAFile)
	if err != nil {
		return gitclient.Remote{}, fmt.Errorf("read the CA certificates: %w", err)
	}
	return gitclient.Remote{URL: r.options.URL, Auth: auth, CA: ca, Guard: r.options.Guard}, nil
}

// choose returns the reference that ref names: see [gitclient.Choose].
func choose(refs []*plumbing.Reference, ref string) (plumbing.ReferenceName, plumbing.Hash, error) {
	name, hash, ok := gitclient.Choose(refs, ref)
	switch {
	case ok:
		return name, hash, nil
	case ref == "":
		return "", plumbing.ZeroHash, errors.New("the repository is empty, or its HEAD names no branch: set a branch")
	}
	return "", plumbing.ZeroHash, fmt.Errorf("the repository has no branch or tag %q", ref)
}

// explain replaces errors of git by ones that users can act on.
func explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return errors.New("repository not found, or it needs credentials")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return errors.New("the repository is empty")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return errors.New("the repository refuses the credentials")
	}
	return err
}

// Fetch returns the files of a revision. The caller closes them.
func (r *Repository) Fetch(ctx context.Context, revision string) (*tree.Tree, error) {
	_, commit, ok := strings.Cut(revision, "sha1:")
	if !ok || !plumbing.IsHash(commit) {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not a revision of a git repository", revision)
	}
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	hash := plumbing.NewHash(commit)
	if err := s.transfer(ctx, func(ctx context.Context, from gitclient.Remote) error { return r.fetch(ctx, s.objects, hash, from) }); err != nil {
		return nil, err
	}
	return s.checkout(ctx, hash)
}

// FetchHead returns the files of a commit, by its hash, or by a reference if the server serves
// no commits by their hashes. The caller closes them.
func (r *Repository) FetchHead(ctx context.Context, commit, ref string) (*tree.Tree, error) {
	return r.fetchCommit(ctx, commit, ref, 1)
}

// FetchPast returns the files of a commit, by its hash, or in the history of a reference if the
// server serves no commits by their hashes. The caller closes them.
func (r *Repository) FetchPast(ctx context.Context, commit, ref string) (*tree.Tree, error) {
	return r.fetchCommit(ctx, commit, ref, 0)
}

// fetchCommit fetches a commit, or else a reference, with that many commits of its history; 0
// for all.
func (r *Repository) fetchCommit(ctx context.Context, commit, ref string, depth int) (*tree.Tree, error) {
	if !plumbing.IsHash(commit) {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not a commit", commit)
	}
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	hash := plumbing.NewHash(commit)
	err = s.transfer(ctx, func(ctx context.Context, from gitclient.Remote) error {
		var err error
		for i, name := range []string{commit, "+" + ref} {
			err = from.Fetch(ctx, s.objects.Storer, []int{1, depth}[i], config.RefSpec(name+":refs/tko/head"))
			if _, found := s.objects.CommitObject(hash); err == nil && found == nil || ctx.Err() != nil {
				return err
			}
		}
		if err == nil {
			err = errMoved
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.checkout(ctx, hash)
}

// fetch gets one commit without its history. If the server serves no commits by
// hash, it fetches the branch or tag.
func (r *Repository) fetch(ctx context.Context, into *gitclient.Objects, hash plumbing.Hash, from gitclient.Remote) error {
	const to = ":refs/tko/revision"
	err := from.Fetch(ctx, into.Storer, 1, config.RefSpec(hash.String()+to))
	if _, found := into.CommitObject(hash); err == nil && found == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if plumbing.IsHash(r.options.Ref) { // fetch everything
		if err := from.Fetch(ctx, into.Storer, 0, "+refs/heads/*:refs/tko/heads/*", "+refs/tags/*:refs/tko/tags/*"); err != nil {
			return err
		}
		if _, err := into.CommitObject(hash); err != nil {
			return tko.Errorf(tko.ErrInvalid, "the repository has no commit %q on a branch or tag", hash)
		}
		return nil
	}
	refs, err := from.Refs(ctx)
	if err != nil {
		return err
	}
	name, now, err := choose(refs, r.options.Ref)
	if err != nil {
		return err
	}
	if now != hash {
		return errors.New("the repository has a newer revision by now")
	}
	if err := from.Fetch(ctx, into.Storer, 1, config.RefSpec("+"+name.String()+to)); err != nil {
		return err
	}
	_, err = into.CommitObject(hash)
	return err
}

// checkout copies the regular files of a commit.
func (s *Session) checkout(ctx context.Context, hash plumbing.Hash) (_ *tree.Tree, err error) {
	commit, err := s.objects.CommitObject(hash)
	if err != nil {
		return nil, err
	}
	files, err := commit.Tree()
	if err != nil {
		return nil, err
	}
	w, err := tree.Create(s.repository.options.Dir, s.repository.options.Limits)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.Discard()
		}
	}()
	for f, err := range gitclient.Files(s.objects.Repository, files) {
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := add(w, f); err != nil {
			return nil, err
		}
	}
	return w.Tree(), nil
}

func add(w *tree.Writer, f gitclient.File) error {
	content, _, err := f.Open()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	err = w.Add(f.Name, content)
	if err = errors.Join(err, content.Close()); err != nil || !f.Executable {
		return err
	}
	return w.Executable(f.Name)
}
