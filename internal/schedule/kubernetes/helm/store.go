package helm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/lru"
)

const (
	maxArchive = 20 << 20  // bytes of a chart's archive
	maxUnpack  = 64 << 20  // bytes of a chart's files
	maxIndex   = 64 << 20  // bytes of a repository's index
	maxCached  = 256 << 20 // bytes of all cached charts
	maxKnown   = 10_000    // references that are cached

	downloadLimit = time.Minute
)

// Times for which a resolved reference is cached. Published versions rarely change;
// the newest version does.
const (
	keptVersion = time.Hour
	keptNewest  = time.Minute
)

// StoreOptions are the settings of a Store. The zero value works.
type StoreOptions struct {
	Folder string       // folder of charts by path; none if empty
	Guard  *guard.Guard // limits the addresses of charts; no limits if nil

	// Credentials is the path of a config.json as docker login writes it: credentials
	// for registries and repositories, by host or path below a host. None are sent if
	// it is empty.
	Credentials string
}

// A Store reads and caches charts. It is safe for concurrent use, and does not need
// to be closed.
type Store struct {
	options StoreOptions
	client  *http.Client // for downloads
	flights singleflight.Group
	cache   *lru.Cache[string, *Chart] // by digest

	mu    sync.Mutex
	known map[Reference]resolved
	trees map[string]tree // folders by path, as they were last read
}

// A resolved is the digest that a reference led to, and how long it is valid.
type resolved struct {
	digest string
	until  time.Time
}

// A Chart is a chart that was read. It is immutable.
type Chart struct {
	// Digest identifies the chart's content.
	Digest string

	archive []byte                  // the archive, or
	files   []*archive.BufferedFile // the files of a folder
}

// load unpacks the chart. Each call returns a new one, because Helm changes the
// charts that it renders.
func (c *Chart) load() (*chart.Chart, error) {
	files := c.files
	if c.archive != nil {
		var err error
		if files, err = archive.LoadArchiveFiles(bytes.NewReader(c.archive)); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "its archive is invalid: %s", err)
		}
	}
	copies := make([]*archive.BufferedFile, len(files))
	for i, f := range files {
		copies[i] = &archive.BufferedFile{Name: f.Name, ModTime: f.ModTime, Data: bytes.Clone(f.Data)}
	}
	made, err := loader.LoadFiles(copies)
	if err == nil {
		err = made.Validate()
	}
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not a chart: %s", err)
	}
	if made.Metadata.Type == "library" {
		return nil, tko.Errorf(tko.ErrInvalid, "it is a library for other charts, and can't be installed")
	}
	for _, d := range made.Metadata.Dependencies {
		if !slices.ContainsFunc(made.Dependencies(), func(c *chart.Chart) bool { return c.Name() == d.Name }) {
			return nil, tko.Errorf(tko.ErrInvalid, "the chart %q that it depends on is not in it: use helm dependency update before it is packaged", d.Name)
		}
	}
	return made, nil
}

// bound sets the library's limit, which is global to the process.
var bound = sync.OnceFunc(func() { archive.MaxDecompressedChartSize = maxUnpack })

// NewStore returns a Store.
func NewStore(o StoreOptions) *Store {
	bound()
	s := &Store{options: o, known: map[Reference]resolved{}, cache: lru.New[string, *Chart](maxCached), trees: map[string]tree{}}
	if o.Folder != "" {
		if absolute, err := filepath.Abs(o.Folder); err == nil {
			s.options.Folder = absolute
		}
	}
	s.client = &http.Client{Transport: o.Guard.Transport(), CheckRedirect: s.redirect}
	return s
}

// within makes an absolute path into the folder of charts relative.
func (s *Store) within(r Reference) Reference {
	if r.Repository != "" || s.options.Folder == "" || !filepath.IsAbs(r.Chart) {
		return r
	}
	if relative, err := filepath.Rel(s.options.Folder, r.Chart); err == nil && filepath.IsLocal(relative) {
		r.Chart = relative
	}
	return r
}

// Digest returns a digest that changes with the chart that a reference leads to,
// without any request. It is empty for fetched charts, which don't change. Errors are
// tko.ErrInvalid if the reference is invalid.
func (s *Store) Digest(r Reference) (string, error) {
	r = s.within(r)
	at, err := r.place()
	if err != nil || at != inFolder {
		return "", err
	}
	c, err := s.fromFolder(r)
	if err != nil {
		return "", err
	}
	return c.Digest, nil
}

// Get returns a chart from the cache, or fetches it. Concurrent calls share one
// download. Errors name the reference; they are tko.ErrInvalid if only another
// reference helps.
func (s *Store) Get(ctx context.Context, r Reference) (*Chart, error) {
	r = s.within(r)
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	if at == inFolder {
		return s.fromFolder(r)
	}
	if c := s.cached(r); c != nil {
		return c, nil
	}
	flight := s.flights.DoChan(fmt.Sprintf("%q", r), func() (any, error) {
		// Other callers share the download: this caller's context must not end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downloadLimit)
		defer cancel()
		data, err := s.fetch(ctx, at, r)
		if err != nil {
			return nil, fmt.Errorf("fetch %s: %w", r, err)
		}
		return s.addToCache(r, data), nil
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case result := <-flight:
		c, _ := result.Val.(*Chart)
		return c, result.Err
	}
}

func (s *Store) fetch(ctx context.Context, at place, r Reference) ([]byte, error) {
	switch at {
	case inRegistry:
		data, err := s.fromRegistry(ctx, r)
		return data, explain(err)
	case inRepository:
		return s.fromRepository(ctx, r)
	default:
		return s.download(ctx, r.Chart, maxArchive)
	}
}

// cached returns the cached chart of a reference, if the cache entry is still valid.
func (s *Store) cached(r Reference) *Chart {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.known[r]
	if !ok || time.Now().After(found.until) {
		return nil
	}
	c, _ := s.cache.Get(found.digest)
	return c
}

// addToCache adds a chart to the cache, and removes the least recently used ones.
func (s *Store) addToCache(r Reference, data []byte) *Chart {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	until := time.Now().Add(keptVersion)
	if r.Version == "" {
		until = time.Now().Add(keptNewest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[r] = resolved{digest: digest, until: until}
	if c, ok := s.cache.Get(digest); ok {
		return c
	}
	c := &Chart{Digest: digest, archive: data}
	s.cache.Put(digest, c, len(data))
	return c
}

// download fetches a URL, with a limit in bytes.
func (s *Store) download(ctx context.Context, location string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not a URL: %s", location, err)
	}
	request.Header.Set("User-Agent", "tko-meta-scheduler")
	if err := s.authorize(request); err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responded %s%s", location, guard.Status(response.StatusCode), refused(response.StatusCode))
	}
	return readBounded(response.Body, limit)
}

func readBounded(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tko.Errorf(tko.ErrInvalid, "it is larger than %d MiB", limit>>20)
	}
	return data, nil
}

// openFolder opens the folder of charts. The root keeps paths and links within it.
func (s *Store) openFolder() (*os.Root, error) {
	if s.options.Folder == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "spec.chart: this meta-scheduler has no folder of charts: its operator names one with --charts, or the chart is in a repository (spec.repository), at a URL or at oci://…")
	}
	root, err := os.OpenRoot(s.options.Folder)
	if err != nil {
		return nil, fmt.Errorf("open the folder of charts: %w", plainError(err))
	}
	return root, nil
}
