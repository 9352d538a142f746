package helm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
)

// fromRepository finds a chart in the index of a repository, and fetches it.
func (s *Store) fromRepository(ctx context.Context, r Reference) ([]byte, error) {
	base := strings.TrimSuffix(r.Repository, "/") + "/"
	all, err := s.index(ctx, base)
	if err != nil {
		return nil, err
	}
	entries := all[r.Chart]
	if len(entries) == 0 {
		return nil, tko.Errorf(tko.ErrNotFound, "the repository has no such chart")
	}
	versions := make([]string, len(entries))
	for i, e := range entries {
		versions[i] = e.Version
	}
	i, err := choose(versions, r.Version)
	if err != nil {
		return nil, err
	}
	chosen := entries[i]
	archive, err := chosen.Archive(base)
	if err != nil {
		return nil, err
	}
	if archive.Scheme == "oci" {
		return s.fromRegistry(ctx, Reference{Chart: archive.String()})
	}
	if err := checkURL("the repository's index", archive.String()); err != nil {
		return nil, err
	}
	data, err := s.download(ctx, archive.String(), maxArchive)
	if err != nil {
		return nil, err
	}
	if want := chosen.SHA256(); want != "" {
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != want {
			return nil, tko.Errorf(tko.ErrInvalid, "%s does not match the repository's index: its digest is %s, want %s", archive, got, want)
		}
	}
	return data, nil
}

// index reads the index of a repository. Concurrent calls for the same repository
// share one request.
func (s *Store) index(ctx context.Context, base string) (artifacts.Index, error) {
	value, err, _ := s.flights.Do("index "+base, func() (any, error) {
		data, err := s.download(ctx, base+"index.yaml", maxIndex)
		if err != nil {
			return nil, err
		}
		return artifacts.ParseIndex(data)
	})
	found, _ := value.(artifacts.Index)
	return found, err
}

// choose returns the position of the wanted version, or of the newest version in a
// range. If want is empty, it is the newest version that isn't a pre-release.
func choose(versions []string, want string) (int, error) {
	for i, v := range versions {
		if want != "" && v == want {
			return i, nil
		}
	}
	within, err := semver.NewConstraint(cmp.Or(want, "*"))
	if err != nil {
		return 0, tko.Errorf(tko.ErrInvalid, "spec.version: %q is neither a version nor a range", want)
	}
	best := -1
	var newest *semver.Version
	for i, v := range versions {
		version, err := semver.NewVersion(v)
		if err != nil || !within.Check(version) {
			continue
		}
		if newest == nil || version.GreaterThan(newest) {
			best, newest = i, version
		}
	}
	if best < 0 {
		if want == "" {
			return 0, tko.Errorf(tko.ErrNotFound, "all its versions are pre-releases: name one in spec.version")
		}
		return 0, tko.Errorf(tko.ErrNotFound, "version %q: not found", want)
	}
	return best, nil
}
