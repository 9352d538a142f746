package flux_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops/flux"
)

// Executable files of an artifact stay executable: packages for OSM contain programs.
func TestExecutableFilesOfArtifactsStayExecutable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, mode := range map[string]int64{"./a/run": 0o700, "plain": 0o600} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	f := flux.NewFetcher(flux.FetchOptions{Dir: t.TempDir()})
	defer f.Close()
	files, err := f.Fetch(t.Context(), flux.Artifact{URL: serving(t, b.Bytes()), Digest: sha(b.Bytes())})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	for name, want := range map[string]fs.FileMode{"a/run": 0o700, "plain": 0o600} {
		if info, err := fs.Stat(files, name); err != nil || info.Mode() != want {
			t.Errorf("the mode of %s is %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}
