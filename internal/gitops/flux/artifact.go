package flux

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

// An artifact is what source-controller publishes for a source.
type artifact struct{ url, revision, digest string }

// noArtifact is how soon a source without an artifact is looked at again, and
// goneArtifact one whose artifact was collected before we came.
const (
	noArtifact   = 30 * time.Second
	goneArtifact = 3 * time.Second
)

// A reader reads the artifacts of one source object.
type reader struct {
	find   func() (*artifact, error) // as the cluster has it now
	http   *http.Client
	host   string // in place of the URL's, if not empty
	limits tree.Limits
	dir    string
}

// Revision is that of the artifact.
func (r *reader) Revision(context.Context) (string, error) {
	a, err := r.find()
	if err != nil {
		return "", err
	}
	return a.revision, nil
}

// Fetch gets and verifies the artifact of a revision.
func (r *reader) Fetch(ctx context.Context, revision string) (*tree.Tree, error) {
	a, err := r.find()
	if err != nil {
		return nil, err
	}
	if a.revision != revision {
		return nil, &gitops.AgainError{After: time.Second, Err: fmt.Errorf("the source has moved on from %s to %s", revision, a.revision)}
	}
	sum, want, err := digestOf(a.digest)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(r.dir, "tko-gitops-artifact-")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	limits := r.limits.OrDefault()
	if err := r.download(ctx, a.url, io.MultiWriter(file, sum), limits.Bytes); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return nil, fmt.Errorf("the artifact of %s has the digest %s, and should have %s: it is not used", revision, got, a.digest)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return r.unpack(ctx, file)
}

func digestOf(digest string) (sum hash.Hash, want string, err error) {
	algorithm, want, _ := strings.Cut(digest, ":")
	switch algorithm {
	case "sha256":
		sum = sha256.New()
	case "sha384":
		sum = sha512.New384()
	case "sha512":
		sum = sha512.New()
	default:
		return nil, "", tko.Errorf(tko.ErrInvalid, "the artifact's digest is %.80q, and can't be verified: let source-controller use sha256, sha384 or sha512", digest)
	}
	if len(want) != hex.EncodedLen(sum.Size()) {
		return nil, "", tko.Errorf(tko.ErrInvalid, "the artifact's digest is %.80q, which is none", digest)
	}
	return sum, strings.ToLower(want), nil
}

func (r *reader) download(ctx context.Context, address string, to io.Writer, limit int64) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return tko.Errorf(tko.ErrInvalid, "the artifact's URL %.200q is none", address)
	}
	if r.host != "" {
		u.Host = r.host
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := r.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return &gitops.AgainError{After: goneArtifact, Err: errors.New("the artifact is gone: the source has a newer one, or will have")}
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("the artifact can't be had: %s", answer.Status)
	}
	n, err := io.Copy(to, io.LimitReader(answer.Body, limit+1))
	if err == nil && n > limit {
		err = tko.Errorf(tko.ErrInvalid, "the artifact has more than %d bytes", limit)
	}
	return err
}

func (r *reader) unpack(ctx context.Context, from io.Reader) (_ *tree.Tree, err error) {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the artifact is no tar.gz: %w", err)
	}
	w, err := tree.Create(r.dir, r.limits)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.Discard()
		}
	}()
	limit := 2 * r.limits.OrDefault().Bytes
	bounded := &io.LimitedReader{R: unzipped, N: limit}
	files := tar.NewReader(bounded)
	for {
		header, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return w.Tree(), nil
		case bounded.N <= 0:
			return nil, tko.Errorf(tko.ErrInvalid, "the artifact has more than %d bytes", limit)
		case err != nil:
			return nil, tko.Errorf(tko.ErrInvalid, "the artifact is damaged: %w", err)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case header.Typeflag != tar.TypeReg:
			continue // folders; links are none of Flux's
		}
		if err := w.Add(header.Name, files); err != nil {
			return nil, err
		}
	}
}
