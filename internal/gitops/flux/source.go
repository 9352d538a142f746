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

// sourceFetcher fetches the revisions of an object of Flux. It is a gitops.Fetcher.
type sourceFetcher struct {
	controller *Controller
	ref        reference
	owner      *unstructured.Unstructured // the GitOps object; nil if there is none
	timeout    time.Duration              // of fetching; unlimited if 0
	retry      time.Duration              // until a missing object is read again
	keys       func(ctx context.Context) (*sops.Keys, error)
	denied     error // if the reference is not allowed
	osmOps     bool  // treat revisions that aren't for OSM as empty
}

// artifact returns the object's artifact from the informer's cache.
func (f *sourceFetcher) artifact() (Artifact, error) {
	if f.denied != nil {
		return Artifact{}, f.denied
	}
	u, err := f.controller.get(f.ref)
	if err == nil && u == nil {
		err = fmt.Errorf("%s: not found", f.ref)
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
		trouble := notReadyMessage(u)
		if trouble != "" {
			message += ": " + trouble
		}
		return Artifact{}, &gitops.AgainError{After: f.controller.options.Wait, First: trouble == "", Err: errors.New(message)}
	}
	return a, nil
}

// Revision returns the artifact's revision, from the informer's cache.
func (f *sourceFetcher) Revision(context.Context) (string, error) {
	a, err := f.artifact()
	return a.Revision, err
}

// Fetch returns the artifact's files. If the artifact is no longer stored, the
// error has the source reconciled again soon.
func (f *sourceFetcher) Fetch(ctx context.Context, revision string) (*tree.Tree, error) {
	a, err := f.artifact()
	if err != nil {
		return nil, err
	}
	if a.Revision != revision {
		return nil, &gitops.AgainError{After: time.Second, Quiet: true, Err: fmt.Errorf("revision %s was followed by %s", revision, a.Revision)}
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the artifact could not be fetched within %s, the value of spec.timeout", f.timeout))
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

// Open returns the files decrypted. It refuses if the cached objects are older than
// those in the cluster: after a lost connection, this replica must not apply an
// older revision than another replica did.
func (f *sourceFetcher) Open(ctx context.Context, files *tree.Tree, revision string) (fs.FS, error) {
	if err := f.current(ctx, revision); err != nil {
		f.controller.log.InfoContext(ctx, "the cached objects are outdated", "object", f.ref.String(), "revision", revision, "err", err)
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

// current returns an error if the objects in the cluster differ from the cached
// ones.
func (f *sourceFetcher) current(ctx context.Context, revision string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
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

// requestTimeout limits requests to the cluster.
const requestTimeout = 10 * time.Second

// nothing closes the files and returns an empty tree.
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

// gone returns the error for an artifact that is no longer stored. The object has a
// newer one already, or will have one.
func (f *sourceFetcher) gone(ctx context.Context, a Artifact, err error) error {
	wait := f.controller.options.Wait
	u, getErr := f.controller.dynamic.Resource(sourceResource(f.ref.kind)).Namespace(f.ref.namespace).Get(ctx, f.ref.name, meta.GetOptions{})
	if getErr == nil {
		if now, ok := artifactOf(u); ok && (now.URL != a.URL || now.Digest != a.Digest) {
			wait = time.Second
		}
	}
	return &gitops.AgainError{After: wait, Quiet: true, Err: fmt.Errorf("%s: %w", f.ref, err)}
}

// keys returns a function that reads the keys in a Secret.
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

// connectionKey is the default key of a connection in a Secret: OSM Ops's.
const connectionKey = "nbi-connection.yaml"

// connection returns a function that reads the connection of an OSM in a Secret.
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
