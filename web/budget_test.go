package web_test

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/web"
)

// Limits of what a browser reads before the first picture, in bytes as they are sent with gzip. A phone with a slow
// connection needs half a second for 100 kB, and then has to evaluate it.
const (
	maxFirst = 95_000
	maxView  = 117_000 // with the part of a view that is opened by its address
)

var (
	linked   = regexp.MustCompile(`(?:src|href)="/(assets/[^"]+)"`)
	imported = regexp.MustCompile(`(?:from|import)"\./([^"]+\.js)"`)
)

// TestTheFirstViewReadsLittle sums up the files that index.html needs, with their static imports, and those of each
// part that is read later.
func TestTheFirstViewReadsLittle(t *testing.T) {
	files, err := web.Files()
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, files, "index.html")
	first := map[string]int{"index.html": sent(t, page)}
	for _, found := range linked.FindAllStringSubmatch(page, -1) {
		follow(t, files, found[1], first)
	}
	if len(first) < 3 {
		t.Fatalf("index.html links %d files: want a script and a style at least", len(first)-1)
	}
	total := sum(first)
	if total > maxFirst {
		t.Errorf("the first view reads %d bytes, want %d at most: read what it doesn't show with part (web/src/part.tsx), or find a smaller library: %v", total, maxFirst, first)
	}
	parts, err := fs.Glob(files, "assets/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range parts {
		if _, ok := first[name]; ok {
			continue
		}
		all := maps.Clone(first)
		follow(t, files, name, all)
		if total := sum(all); total > maxView {
			t.Errorf("%s reads %d bytes with the first view, want %d at most", name, total, maxView)
		}
	}
	for _, view := range []string{"list", "detail", "rollout", "past", "matrix", "wallmode", "topology", "wavegraph", "login", "slider", "palette", "views", "help"} {
		found, err := fs.Glob(files, "assets/"+view+"-*.js")
		if err != nil || len(found) != 1 {
			t.Errorf("the part %q has %d files: want one, which is read when it is shown", view, len(found))
		}
	}
}

func read(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	body, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// sent returns the size of a file as it is sent.
func sent(t *testing.T, body string) int {
	t.Helper()
	var buffer bytes.Buffer
	zip, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err == nil {
		_, err = zip.Write([]byte(body))
	}
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buffer.Len()
}

// follow adds a file and those that it imports.
func follow(t *testing.T, files fs.FS, name string, all map[string]int) {
	t.Helper()
	if _, ok := all[name]; ok {
		return
	}
	body := read(t, files, name)
	all[name] = sent(t, body)
	if !strings.HasSuffix(name, ".js") {
		return
	}
	for _, found := range imported.FindAllStringSubmatch(body, -1) {
		follow(t, files, path.Join(path.Dir(name), found[1]), all)
	}
}

func sum(all map[string]int) int {
	total := 0
	for _, n := range all {
		total += n
	}
	return total
}
