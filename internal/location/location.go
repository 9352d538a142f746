package location

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/krm"
)

// MaxBytes is the default limit of a package's size, as text.
const MaxBytes = 64 << 20

// expansion is the ratio of the bytes that may be read to MaxBytes: an archive or
// repository may hold more than the wanted part.
const expansion = 8

// maxFiles is the largest number of files at a location.
const maxFiles = 100_000

// Options are the settings of reading. The zero value works.
type Options struct {
	MaxBytes int64        // of the package; [MaxBytes] if 0
	HTTP     *http.Client // for http and https; one with a time limit if nil

	// Guard restricts what may be read. If nil, everything may.
	Guard *guard.Guard
	// Takes selects files of directories, archives and repositories by name. If nil,
	// these are .yaml and .yml files and Kptfiles whose path has no part that begins
	// with a dot.
	Takes func(name string) bool
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, MaxBytes)
	if o.HTTP == nil {
		o.HTTP = &http.Client{Timeout: 5 * time.Minute}
		if o.Guard != nil {
			o.HTTP.Transport = o.Guard.Transport()
		}
	}
	if o.Takes == nil {
		o.Takes = wanted
	}
	return o
}

// A file is one file at a location.
type file struct {
	name string // slash-separated, relative to the location
	data []byte
}

// Read reads the package at a location, which is one of
//
//   - a file, of any name
//   - a directory: all .yaml and .yml files and Kptfiles in it and below, in
//     the order of their names, except names that begin with a dot. kpt's resources
//     of the same name in several folders are renamed
//   - an archive (tar, tar.gz, zip), as a directory
//   - an http or https URL of a file or an archive
//   - a git repository, as a directory: a git: or ssh: URL, user@host:path, or
//     any URL or path that ends in .git; #NAME or ?ref=NAME chooses a branch, a
//     tag or a commit
//   - LOCATION!/PATH: a file or directory within an archive or repository; also
//     written tar:LOCATION!PATH, zip:LOCATION!PATH and git:LOCATION!PATH
//
// Errors name the location, without passwords, and the file in it. If the content or
// the location is invalid, the error is a [tko.ErrInvalid].
func Read(ctx context.Context, location string, options Options) (krm.Package, error) {
	options = options.withDefaults()
	loc, err := parse(location)
	if err != nil {
		return nil, err
	}
	files, err := loc.read(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", loc, err)
	}
	return decode(loc.String(), files, options)
}

// ReadFiles reads the files at a location. The keys are their names, relative to the
// location; "" if the location is a single file. Locations and errors are those of
// [Read], but the content is not parsed.
func ReadFiles(ctx context.Context, location string, options Options) (map[string][]byte, error) {
	options = options.withDefaults()
	loc, err := parse(location)
	if err != nil {
		return nil, err
	}
	files, err := loc.read(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", loc, err)
	}
	all := make(map[string][]byte, len(files))
	for _, f := range files {
		all[f.name] = f.data
	}
	return all, nil
}

// ReadStream reads a package, as YAML, from r. Errors call it name.
func ReadStream(ctx context.Context, r io.Reader, name string, options Options) (krm.Package, error) {
	options = options.withDefaults()
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	// A read from a terminal can't be cancelled: when the context ends, the
	// goroutine stays until the process ends.
	go func() {
		data, err := readBounded(r, options.MaxBytes)
		done <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", name, context.Cause(ctx))
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("read %s: %w", name, r.err)
		}
		return decode(name, []file{{data: r.data}}, options)
	}
}

func decode(name string, files []file, options Options) (krm.Package, error) {
	parts := make([]krm.Package, len(files))
	for i, f := range files {
		part, err := krm.Decode(krm.YAML, f.data, krm.Limits{Bytes: int(options.MaxBytes)})
		if err == nil {
			err = part.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(name+": "+f.name, ": "), err)
		}
		parts[i] = part
	}
	if len(files) > 1 {
		separate(files, parts)
	}
	var pkg krm.Package
	from := map[krm.Identity]string{}
	for i, f := range files {
		for _, r := range parts[i] {
			id := r.Identity()
			if first, ok := from[id]; ok {
				return nil, tko.Errorf(tko.ErrInvalid, "%s: %s is also in %s: a package can hold it once", strings.TrimSuffix(name+": "+f.name, ": "), id, first)
			}
			from[id] = f.name
		}
		pkg = append(pkg, parts[i]...)
	}
	return pkg, nil
}

// A location is a parsed location.
type location struct {
	kind   kind
	base   string // a path or a URL
	ref    string // of a repository
	within string // path inside the archive or repository, clean, relative; "" for all of it
	inside bool   // the location has a path within, which may be ""
}

type kind int

const (
	kindPath kind = iota
	kindHTTP
	kindGit
)

// String returns the location without passwords.
func (l location) String() string {
	s := l.base
	if u, err := url.Parse(l.base); err == nil && u.User != nil {
		s = u.Redacted()
	}
	if l.ref != "" {
		s += "#" + l.ref
	}
	if l.within != "" {
		s += "!/" + l.within
	}
	return s
}

func parse(text string) (location, error) {
	if text == "" {
		return location{}, tko.Errorf(tko.ErrInvalid, "the location of the package is empty: name a file, a directory or a URL")
	}
	if strings.ContainsRune(text, 0) {
		return location{}, tko.Errorf(tko.ErrInvalid, "the location %.80q has a NUL character", text)
	}
	l, rest := location{base: text}, text
	nested := false
	for _, prefix := range []string{"tar:", "zip:", "git:"} {
		// git://host is a URL of its own.
		if after, ok := strings.CutPrefix(text, prefix); ok && !strings.HasPrefix(after, "//") {
			rest, nested = after, true
			if prefix == "git:" {
				l.kind = kindGit
			}
		}
	}
	mark := "!/"
	if nested {
		mark = "!"
	}
	if i := strings.LastIndex(rest, mark); i >= 0 && (nested || !exists(rest)) {
		within, err := cleanWithin(rest[i+1:], &l)
		if err != nil {
			return location{}, tko.Errorf(tko.ErrInvalid, "the location %q: %s", text, err)
		}
		l.within, l.inside, rest = within, true, rest[:i]
	}
	l.base = rest
	return l.classify()
}

// cleanWithin returns the clean path within an archive or repository. It sets the
// ref if the path ends with one.
func cleanWithin(p string, l *location) (string, error) {
	if before, ref, ok := strings.Cut(p, "#"); ok {
		p, l.ref = before, ref
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", errors.New("the path after the ! has a .. in it")
		}
	}
	return strings.TrimPrefix(path.Clean("/"+p), "/"), nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// classify sets the kind of the location.
func (l location) classify() (location, error) {
	if l.kind == kindPath && exists(l.base) {
		return l, nil
	}
	if scp(l.base) {
		l.kind = kindGit
	}
	base, fragment, _ := strings.Cut(l.base, "#")
	u, err := url.Parse(l.base)
	if err != nil || u.Scheme == "" || len(u.Scheme) == 1 || scp(l.base) {
		// A path, or user@host:path of a repository.
		if strings.HasSuffix(strings.TrimSuffix(base, "/"), ".git") || l.kind == kindGit {
			l.kind, l.base, l.ref = kindGit, base, cmp.Or(fragment, l.ref)
		}
		return l, nil
	}
	switch strings.TrimPrefix(u.Scheme, "git+") {
	case "http", "https":
		if l.kind != kindGit && !strings.HasPrefix(u.Scheme, "git+") && !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), ".git") {
			l.kind = kindHTTP
			return l, nil
		}
		return l.git(u), nil
	case "git", "ssh":
		return l.git(u), nil
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return location{}, tko.Errorf(tko.ErrInvalid, "the location %q is on the host %q: file URLs are for this machine, file:///PATH", l.base, u.Host)
		}
		if l.kind == kindGit || strings.HasPrefix(u.Scheme, "git+") || strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), ".git") {
			l = l.git(u)
		}
		l.base = u.Path
		return l, nil
	default:
		return location{}, tko.Errorf(tko.ErrInvalid, "the location %q has the scheme %q: use a path, or file, http, https, git or ssh", u.Redacted(), u.Scheme)
	}
}

func (l location) git(u *url.URL) location {
	l.kind = kindGit
	query := u.Query()
	l.ref = cmp.Or(u.Fragment, query.Get("ref"), l.ref)
	query.Del("ref")
	u.Fragment, u.RawFragment, u.RawQuery = "", "", query.Encode()
	u.Scheme = strings.TrimPrefix(u.Scheme, "git+")
	l.base = u.String()
	return l
}

// scp reports whether a location has the form user@host:path.
func scp(s string) bool {
	host, _, ok := strings.Cut(s, ":")
	return ok && strings.Contains(host, "@") && !strings.Contains(host, "/") && !strings.Contains(s, "://")
}

func (l location) read(ctx context.Context, options Options) ([]file, error) {
	switch l.kind {
	case kindGit:
		return readGit(ctx, l, options)
	case kindHTTP:
		return l.readHTTP(ctx, options)
	default:
		return l.readPath(ctx, options)
	}
}

func (l location) readPath(ctx context.Context, options Options) ([]file, error) {
	if err := options.Guard.Folder(l.base); err != nil {
		return nil, err
	}
	info, err := os.Stat(l.base)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", plain(err))
	}
	switch {
	case info.IsDir() && gitclient.IsBare(l.base):
		return readGit(ctx, l, options)
	case info.IsDir() && l.inside:
		return nil, tko.Errorf(tko.ErrInvalid, "it is a directory: name the file in it with / and no !")
	case info.IsDir():
		return readDirectory(ctx, l.base, options)
	}
	f, err := os.Open(l.base)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", plain(err))
	}
	defer func() { _ = f.Close() }()
	return l.readFile(ctx, f, options)
}

func (l location) readHTTP(ctx context.Context, options Options) ([]file, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.base, http.NoBody)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not a URL: %w", plain(err))
	}
	response, err := options.HTTP.Do(request)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server responded %s", guard.Status(response.StatusCode))
	}
	return l.readFile(ctx, response.Body, options)
}

// readFile reads a file or, if it begins like one, an archive.
func (l location) readFile(ctx context.Context, r io.Reader, options Options) ([]file, error) {
	data, err := readBounded(r, options.MaxBytes)
	if err != nil {
		return nil, err
	}
	unpack := archive(data)
	if unpack != nil {
		return unpack(ctx, data, l.within, options)
	}
	if l.inside {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not an archive (tar, tar.gz, zip), so it contains no paths")
	}
	return []file{{data: data}}, nil
}

// readBounded reads all of r. If that is more than limit bytes, the error is an
// ErrInvalid.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, plain(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

func tooLarge(limit int64) error {
	return tko.Errorf(tko.ErrInvalid, "it is too large: at most %s are read", bytesText(limit))
}

func bytesText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// plain removes the path or URL from an error, because the caller adds it.
func plain(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// wanted is the default of Options.Takes.
func wanted(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return false
		}
	}
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml" || path.Base(name) == kptfile
}

// A selection collects the selected files of a tree, within limits.
type selection struct {
	within  string
	options Options
	files   []file
	bytes   int64
	found   bool // within exists
}

// takes reports whether the file with a name (slash-separated, clean, relative) is
// selected.
func (s *selection) takes(name string) bool {
	if s.within == "" {
		s.found = true
		return s.options.Takes(name)
	}
	if name == s.within {
		s.found = true
		return true // the location names this file: any extension
	}
	rest, ok := strings.CutPrefix(name, s.within+"/")
	if !ok {
		return false
	}
	s.found = true
	return s.options.Takes(rest)
}

func (s *selection) add(name string, r io.Reader) error {
	if len(s.files) == maxFiles {
		return tko.Errorf(tko.ErrInvalid, "it has too many files: at most %d are read", maxFiles)
	}
	data, err := readBounded(r, s.options.MaxBytes-s.bytes)
	if err != nil {
		if errors.Is(err, tko.ErrInvalid) {
			err = tooLarge(s.options.MaxBytes)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	s.bytes += int64(len(data))
	s.files = append(s.files, file{name: name, data: data})
	return nil
}

// result returns the files, sorted by name.
func (s *selection) result() ([]file, error) {
	if !s.found && s.within != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "it contains no %q", s.within)
	}
	if len(s.files) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "it contains no .yaml or .yml files")
	}
	slices.SortStableFunc(s.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return s.files, nil
}
