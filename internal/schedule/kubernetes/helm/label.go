package helm

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

const maxManifests = 16 << 20 // bytes that a chart may render to

// A body cancels its request when it is closed.
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

// A marker adds the label to all rendered objects, hooks included. It implements the
// library's PostRenderer.
type marker struct {
	labels   map[string]string
	keep     func(annotations map[string]string) bool
	adjust   func(object map[string]any) (map[string]any, error) // if not nil
	rendered func()                                              // called when rendering has ended
}

// Run adds the label to a stream of resources.
func (m *marker) Run(in *bytes.Buffer) (*bytes.Buffer, error) {
	m.rendered()
	all, err := kio.ParseAll(in.String())
	if err != nil {
		return nil, fmt.Errorf("its templates render to invalid YAML: %w", err)
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
			return fmt.Errorf("label the rendered %s %q: %w", r.GetKind(), r.GetName(), err)
		}
	}
	if m.keep(r.GetAnnotations()) {
		if err := r.PipeE(kyaml.SetAnnotation("helm.sh/resource-policy", "keep")); err != nil {
			return err
		}
	}
	if m.adjust == nil {
		return nil
	}
	return m.change(r)
}

// change adjusts a resource if the client's Adjust returns another one.
func (m *marker) change(r *kyaml.RNode) error {
	old, err := r.Map()
	if err != nil {
		return err
	}
	object, err := m.adjust(old)
	if err != nil || object == nil {
		return err
	}
	changed, err := kyaml.FromMap(object)
	if err != nil {
		return err
	}
	r.SetYNode(changed.YNode())
	return nil
}
