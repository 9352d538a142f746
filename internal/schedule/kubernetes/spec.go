package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the resources that trigger this target.
var GVK = krm.GVK{Group: "kubernetes.plugin.nephio.org", Version: "v1alpha1", Kind: "Cluster"}

// The values of drift: what to do with an object that another client changed.
const (
	driftCorrect = "Correct"
	driftReport  = "Report"
	driftIgnore  = "Ignore"
)

// A spec is the content of a Cluster resource.
type spec struct {
	Kubeconfig kubeconfigRef
	Namespace  string // default namespace of namespaced resources
	Inventory  string // namespace of the inventories
	Drift      string
	Ignore     []ignore
	Budget     budget
	Cleanup    string // what happens to the objects when the resource leaves the package
	Approve    string // digest of an approved removal beyond the budget
}

// A kubeconfigRef refers to a kubeconfig: by one of File, Secret, InCluster and
// Management.
type kubeconfigRef struct {
	File    string // path in the meta-scheduler's folder of kubeconfigs
	Context string // the current context if empty

	Secret, SecretNamespace, SecretKey string // in the management cluster

	InCluster  bool
	Management bool // the management cluster itself
}

// An ignore selects fields of objects that TKO does not manage.
type ignore struct {
	Group, Kind, Namespace, Name string // empty selects all; Kind is required
	Pointers                     []pointer
}

// A budget bounds the removals at a site without an approval: a removal needs one if
// it exceeds both bounds.
type budget struct{ Percent, Objects int }

const (
	defaultNamespace = "default"
	defaultInventory = "tko-system"
	defaultPercent   = 50
	defaultObjects   = 20
	maxIgnores       = 1000
)

// dnsLabel matches names of namespaces.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// dnsName matches names of Secrets.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// secretKey matches keys of Secrets.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// A specJSON is the JSON form of a spec.
type specJSON struct {
	Kubeconfig *struct {
		File   string `json:"file"`
		Secret *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			Key       string `json:"key"`
		} `json:"secret"`
		ClusterAPI *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"clusterAPI"`
		Context string `json:"context"`
	} `json:"kubeconfig"`
	InCluster          bool   `json:"inCluster"`
	Namespace          string `json:"namespace"`
	InventoryNamespace string `json:"inventoryNamespace"`
	Drift              string `json:"drift"`
	Cleanup            string `json:"cleanup"`
	Ignore             []struct {
		Group     string   `json:"group"`
		Kind      string   `json:"kind"`
		Namespace string   `json:"namespace"`
		Name      string   `json:"name"`
		Pointers  []string `json:"pointers"`
	} `json:"ignore"`
	Prune struct {
		Percent *int   `json:"percent"`
		Objects *int   `json:"objects"`
		Approve string `json:"approve"`
	} `json:"prune"`
}

// readSpec parses a Cluster resource. Errors are ErrInvalid and name the field.
func readSpec(r krm.Resource) (spec, error) {
	s, err := parseSpec(r["spec"])
	if err != nil {
		return spec{}, tko.Errorf(tko.ErrInvalid, "spec.%w", err)
	}
	return s, nil
}

func parseSpec(value any) (spec, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return spec{}, fmt.Errorf("kubeconfig or another field: not JSON: %w", err)
	}
	var w specJSON
	if err := json.Unmarshal(text, &w); err != nil {
		return spec{}, fmt.Errorf("kubeconfig or another field: %w", err)
	}
	s := spec{
		Namespace: cmp.Or(w.Namespace, defaultNamespace), Inventory: cmp.Or(w.InventoryNamespace, defaultInventory),
		Drift: cmp.Or(w.Drift, driftCorrect), Approve: w.Prune.Approve,
		Cleanup: cmp.Or(w.Cleanup, cleanupLeave),
		Budget:  budget{Percent: defaultPercent, Objects: defaultObjects},
	}
	if s.Kubeconfig, err = w.kubeconfigRef(); err != nil {
		return spec{}, err
	}
	switch {
	case !dnsLabel.MatchString(s.Namespace):
		return spec{}, fmt.Errorf("namespace: %q is not the name of a namespace", s.Namespace)
	case !dnsLabel.MatchString(s.Inventory):
		return spec{}, fmt.Errorf("inventoryNamespace: %q is not the name of a namespace", s.Inventory)
	case s.Drift != driftCorrect && s.Drift != driftReport && s.Drift != driftIgnore:
		return spec{}, fmt.Errorf("drift: %q is none of Correct, Report and Ignore", s.Drift)
	case !isCleanup(s.Cleanup):
		return spec{}, fmt.Errorf("cleanup: %q is neither Leave nor Remove", s.Cleanup)
	case len(w.Ignore) > maxIgnores:
		return spec{}, fmt.Errorf("ignore: there are more than %d rules", maxIgnores)
	}
	if w.Prune.Percent != nil {
		s.Budget.Percent = *w.Prune.Percent
	}
	if w.Prune.Objects != nil {
		s.Budget.Objects = *w.Prune.Objects
	}
	if s.Budget.Percent < 0 || s.Budget.Percent > 100 || s.Budget.Objects < 0 {
		return spec{}, errors.New("prune: percent is between 0 and 100, and objects is 0 or more")
	}
	for i, rule := range w.Ignore {
		if rule.Kind == "" || len(rule.Pointers) == 0 {
			return spec{}, fmt.Errorf("ignore[%d]: kind and pointers are required", i)
		}
		one := ignore{Group: rule.Group, Kind: rule.Kind, Namespace: rule.Namespace, Name: rule.Name}
		for _, text := range rule.Pointers {
			p, err := parsePointer(text)
			if err != nil {
				return spec{}, fmt.Errorf("ignore[%d].pointers: %w", i, err)
			}
			one.Pointers = append(one.Pointers, p)
		}
		s.Ignore = append(s.Ignore, one)
	}
	return s, nil
}

func (w specJSON) kubeconfigRef() (kubeconfigRef, error) {
	k := w.Kubeconfig
	if k == nil {
		if !w.InCluster {
			return kubeconfigRef{}, errors.New("kubeconfig: missing: give one of file, secret and clusterAPI")
		}
		return kubeconfigRef{InCluster: true}, nil
	}
	s := kubeconfigRef{File: k.File, Context: k.Context}
	given := 0
	for _, there := range []bool{k.File != "", k.Secret != nil, k.ClusterAPI != nil, w.InCluster} {
		if there {
			given++
		}
	}
	if given != 1 {
		return kubeconfigRef{}, errors.New("kubeconfig: give exactly one of file, secret and clusterAPI, or inCluster without kubeconfig")
	}
	switch {
	case k.Secret != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.Secret.Name, cmp.Or(k.Secret.Namespace, defaultNamespace), cmp.Or(k.Secret.Key, "value")
	case k.ClusterAPI != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.ClusterAPI.Name+"-kubeconfig", cmp.Or(k.ClusterAPI.Namespace, defaultNamespace), "value"
		if k.ClusterAPI.Name == "" {
			return kubeconfigRef{}, errors.New("kubeconfig.clusterAPI.name: missing")
		}
	default:
		if filepath.IsAbs(s.File) || !filepath.IsLocal(filepath.FromSlash(s.File)) {
			return kubeconfigRef{}, fmt.Errorf("kubeconfig.file: %q is not below the meta-scheduler's folder of kubeconfigs: write a path relative to it", s.File)
		}
		return s, nil
	}
	switch {
	case !dnsName.MatchString(s.Secret):
		return kubeconfigRef{}, fmt.Errorf("kubeconfig: %q is not the name of a Secret", s.Secret)
	case !dnsLabel.MatchString(s.SecretNamespace):
		return kubeconfigRef{}, fmt.Errorf("kubeconfig: %q is not the name of a namespace", s.SecretNamespace)
	case !secretKey.MatchString(s.SecretKey):
		return kubeconfigRef{}, fmt.Errorf("kubeconfig.secret.key: %q is not a key of a Secret", s.SecretKey)
	}
	return s, nil
}

func (s kubeconfigRef) String() string {
	switch {
	case s.Management:
		return "the management cluster"
	case s.InCluster:
		return "the cluster that the meta-scheduler runs in"
	case s.Secret != "":
		return fmt.Sprintf("Secret %q of the management cluster", s.SecretNamespace+"/"+s.Secret)
	default:
		return fmt.Sprintf("kubeconfig file %q", s.File)
	}
}

// ignored returns the pointers to fields of an object that TKO does not manage.
func (s spec) ignored(k key) []pointer {
	var all []pointer
	for _, rule := range s.Ignore {
		if rule.Kind == k.Kind && (rule.Group == "" || rule.Group == k.Group) &&
			(rule.Namespace == "" || rule.Namespace == k.Namespace) && (rule.Name == "" || rule.Name == k.Name) {
			all = append(all, rule.Pointers...)
		}
	}
	return all
}

// over returns whether removing n of total objects needs an approval.
func (b budget) over(n, total int) bool { return n > b.Objects && n*100 > b.Percent*total }

// A pointer is a JSON pointer, as a list of unescaped tokens.
type pointer []string

func parsePointer(text string) (pointer, error) {
	if !strings.HasPrefix(text, "/") || text == "/" {
		return nil, fmt.Errorf("%q is not a JSON pointer to a field, such as /spec/replicas", text)
	}
	var p pointer
	for part := range strings.SplitSeq(text[1:], "/") {
		p = append(p, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	if p[0] == "apiVersion" || p[0] == "kind" || len(p) == 1 && p[0] == "metadata" {
		return nil, fmt.Errorf("%q can't be ignored: it identifies the object", text)
	}
	return p, nil
}

func (p pointer) String() string {
	var b strings.Builder
	for _, part := range p {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}
