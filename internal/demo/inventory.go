package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// Inventory describes the external inventory of a catalog, which makes its sites.
type Inventory struct {
	Sources string // file of GitOps sources, relative to the catalog
	Sites   string // file of records, relative to the catalog; users may change a copy
}

// WriteInventory writes the file of GitOps sources, for tko-server --gitops-sources, to a
// folder, and a copy of the records next to it. It returns the name of the file of
// sources, "" if the catalog has no inventory. Records that exist already stay.
func (c *Catalog) WriteInventory(dir string) (sources string, err error) {
	if c.Inventory.Sources == "" {
		return "", nil
	}
	text, err := c.read(filepath.Join(c.dir, c.Inventory.Sources))
	if err != nil {
		return "", err
	}
	records, err := c.read(filepath.Join(c.dir, c.Inventory.Sites))
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(c.Inventory.Sites))
	if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(to, records, 0o600); err != nil {
			return "", err
		}
	}
	sources = filepath.Join(dir, filepath.Base(c.Inventory.Sources))
	if old, err := os.ReadFile(sources); err == nil && bytes.Equal(old, text) { //nolint:gosec // our own file
		return sources, nil
	}
	return sources, os.WriteFile(sources, text, 0o600)
}

// A Syncer is the part of the client that reconciles sources.
type Syncer interface {
	EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error
	Source(ctx context.Context, name string) (tko.Source, error)
}

// AwaitSites has the server read the inventory, waits until it has made the sites, and
// returns their number. It reports what it waits for, each time once.
func (c *Catalog) AwaitSites(ctx context.Context, in Syncer, report func(string)) (sites int, err error) {
	if c.Inventory.Sources == "" {
		return 0, nil
	}
	text, err := c.read(filepath.Join(c.dir, c.Inventory.Sources))
	if err != nil {
		return 0, err
	}
	var file struct {
		Sources []struct{ Name string }
	}
	if err := yaml12.Unmarshal(text, &file); err != nil || len(file.Sources) == 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "%s names no sources", c.Inventory.Sources)
	}
	last := ""
	for _, source := range file.Sources {
		if err := in.EnqueueSources(ctx, []string{source.Name}, false, ""); err != nil {
			return sources(sites, source.Name, err)
		}
		for {
			s, err := in.Source(ctx, source.Name)
			if err != nil && !errors.Is(err, tko.ErrNotFound) {
				return sources(sites, source.Name, err)
			}
			n, message := state(s)
			if n >= 0 {
				sites += n
				break
			}
			if first, _, _ := strings.Cut(message, "\n"); first != last && first != "" {
				last = first
				report(first)
			}
			if err := pause.For(ctx, 100*time.Millisecond); err != nil {
				return sources(sites, source.Name, err)
			}
		}
	}
	return sites, nil
}

func sources(n int, name string, err error) (int, error) {
	return n, fmt.Errorf("wait for the sites of source %q: %w", name, err)
}

// state returns the number of sites of a source; -1 if it isn't ready, and why. Before it
// was reconciled, its conditions are old.
func state(s tko.Source) (sites int, message string) {
	switch c := tko.FindCondition(s.Status.Conditions, tko.ConditionReady); {
	case c == nil || s.Enqueued:
		return -1, ""
	case c.Status == tko.ConditionTrue:
		return len(s.Status.Items), ""
	default:
		return -1, c.Message
	}
}
