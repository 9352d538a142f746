package kubeapi

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/kubename"
)

// Metadata is shown as labels, with keys and values escaped as names are. A
// label whose key or value is not a valid escape is stored verbatim. It is also
// metadata under its literal text, unless its key has a prefix, as Helm's
// labels have. Plugins have no metadata, so all their labels are verbatim.

// labelsOf returns the labels of a record. Metadata that can't be a label is
// omitted.
func labelsOf(r record.Record) map[string]string {
	if r.Metadata == nil || len(r.Metadata.Effective)+len(r.Metadata.Labels) == 0 {
		return nil
	}
	labels := make(map[string]string, len(r.Metadata.Effective))
	for key, value := range r.Metadata.Effective {
		if k, v, ok := labelOf(key, value); ok && !shownVerbatim(r, key) {
			labels[k] = v
		}
	}
	for label, value := range r.Metadata.Labels {
		if r.Kind == tko.KindPlugin || kubename.HasPrefix(label) || shownVerbatim(r, label) {
			labels[label] = value
		}
	}
	return labels
}

// shownVerbatim reports whether metadata is shown as the verbatim label. It is not if
// the metadata was changed elsewhere since.
func shownVerbatim(r record.Record, key string) bool {
	label, ok := r.Metadata.Labels[key]
	value, there := r.Metadata.Effective[key]
	return ok && there && label == value && !kubename.HasPrefix(key)
}

func labelOf(key, value string) (k, v string, ok bool) {
	k, err := kubename.Escape(key)
	if err == nil && value != "" {
		v, err = kubename.Escape(value)
	}
	return k, v, err == nil
}

// givenLabels is the change that the labels of an object request.
type givenLabels struct {
	metadata map[string]string
	verbatim map[string]string
	removed  []string // keys of metadata whose labels were removed
}

// fromLabels returns the change from a record's labels to the given ones.
// Metadata of the record that can't be a label is not changed.
func (k *kind) fromLabels(labels map[string]string, before record.Record) (given givenLabels, wrong field.ErrorList) {
	given = givenLabels{metadata: make(map[string]string, len(labels)), verbatim: map[string]string{}}
	shown := labelsOf(before)
	if before.Metadata != nil {
		for key, value := range before.Metadata.Effective {
			if _, _, ok := labelOf(key, value); !ok && !shownVerbatim(before, key) {
				given.metadata[key] = value
			}
		}
	}
	from := map[string]string{} // metadata key: label
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		text := labels[label]
		key, value, escaped := kubename.Metadata(label, text)
		if k.kind == tko.KindPlugin || !escaped {
			if err := checkLabel(label, text); len(err) > 0 {
				wrong = append(wrong, err...)
				continue
			}
			given.verbatim[label] = text
		}
		if k.kind == tko.KindPlugin || key == "" {
			continue
		}
		if other, twice := from[key]; twice {
			if was, ok := shown[other]; ok && was == labels[other] { // the new spelling replaces the one that was shown
				delete(given.verbatim, other)
			} else if was, ok := shown[label]; ok && was == text {
				delete(given.verbatim, label)
				continue
			} else {
				wrong = append(wrong, field.Invalid(labelPath(label), text, "label "+other+" is the same metadata: keep one of them"))
				continue
			}
		}
		from[key] = label
		given.metadata[key] = value
	}
	if before.Metadata != nil {
		for key := range before.Metadata.Effective {
			if _, ok := given.metadata[key]; !ok {
				given.removed = append(given.removed, key)
			}
		}
	}
	return given, wrong
}

// checkLabel returns the errors of a label that is not escaped metadata.
func checkLabel(label, value string) field.ErrorList {
	if wrong := metav1validation.ValidateLabelName(label, labelPath(label)); len(wrong) > 0 {
		return wrong
	}
	return metav1validation.ValidateLabels(map[string]string{label: value}, labelPath(label))
}

func labelPath(label string) *field.Path { return field.NewPath("metadata", "labels").Key(label) }

// The annotation that keeps the given name of a deployment.
const (
	nameAnnotation = "tko.nephio.org/name"
	keepName       = "Keep"
)

// keepsName reports whether an object has the annotation that keeps its name.
func (k *kind) keepsName(o object) (bool, error) {
	value, ok := o.GetAnnotations()[nameAnnotation]
	if k.kind != tko.KindDeployment || !ok {
		return false, nil
	}
	if value != keepName {
		return false, &fieldsError{field.ErrorList{field.NotSupported(field.NewPath("metadata", "annotations").Key(nameAnnotation), value, []string{keepName})}}
	}
	return true, nil
}

// givenName returns the name of a new deployment that keeps its given name.
func givenName(o object, generate func(base string) string) (string, error) {
	path, name := field.NewPath("metadata", "name"), o.GetName()
	if name == "" && o.GetGenerateName() != "" {
		name = generate(o.GetGenerateName())
	}
	if name == "" {
		return "", &fieldsError{field.ErrorList{field.Required(path, "the annotation "+nameAnnotation+" keeps the name")}}
	}
	if wrong := apivalidation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return "", &fieldsError{field.ErrorList{field.Invalid(path, name, strings.Join(wrong, "; "))}}
	}
	return name, nil
}
