package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// attached is what Kubernetes keeps with an object and TKO has no word for.
type attached struct {
	GenerateName    string                      `json:"generateName,omitempty"`
	Annotations     map[string]string           `json:"annotations,omitempty"`
	OwnerReferences []metav1.OwnerReference     `json:"ownerReferences,omitempty"`
	ManagedFields   []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
}

// object is a record as Kubernetes sees it; whole: with its package. An error
// that is tko.ErrInvalid says that it has no name there.
func (k *kind) object(r catalog.Record, whole bool) (object, error) {
	o := k.newObject()
	name, err := tko.KubeName(r.ID)
	if err != nil {
		return nil, err
	}
	o.SetName(name)
	o.SetUID(types.UID(r.UID))
	o.SetResourceVersion(formatPosition(r.Position))
	o.SetGeneration(r.Revision)
	o.SetCreationTimestamp(metav1.NewTime(r.Created.Truncate(time.Second)))
	if r.Metadata != nil {
		o.SetLabels(labelsOf(r.Metadata.Effective))
	}
	if raw := r.Attached(); len(raw) > 0 {
		var a attached
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, fmt.Errorf("read what Kubernetes keeps with %s %q: %w", r.Kind, r.ID, err)
		}
		o.SetGenerateName(a.GenerateName)
		o.SetAnnotations(a.Annotations)
		o.SetOwnerReferences(a.OwnerReferences)
		o.SetManagedFields(a.ManagedFields)
	}
	managers, err := statusManagers(r.Conditions)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", r.Kind, r.ID, err)
	}
	if len(managers) > 0 {
		o.SetManagedFields(append(o.GetManagedFields(), managers...))
	}
	var resources []runtime.RawExtension
	if whole {
		pkg, err := r.Resources()
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		for _, resource := range pkg {
			raw, err := json.Marshal(resource)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %v", resource.Identity(), err) //nolint:errorlint // a fault, of whatever kind its cause is
			}
			resources = append(resources, runtime.RawExtension{Raw: raw})
		}
	}
	if err := k.encode(o, r, resources); err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(k.gvk())
	return o, nil
}

// labelsOf are the labels that metadata is; what can't be one is left out.
func labelsOf(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	labels := make(map[string]string, len(metadata))
	for key, value := range metadata {
		k, v, ok := labelOf(key, value)
		if ok {
			labels[k] = v
		}
	}
	return labels
}

func labelOf(key, value string) (k, v string, ok bool) {
	k, err := tko.KubeName(key)
	if err == nil && value != "" {
		v, err = tko.KubeName(value)
	}
	return k, v, err == nil
}

// fromLabels is the metadata that labels are, and what of the record's can't be
// a label.
func fromLabels(labels map[string]string, r catalog.Record) (map[string]string, field.ErrorList) {
	var wrong field.ErrorList
	metadata := make(map[string]string, len(labels))
	if r.Metadata != nil {
		for key, value := range r.Metadata.Effective {
			if _, _, ok := labelOf(key, value); !ok {
				metadata[key] = value
			}
		}
	}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		path := field.NewPath("metadata", "labels").Key(label)
		key, err := tko.FromKubeName(label)
		if err != nil {
			wrong = append(wrong, field.Invalid(path, label, err.Error()))
			continue
		}
		value, err := unescape(labels[label])
		if err != nil {
			wrong = append(wrong, field.Invalid(path, labels[label], err.Error()))
			continue
		}
		metadata[key] = value
	}
	return metadata, wrong
}

func unescape(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return tko.FromKubeName(text)
}

// put is what an object asks for, in place of a record that was read with its
// metadata; Revision 0 if there is none. key is that of the request, without an
// ID for a new deployment.
func (k *kind) put(o object, key catalog.Key, before catalog.Record) (catalog.Put, error) {
	put, raw, id, err := k.decode(o)
	if err != nil {
		return put, err
	}
	put.Key = key
	var wrong field.ErrorList
	if key.ID != "" && id != "" && id != key.ID {
		wrong = append(wrong, field.Invalid(k.idPath(), id, fmt.Sprintf("metadata.name is that of %q: say the same, or leave this out", key.ID)))
	}
	if k.kind == tko.KindPlugin && id == "" {
		put.Plugin.Type, put.Plugin.Name, _ = tko.SplitPluginID(key.ID)
	}
	if len(o.GetFinalizers()) > 0 {
		wrong = append(wrong, field.Forbidden(field.NewPath("metadata", "finalizers"), "TKO deletes at once, and keeps no finalizers"))
	}
	metadata, bad := fromLabels(o.GetLabels(), before)
	wrong = append(wrong, bad...)
	put.Metadata = metadata
	if k.kind == tko.KindPlugin && len(o.GetLabels()) > 0 {
		wrong = append(wrong, field.Forbidden(field.NewPath("metadata", "labels"), "plugins have no metadata, and so no labels"))
	}
	for i, r := range raw {
		resource, err := decodeResource(r.Raw)
		if err != nil {
			wrong = append(wrong, field.Invalid(resourcesPath.Index(i), short(r.Raw), err.Error()))
			continue
		}
		put.Package = append(put.Package, resource)
	}
	if len(wrong) > 0 {
		return put, &fieldsError{wrong}
	}
	put.Attached, err = attach(o, before)
	return put, err
}

var resourcesPath = field.NewPath("spec", "package", "resources")

func (k *kind) idPath() *field.Path {
	name := map[tko.Kind]string{tko.KindTemplate: "templateId", tko.KindSite: "siteId", tko.KindDeployment: "deploymentId", tko.KindPlugin: "pluginId"}[k.kind]
	return field.NewPath("spec", name)
}

// decodeResource reads a resource, in whose JSON integers are none of floats, and
// no key is there twice.
func decodeResource(raw []byte) (krm.Resource, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, tko.Errorf(tko.ErrInvalid, "this is no resource: it must have apiVersion and kind")
	}
	resource := krm.Resource{}
	twice, err := kjson.UnmarshalStrict(raw, (*map[string]any)(&resource), kjson.DisallowDuplicateFields)
	switch {
	case err != nil:
		return nil, tko.Errorf(tko.ErrInvalid, "this is no resource: %w", err)
	case len(twice) > 0:
		return nil, tko.Errorf(tko.ErrInvalid, "%w: one of the values would be lost", errors.Join(twice...))
	}
	return resource, nil
}

func short(raw []byte) string {
	if len(raw) > 80 {
		return string(raw[:77]) + "..."
	}
	return string(raw)
}

// attach encodes what Kubernetes keeps with an object: as it was, if only
// times of managed fields differ.
func attach(o object, before catalog.Record) ([]byte, error) {
	now := attached{GenerateName: o.GetGenerateName(), Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(), ManagedFields: ofTheRest(o.GetManagedFields())}
	if len(now.GenerateName)+len(now.Annotations)+len(now.OwnerReferences)+len(now.ManagedFields) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(now)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "metadata: %w", err)
	}
	if old := before.Attached(); old != nil && bytes.Equal(timeless(old), timeless(encoded)) {
		return old, nil
	}
	return encoded, nil
}

// timeless is what is attached without the times of managed fields.
func timeless(encoded []byte) []byte {
	var a attached
	if json.Unmarshal(encoded, &a) != nil {
		return encoded
	}
	for i := range a.ManagedFields {
		a.ManagedFields[i].Time = nil
	}
	without, err := json.Marshal(a)
	if err != nil {
		return encoded
	}
	return without
}

func formatPosition(position int64) string { return strconv.FormatInt(position, 10) }

// parsePosition reads a resourceVersion: 0 if there is none.
func parsePosition(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "the resourceVersion %q is none of TKO's: use one that a get, list or watch answered", text)
	}
	return position, nil
}

// key is the record that a name in a request's path means.
func (k *kind) key(name string) (catalog.Key, error) {
	id, err := tko.FromKubeName(name)
	if err != nil {
		return catalog.Key{}, tko.Errorf(tko.ErrInvalid, "%w; \"tko kube to ID\" writes names", err)
	}
	return catalog.Key{Kind: k.kind, ID: id}, nil
}

// newKey is the record that a new object shall be: named by its metadata, by
// its spec or by both; without an ID if TKO makes one.
func (k *kind) newKey(o object, generate func(base string) string) (catalog.Key, error) {
	key := catalog.Key{Kind: k.kind}
	if k.kind == tko.KindDeployment {
		return key, nil
	}
	_, _, id, err := k.decode(o)
	if err != nil {
		return key, err
	}
	name := o.GetName()
	if name == "" && id == "" && o.GetGenerateName() != "" {
		base := o.GetGenerateName()
		if cut, ok := strings.CutSuffix(base, "-"); ok { // what people write, and no escape
			base = cut + "-002d"
		}
		name = generate(base)
	}
	if name == "" {
		if id == "" {
			return key, &fieldsError{field.ErrorList{field.Required(field.NewPath("metadata", "name"), "or "+k.idPath().String())}}
		}
		if _, err := tko.KubeName(id); err != nil {
			return key, &fieldsError{field.ErrorList{field.Invalid(k.idPath(), id, err.Error())}}
		}
		key.ID = id
		return key, nil
	}
	if key.ID, err = tko.FromKubeName(name); err != nil {
		return key, &fieldsError{field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, err.Error()+`; "tko kube to ID" writes names`)}}
	}
	return key, nil
}
