package plugintest_test

import (
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/plugin/plugintest"
)

func TestPreparePluginMatchesGoldenFiles(t *testing.T) {
	plugintest.Run(t, "testdata/relabel", "sh", abs(t, "testdata/relabel.sh"))
}

func TestValidatePluginMatchesGoldenFiles(t *testing.T) {
	plugintest.Run(t, "testdata/check", "sh", abs(t, "testdata/check.sh"))
}

func abs(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}
