package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	code        = regexp.MustCompile("`[^`\n]*`")
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(match[1], "$1")
		found[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return found
}

// Links between pages lead to files and headings that are there.
func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := Pages(t)
	for name, text := range all {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(fence.ReplaceAllString(text, ""), "code"), -1) {
			to, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := name
			if to != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), to))
			}
			if _, err := os.Stat(filepath.Join(Root(), target)); err != nil {
				t.Errorf("%s: %s leads to no file", name, match[1])
				continue
			}
			if page, ok := all[target]; anchor != "" && ok && !anchors(page)[anchor] {
				t.Errorf("%s: %s leads to no heading", name, match[1])
			}
		}
	}
}

// The documentation site has each page of docs in its navigation, and the README in its tables.
func TestSiteHasAllPages(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../mkdocs.yml")
	if err != nil {
		t.Fatal(err)
	}
	var site struct {
		Nav []map[string][]map[string]string `json:"nav"`
	}
	if err := yaml.Unmarshal(data, &site); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, section := range site.Nav {
		for _, entries := range section {
			for _, entry := range entries {
				for _, page := range entry {
					listed["docs/"+page] = true
				}
			}
		}
	}
	all := Pages(t)
	_, documentation, _ := strings.Cut(all["README.md"], "\n## Documentation\n")
	for name := range all {
		if filepath.Dir(name) == "docs" && !listed[name] {
			t.Errorf("%s is not in the navigation of mkdocs.yml", name)
		}
	}
	for name := range all {
		if filepath.Dir(name) == "docs" && !strings.Contains(documentation, "("+name+")") {
			t.Errorf("the tables of README.md don't name %s", name)
		}
	}
	if !listed["docs/index.md"] {
		t.Error("mkdocs.yml doesn't list index.md, which tools/site.py makes from the README")
	}
	delete(listed, "docs/index.md")
	for name := range listed {
		if _, ok := all[name]; !ok {
			t.Errorf("mkdocs.yml lists %s, which is not there", name)
		}
	}
}
