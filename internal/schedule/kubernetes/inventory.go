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
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
)

const (
	labelInventory = "tko.nephio.org/inventory"
	maxInventory   = 900 << 10 // bytes: a ConfigMap holds at most a megabyte
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// An entry records an object in an inventory.
type entry struct {
	Version string
	Step    int
	Digest  string // of the applied content; empty if it is not known
	Fields  string // fieldsOf after the last apply; empty if it was never applied

	Completed bool // a completed Job that Kubernetes removes after a time
	Found     bool // TKO did not make it, and does not remove it
	Removing  bool // its removal was approved
	New       bool // added while objects that it may replace still exist: removal budgets don't count it

	Replaced int64  // when it was found that another object replaces it, in seconds since 1970; 0 if none does
	Kept     string // what TKO applied of a replaced object that stays for now, as JSON; empty if it isn't kept

	Chart   chart.State // of a HelmChart
	Release key         // the HelmChart whose release it is in, if any
}

// An inventory names the objects of a deployment at a site: all that may exist, and
// possibly some that don't exist yet.
type inventory struct {
	site       tko.SiteID
	deployment tko.DeploymentID
	entries    map[key]entry
	resource   *unstructured.Unstructured // as it was read; nil if it does not exist yet
}

// names returns whether an inventory, which may be nil, has an object.
func (i *inventory) names(k key) bool {
	if i == nil {
		return false
	}
	_, ok := i.entries[k]
	return ok
}

// An entryJSON is the stored form of an entry, one per line.
type entryJSON struct {
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
	Replaced  int64  `json:"replaced,omitempty"`

	Kept json.RawMessage `json:"kept,omitempty"`

	Chart   chart.State `json:"chart,omitzero"`
	Release string      `json:"release,omitempty"` // NAMESPACE/NAME
}

// inventoryName returns the name of a deployment's inventory. It is a hash, unique
// for each site and deployment.
func inventoryName(site tko.SiteID, id tko.DeploymentID) string {
	hash := strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(shortHash([]byte(string(site) + "\x00" + string(id)))))
	return "tko-" + hash
}

// encode returns the entries as lines of JSON, sorted by key.
func (i *inventory) encode() (string, error) {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(i.entries), compareKeys) {
		e := i.entries[k]
		text, err := json.Marshal(entryJSON{k.Group, e.Version, k.Kind, k.Namespace, k.Name, e.Step, e.Digest, e.Fields, e.Completed, e.Found, e.Removing, e.New, e.Replaced, json.RawMessage(e.Kept), e.Chart, releaseName(e.Release)})
		if err != nil {
			return "", err
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	if b.Len() > maxInventory {
		return "", tko.Errorf(tko.ErrInvalid, "deployment %q has too many objects (%d) to be recorded: split it into several", i.deployment, len(i.entries))
	}
	return b.String(), nil
}

// decodeInventory decodes an inventory. A damaged inventory is an error: without it,
// objects would be lost.
func decodeInventory(r *unstructured.Unstructured) (*inventory, error) {
	i := &inventory{entries: map[key]entry{}, resource: r}
	data, _, err := unstructured.NestedStringMap(r.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("inventory %q: %w", r.GetName(), err)
	}
	i.site, i.deployment = tko.SiteID(data["site"]), tko.DeploymentID(data["deployment"])
	if i.site == "" || inventoryName(i.site, i.deployment) != r.GetName() {
		return nil, fmt.Errorf("ConfigMap %q is marked as an inventory of TKO but isn't one: restore it, or delete it and what it names", r.GetNamespace()+"/"+r.GetName())
	}
	for text := range strings.Lines(data["objects"]) {
		var l entryJSON
		decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
		if err := decoder.Decode(&l); err != nil || l.Kind == "" || l.Name == "" {
			return nil, fmt.Errorf("ConfigMap %q, an inventory of TKO, is damaged: restore it, or delete it and what it names", r.GetNamespace()+"/"+r.GetName())
		}
		i.entries[key{l.Group, l.Kind, l.Namespace, l.Name}] = entry{Version: l.Version, Step: l.Step, Digest: l.Digest, Fields: l.Fields, Completed: l.Over, Found: l.Found, Removing: l.Removing, New: l.New, Replaced: l.Replaced, Kept: string(l.Kept), Chart: l.Chart, Release: releaseKey(l.Release)}
	}
	return i, nil
}

// inventories are all inventories in a namespace: those of this site, by deployment,
// and those of other sites.
type inventories struct {
	mine   map[tko.DeploymentID]*inventory
	others []*inventory
}

// total returns the number of the site's objects.
func (all inventories) total() int {
	seen := map[key]bool{}
	for _, i := range all.mine {
		for k := range i.entries {
			seen[k] = true
		}
	}
	return len(seen)
}

// settled returns the number of the site's objects that a removal budget is a share
// of. New objects, and objects that TKO did not make, count only if they are in
// removed.
func (all inventories) settled(removed []removal) int {
	seen := keysOf(removed)
	for _, i := range all.mine {
		for k, e := range i.entries {
			if !e.New && !e.Found {
				seen[k] = true
			}
		}
	}
	return len(seen)
}

// readInventories reads all inventories in a namespace.
func (c *cluster) readInventories(ctx context.Context, namespace string, site tko.SiteID) (inventories, error) {
	all := inventories{mine: map[tko.DeploymentID]*inventory{}}
	list, err := c.list(ctx, configMaps, namespace, labelInventory)
	if err != nil {
		return inventories{}, fmt.Errorf("read the inventories in namespace %q: %w", namespace, err)
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

// entryOf returns the recorded entry of an object: of its deployment, or of the one
// that had it before. If several inventories have different digests, the digest is
// unknown: the object was being moved.
func (all inventories) entryOf(k key) (e entry, recorded bool) {
	for _, i := range all.mine {
		other, ok := i.entries[k]
		switch {
		case !ok:
			continue
		case !recorded:
			e, recorded = other, true
			continue
		case other.Digest != e.Digest:
			e.Digest = ""
		}
		e.Fields, e.Found = cmp.Or(e.Fields, other.Fields), e.Found || other.Found
	}
	return e, recorded
}

// owner returns another site's inventory that has an object.
func (all inventories) owner(k key) (*inventory, bool) {
	i := slices.IndexFunc(all.others, func(i *inventory) bool { return i.names(k) })
	if i < 0 {
		return nil, false
	}
	return all.others[i], true
}

// has returns whether an inventory of a deployment, at any site, names an object.
func (all inventories) has(id tko.DeploymentID, k key) bool {
	return all.mine[id].names(k) || slices.ContainsFunc(all.others, func(i *inventory) bool { return i.deployment == id && i.names(k) })
}

// writeInventory replaces the entries of the cluster's inventory; one without entries
// is deleted. It returns ErrConflict if another client wrote the inventory meanwhile.
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
		if apierrors.IsNotFound(err) { // the namespace does not exist
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
		return tko.Errorf(tko.ErrConflict, "the inventory of deployment %q was changed concurrently: the site is reconciled again", i.deployment)
	}
	if err != nil {
		return fmt.Errorf("write the inventory of deployment %q in namespace %q: %w", i.deployment, namespace, err)
	}
	i.entries, i.resource = next.entries, next.resource
	return nil
}

// compareRemovals orders removals: the reverse of the order in which objects are
// applied.
func compareRemovals(a, b removal) int {
	return cmp.Or(cmp.Compare(b.Step, a.Step), compareCharts(b.key, a.key), compareRanks(b.key, a.key), compareKeys(b.key, a.key))
}
