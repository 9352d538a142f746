package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// attached is the Kubernetes metadata of an object that TKO does not interpret.
type attached struct {
	GenerateName    string                      `json:"generateName,omitempty"`
	Annotations     map[string]string           `json:"annotations,omitempty"`
	OwnerReferences []metav1.OwnerReference     `json:"ownerReferences,omitempty"`
	ManagedFields   []metav1.ManagedFieldsEntry `json:"managedFields,omitempty"`
	Given           []givenResource             `json:"given,omitempty"`
	Kustomize       *kustomized                 `json:"kustomize,omitempty"`
}

// kustomized is what kustomize adds to the spec of each object of the kind Deployment. It is
// stored so that applying a kustomization again changes nothing.
type kustomized struct {
	Selector *v1alpha1.KustomizeSelector `json:"selector,omitempty"`
	Template *v1alpha1.KustomizeTemplate `json:"template,omitempty"`
}

// kustomizedOf returns what kustomize has added to an object; nil if it has added nothing.
func kustomizedOf(o object) *kustomized {
	d, ok := o.(*v1alpha1.Deployment)
	if !ok || d.Spec.Selector == nil && d.Spec.Template == nil {
		return nil
	}
	return &kustomized{d.Spec.Selector, d.Spec.Template}
}

// attachedTo returns the Kubernetes metadata of a record; none if it has none.
func attachedTo(r record.Record) (a attached, err error) {
	if raw := r.Attached(); len(raw) > 0 {
		err = json.Unmarshal(raw, &a)
	}
	if err != nil {
		err = fmt.Errorf("read the Kubernetes metadata of %s %q: %w", r.Kind, r.ID, err)
	}
	return a, err
}

// A view selects the parts of a record that are shown.
type view struct {
	whole   bool // with its package
	secrets bool // with the values of Secrets
}

// nameOf returns the name of a record in Kubernetes, or a tko.ErrInvalid if it
// has none.
func nameOf(r record.Record) (string, error) {
	if name := r.KubernetesName(); name != "" {
		return name, nil
	}
	return escape(r.Kind, r.ID)
}

// escape returns the name of an ID. The hyphens of rollouts' IDs stay, so that a rollout
// is applied and read under the name that people give it, such as smf-v2.
func escape(kind tko.Kind, id string) (string, error) {
	if kind == tko.KindRollout {
		return kubename.EscapeKeepingHyphens(id)
	}
	return kubename.Escape(id)
}

// unescape is the inverse of escape.
func unescape(kind tko.Kind, name string) (string, error) {
	if kind == tko.KindRollout {
		return kubename.UnescapeHyphens(name)
	}
	return kubename.Unescape(name)
}

// object returns a record as a Kubernetes object, or a tko.ErrInvalid if it has
// no name there.
func (k *kind) object(r record.Record, v view) (object, error) {
	o := k.newObject()
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	o.SetName(name)
	o.SetUID(types.UID(r.UID))
	o.SetResourceVersion(formatPosition(r.Position))
	o.SetGeneration(r.Revision)
	o.SetCreationTimestamp(metav1.NewTime(r.Created.Truncate(time.Second)))
	o.SetLabels(labelsOf(r))
	var added *kustomized
	if len(r.Attached()) > 0 {
		a, err := attachedTo(r)
		if err != nil {
			return nil, err
		}
		added = a.Kustomize
		o.SetGenerateName(a.GenerateName)
		if !v.secrets {
			a.Annotations = redactedAnnotations(a.Annotations)
		}
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
	resources := []runtime.RawExtension{} // an empty list stays one: kubectl apply compares it
	if v.whole {
		pkg, err := r.Resources()
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		if !v.secrets {
			pkg = pkg.WithoutSecrets()
		}
		for _, resource := range pkg {
			raw, err := json.Marshal(resource)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %v", resource.Identity(), err) //nolint:errorlint // an internal error, whatever the kind of its cause
			}
			resources = append(resources, runtime.RawExtension{Raw: raw})
		}
	}
	if err := k.encode(o, r, resources); err != nil {
		return nil, err
	}
	if d, ok := o.(*v1alpha1.Deployment); ok && added != nil {
		d.Spec.Selector, d.Spec.Template = added.Selector, added.Template
	}
	o.GetObjectKind().SetGroupVersionKind(k.gvk())
	return o, nil
}

// put returns the change that an object requests. before is the record that it
// replaces, with metadata and package; its Revision is 0 if there is none. key
// is that of the request, without an ID for a new deployment.
func (k *kind) put(o object, key record.Key, before record.Record) (catalog.Put, error) {
	put, raw, id, err := k.decode(o)
	if err != nil {
		return put, err
	}
	put.Key = key
	var wrong field.ErrorList
	if key.ID != "" && id != "" && id != key.ID {
		wrong = append(wrong, field.Invalid(k.idPath(), id, fmt.Sprintf("metadata.name is the name of %q: use that ID, or leave this out", key.ID)))
	}
	if k.kind == tko.KindPlugin && id == "" {
		put.Plugin.Type, put.Plugin.Name, _ = tko.SplitPluginID(key.ID)
	}
	if len(o.GetFinalizers()) > 0 {
		wrong = append(wrong, field.Forbidden(field.NewPath("metadata", "finalizers"), "TKO deletes immediately and does not support finalizers"))
	}
	labels, bad := k.fromLabels(o.GetLabels(), before)
	wrong = append(wrong, bad...)
	put.Metadata, put.Labels = labels.metadata, labels.verbatim
	if o.GetUID() != "" { // the object was read before, so what it lacks is removed on purpose
		put.Remove = labels.removed
	}
	for i, r := range raw {
		resource, err := decodeResource(r.Raw)
		if err != nil {
			wrong = append(wrong, field.Invalid(resourcesPath.Index(i), short(r.Raw), err.Error()))
			continue
		}
		put.Package = append(put.Package, resource)
	}
	more := tko.Put{Metadata: put.Metadata}
	if err := more.ReadManifestAnnotations(func(name string) string { return o.GetAnnotations()[name] }); err != nil {
		wrong = append(wrong, field.Invalid(field.NewPath("metadata", "annotations"), "", err.Error()))
	}
	put.Whole, put.MadeFrom = more.Whole, more.MadeFrom
	put.Remove = append(put.Remove, more.RemoveMetadata...)
	if len(wrong) > 0 {
		return put, &fieldsError{wrong}
	}
	return put, restoreSecrets(&put, before)
}

// restoreSecrets restores the redacted values of Secrets in a package that a
// client read and writes back.
func restoreSecrets(put *catalog.Put, before record.Record) error {
	if before.Revision == 0 || !krm.MayHoldSecrets(before.Package) {
		return nil
	}
	pkg, err := before.Resources()
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	put.Package, _ = put.Package.WithSecretsOf(pkg)
	return nil
}

// redactedAnnotations returns annotations with the values of Secrets redacted:
// kubectl stores the last applied object in an annotation.
func redactedAnnotations(annotations map[string]string) map[string]string {
	for key, value := range annotations {
		annotations[key] = krm.RedactText(value)
	}
	return annotations
}

var resourcesPath = field.NewPath("spec", "package", "resources")

func (k *kind) idPath() *field.Path {
	name := map[tko.Kind]string{tko.KindTemplate: "templateId", tko.KindSite: "siteId", tko.KindDeployment: "deploymentId", tko.KindPlugin: "pluginId", tko.KindRollout: "rolloutId"}[k.kind]
	return field.NewPath("spec", name)
}

// decodeResource decodes a resource from JSON. It distinguishes integers from
// floats, and refuses duplicate keys.
func decodeResource(raw []byte) (krm.Resource, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, tko.Errorf(tko.ErrInvalid, "not a resource: it must have apiVersion and kind")
	}
	resource := krm.Resource{}
	twice, err := kjson.UnmarshalStrict(raw, (*map[string]any)(&resource), kjson.DisallowDuplicateFields)
	switch {
	case err != nil:
		return nil, tko.Errorf(tko.ErrInvalid, "not a resource: %w", err)
	case len(twice) > 0:
		return nil, tko.Errorf(tko.ErrInvalid, "%w: one of the values would be lost", errors.Join(twice...))
	}
	return resource, nil
}

func short(raw []byte) string { return printable.Within(string(raw), 80) }

// attach sets the Kubernetes metadata of an object: to the stored encoding if only times of
// managed fields differ.
func attach(put *catalog.Put, o object, before record.Record, given []givenResource) error {
	annotations, err := restoreAnnotations(o.GetAnnotations(), before)
	if err != nil {
		return err
	}
	old := before.Attached()
	now := attached{GenerateName: o.GetGenerateName(), Annotations: annotations, OwnerReferences: o.GetOwnerReferences(), ManagedFields: withoutStatus(o.GetManagedFields()), Given: given, Kustomize: kustomizedOf(o)}
	if len(now.GenerateName)+len(now.Annotations)+len(now.OwnerReferences)+len(now.ManagedFields)+len(now.Given) == 0 && now.Kustomize == nil {
		put.Bookkeeping, put.AttachedFrom = old != nil && bytes.Equal(content(old), content(nil)), old
		return nil
	}
	encoded, err := json.Marshal(now)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "metadata: %w", err)
	}
	if old != nil && bytes.Equal(withoutTimes(old), withoutTimes(encoded)) {
		encoded = old
	}
	put.Attached = encoded
	put.Bookkeeping, put.AttachedFrom = bytes.Equal(content(old), content(encoded)), old
	return nil
}

// content returns attached metadata without what clients and this API keep about writers: who
// manages which field, and what kubectl applied last. A change of these is no change of the object.
func content(encoded []byte) []byte {
	return attachedWithout(encoded, func(a *attached) {
		a.ManagedFields = nil
		delete(a.Annotations, corev1.LastAppliedConfigAnnotation)
	})
}

// restoreAnnotations restores annotations that were shown redacted to a reader
// without the right to see Secrets.
func restoreAnnotations(annotations map[string]string, before record.Record) (map[string]string, error) {
	if !krm.MayHoldSecrets(before.Attached()) {
		return annotations, nil
	}
	was, err := attachedTo(before)
	if err != nil {
		return nil, err
	}
	whole := maps.Clone(annotations)
	for key, value := range annotations {
		if stored, ok := was.Annotations[key]; ok && value == krm.RedactText(stored) {
			whole[key] = stored
		}
	}
	return whole, nil
}

// withoutTimes returns attached metadata without the times of managed fields.
func withoutTimes(encoded []byte) []byte {
	return attachedWithout(encoded, func(a *attached) {
		for i := range a.ManagedFields {
			a.ManagedFields[i].Time = nil
		}
	})
}

// attachedWithout returns attached metadata after a function has removed parts of them. No
// metadata are equal to empty ones.
func attachedWithout(encoded []byte, remove func(*attached)) []byte {
	var a attached
	if len(encoded) > 0 && json.Unmarshal(encoded, &a) != nil {
		return encoded
	}
	remove(&a)
	without, err := json.Marshal(a)
	if err != nil {
		return encoded
	}
	return without
}

func formatPosition(position int64) string { return strconv.FormatInt(position, 10) }

// parsePosition parses a resourceVersion: 0 if it is empty.
func parsePosition(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "resourceVersion %q: not one of TKO: use one that a get, list or watch returned", text)
	}
	return position, nil
}

// newKey returns the key of a new object: from its metadata, its spec or both;
// without an ID if TKO generates it.
func (k *kind) newKey(o object, generate func(base string) string) (record.Key, error) {
	key := record.Key{Kind: k.kind}
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
		if cut, ok := strings.CutSuffix(base, "-"); ok { // a common generateName that is not a valid escape
			base = cut + "-002d"
		}
		name = generate(base)
	}
	if name == "" {
		if id == "" {
			return key, &fieldsError{field.ErrorList{field.Required(field.NewPath("metadata", "name"), "or "+k.idPath().String())}}
		}
		if _, err := escape(k.kind, id); err != nil {
			return key, &fieldsError{field.ErrorList{field.Invalid(k.idPath(), id, err.Error())}}
		}
		key.ID = id
		return key, nil
	}
	if key.ID, err = unescape(k.kind, name); err != nil {
		return key, &fieldsError{field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, err.Error()+`; "tko kube to ID" prints names`)}}
	}
	return key, nil
}
