package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
)

const (
	labelInventory = "tko.nephio.org/inventory"
	maxInventory   = 900 << 10 // bytes: a ConfigMap takes a megabyte
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// An entry is what an inventory says of an object.
type entry struct {
	Version string
	Step    int
	Digest  string // of what was applied; empty if that isn't known
	Fields  string // hash of the fields that were ours when it was applied last; empty if it never was

	Over     bool // a Job that has completed, and that Kubernetes removes after that
	Found    bool // TKO did not make it: it stays when it is not wanted any more
	Removing bool // somebody approved that it goes
	New      bool // it came since it was clear what it takes the place of: budgets are not of it

	Chart   chartState // of a HelmChart
	Release key        // the HelmChart whose release it is in, if any
}

// An inventory names the objects of a deployment at a site: all that may be
// there, and maybe some that aren't yet.
type inventory struct {
	site       tko.SiteID
	deployment tko.DeploymentID
	entries    map[key]entry
	resource   *unstructured.Unstructured // as it was read; nil if it is new
}

// line is an entry as it is written.
type line struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Step      int    `json:"step,omitempty"`
	Digest    string `json:"digest,omitempty"`
	Fields    string `json:"fields,omitempty"`
	Over      bool   `json:"over,omitempty"`
	Found     bool   `json:"found,omitempty"`
	Removing  bool   `json:"removing,omitempty"`
	New       bool   `json:"new,omitempty"`

	Chart   chartState `json:"chart,omitzero"`
	Release string     `json:"release,omitempty"` // NAMESPACE/NAME
}

// inventoryName is a name that no other deployment's inventory has.
func inventoryName(site tko.SiteID, id tko.DeploymentID) string {
	hash := strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(shortHash([]byte(string(site) + "\x00" + string(id)))))
	return "tko-" + hash
}

// encode writes the entries, in an order of their own.
func (i *inventory) encode() (string, error) {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(i.entries), compareKeys) {
		e := i.entries[k]
		text, err := json.Marshal(line{k.Group, e.Version, k.Kind, k.Namespace, k.Name, e.Step, e.Digest, e.Fields, e.Over, e.Found, e.Removing, e.New, e.Chart, releaseName(e.Release)})
		if err != nil {
			return "", err
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	if b.Len() > maxInventory {
		return "", tko.Errorf(tko.ErrInvalid, "deployment %q has too many objects (%d) to be recorded: part it into several", i.deployment, len(i.entries))
	}
	return b.String(), nil
}

// decodeInventory reads one. What is damaged is an error: whoever goes on
// without it loses objects.
func decodeInventory(r *unstructured.Unstructured) (*inventory, error) {
	i := &inventory{entries: map[key]entry{}, resource: r}
	data, _, err := unstructured.NestedStringMap(r.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("inventory %s: %w", r.GetName(), err)
	}
	i.site, i.deployment = tko.SiteID(data["site"]), tko.DeploymentID(data["deployment"])
	if i.site == "" || inventoryName(i.site, i.deployment) != r.GetName() {
		return nil, fmt.Errorf("ConfigMap %q is marked as an inventory of TKO but isn't one: restore it, or delete it and what it names", r.GetNamespace()+"/"+r.GetName())
	}
	for text := range strings.Lines(data["objects"]) {
		var l line
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		if err := decoder.Decode(&l); err != nil || l.Kind == "" || l.Name == "" {
			return nil, fmt.Errorf("ConfigMap %q, an inventory of TKO, is damaged: restore it, or delete it and what it names", r.GetNamespace()+"/"+r.GetName())
		}
		i.entries[key{l.Group, l.Kind, l.Namespace, l.Name}] = entry{Version: l.Version, Step: l.Step, Digest: l.Digest, Fields: l.Fields, Over: l.Over, Found: l.Found, Removing: l.Removing, New: l.New, Chart: l.Chart, Release: releaseKey(l.Release)}
	}
	return i, nil
}

// inventories are all that a cluster has in a namespace: of this site, by
// deployment, and of others.
type inventories struct {
	mine   map[tko.DeploymentID]*inventory
	others []*inventory
}

// total is how many objects the site has.
func (all inventories) total() int {
	seen := map[key]bool{}
	for _, i := range all.mine {
		for k := range i.entries {
			seen[k] = true
		}
	}
	return len(seen)
}

// settled is how many objects the site has beside new ones; of these, only those
// that go count.
func (all inventories) settled(going []removal) int {
	seen := map[key]bool{}
	for _, r := range going {
		seen[r.key] = true
	}
	for _, i := range all.mine {
		for k, e := range i.entries {
			if !e.New && !e.Found {
				seen[k] = true
			}
		}
	}
	return len(seen)
}

// readInventories reads all of a namespace.
func (c *cluster) readInventories(ctx context.Context, namespace string, site tko.SiteID) (inventories, error) {
	all := inventories{mine: map[tko.DeploymentID]*inventory{}}
	list, err := c.list(ctx, configMaps, namespace, labelInventory)
	if err != nil {
		return inventories{}, fmt.Errorf("reading the inventories in namespace %q: %w", namespace, err)
	}
	for _, r := range list {
		i, err := decodeInventory(r)
		if err != nil {
			return inventories{}, err
		}
		if i.site == site {
			all.mine[i.deployment] = i
		} else {
			all.others = append(all.others, i)
		}
	}
	return all, nil
}

// owner is the deployment of another site that has an object.
func (all inventories) owner(k key) (*inventory, bool) {
	for _, i := range all.others {
		if _, ok := i.entries[k]; ok {
			return i, true
		}
	}
	return nil, false
}

// has says whether any inventory of a deployment names an object.
func (all inventories) has(id tko.DeploymentID, k key) bool {
	names := func(i *inventory) bool {
		_, ok := i.entries[k]
		return ok && i.deployment == id
	}
	return all.mine[id] != nil && names(all.mine[id]) || slices.ContainsFunc(all.others, names)
}

// write makes the cluster's inventory hold these entries; one without any goes.
// ErrConflict says that somebody else wrote it meanwhile.
func (c *cluster) writeInventory(ctx context.Context, namespace string, i *inventory, entries map[key]entry) error {
	if maps.Equal(i.entries, entries) && (i.resource != nil || len(entries) == 0) {
		return nil
	}
	next := &inventory{site: i.site, deployment: i.deployment, entries: entries}
	text, err := next.encode()
	if err != nil {
		return err
	}
	at := c.dynamic.Resource(configMaps).Namespace(namespace)
	name := inventoryName(i.site, i.deployment)
	switch {
	case len(entries) == 0:
		version := i.resource.GetResourceVersion()
		err = at.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	case i.resource == nil:
		r := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{
				"name": name, "namespace": namespace,
				"labels": map[string]any{labelInventory: "true"},
			},
			"data": map[string]any{"site": string(i.site), "deployment": string(i.deployment), "objects": text},
		}}
		next.resource, err = at.Create(ctx, r, metav1.CreateOptions{FieldManager: manager})
		if apierrors.IsNotFound(err) { // the namespace isn't there
			if err = c.makeNamespace(ctx, namespace); err == nil {
				next.resource, err = at.Create(ctx, r, metav1.CreateOptions{FieldManager: manager})
			}
		}
	default:
		r := i.resource.DeepCopy()
		if err := unstructured.SetNestedField(r.Object, text, "data", "objects"); err != nil {
			return err
		}
		next.resource, err = at.Update(ctx, r, metav1.UpdateOptions{FieldManager: manager})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return tko.Errorf(tko.ErrConflict, "the inventory of deployment %q was changed by somebody else meanwhile: it is looked at again", i.deployment)
	}
	if err != nil {
		return fmt.Errorf("writing the inventory of deployment %q in namespace %q: %w", i.deployment, namespace, err)
	}
	i.entries, i.resource = next.entries, next.resource
	return nil
}

// compareRemovals is the order in which objects are removed: the reverse of that
// in which they were applied.
func compareRemovals(a, b removal) int {
	return cmp.Or(cmp.Compare(b.Step, a.Step), compareCharts(b.key, a.key), compareRanks(b.key, a.key), compareKeys(b.key, a.key))
}
