package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/krm"
)

// Labels and annotations of objects.
const (
	// LabelDeployment is on every applied object. Its value is the ID of the object's
	// deployment.
	LabelDeployment = "tko.nephio.org/deployment"
	// AnnotationOrder is a whole number, 0 by default. The objects of a deployment
	// are applied in this order; each step waits until the previous one is healthy.
	// They are removed in the reverse order.
	AnnotationOrder = "tko.nephio.org/order"
	// AnnotationPrune with the value Never retains an object that is no longer
	// wanted.
	AnnotationPrune = "tko.nephio.org/prune"
	// AnnotationAdopt with the value true takes over an object that existed before it
	// was first applied. Without it, TKO does not change such objects, and uses
	// existing namespaces and definitions as they are.
	AnnotationAdopt = "tko.nephio.org/adopt"
	// AnnotationTarget with the value management marks the resources of a site's
	// package that are applied to the management cluster.
	AnnotationTarget = "tko.nephio.org/target"
	targetManagement = "management"
)

const (
	crdGroup = "apiextensions.k8s.io"
	crdKind  = "CustomResourceDefinition"

	first    = -1 << 20 // the step of definitions and namespaces, which other objects need
	maxOrder = 1000
)

// A key identifies an object in a cluster, independent of its API version.
type key struct{ Group, Kind, Namespace, Name string }

func (k key) String() string {
	kind := k.Kind
	if k.Group != "" {
		kind += "." + k.Group
	}
	if k.Namespace == "" {
		return fmt.Sprintf("%s %q", kind, k.Name)
	}
	return fmt.Sprintf("%s %q", kind, k.Namespace+"/"+k.Name)
}

func (k key) isNamespace() bool  { return k.Group == "" && k.Kind == "Namespace" }
func (k key) isDefinition() bool { return k.Group == crdGroup && k.Kind == crdKind }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// An object is a desired object of a cluster.
type object struct {
	key
	version    string
	deployment tko.DeploymentID // its owner: the first deployment that has it
	step       int
	content    map[string]any // never changed
	digest     string         // of the content

	chart   *chart.Chart // of a HelmChart
	keep    bool         // whether the release of the HelmChart stays when it is no longer wanted
	release key          // the HelmChart whose release it is in, if any
}

func (o *object) apiVersion() string {
	if o.Group == "" {
		return o.version
	}
	return o.Group + "/" + o.version
}

func (o *object) annotation(name string) string {
	return krm.Resource(o.content).Annotation(name)
}

// A scope tells whether objects of a kind are in namespaces.
type scope int

const (
	unknown scope = iota
	clusterWide
	namespaced
)

// A wanted is the desired state of a cluster.
type wanted struct {
	objects  map[key]*object
	of       map[tko.DeploymentID][]key // in the order in which they are applied
	problems map[tko.DeploymentID][]*problem
}

// A problem is a reason why an object is not in its desired state.
type problem struct {
	object  string
	message string
	invalid bool // only a change of the package helps
}

// collectWanted collects the desired objects of the deployments, which are sorted by
// ID. The first deployment that has an object owns it; others share it if its content
// is the same. With management, only resources for the management cluster are
// considered.
func collectWanted(deployments []tko.Deployment, namespace string, management bool, scopeOf func(krm.GVK) scope) wanted {
	w := wanted{objects: map[key]*object{}, of: map[tko.DeploymentID][]key{}, problems: map[tko.DeploymentID][]*problem{}}
	defined := definitions(deployments)
	for _, d := range deployments {
		var mine []*object
		for _, r := range d.Package {
			var o *object
			var problem *problem
			switch {
			case r.GVK() == chart.GVK:
				o, problem = buildChart(r, d, namespace)
			case r.IsLocal():
				continue
			case !management && r.Annotation(AnnotationTarget) == targetManagement:
				problem = newProblem(r.Identity().String(), true, "is for the management cluster, which takes resources from site packages only: put it into the site's package")
			default:
				at, known := defined[groupKind{r.GVK().Group, r.GVK().Kind}]
				if !known {
					at = scopeOf(r.GVK())
				}
				o, problem = build(r, d.ID, namespace, at)
			}
			if problem != nil {
				w.problems[d.ID] = append(w.problems[d.ID], problem)
				continue
			}
			if there, ok := w.objects[o.key]; ok {
				if there.deployment == d.ID || plainDigest(there) != plainDigest(o) {
					w.problems[d.ID] = append(w.problems[d.ID], newProblem(o.String(), true,
						"is also in deployment %q, with another content: an object belongs to one deployment only", there.deployment))
					continue
				}
			} else {
				w.objects[o.key] = o
			}
			mine = append(mine, w.objects[o.key])
		}
		slices.SortStableFunc(mine, compareObjects)
		for _, o := range mine {
			w.of[d.ID] = append(w.of[d.ID], o.key)
		}
	}
	return w
}

// compareObjects orders objects for application.
func compareObjects(a, b *object) int {
	return cmp.Or(cmp.Compare(a.step, b.step), compareRanks(a.key, b.key))
}

type groupKind struct{ group, kind string }

// definitions returns the scopes of the kinds that the packages define.
func definitions(deployments []tko.Deployment) map[groupKind]scope {
	m := map[groupKind]scope{}
	for _, d := range deployments {
		for _, r := range d.Package {
			if gvk := r.GVK(); gvk.Group != crdGroup || gvk.Kind != crdKind {
				continue
			}
			at := namespaced
			if r.Text("spec", "scope") == "Cluster" {
				at = clusterWide
			}
			m[groupKind{r.Text("spec", "group"), r.Text("spec", "names", "kind")}] = at
		}
	}
	return m
}

func newProblem(what string, invalid bool, format string, args ...any) *problem {
	return &problem{object: what, message: fmt.Sprintf(format, args...), invalid: invalid}
}

// build makes the desired object of a resource.
func build(r krm.Resource, id tko.DeploymentID, namespace string, at scope) (*object, *problem) {
	failed := func(invalid bool, format string, args ...any) (*object, *problem) {
		return nil, newProblem(r.Identity().String(), invalid, format, args...)
	}
	gvk := r.GVK()
	o := &object{key: key{Group: gvk.Group, Kind: gvk.Kind, Name: r.Text("metadata", "name")}, version: gvk.Version, deployment: id}
	if o.Name == "" {
		return failed(true, "has no metadata.name: add one")
	}
	switch at {
	case unknown:
		return failed(false, "is of a kind that the cluster does not have: install its definition there, or put it into a deployment of the site")
	case namespaced:
		o.Namespace = cmp.Or(r.Text("metadata", "namespace"), namespace)
	case clusterWide:
	}
	if o.isNamespace() || o.isDefinition() {
		o.step = first
	} else {
		var err error
		if o.step, err = orderOf(r); err != nil {
			return failed(true, "%s", err)
		}
	}
	o.content = content(r, o.Namespace, id)
	digest, err := digestOf(o.content)
	if err != nil {
		return failed(true, "can't be written as JSON: %s", err)
	}
	o.digest = digest
	return o, nil
}

// orderOf returns the value of the order annotation.
func orderOf(r krm.Resource) (int, error) {
	text := r.Annotation(AnnotationOrder)
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil || n < -maxOrder || n > maxOrder {
		return 0, fmt.Errorf("has the annotation %s %q: it must be a whole number from -%d to %d", AnnotationOrder, text, maxOrder, maxOrder)
	}
	return n, nil
}

// content returns the content to apply for a resource: without fields and annotations
// that only TKO or API servers use, and with the deployment label.
func content(r krm.Resource, namespace string, id tko.DeploymentID) map[string]any {
	c := maps.Clone(map[string]any(r))
	delete(c, "status")
	if r.GVK() == (krm.GVK{Version: "v1", Kind: "Secret"}) {
		plainSecret(c)
	}
	old, _ := r["metadata"].(map[string]any)
	metadata := maps.Clone(old)
	for _, name := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink", "namespace"} {
		delete(metadata, name)
	}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		rest := maps.Clone(annotations)
		maps.DeleteFunc(rest, func(name string, _ any) bool { return strings.HasPrefix(name, "nephio.org/") })
		metadata["annotations"] = rest
		if len(rest) == 0 {
			delete(metadata, "annotations")
		}
	}
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[LabelDeployment] = string(id)
	metadata["labels"] = labels
	c["metadata"] = metadata
	return c
}

// plainSecret moves stringData into data. API servers accept stringData, but don't
// attribute the resulting data fields to TKO.
func plainSecret(c map[string]any) {
	texts, ok := c["stringData"].(map[string]any)
	if !ok {
		return
	}
	old, _ := c["data"].(map[string]any)
	data := maps.Clone(old)
	if data == nil {
		data = map[string]any{}
	}
	for name, v := range texts {
		text, ok := v.(string)
		if !ok {
			return // the API server rejects it with the reason
		}
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(c, "stringData")
	c["data"] = data
}

// plainDigest returns the digest of an object's content without its deployment label;
// empty if the content can't be written as JSON.
func plainDigest(o *object) string {
	digest, _ := digestOf(withoutOwner(o.content))
	return digest
}

// digestOf returns a hash of the value as JSON.
func digestOf(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return shortHash(text), nil
}

func shortHash(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}
