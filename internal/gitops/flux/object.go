package flux

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/prune"
	rolloutspec "github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// The kind of GitOps objects. Its version differs from that of TKO's entities,
// which an aggregated API serves: a version of a group is either aggregated or
// made of CRDs.
const (
	Group   = "tko.nephio.org"
	Version = "v1beta1"
	Kind    = "GitOps"
	// Finalizer keeps an object until its entities are deleted or orphaned.
	Finalizer = "gitops.tko.nephio.org/finalizer"
	// AnnotationRequested requests a reconciliation when its value changes.
	AnnotationRequested = "reconcile.fluxcd.io/requestedAt"
	// AnnotationPrune set to "true" on a GitRepository without a GitOps object
	// enables removals, which OSM Ops never made.
	AnnotationPrune = "gitops.tko.nephio.org/prune"
)

const sourceGroup, sourceVersion = "source.toolkit.fluxcd.io", "v1"

var (
	gitOpsResource = schema.GroupVersionResource{Group: Group, Version: Version, Resource: "gitops"}
	// sources maps the supported kinds of Flux to their resources.
	sources = map[string]string{
		"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets", "ExternalArtifact": "externalartifacts",
	}
)

func sourceResource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: sourceGroup, Version: sourceVersion, Resource: sources[kind]}
}

// A reference names an object.
type reference struct{ kind, namespace, name string }

func (r reference) String() string { return fmt.Sprintf("%s %s/%s", r.kind, r.namespace, r.name) }

// source returns the name of the GitOps source of an object.
func (r reference) source() string {
	if r.kind == Kind {
		return r.namespace + "/" + r.name
	}
	return strings.ToLower(r.kind) + "/" + r.namespace + "/" + r.name
}

// object is a GitOps object. The CRD describes its fields.
type object struct {
	Spec   spec   `json:"spec"`
	Status status `json:"status"`
}

type spec struct {
	SourceRef struct {
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"sourceRef"`
	Interval       string `json:"interval"`
	RetryInterval  string `json:"retryInterval"`
	Timeout        string `json:"timeout"`
	Path           string `json:"path"`
	Prune          bool   `json:"prune"`
	Adopt          bool   `json:"adopt"`
	DeletionPolicy string `json:"deletionPolicy"`
	Suspend        bool   `json:"suspend"`
	DependsOn      []struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"dependsOn"`
	Budget *struct {
		Percent  int `json:"percent"`
		Entities int `json:"entities"`
	} `json:"budget"`
	Approve string         `json:"approve"`
	Rollout map[string]any `json:"rollout"`
	OSM     struct {
		ConnectionSecretRef *secretReference `json:"connectionSecretRef"`
		Prune               *bool            `json:"prune"`
		Broken              string           `json:"broken"`
		Replace             bool             `json:"replace"`
		NoReset             bool             `json:"noReset"`
		Budget              *struct {
			Percent   int `json:"percent"`
			Instances int `json:"instances"`
		} `json:"budget"`
	} `json:"osm"`
	Decryption *struct {
		Provider  string          `json:"provider"`
		SecretRef secretReference `json:"secretRef"`
	} `json:"decryption"`
}

type secretReference struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// readObject reads a GitOps object.
func readObject(u *unstructured.Unstructured) (*object, error) {
	var o object
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the object can't be decoded: %w", err)
	}
	return &o, nil
}

// sourceOf returns the reference of an object to its Flux source.
func (o *object) sourceOf(namespace string) reference {
	r := o.Spec.SourceRef
	return reference{r.Kind, cmp.Or(r.Namespace, namespace), r.Name}
}

// duration parses a duration that the CRD has validated.
func duration(text string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return otherwise
	}
	return d
}

// gitOpsSpec returns the Spec of an object, without From, Generation and Report.
func (o *object) gitOpsSpec(r reference) gitops.Spec {
	from := o.sourceOf(r.namespace)
	s := gitops.Spec{
		Name: r.source(), Kind: from.kind, URL: from.namespace + "/" + from.name, Path: strings.Trim(o.Spec.Path, "/"),
		Interval: duration(o.Spec.Interval, time.Minute), Retry: duration(o.Spec.RetryInterval, 0), Suspend: o.Spec.Suspend,
		Prune: o.Spec.Prune, Adopt: o.Spec.Adopt, Budget: prune.Default,
	}
	s.Path = strings.TrimPrefix(s.Path, "./")
	s.Resync = s.Interval
	if b := o.Spec.Budget; b != nil {
		s.Budget = prune.Budget{Percent: b.Percent, Count: b.Entities}
	}
	for _, d := range o.Spec.DependsOn {
		s.DependsOn = append(s.DependsOn, reference{Kind, cmp.Or(d.Namespace, r.namespace), d.Name}.source())
	}
	settings := gitops.OSMSettings{Prune: o.Spec.OSM.Prune, Broken: o.Spec.OSM.Broken, Replace: o.Spec.OSM.Replace, NoReset: o.Spec.OSM.NoReset}
	if b := o.Spec.OSM.Budget; b != nil {
		settings.Percent, settings.Instances = &b.Percent, &b.Instances
	}
	s.OSM.Policy = settings.Policy(s.Prune)
	if o.Spec.Rollout != nil {
		s.Rollout, s.Invalid = rolloutspec.Settings(o.Spec.Rollout)
	}
	return s
}

// prunes reports whether the object's entities are deleted with it. A suspended
// object deletes nothing.
func (o *object) prunes() bool {
	switch {
	case o.Spec.Suspend || o.Spec.DeletionPolicy == "Orphan":
		return false
	case o.Spec.DeletionPolicy == "Delete" || o.Spec.DeletionPolicy == "WaitForTermination":
		return true
	default: // MirrorPrune
		return o.Spec.Prune
	}
}

// otherNamespaces returns the references to other namespaces, as "FIELD NAMESPACE".
func (o *object) otherNamespaces(namespace string) []string {
	var all []string
	add := func(field, other string) {
		if other != "" && other != namespace {
			all = append(all, field+" "+other)
		}
	}
	add("spec.sourceRef.namespace", o.Spec.SourceRef.Namespace)
	for _, d := range o.Spec.DependsOn {
		add("spec.dependsOn.namespace", d.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// artifactOf returns the artifact of a Flux object; false if it has none yet.
func artifactOf(u *unstructured.Unstructured) (Artifact, bool) {
	var o struct {
		Status struct {
			Artifact *Artifact `json:"artifact"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil || o.Status.Artifact == nil || o.Status.Artifact.URL == "" {
		return Artifact{}, false
	}
	return *o.Status.Artifact, true
}

// notReadyMessage returns the message of a Flux object's Ready condition if it isn't
// ready; otherwise "".
func notReadyMessage(u *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" && m["status"] != "True" {
			message, _ := m["message"].(string)
			return message
		}
	}
	return ""
}
