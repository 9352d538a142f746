//go:build planted

package observer

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// make soak runs this test with -tags planted, because it builds a server for each fault.

// The observer finds the faults of servers, each of which lacks a rule.
func TestTheObserverFindsFaultyServers(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "tko-server")
			build := exec.Command("go", "build", "-overlay="+f.overlay(t), "-o", program, "github.com/tko-orchestrator/tko/cmd/tko-server")
			if output, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			duration := setting(t, "TKO_OBSERVER_TIME", 3*time.Minute, time.ParseDuration)
			r := newRun(t, installation{sites: 60, program: program}, 1)
			defer r.stop()
			working, stop := context.WithTimeout(t.Context(), duration)
			defer stop()
			found := make(chan []string, 1)
			go func() {
				defer stop()
				defer r.w.abandoned.Store(true)
				var last []string
				for working.Err() == nil {
					last, _ = r.o.judgeSoFar()
					if slices.ContainsFunc(last, f.isFound) {
						break
					}
					time.Sleep(time.Second)
				}
				found <- last
			}()
			begin := time.Now()
			r.work(working, 20*time.Second)
			all := <-found
			if i := slices.IndexFunc(all, f.isFound); i >= 0 {
				t.Logf("found after %s: %s", time.Since(begin).Round(time.Second), all[i])
				return
			}
			t.Errorf("the observer is blind for it: it found only %q; requests: %v", all, r.l.summary())
		})
	}
}

func (f fault) isFound(text string) bool { return strings.Contains(text, f.want) }

// overlay writes the changed files, and returns the path of a file for go build -overlay.
func (f fault) overlay(t *testing.T) string {
	t.Helper()
	folder, replace := t.TempDir(), map[string]string{}
	for path, text := range f.changed(t) {
		replace[path] = filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
