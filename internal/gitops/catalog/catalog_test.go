package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A shelf is a publisher in memory.
type shelf struct {
	all  []version
	fail map[string]error // by tag

	mu    sync.Mutex
	reads map[string]int // by tag
}

func newShelf(of []string, tags ...string) *shelf {
	s := &shelf{fail: map[string]error{}, reads: map[string]int{}}
	for _, path := range of {
		for _, tag := range tags {
			s.all = append(s.all, version{Of: path, Name: tag, Tag: tag, Digest: "d"})
		}
	}
	return s
}

func (s *shelf) versions(context.Context) ([]version, []string, error) { return s.all, nil, nil }

func (s *shelf) resolve(_ context.Context, v version) (version, error) { return v, nil }

func (s *shelf) begin(context.Context, []version) (end func(), err error) { return func() {}, nil }

func (s *shelf) read(_ context.Context, v version) ([]published, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[v.Tag]++
	content, err := krm.Decode(krm.YAML, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"), krm.Limits{})
	return []published{{v.Of, content}}, nil, errors.Join(err, s.fail[v.Tag])
}

func templates(t *testing.T, c *Catalog) (ids, notes []string) {
	t.Helper()
	revision, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, notes, err := c.Manifests(revision)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found {
		ids = append(ids, m.Name)
	}
	return ids, notes
}

func opened(t *testing.T, s Settings, from publisher) *Catalog {
	t.Helper()
	c, err := newCatalog(s, from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Only versions that the patterns select are registered, and of these the newest.
func TestPatternsSelectVersionsBeforeTheNewestAreKept(t *testing.T) {
	t.Parallel()
	c := opened(t, Settings{Tags: []string{"v*"}, Keep: 2}, newShelf([]string{"a/upf"}, "9.0.0", "v1.2.0", "v1.10.0", "v1.9.0", "latest"))
	ids, _ := templates(t, c)
	if diff := cmp.Diff([]string{"a/upf:v1.10.0", "a/upf:v1.9.0"}, ids); diff != "" {
		t.Error(diff)
	}
	all, _ := templates(t, opened(t, Settings{}, newShelf([]string{"a/upf"}, "latest", "v1")))
	if diff := cmp.Diff([]string{"a/upf:latest", "a/upf:v1"}, all); diff != "" {
		t.Error(diff)
	}
}

// A catalog without versions is an error, as one whose repository was emptied.
func TestCatalogWithoutVersionsIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Catalog{
		"none":          opened(t, Settings{}, newShelf(nil)),
		"none selected": opened(t, Settings{Tags: []string{"v*"}}, newShelf([]string{"a"}, "latest")),
	} {
		if _, err := c.Revision(t.Context()); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "all templates stay") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// A version that can't be read for the moment is no revision without it: it would be
// missing. What was read meanwhile is known the next time. A version that is invalid is left
// out.
func TestVersionThatIsAwayIsNotLeftOut(t *testing.T) {
	t.Parallel()
	var tags []string
	for i := range 2 * together {
		tags = append(tags, fmt.Sprintf("v1.%d", i))
	}
	s := newShelf([]string{"a"}, tags...)
	s.fail["v1.3"], s.fail["v1.5"] = errors.New("502"), tko.Errorf(tko.ErrInvalid, "no package")
	c := opened(t, Settings{Keep: maxKeep}, s)
	if _, err := c.Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "a:v1.3: 502") {
		t.Errorf("the error is %v: want that of the version that is away", err)
	}
	delete(s.fail, "v1.3")
	ids, notes := templates(t, c)
	if len(ids) != len(tags)-1 || len(notes) != 1 || !strings.Contains(notes[0], "a:v1.5 is left out: no package") {
		t.Errorf("there are %d templates, and the notes are %q: want all but one", len(ids), notes)
	}
	if n := s.reads["v1.999"]; n != 1 { // the newest, in the first transfer
		t.Errorf("the newest version is read %d times: want 1", n)
	}
}

// If a pattern gives two packages one ID, the first of them has it, with a note.
func TestOneTemplateForTwoPackagesIsNoted(t *testing.T) {
	t.Parallel()
	ids, notes := templates(t, opened(t, Settings{ID: "nf/{name}:{tag}"}, newShelf([]string{"a/upf", "b/upf"}, "v1")))
	if diff := cmp.Diff([]string{"nf/upf:v1"}, ids); diff != "" {
		t.Error(diff)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], `template "nf/upf:v1" is that of v1:a/upf, and not of v1:b/upf`) {
		t.Errorf("the notes are %q", notes)
	}
}
