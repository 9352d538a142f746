package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
)

// A function that is a file on this machine must be below a folder of plugins' programs: when a
// rollout or a package names it, and when a plugin runs it. Without folders there are none.
func TestFunctionsOnThisMachineAreBelowTheFolders(t *testing.T) {
	t.Parallel()
	allowed, elsewhere := t.TempDir(), t.TempDir()
	for _, folder := range []string{allowed, elsewhere} {
		for _, name := range []string{"f", "f.wasm"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\ncat\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := filepath.Join(allowed, "link")
	if err := os.Symlink(filepath.Join(elsewhere, "f"), link); err != nil {
		t.Fatal(err)
	}
	for function, may := range map[string]bool{
		"exec:" + allowed + "/f": true, "wasm:" + allowed + "/f.wasm": true,
		"exec:" + elsewhere + "/f": false, "wasm:" + elsewhere + "/f.wasm": false,
		"exec:" + allowed + "/../" + filepath.Base(elsewhere) + "/f": false, "exec:" + link: false,
		"exec:/bin/true": false, "wasm:/etc/hostname": false,
	} {
		for folders, options := range map[string]plugin.Options{"a folder": {Programs: []string{allowed}, Dir: t.TempDir()}, "no folder": {Dir: t.TempDir()}} {
			runner, mayHere := plugin.New(options), may && folders == "a folder"
			if err := runner.CheckFunction(function); (err == nil) != mayHere || err != nil && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "--plugin-programs")) {
				t.Errorf("%s with %s: the check is %v, want allowed %t", function, folders, err, mayHere)
			}
			if mayHere {
				continue
			}
			_, _, err := runner.Prepare(t.Context(), tko.Plugin{Type: tko.PluginPrepare, Name: "p", Executor: tko.ExecutorKpt, Arguments: []string{function}}, target, "d", pkg)
			if err == nil || !strings.Contains(err.Error(), "--plugin-programs") {
				t.Errorf("%s with %s, as a plugin: %v", function, folders, err)
			}
		}
	}
}
