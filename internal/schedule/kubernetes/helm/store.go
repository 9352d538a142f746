package helm

import (
	"bytes"
	"container/list"
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
)

const (
	maxArchive = 20 << 20  // bytes of a chart as it is fetched
	maxUnpack  = 64 << 20  // and unpacked
	maxIndex   = 64 << 20  // of a repository's index
	maxKept    = 256 << 20 // of all charts that are kept
	maxKnown   = 10_000    // references whose chart is known
)

// How long a reference is known to lead to a chart. Versions don't change, as a
// rule; the newest one does.
const (
	keptVersion = time.Hour
	keptNewest  = time.Minute
)

// StoreOptions are the settings of a Store. The zero value works.
type StoreOptions struct {
	Folder  string        // charts by path are in it; there are none if empty
	Timeout time.Duration // of a download; 1 min if 0
	Client  *http.Client  // for downloads; one that connects to what Guard allows if nil
	Guard   *guard.Guard  // says where charts may come from; from everywhere if nil

	// Credentials is a config.json as docker login writes it: what registries and
	// repositories get, by their host, or what is below a path there. Nobody gets
	// any if it is empty.
	Credentials string
}

// A Store reads charts. It is safe for concurrent use, and holds nothing that
// needs to be closed.
type Store struct {
	options StoreOptions
	flights singleflight.Group

	mu    sync.Mutex
	known map[Reference]resolved
	kept  map[string]*list.Element // of order: a *Chart, by its digest
	order *list.List               // the last used one first
	bytes int
	trees map[string]tree // folders by their path, as they were looked at
}

// resolved is where a reference led, and until when that counts.
type resolved struct {
	digest string
	until  time.Time
}

// A Chart is a chart as it was read. It never changes.
type Chart struct {
	// Digest tells its content from that of all others.
	Digest string

	archive []byte                  // or files
	files   []*archive.BufferedFile // of a folder
}

func (c *Chart) size() int {
	n := len(c.archive)
	for _, f := range c.files {
		n += len(f.Data)
	}
	return n
}

// load unpacks the chart. It is the caller's: Helm changes charts that it
// renders.
func (c *Chart) load() (*chart.Chart, error) {
	files := c.files
	if c.archive != nil {
		var err error
		if files, err = archive.LoadArchiveFiles(bytes.NewReader(c.archive)); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "its archive can't be read: %s", err)
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
		return nil, tko.Errorf(tko.ErrInvalid, "it is no chart: %s", err)
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

// bound sets the library's limit, which is the process's.
var bound = sync.OnceFunc(func() { archive.MaxDecompressedChartSize = maxUnpack })

// NewStore makes a Store.
func NewStore(o StoreOptions) *Store {
	bound()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: o.Guard.Transport()}
	}
	s := &Store{options: o, known: map[Reference]resolved{}, kept: map[string]*list.Element{}, order: list.New(), trees: map[string]tree{}}
	if o.Folder != "" {
		if absolute, err := filepath.Abs(o.Folder); err == nil {
			s.options.Folder = absolute
		}
	}
	client := *o.Client
	client.CheckRedirect = s.redirect
	s.options.Client = &client
	return s
}

// within makes a whole path relative, if it leads into the folder of charts:
// people write such paths.
func (s *Store) within(r Reference) Reference {
	if r.Repository != "" || s.options.Folder == "" || !filepath.IsAbs(r.Chart) {
		return r
	}
	if relative, err := filepath.Rel(s.options.Folder, r.Chart); err == nil && filepath.IsLocal(relative) {
		r.Chart = relative
	}
	return r
}

// Digest tells, without any request, whether what a reference leads to changed:
// it is empty for charts that are fetched, for they don't. Errors are
// tko.ErrInvalid if the reference is wrong.
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

// Get answers a chart: as it is kept, or fetched. What many ask for at once is
// fetched once. Errors name the reference; they are tko.ErrInvalid if only a
// change of the reference helps.
func (s *Store) Get(ctx context.Context, r Reference) (*Chart, error) {
	r = s.within(r)
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	if at == inFolder {
		return s.fromFolder(r)
	}
	if c := s.look(r); c != nil {
		return c, nil
	}
	flight := s.flights.DoChan(fmt.Sprintf("%q", r), func() (any, error) {
		// others wait for it, too: it isn't this caller's to end
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
		defer cancel()
		data, err := s.fetch(ctx, at, r)
		if err != nil {
			return nil, fmt.Errorf("fetching %s: %w", r, err)
		}
		return s.keep(r, data), nil
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

// look answers what is kept, if it still counts.
func (s *Store) look(r Reference) *Chart {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.known[r]
	if !ok || time.Now().After(found.until) {
		return nil
	}
	e := s.kept[found.digest]
	if e == nil {
		return nil
	}
	s.order.MoveToFront(e)
	c, _ := e.Value.(*Chart)
	return c
}

// keep keeps a chart, and lets those go that were not used the longest.
func (s *Store) keep(r Reference, data []byte) *Chart {
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
	if e := s.kept[digest]; e != nil {
		s.order.MoveToFront(e)
		c, _ := e.Value.(*Chart)
		return c
	}
	c := &Chart{Digest: digest, archive: data}
	s.kept[digest] = s.order.PushFront(c)
	for s.bytes += c.size(); s.bytes > maxKept && s.order.Len() > 1; {
		old, _ := s.order.Remove(s.order.Back()).(*Chart)
		delete(s.kept, old.Digest)
		s.bytes -= old.size()
	}
	return c
}

// download gets what a URL leads to.
func (s *Store) download(ctx context.Context, location string, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is no URL: %s", location, err)
	}
	request.Header.Set("User-Agent", "tko-meta-scheduler")
	if err := s.authorize(request); err != nil {
		return nil, err
	}
	response, err := s.options.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s%s", location, guard.Status(response.StatusCode), refused(response.StatusCode))
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

// openFolder opens the folder of charts: what is read through it stays in it.
func (s *Store) openFolder() (*os.Root, error) {
	if s.options.Folder == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "spec.chart: this meta-scheduler has no folder of charts: its operator names one with --charts, or the chart is in a repository (spec.repository), at a URL or at oci://…")
	}
	root, err := os.OpenRoot(s.options.Folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of charts can't be read: %w", plainError(err))
	}
	return root, nil
}
