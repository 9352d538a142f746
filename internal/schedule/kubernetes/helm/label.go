package helm

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/tko-orchestrator/tko"
)

const maxManifests = 16 << 20 // bytes that a chart may render to

// A body tells when it was read.
type body struct {
	io.ReadCloser
	done func()
}

// Close ends the request.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}

// A marker marks everything that a chart renders to, its hooks too. It is the
// library's PostRenderer.
type marker struct {
	labels   map[string]string
	keep     func(annotations map[string]string) bool
	rendered func() bool // is told that rendering came to its end, and says whether anybody still waits
}

// Run marks a stream of resources.
func (m *marker) Run(in *bytes.Buffer) (*bytes.Buffer, error) {
	if !m.rendered() {
		return nil, tko.Errorf(tko.ErrInvalid, "rendering took too long")
	}
	if in.Len() > maxManifests {
		return nil, tko.Errorf(tko.ErrInvalid, "it renders to more than %d MiB", maxManifests>>20)
	}
	all, err := kio.ParseAll(in.String())
	if err != nil {
		return nil, fmt.Errorf("it renders to what is no YAML: %w", err)
	}
	for _, r := range all {
		if err := m.mark(r); err != nil {
			return nil, err
		}
	}
	text, err := kio.StringAll(all)
	return bytes.NewBufferString(text), err
}

func (m *marker) mark(r *kyaml.RNode) error {
	if items := r.Field("items"); items != nil && r.Field("metadata") == nil {
		return items.Value.VisitElements(m.mark) // a List
	}
	for name, value := range m.labels {
		if err := r.PipeE(kyaml.SetLabel(name, value)); err != nil {
			return fmt.Errorf("%s %q that it renders to can't be labelled: %w", r.GetKind(), r.GetName(), err)
		}
	}
	if m.keep(r.GetAnnotations()) {
		return r.PipeE(kyaml.SetAnnotation("helm.sh/resource-policy", "keep"))
	}
	return nil
}
