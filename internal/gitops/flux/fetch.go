package flux

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/zeebo/blake3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// An Artifact is the artifact in the status of a Flux object.
type Artifact struct {
	URL      string            `json:"url"`
	Revision string            `json:"revision"`
	Digest   string            `json:"digest"` // ALGORITHM:HEX
	Metadata map[string]string `json:"metadata"`
}

// Origin returns the revision from which the artifact was made, if it is known: for
// an image, the commit.
func (a Artifact) Origin() string { return a.Metadata["org.opencontainers.image.revision"] }

// generation changes with the revision and with the content: either may change
// alone.
func (a Artifact) generation() string { return a.Revision + "/" + a.Digest }

// FetchOptions are the settings of a Fetcher. The zero value works.
type FetchOptions struct {
	Dir      string        // for files; the system's temporary folder if empty
	Limits   tree.Limits   // of the unpacked files
	Download int64         // limit of an artifact in bytes; 100 MiB if 0
	Timeout  time.Duration // of one try; 2 min if 0
	Tries    int           // 4 if 0
	Pause    time.Duration // after the first try, doubled each time; 500 ms if 0
	Guard    *guard.Guard  // restricts hosts, unless Host is set; all are allowed if nil
	// Host, if not empty, replaces the host of the URL: for controllers that run
	// outside of the cluster.
	Host string
}

// A Fetcher gets artifacts. It is safe for concurrent use.
type Fetcher struct {
	options FetchOptions
	client  *http.Client
}

// NewFetcher returns a Fetcher.
func NewFetcher(o FetchOptions) *Fetcher {
	o.Limits = o.Limits.OrDefault()
	if o.Download == 0 {
		o.Download = 100 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Tries == 0 {
		o.Tries = 4
	}
	if o.Pause == 0 {
		o.Pause = 500 * time.Millisecond
	}
	if o.Host != "" {
		o.Guard = nil // the operator chose the host
	}
	return &Fetcher{options: o, client: &http.Client{
		Transport: o.Guard.Wrap(&http.Transport{
			ResponseHeaderTimeout: 30 * time.Second, TLSHandshakeTimeout: 20 * time.Second,
			IdleConnTimeout: time.Minute, DisableCompression: true, // artifacts are gzipped files
		}),
		// Servers of artifacts don't redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (f *Fetcher) Close() { f.client.CloseIdleConnections() }

// hashes are the digest algorithms of Flux.
var hashes = map[string]func() hash.Hash{
	"sha256": sha256.New,
	"sha384": sha512.New384,
	"sha512": sha512.New,
	"blake3": func() hash.Hash { return blake3.New() },
}

// hashOf parses a digest, ALGORITHM:HEX, into a new hash and the wanted sum.
func hashOf(digest string) (hash.Hash, []byte, error) {
	algorithm, text, _ := strings.Cut(digest, ":")
	make, known := hashes[algorithm]
	switch {
	case digest == "":
		return nil, nil, tko.Errorf(tko.ErrInvalid, "the artifact has no digest and can't be verified")
	case !known:
		return nil, nil, tko.Errorf(tko.ErrInvalid, "the artifact's digest has the algorithm %.20q: use sha256, sha384, sha512 or blake3", algorithm)
	}
	h := make()
	want, err := hex.DecodeString(text)
	if err != nil || len(want) != h.Size() {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "the artifact's digest %.200q is not a %s sum", digest, algorithm)
	}
	return h, want, nil
}

// Fetch returns the files of an artifact. The caller closes them. The error is an
// ErrNotFound if the artifact is no longer stored, because the source has a newer
// one, and an ErrInvalid if it can't be used and a retry won't help. Fetch retries
// transient errors itself.
//
// It reads the archive itself: fluxcd/pkg/tar writes to a folder by its path,
// and counts no files.
func (f *Fetcher) Fetch(ctx context.Context, a Artifact) (*tree.Tree, error) {
	if _, _, err := hashOf(a.Digest); err != nil {
		return nil, err
	}
	target, err := f.target(a.URL)
	if err != nil {
		return nil, err
	}
	archive, err := f.download(ctx, target, a.Digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }()
	return unpack(ctx, archive, f.options.Dir, f.options.Limits)
}

func (f *Fetcher) target(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", tko.Errorf(tko.ErrInvalid, "the artifact's URL %.200q has no http or https scheme", text)
	}
	if f.options.Host != "" {
		u.Host = f.options.Host
	}
	return u.String(), nil
}

// A transientError may not occur again on a retry.
type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// download downloads an artifact into an unnamed file, with retries.
func (f *Fetcher) download(ctx context.Context, target, digest string) (*os.File, error) {
	wait := f.options.Pause
	for try := 1; ; try++ {
		archive, err := f.try(ctx, target, digest)
		var transient *transientError
		if err == nil || !errors.As(err, &transient) || try == f.options.Tries {
			return archive, err
		}
		if err := pause.For(ctx, pause.About(wait, 0.5)); err != nil {
			return nil, err
		}
		wait = min(2*wait, 30*time.Second)
	}
}

func (f *Fetcher) try(ctx context.Context, target, digest string) (_ *os.File, err error) {
	late := fmt.Errorf("the download did not end within %s", f.options.Timeout)
	trying, cancel := context.WithTimeoutCause(ctx, f.options.Timeout, late)
	defer cancel()
	request, err := http.NewRequestWithContext(trying, http.MethodGet, target, nil)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the artifact's URL: %w", err)
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, &transientError{fmt.Errorf("get the artifact: %w", causeOf(trying, err))}
	}
	defer func() { _ = response.Body.Close() }()
	if err := f.check(response); err != nil {
		return nil, err
	}
	archive, err := unnamed(f.options.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = archive.Close()
		}
	}()
	h, want, err := hashOf(digest)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(io.MultiWriter(archive, h), io.LimitReader(response.Body, f.options.Download+1))
	switch {
	case err != nil:
		return nil, &transientError{fmt.Errorf("get the artifact: %w", causeOf(trying, err))}
	case n > f.options.Download:
		return nil, f.tooLong()
	case subtle.ConstantTimeCompare(h.Sum(nil), want) != 1:
		algorithm, _, _ := strings.Cut(digest, ":")
		return nil, tko.Errorf(tko.ErrInvalid, "the artifact's digest is %s:%x, but its source states %s", algorithm, h.Sum(nil), digest)
	}
	_, err = archive.Seek(0, io.SeekStart)
	return archive, err
}

func (f *Fetcher) check(response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return tko.Errorf(tko.ErrNotFound, "the artifact is no longer stored")
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return &transientError{fmt.Errorf("get the artifact: the server responded %s", response.Status)}
	case code != http.StatusOK:
		return tko.Errorf(tko.ErrInvalid, "get the artifact: the server responded %s", response.Status)
	case response.ContentLength > f.options.Download:
		return f.tooLong()
	}
	return nil
}

func (f *Fetcher) tooLong() error {
	return tko.Errorf(tko.ErrInvalid, "the artifact has more than %d bytes", f.options.Download)
}

func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unnamed returns a file without a name, which the system deletes when it is
// closed.
func unnamed(dir string) (*os.File, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	file, err := os.CreateTemp(dir, "tko-artifact-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unpack reads the regular files of an archive, and skips links and all else.
func unpack(ctx context.Context, archive io.Reader, dir string, limits tree.Limits) (_ *tree.Tree, err error) {
	unzipped, err := unzip(archive)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the artifact is no archive: %w", err)
	}
	w, err := tree.Create(dir, limits)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Discard())
		}
	}()
	const header = 4 << 10 // of a file, with a long name
	members := 4 * limits.Files
	bounded := &boundedReader{ctx, unzipped, limits.Bytes + int64(members)*header}
	for r := tar.NewReader(bounded); ; members-- {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return w.Tree(), nil
		case err != nil:
			return nil, unreadable(err)
		case members == 0:
			return nil, tko.Errorf(tko.ErrInvalid, "the artifact has more than %d members", 4*limits.Files)
		case h.Typeflag != tar.TypeReg:
			continue
		}
		if err := w.Add(h.Name, r); err != nil {
			return nil, unreadable(err)
		}
		if h.Mode&0o111 != 0 {
			if err := w.Executable(h.Name); err != nil {
				return nil, err
			}
		}
	}
}

// unzip decompresses the archive if it is gzipped. An OCIRepository that copies a
// layer unchanged may have a plain archive.
func unzip(archive io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(archive)
	const at, magic = 257, "ustar"
	if start, err := buffered.Peek(at + len(magic)); err == nil && string(start[at:]) == magic {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// unreadable makes an error of the archive an ErrInvalid, and returns errors of
// the local system and of the context unchanged.
func unreadable(err error) error {
	for _, kind := range []error{tko.ErrInvalid, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return err
		}
	}
	var path *os.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err // of the local file system
	}
	return tko.Errorf(tko.ErrInvalid, "the artifact is no archive: %w", err)
}

// boundedReader ends after a number of bytes, or with its context.
type boundedReader struct {
	ctx  context.Context //nolint:containedctx // of one call
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "the artifact unpacks to too many bytes")
	}
	return n, err
}
