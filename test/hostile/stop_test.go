package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A server that is stopped while plugins of all types run stops soon, ends the
// plugins, and releases its work: another server takes it over long before the lease
// expires.
func TestStopEndsPluginsAndReleasesWork(t *testing.T) {
	t.Parallel()
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			nap := newNap()
			args := []string{
				"--store=" + dsn(t), "--work-lease=1h", "--plugin-timeout=10m", "--plugin-schedule-timeout=10m",
				"--retry=10m", "--retry-max=10m", "--git-cache=" + t.TempDir(),
			}
			w := newWorld(t, args...)
			ctx := patient(t)
			mended := filepath.Join(t.TempDir(), "mended")
			script := func(answer string) []string {
				return []string{"/bin/sh", "-c", fmt.Sprintf("if [ ! -e %s ]; then %s & wait; fi\n%s", mended, nap, responding(answer))}
			}
			w.registerPlugin(t, tko.PluginValidate, "validates", script(`error: ""`))
			w.registerPlugin(t, tko.PluginPrepare, "prepares", script("prepared: true\npackage:\n- {apiVersion: hostile.example/v1, kind: prepares, metadata: {name: target, annotations: {nephio.org/prepared: 'true'}}}"))
			w.registerPlugin(t, tko.PluginSchedule, "schedules", script(`error: ""`))
			if _, err := w.RegisterSite(ctx, tko.Site{ID: "s", Package: parse(t, target("schedules"))}); err != nil {
				t.Fatal(err)
			}
			prepares, err := w.CreateDeployment(ctx, tko.NewDeployment{Merge: parse(t, target("prepares"))})
			if err != nil {
				t.Fatal(err)
			}
			schedules, err := w.CreateDeployment(ctx, tko.NewDeployment{Site: "s", Template: "kept"})
			if err != nil {
				t.Fatal(err)
			}
			validated := make(chan error, 1)
			asks := dial(t, w.server.GRPC)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_, err := asks.CreateDeployment(ctx, tko.NewDeployment{Merge: parse(t, target("validates"))})
				validated <- err
			}()
			waitFor(t, "all three run", func(context.Context) (bool, string) {
				n := len(naps(t, nap))
				return n >= 3, fmt.Sprintf("%d run", n)
			})

			began := time.Now()
			w.server.Stop()
			took := time.Since(began)
			t.Logf("stopped after %s", took)
			if took > 45*time.Second { // the plugins would run for ten minutes
				t.Errorf("it took %s to stop, want at most 45 s", took)
			}
			noneLeft(t, nap)
			if err := <-validated; err == nil || errors.Is(err, tko.ErrInvalid) {
				t.Errorf("an interrupted validation: %v, want an error that does not name the package as its cause", err)
			}

			if err := os.WriteFile(mended, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			again := newWorld(t, args...)
			waitFor(t, "the other server prepares", again.prepared(prepares))
			waitFor(t, "the other server schedules", again.scheduled(schedules))
			t.Logf("taken over after %s", time.Since(began))
			again.goesOn(t)
			noneLeft(t, nap)
		})
	}
}
