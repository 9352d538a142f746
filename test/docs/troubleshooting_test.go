package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each message and reason in the first column of a table for troubleshooting is in the code.
func TestTroubleshootingQuotesRealMessages(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	for _, folder := range []string{"internal", "client", "cmd"} {
		err := filepath.WalkDir(filepath.Join(Root(), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := filepath.Glob(filepath.Join(Root(), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range own {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	code := source.String()
	count := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*`+"`"+`[^|]*) \|`).FindAllStringSubmatch(Pages(t)["docs/troubleshooting.md"], -1) {
		for _, quoted := range inline.FindAllStringSubmatch(row[1], -1) {
			for part := range strings.SplitSeq(quoted[1], "…") {
				part = strings.TrimSpace(part)
				if part == "" {
					continue
				}
				count++
				if !strings.ContainsAny(part, " :") { // a reason, or the type of a condition
					part = `"` + part + `"`
				}
				if !strings.Contains(code, part) {
					t.Errorf("docs/troubleshooting.md: %q is not in the code", part)
				}
			}
		}
	}
	if count < 40 {
		t.Errorf("the page quotes only %d messages: did its tables change?", count)
	}
}
