package krmfn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// wasmLayers are the media types of layers that are WebAssembly modules.
var wasmLayers = map[string]bool{
	"application/wasm":                                  true, // artifacts as the CNCF's working group defines them
	"application/vnd.wasm.content.layer.v1+wasm":        true,
	"application/vnd.module.wasm.content.layer.v1+wasm": true,
}

// folder returns the path of a directory in the cache, which it creates, or ""
// if there is no cache.
func (e *Executor) folder(name string) string {
	if e.options.Cache == "" {
		return ""
	}
	dir := filepath.Join(e.options.Cache, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	return dir
}

// fetchModule fetches a module from a registry if the pull policy requires it,
// and returns the path of its file.
func (e *Executor) fetchModule(ctx context.Context, reference, pull string) (path string, err error) {
	dir := e.folder("modules")
	if dir == "" {
		return "", fmt.Errorf("its module %q can't be fetched: this server has no directory for modules, set --kpt-cache", reference)
	}
	sum := sha256.Sum256([]byte(reference))
	path = filepath.Join(dir, hex.EncodeToString(sum[:])+".wasm")
	_, err = os.Stat(path)
	switch {
	case err == nil && pull != "always":
		return path, nil
	case err != nil && pull == "never":
		return "", fmt.Errorf("its module %q is not on this server, and its property %s is never: change the property", reference, tko.FunctionPull)
	}
	timed, cancel := context.WithTimeoutCause(ctx, e.options.Fetch, fmt.Errorf("it was not fetched within %s", e.options.Fetch))
	defer cancel()
	code, err := e.download(timed, reference)
	if timed.Err() != nil {
		err = context.Cause(timed)
	}
	if err != nil {
		return "", fmt.Errorf("its module %q can't be fetched: %w", reference, guard.RegistryError(err))
	}
	return path, replaceFile(path, code)
}

// replaceFile writes a file atomically.
func replaceFile(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// download returns the one module of an OCI artifact.
func (e *Executor) download(ctx context.Context, reference string) ([]byte, error) {
	repository, err := remote.NewRepository(reference)
	if err != nil {
		return nil, err
	}
	repository.PlainHTTP = guard.IsLocal(repository.Reference.Host())
	client := &auth.Client{Client: &http.Client{Transport: e.options.Guard.Transport()}, Cache: auth.NewCache()}
	if store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil {
		client.Credential = credentials.Credential(store)
	}
	repository.Client = client
	_, manifest, err := artifacts.Manifest(ctx, repository, repository.Reference.ReferenceOrDefault())
	if err != nil {
		return nil, err
	}
	var layers []ocispec.Descriptor
	for _, layer := range manifest.Layers {
		if wasmLayers[layer.MediaType] {
			layers = append(layers, layer)
		}
	}
	if len(layers) != 1 {
		return nil, tko.Errorf(tko.ErrInvalid, "it has %d layers of application/wasm: a function is an artifact with one", len(layers))
	}
	return artifacts.Layer(ctx, repository, layers[0], maxModule)
}
