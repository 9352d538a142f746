package flux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
)

// from reads the revisions of an object of Flux.
type from struct {
	controller *Controller
	ref        reference
	owner      *unstructured.Unstructured // the GitOps object; nil for a source by itself
	timeout    time.Duration              // of fetching; no other if 0
	retry      time.Duration              // until a source that isn't there is looked for again
	keys       func(ctx context.Context) (*sops.Keys, error)
	denied     error
	osmOps     bool // what isn't for OSM is nothing
}

// artifact is what the source offers, as it was seen last.
func (f *from) artifact() (Artifact, error) {
	if f.denied != nil {
		return Artifact{}, f.denied
	}
	u, err := f.controller.get(f.ref)
	if err == nil && u == nil {
		err = fmt.Errorf("%s is not there", f.ref)
	}
	if errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrDenied) {
		return Artifact{}, err
	}
	if err != nil {
		return Artifact{}, &gitops.AgainError{After: cmp.Or(f.retry, f.controller.options.Wait), Err: err}
	}
	a, ok := artifactOf(u)
	if !ok {
		message := fmt.Sprintf("%s has no artifact yet", f.ref)
		if trouble := troubleOf(u); trouble != "" {
			message += ": " + trouble
		}
		return Artifact{}, &gitops.AgainError{After: f.controller.options.Wait, Err: errors.New(message)}
	}
	return a, nil
}

// Revision is that of the artifact. It asks nobody: the cluster tells us.
func (f *from) Revision(context.Context) (string, error) {
	a, err := f.artifact()
	return a.Revision, err
}

// Fetch gets the artifact's files. If it isn't kept any more, the source is read
// anew: what it offers now is looked at soon.
func (f *from) Fetch(ctx context.Context, revision string) (*tree.Tree, error) {
	a, err := f.artifact()
	if err != nil {
		return nil, err
	}
	if a.Revision != revision {
		return nil, &gitops.AgainError{After: time.Second, Quiet: true, Err: fmt.Errorf("revision %s was followed by %s", revision, a.Revision)}
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the artifact could not be got within %s, which is spec.timeout", f.timeout))
		defer cancel()
	}
	files, err := f.controller.fetcher.Fetch(ctx, a)
	if errors.Is(err, tko.ErrNotFound) {
		return nil, f.gone(ctx, a, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.ref, err)
	}
	if f.osmOps && !osmops.Holds(files) {
		return nothing(files, f.controller.options.Fetch)
	}
	return files, nil
}

// Open decrypts what is read, if the cluster says now what we heard from it last.
// What we heard may be old, where we lost the connection and another replica
// didn't: then nothing must be done.
func (f *from) Open(ctx context.Context, files *tree.Tree, revision string) (fs.FS, error) {
	if err := f.current(ctx, revision); err != nil {
		f.controller.log.InfoContext(ctx, "the cluster is heard out first", "object", f.ref.String(), "revision", revision, "err", err)
		return nil, &gitops.AgainError{After: f.controller.options.Wait, Quiet: true, Err: err}
	}
	var keys *sops.Keys
	if f.keys != nil {
		var err error
		if keys, err = f.keys(ctx); err != nil {
			return nil, fmt.Errorf("spec.decryption: %w", err)
		}
	}
	return sops.FS(files, keys, gitops.Others), nil
}

// current asks whether the objects are as we know them.
func (f *from) current(ctx context.Context, revision string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if f.owner != nil {
		now, err := f.controller.dynamic.Resource(gitOpsResource).Namespace(f.owner.GetNamespace()).Get(ctx, f.owner.GetName(), meta.GetOptions{})
		if err != nil {
			return err
		}
		if now.GetUID() != f.owner.GetUID() || now.GetGeneration() != f.owner.GetGeneration() || now.GetDeletionTimestamp() != nil {
			return errors.New("the GitOps object has changed")
		}
	}
	now, err := f.controller.dynamic.Resource(sourceResource(f.ref.kind)).Namespace(f.ref.namespace).Get(ctx, f.ref.name, meta.GetOptions{})
	if err != nil {
		return err
	}
	if a, _ := artifactOf(now); a.Revision != revision {
		return fmt.Errorf("the source is at revision %q", a.Revision)
	}
	return nil
}

// askTimeout bounds questions to the cluster.
const askTimeout = 10 * time.Second

// nothing is a revision that holds nothing for us.
func nothing(files *tree.Tree, o FetchOptions) (*tree.Tree, error) {
	if err := files.Close(); err != nil {
		return nil, err
	}
	w, err := tree.Create(o.Dir, o.Limits)
	if err != nil {
		return nil, err
	}
	return w.Tree(), nil
}

// gone is the answer when an artifact isn't kept any more: the source has a
// newer one by now, or will have.
func (f *from) gone(ctx context.Context, a Artifact, err error) error {
	wait := f.controller.options.Wait
	u, getErr := f.controller.dynamic.Resource(sourceResource(f.ref.kind)).Namespace(f.ref.namespace).Get(ctx, f.ref.name, meta.GetOptions{})
	if getErr == nil {
		if now, ok := artifactOf(u); ok && (now.URL != a.URL || now.Digest != a.Digest) {
			wait = time.Second
		}
	}
	return &gitops.AgainError{After: wait, Quiet: true, Err: fmt.Errorf("%s: %w", f.ref, err)}
}

// keys reads the keys that a Secret holds, whenever they are needed.
func (c *Controller) keys(namespace string, ref secretReference) func(context.Context) (*sops.Keys, error) {
	return func(ctx context.Context) (*sops.Keys, error) {
		data, err := c.secret(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		keys, err := sops.SecretKeys(data)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "Secret %s/%s: %w", namespace, ref.Name, err)
		}
		return keys, nil
	}
}

// connectionKey is that of a connection in a Secret, as users of OSM Ops have
// it.
const connectionKey = "nbi-connection.yaml"

// connection reads how to reach an OSM from a Secret, whenever it is needed.
func (c *Controller) connection(namespace string, ref secretReference) func(context.Context) (osmops.Connection, error) {
	return func(ctx context.Context) (osmops.Connection, error) {
		data, err := c.secret(ctx, namespace, ref.Name)
		if err != nil {
			return osmops.Connection{}, fmt.Errorf("spec.osm.connectionSecretRef: %w", err)
		}
		text, ok := data[cmp.Or(ref.Key, connectionKey)]
		if !ok {
			return osmops.Connection{}, tko.Errorf(tko.ErrInvalid, "spec.osm.connectionSecretRef: Secret %s/%s has no key %q, but %q",
				namespace, ref.Name, cmp.Or(ref.Key, connectionKey), slices.Sorted(maps.Keys(data)))
		}
		return osmops.ParseConnection(text)
	}
}

func (c *Controller) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	s, err := c.typed.CoreV1().Secrets(namespace).Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	return s.Data, nil
}
