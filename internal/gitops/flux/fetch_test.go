package flux_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

type member struct {
	name, content, link string
	typ                 byte
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.typ, Linkname: m.link, Mode: 0o600, Size: int64(len(m.content))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sha(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func serving(t testing.TB, data []byte) string {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
}

// empty fails the test if a directory isn't empty.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFetchReturnsRegularFilesOfAllDigests(t *testing.T) {
	good := archive(t, member{name: "./", typ: tar.TypeDir}, member{name: "a/b.yaml", content: "x: 1\n"},
		member{name: "c", content: "c"}, member{name: "link", link: "/etc/passwd", typ: tar.TypeSymlink},
		member{name: "hard", link: "../../etc/passwd", typ: tar.TypeLink}, member{name: "pipe", typ: tar.TypeFifo})
	unzipped, err := gzip.NewReader(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why, digest string
		data        []byte
	}{
		"sha256": {why: "the default", digest: sha(good), data: good},
		"sha384": {why: "some users must use it", digest: fmt.Sprintf("sha384:%x", sha512.Sum384(good)), data: good},
		"sha512": {why: "some users must use it", digest: fmt.Sprintf("sha512:%x", sha512.Sum512(good)), data: good},
		"blake3": {why: "source-controller supports it", digest: fmt.Sprintf("blake3:%x", blake3.Sum256(good)), data: good},
		"plain":  {why: "OCI layers may be uncompressed, and are copied unchanged", digest: sha(plain), data: plain},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, url := t.TempDir(), serving(t, test.data)
			f := flux.NewFetcher(flux.FetchOptions{Dir: dir})
			defer f.Close()
			files, err := f.Fetch(t.Context(), flux.Artifact{URL: url, Digest: test.digest})
			if err != nil {
				t.Fatalf("%v: %s", err, test.why)
			}
			var found []string
			if err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					data, err := fs.ReadFile(files, path)
					found = append(found, path+"="+string(data))
					return err
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			if got := strings.Join(found, " "); got != "a/b.yaml=x: 1\n c=c" {
				t.Errorf("the files are %q, want the regular ones", got)
			}
			if err := files.Close(); err != nil {
				t.Error(err)
			}
			empty(t, dir)
		})
	}
}

func TestFetchRefusesInvalidArtifacts(t *testing.T) {
	good := archive(t, member{name: "a", content: "a"})
	bomb := archive(t, member{name: "a", content: strings.Repeat("0", 1<<20)})
	tests := map[string]struct {
		why    string
		data   []byte
		digest string
		limits tree.Limits
		want   string
	}{
		"no digest":         {why: "without a digest, a change can't be detected", data: good, want: "no digest"},
		"other digest":      {why: "the artifact was changed", data: good, digest: sha(nil), want: "but its source states"},
		"md5":               {why: "MD5 is no protection", data: good, digest: "md5:00", want: "md5"},
		"short digest":      {why: "a prefix matches too many artifacts", data: good, digest: sha(good)[:20], want: "is not a sha256 sum"},
		"no archive":        {why: "a proxy may respond with a page", data: []byte("<html>"), digest: sha([]byte("<html>")), want: "no archive"},
		"empty":             {why: "all manifests would count as removed", digest: sha(nil), want: "no archive"},
		"cut":               {why: "a part of an archive is no archive", data: good[:len(good)-20], digest: sha(good[:len(good)-20]), want: "no archive"},
		"too long":          {why: "memory and disk are bounded", data: bytes.Repeat([]byte("x"), 3000), digest: sha(bytes.Repeat([]byte("x"), 3000)), want: "more than 2000 bytes"},
		"too big":           {why: "a small archive may unpack to a large one", data: bomb, digest: sha(bomb), limits: tree.Limits{Bytes: 1000, Files: 3}, want: "bytes"},
		"large non-file":    {why: "skipping content also takes time", data: largeNonFile(t), digest: sha(largeNonFile(t)), limits: tree.Limits{Bytes: 1000, Files: 3}, want: "too many bytes"},
		"too many":          {why: "inodes are bounded", data: archive(t, member{name: "a"}, member{name: "b"}), digest: sha(archive(t, member{name: "a"}, member{name: "b"})), limits: tree.Limits{Bytes: 1, Files: 1}, want: "more than 1 files"},
		"many links":        {why: "skipping members also takes time", data: links(t, 10), digest: sha(links(t, 10)), limits: tree.Limits{Bytes: 1, Files: 1}, want: "more than 4 members"},
		"escape":            {why: "it would write outside of the directory", data: archive(t, member{name: "../a"}), digest: sha(archive(t, member{name: "../a"})), want: "leads out"},
		"deep escape":       {why: "it would write outside of the directory", data: archive(t, member{name: "a/../../b"}), digest: sha(archive(t, member{name: "a/../../b"})), want: "leads out"},
		"absolute":          {why: "it would write outside of the directory", data: archive(t, member{name: "/etc/x"}), digest: sha(archive(t, member{name: "/etc/x"})), want: "leads out"},
		"twice":             {why: "which of the two counts is undefined", data: archive(t, member{name: "a"}, member{name: "a"}), digest: sha(archive(t, member{name: "a"}, member{name: "a"})), want: "a"},
		"file as directory": {why: "a file can't hold files", data: archive(t, member{name: "a"}, member{name: "a/b"}), digest: sha(archive(t, member{name: "a"}, member{name: "a/b"})), want: "a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := flux.NewFetcher(flux.FetchOptions{Dir: dir, Limits: test.limits, Download: 2000, Tries: 2, Pause: time.Millisecond})
			_, err := f.Fetch(t.Context(), flux.Artifact{URL: serving(t, test.data), Digest: test.digest})
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%s: the error is %v, want one that contains %q", test.why, err, test.want)
			}
			empty(t, dir)
		})
	}
}

// largeNonFile returns an archive with much content in a member that is no file.
func largeNonFile(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "x", Typeflag: 'Z', Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 1<<20))
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func links(t testing.TB, n int) []byte {
	t.Helper()
	var all []member
	for i := range n {
		all = append(all, member{name: fmt.Sprint("l", i), typ: tar.TypeSymlink, link: "x"})
	}
	return archive(t, all...)
}

// Errors that may be gone at the next attempt are retried, and no others.
func TestFetchRetriesOnlyTransientErrors(t *testing.T) {
	good := archive(t, member{name: "a", content: "a"})
	var requests atomic.Int32
	elsewhere := serving(t, good)
	tests := map[string]struct {
		why      string
		handle   func(n int32, w http.ResponseWriter)
		want     error // nil: the fetch succeeds
		requests int32
	}{
		"unavailable for a moment": {
			why: "source-controller restarts", requests: 3,
			handle: func(n int32, w http.ResponseWriter) {
				if n < 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = w.Write(good)
			},
		},
		"broken off": {
			why: "connections break", requests: 2,
			handle: func(n int32, w http.ResponseWriter) {
				w.Header().Set("Content-Length", strconv.Itoa(len(good)))
				if n == 1 {
					_, _ = w.Write(good[:10])
					return
				}
				_, _ = w.Write(good)
			},
		},
		"gone": {why: "there is a newer artifact", requests: 1, want: tko.ErrNotFound, handle: func(_ int32, w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		"redirected": {why: "redirects aren't followed", requests: 1, want: tko.ErrInvalid, handle: func(_ int32, w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere)
			w.WriteHeader(http.StatusFound)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { test.handle(requests.Add(1), w) })
			files, err := flux.NewFetcher(flux.FetchOptions{Dir: t.TempDir(), Pause: time.Millisecond}).Fetch(t.Context(), flux.Artifact{URL: url, Digest: sha(good)})
			if !errors.Is(err, test.want) || requests.Load() != test.requests {
				t.Errorf("%s: %d requests and %v, want %d and %v", test.why, requests.Load(), err, test.requests, test.want)
			}
			if err == nil {
				_ = files.Close()
			}
		})
	}
	t.Run("no response", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		if _, err := flux.NewFetcher(flux.FetchOptions{Dir: t.TempDir()}).Fetch(ctx, flux.Artifact{URL: url, Digest: sha(good)}); !errors.Is(err, context.Canceled) {
			t.Errorf("after the context ended, Fetch returned %v, want context.Canceled", err)
		}
	})
	t.Run("another host", func(t *testing.T) {
		host := strings.TrimPrefix(serving(t, good), "http://")
		files, err := flux.NewFetcher(flux.FetchOptions{Dir: t.TempDir(), Host: host}).Fetch(t.Context(), flux.Artifact{URL: "http://source-controller.flux-system.svc/a", Digest: sha(good)})
		if err != nil {
			t.Fatal(err)
		}
		_ = files.Close()
	})
	if _, err := flux.NewFetcher(flux.FetchOptions{}).Fetch(t.Context(), flux.Artifact{URL: "file:///etc/passwd", Digest: sha(nil)}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("Fetch of a file URL returned %v, want ErrInvalid", err)
	}
}
