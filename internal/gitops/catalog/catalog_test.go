package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func (s *shelf) begin(context.Context, []version) (end func(), fits bool, err error) {
	return func() {}, true, nil
}

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
	var tags, packages []string
	for i := range maxKeep {
		tags = append(tags, fmt.Sprintf("v1.%d", i))
	}
	for i := range 2 * together / maxKeep { // several transfers
		packages = append(packages, string(rune('a'+i)))
	}
	s := newShelf(packages, tags...)
	s.fail["v1.3"], s.fail["v1.5"] = errors.New("502"), tko.Errorf(tko.ErrInvalid, "no package")
	c := opened(t, Settings{Keep: maxKeep}, s)
	if _, err := c.Revision(t.Context()); err == nil || !strings.Contains(err.Error(), ":v1.3: 502") {
		t.Errorf("the error is %v: want that of the version that is away", err)
	}
	delete(s.fail, "v1.3")
	ids, notes := templates(t, c)
	if len(ids) != len(packages)*(len(tags)-1) || len(notes) != len(packages) || !strings.Contains(notes[0], ":v1.5 is left out: no package") {
		t.Errorf("there are %d templates, and the notes are %q: want all but one of each package", len(ids), notes)
	}
	if n := s.reads["v1.999"]; n != len(packages) {
		t.Errorf("the newest versions of %d packages are read %d times: want each once", len(packages), n)
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

// A version that is left out, such as one that wasn't signed, is read again with back-off,
// and is no longer left out once it is valid. Versions that are known aren't read again.
func TestVersionThatIsLeftOutIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf([]string{"a"}, "v1", "v2")
		s.fail["v2"] = tko.Errorf(tko.ErrInvalid, "it isn't signed")
		c := opened(t, Settings{}, s)
		for range 24 * 60 { // a day, with a look each minute
			if _, notes := templates(t, c); len(notes) != 1 || !strings.Contains(notes[0], "a:v2 is left out: it isn't signed") {
				t.Fatalf("the notes are %q", notes)
			}
			time.Sleep(time.Minute)
		}
		if n := s.reads["v2"]; n < 24 || n > 35 || s.reads["v1"] != 1 {
			t.Errorf("in a day, the version that is left out is read %d times, and the other one %d times: want about once an hour, and once", n, s.reads["v1"])
		}
		s.fail["v2"] = errors.New("502") // away: it stays left out, for the same reason, and stops no other
		time.Sleep(againMost)
		if _, notes := templates(t, c); len(notes) != 1 || !strings.Contains(notes[0], "it isn't signed") {
			t.Errorf("the notes are %q", notes)
		}
		delete(s.fail, "v2")
		time.Sleep(againMost)
		if ids, notes := templates(t, c); len(ids) != 2 || len(notes) > 0 {
			t.Errorf("a version that was signed later gives the templates %q, with the notes %q", ids, notes)
		}
	})
}

// When the keys of signatures change, what is left out is read again at once, a bounded
// number of versions at a time.
func TestNewKeysHaveVersionsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.asc")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var tags []string
	for i := range 2*maxAgain + 1 {
		tags = append(tags, fmt.Sprintf("v1.%d", i))
	}
	s := newShelf([]string{"a"}, tags...)
	for _, tag := range tags {
		s.fail[tag] = tko.Errorf(tko.ErrInvalid, "its signature is not valid")
	}
	c := opened(t, Settings{Keep: maxKeep, PGPKeyFile: file}, s)
	count := func() (ids, reads int) {
		clear(s.reads)
		found, _ := templates(t, c)
		for _, n := range s.reads {
			reads += n
		}
		return len(found), reads
	}
	if ids, reads := count(); ids != 0 || reads != len(tags) {
		t.Fatalf("%d templates after %d reads", ids, reads)
	}
	if _, reads := count(); reads != 0 {
		t.Errorf("without a change, %d versions are read again at once", reads)
	}
	write("two")
	clear(s.fail)
	for _, want := range []int{maxAgain, 2 * maxAgain, len(tags)} {
		if ids, reads := count(); ids != want || reads > maxAgain {
			t.Errorf("after new keys there are %d templates after %d reads: want %d", ids, reads, want)
		}
	}
}

// A tag of a package and one of the whole tree may publish the same content: that's no
// conflict, which would never end.
func TestEqualContentOfTwoTagsIsNoConflict(t *testing.T) {
	t.Parallel()
	shelf := newShelf([]string{"a"}, "a/v1", "v1")
	for i := range shelf.all {
		shelf.all[i].Name = "v1"
	}
	c, err := newCatalog(Settings{}, shelf)
	if err != nil {
		t.Fatal(err)
	}
	ids, notes := templates(t, c)
	if len(notes) > 0 || len(ids) != 1 {
		t.Errorf("templates %q, with the notes %q", ids, notes)
	}
}

// Messages don't have the temporary folder of a reading: it is another one each time, so
// that the status would change with each reading.
func TestMessagesHaveNoTemporaryFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{dir + "/pkg/a.yaml: broken", dir + ": it has no resources", "open " + dir + ": no such file"} {
		if got := shortened(errors.New(text), link); strings.Contains(got, dir) || got == "" {
			t.Errorf("%q becomes %q", text, got)
		}
		if got := shortened(errors.New(text), dir); strings.Contains(got, dir) {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
