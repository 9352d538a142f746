package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/guard"
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
	url     string // for go-git
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
	_, address, _, err := o.Guard.Git(context.Background(), o.URL)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the URL of the repository: %w", err)
	}
	return &Repository{options: o, url: address}, o.Credentials.check()
}

// guarded returns a context for requests, and options of connections over ssh.
func (r *Repository) guarded(ctx context.Context) (context.Context, transport.ProxyOptions, error) {
	ctx, _, proxy, err := r.options.Guard.Git(ctx, r.options.URL)
	return ctx, proxy, err
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
	auth, err := r.auth()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, fmt.Errorf("the repository did not respond within %s", r.options.Timeout))
	defer cancel()
	ca, err := r.ca()
	if err != nil {
		return nil, err
	}
	ctx, proxy, err := r.guarded(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := git.NewRemote(memory.NewStorage(), r.remote()).ListContext(ctx, &git.ListOptions{Auth: auth.Method, CABundle: ca, ProxyOptions: proxy, PeelingOption: git.AppendPeeled})
	if err != nil {
		return nil, auth.Hide(explain(ctx, r.hide(err)))
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

func (r *Repository) remote() *config.RemoteConfig {
	return &config.RemoteConfig{Name: "origin", URLs: []string{r.url}}
}

func (r *Repository) ca() ([]byte, error) {
	if r.options.CAFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(r.options.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificates: %w", err)
	}
	return data, nil
}

// choose returns the reference that ref names: a branch, a tag or a full name; HEAD
// if it is empty.
func choose(refs []*plumbing.Reference, ref string) (plumbing.ReferenceName, plumbing.Hash, error) {
	names := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, r := range refs {
		names[r.Name()] = r
	}
	wanted := []plumbing.ReferenceName{plumbing.NewBranchReferenceName(ref), plumbing.NewTagReferenceName(ref), plumbing.ReferenceName(ref)}
	if ref == "" {
		wanted = []plumbing.ReferenceName{plumbing.HEAD}
	}
	for _, name := range wanted {
		found := names[name]
		if found != nil && found.Type() == plumbing.SymbolicReference {
			found = names[found.Target()]
		}
		if found == nil {
			continue
		}
		hash := found.Hash()
		if peeled := names[found.Name()+"^{}"]; peeled != nil {
			hash = peeled.Hash()
		}
		return found.Name(), hash, nil
	}
	if ref == "" {
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
	if err := s.transfer(ctx, func(ctx context.Context, o git.FetchOptions) error { return r.fetch(ctx, s.git, hash, o) }); err != nil {
		return nil, err
	}
	return s.checkout(ctx, hash, "")
}

// fetch gets one commit without its history. If the server serves no commits by
// hash, it fetches the branch or tag.
func (r *Repository) fetch(ctx context.Context, repository *git.Repository, hash plumbing.Hash, o git.FetchOptions) error {
	if _, err := repository.CreateRemote(r.remote()); err != nil {
		return err
	}
	o.Depth, o.Tags, o.Force = 1, git.NoTags, true
	const to = ":refs/tko/revision"
	o.RefSpecs = []config.RefSpec{config.RefSpec(hash.String() + to)}
	err := repository.FetchContext(ctx, &o)
	if _, found := repository.CommitObject(hash); err == nil && found == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if plumbing.IsHash(r.options.Ref) { // fetch everything
		o.Depth, o.RefSpecs = 0, []config.RefSpec{"+refs/heads/*:refs/tko/heads/*", "+refs/tags/*:refs/tko/tags/*"}
		if err := repository.FetchContext(ctx, &o); err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
			return err
		}
		if _, err := repository.CommitObject(hash); err != nil {
			return tko.Errorf(tko.ErrInvalid, "the repository has no commit %q on a branch or tag", hash)
		}
		return nil
	}
	refs, listErr := git.NewRemote(memory.NewStorage(), r.remote()).ListContext(ctx, &git.ListOptions{Auth: o.Auth, CABundle: o.CABundle, ProxyOptions: o.ProxyOptions, PeelingOption: git.AppendPeeled})
	if listErr != nil {
		return listErr
	}
	name, now, err := choose(refs, r.options.Ref)
	if err != nil {
		return err
	}
	if now != hash {
		return errors.New("the repository has a newer revision by now")
	}
	o.RefSpecs = []config.RefSpec{config.RefSpec("+" + name.String() + to)}
	if err := repository.FetchContext(ctx, &o); err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return err
	}
	_, err = repository.CommitObject(hash)
	return err
}

// checkout copies the regular files of a commit, in a folder that may not exist; "" for
// all.
func (s *Session) checkout(ctx context.Context, hash plumbing.Hash, folder string) (_ *tree.Tree, err error) {
	commit, err := s.git.CommitObject(hash)
	if err != nil {
		return nil, err
	}
	files, err := commit.Tree()
	if err == nil && folder != "" {
		files, err = files.Tree(folder)
	}
	if errors.Is(err, object.ErrDirectoryNotFound) {
		files, err = &object.Tree{}, nil
	}
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
	walker := object.NewTreeWalker(files, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		switch {
		case errors.Is(err, io.EOF):
			return w.Tree(), nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case entry.Mode != filemode.Regular && entry.Mode != filemode.Executable && entry.Mode != filemode.Deprecated:
			continue // links and submodules
		}
		name = path.Join(folder, name)
		if err := add(w, s.git, name, entry.Hash); err != nil {
			return nil, err
		}
		if entry.Mode == filemode.Executable {
			if err := w.Executable(name); err != nil {
				return nil, err
			}
		}
	}
}

func add(w *tree.Writer, repository *git.Repository, name string, hash plumbing.Hash) error {
	blob, err := repository.BlobObject(hash)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	content, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = content.Close() }()
	return w.Add(name, content)
}
