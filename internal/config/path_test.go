package config_test

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
)

// --check reads the files and folders that settings name: all that need to exist, given as
// a file, a folder or a list. Defaults may be missing.
func TestEachFileOfSettingsIsChecked(t *testing.T) {
	t.Parallel()
	exempt := map[string]string{
		"ready-file": "the server writes it", "kubernetes-audit-log": "the server writes it", "audit-export": "the server writes it",
		"target-git-cache": "the server makes it", "kpt-cache": "the server makes it", "gitops-dir": "the server makes it",
		"git-path": "a folder in repositories", "kubeconfig-secrets": "labels", "cluster-proxies": "URLs", "disk-low": "a number",
		"token-review": "a kubeconfig, or in-cluster: read with the other identities", "git": "URLs", "secret-environment": "names",
	}
	isPath := regexp.MustCompile(`(?i)\b(file|folder|kubeconfig)s?\b|^Python environment`)
	none := filepath.Join(t.TempDir(), "none")
	checked := 0
	settings(t).VisitAll(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind != "string" && kind != "stringSlice" {
			return
		}
		if err := config.CheckFiles(settings(t, "--"+f.Name+"=")); err != nil {
			t.Errorf("--%s=: %v", f.Name, err)
		}
		err := config.CheckFiles(settings(t, "--"+f.Name+"="+none))
		switch why := exempt[f.Name]; {
		case why != "" || !isPath.MatchString(f.Usage):
			if err != nil {
				t.Errorf("%v, although --%s need not exist (%s): %s", err, f.Name, why, f.Usage)
			}
		case !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "--"+f.Name+": open "+none):
			t.Errorf("%v, want a refusal of --%s: %s", err, f.Name, f.Usage)
		default:
			checked++
			if err := config.CheckFiles(settings(t, "--"+f.Name+"="+t.TempDir())); err != nil {
				t.Errorf("a path that exists: %v", err)
			}
		}
	})
	if checked < 35 {
		t.Errorf("%d settings are checked", checked)
	}
}

// Relative paths are those of the folder that the server starts in.
func TestRelativePathsAreChecked(t *testing.T) {
	t.Parallel()
	if err := config.CheckFiles(settings(t, "--keep-longer=testdata/longer.yaml", "--plugin-files=testdata,../config")); err != nil {
		t.Error(err)
	}
	err := config.CheckFiles(settings(t, "--keep-longer=longer.yaml", "--plugin-files=testdata,testdata/none,none", "--encryption-key=testdata/key"))
	for _, want := range []string{"--keep-longer: open longer.yaml", "--plugin-files: open testdata/none", "--plugin-files: open none", "--encryption-key: open testdata/key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
