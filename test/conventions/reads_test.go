package conventions_test

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startsPrograms are the packages whose tests start programs, and don't say by process.Reads which files of the
// repository these read, with the reason.
var startsPrograms = map[string]string{
	"cmd/internal/tkoserver":         "tar and du of temporary folders",
	"internal/agent":                 "this test",
	"internal/child":                 "shells without files",
	"internal/logging":               "this test",
	"internal/osm":                   "this test",
	"bench":                          "git of temporary folders",
	"internal/version":               "git, and make without running anything",
	"internal/plugin/pod":            "commands of the test",
	"internal/prepare/tosca/compile": "git of temporary folders",
	"test/clusters":                  "the controllers of Flux, which their script names by their content",
	"test/kubernetes":                "git of temporary folders",
	"internal/schedule/git":          "git of temporary folders, and this test",
	"internal/schedule/oci":          "this test",
	"internal/store/sqlite":          "this test",
	"cmd/tko-demo":                   "this test, as all programs",
	"test/cli":                       "programs of this repository, which are named by their content",
	"test/callhome":                  "the same, and git of temporary folders",
	"test/faults":                    "the same, and git of temporary folders",
	"test/hostile":                   "programs of this repository",
	"test/network":                   "programs of this repository",
	"test/observer":                  "git, and programs that process.Build names by their content",
	"test/rolling":                   "an earlier commit",
	"test/spanner":                   "git of temporary folders, and programs that process.Build names by their content",
}

// TestCachedResultsKnowWhatProgramsRead finds packages whose tests start programs and don't say which files these
// read: go test would show a cached result after such a file has changed.
func TestCachedResultsKnowWhatProgramsRead(t *testing.T) {
	t.Parallel()
	root, names := repository(t)
	starts, reads := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(name)
		starts[folder] = starts[folder] || strings.Contains(string(text), "exec.Command")
		reads[folder] = reads[folder] || strings.Contains(string(text), "process.Reads(")
	}
	for _, folder := range slices.Sorted(maps.Keys(starts)) {
		_, listed := startsPrograms[folder]
		switch {
		case starts[folder] && !reads[folder] && !listed:
			t.Errorf("%s: its tests start programs: name the files of the repository that these read by process.Reads, or list the package here with the reason", folder)
		case listed && (!starts[folder] || reads[folder]):
			t.Errorf("%s: remove it from the list", folder)
		}
	}
}
