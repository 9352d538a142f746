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

// GVK is the kind of the resources that this target is for.
var GVK = krm.GVK{Group: "kubernetes.plugin.nephio.org", Version: "v1alpha1", Kind: "Cluster"}

// What to do with an object that somebody else changed.
const (
	driftCorrect = "Correct"
	driftReport  = "Report"
	driftIgnore  = "Ignore"
)

// A spec is what a Cluster resource says.
type spec struct {
	Source    source
	Namespace string // of namespaced resources that name none
	Inventory string // namespace of the inventories
	Drift     string
	Ignore    []ignore
	Budget    budget
	Cleanup   string // what becomes of what was applied when the resource goes
	Approve   string // digest of a removal beyond the budget that is approved
}

// A source says where the kubeconfig is: one of File, Secret and InCluster.
type source struct {
	File    string // in the meta-scheduler's folder of kubeconfigs
	Context string // the file's current one if empty

	Secret, SecretNamespace, SecretKey string // of the management cluster

	InCluster  bool
	Management bool // the management cluster itself
}

// An ignore says which fields of which objects are not ours after all.
type ignore struct {
	Group, Kind, Namespace, Name string // empty is any; Kind is required
	Pointers                     []pointer
}

// A budget says how much may be removed at a site without asking: what is
// within either bound.
type budget struct{ Percent, Objects int }

const (
	defaultNamespace = "default"
	defaultInventory = "tko-system"
	defaultPercent   = 50
	defaultObjects   = 20
	maxIgnores       = 1000
)

// dnsLabel is what namespaces are called.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// dnsName is what secrets are called.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// secretKey is what is in secrets.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// written is a spec as it is written.
type written struct {
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

// readSpec reads a Cluster resource. Errors are ErrInvalid and name it.
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
		return spec{}, fmt.Errorf("kubeconfig: can't be read: %w", err)
	}
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return spec{}, fmt.Errorf("kubeconfig and what is beside it: %w", err)
	}
	s := spec{
		Namespace: cmp.Or(w.Namespace, defaultNamespace), Inventory: cmp.Or(w.InventoryNamespace, defaultInventory),
		Drift: cmp.Or(w.Drift, driftCorrect), Approve: w.Prune.Approve,
		Cleanup: cmp.Or(w.Cleanup, cleanupLeave),
		Budget:  budget{Percent: defaultPercent, Objects: defaultObjects},
	}
	if s.Source, err = w.source(); err != nil {
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

func (w written) source() (source, error) {
	k := w.Kubeconfig
	if k == nil {
		if !w.InCluster {
			return source{}, errors.New("kubeconfig: it is missing: say where the kubeconfig is by file, secret or clusterAPI")
		}
		return source{InCluster: true}, nil
	}
	s := source{File: k.File, Context: k.Context}
	ways := 0
	for _, there := range []bool{k.File != "", k.Secret != nil, k.ClusterAPI != nil, w.InCluster} {
		if there {
			ways++
		}
	}
	if ways != 1 {
		return source{}, errors.New("kubeconfig: give exactly one of file, secret and clusterAPI, or inCluster without kubeconfig")
	}
	switch {
	case k.Secret != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.Secret.Name, cmp.Or(k.Secret.Namespace, defaultNamespace), cmp.Or(k.Secret.Key, "value")
	case k.ClusterAPI != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.ClusterAPI.Name+"-kubeconfig", cmp.Or(k.ClusterAPI.Namespace, defaultNamespace), "value"
		if k.ClusterAPI.Name == "" {
			return source{}, errors.New("kubeconfig.clusterAPI.name: it is missing")
		}
	default:
		if filepath.IsAbs(s.File) || !filepath.IsLocal(filepath.FromSlash(s.File)) {
			return source{}, fmt.Errorf("kubeconfig.file: %q is not below the meta-scheduler's folder of kubeconfigs: write a path relative to it", s.File)
		}
		return s, nil
	}
	switch {
	case !dnsName.MatchString(s.Secret):
		return source{}, fmt.Errorf("kubeconfig: %q is not the name of a Secret", s.Secret)
	case !dnsLabel.MatchString(s.SecretNamespace):
		return source{}, fmt.Errorf("kubeconfig: %q is not the name of a namespace", s.SecretNamespace)
	case !secretKey.MatchString(s.SecretKey):
		return source{}, fmt.Errorf("kubeconfig.secret.key: %q is not a key of a Secret", s.SecretKey)
	}
	return s, nil
}

func (s source) String() string {
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

// ignored are the pointers that are not ours in an object.
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

// over says whether removing n of total objects needs somebody's approval.
func (b budget) over(n, total int) bool { return n > b.Objects && n*100 > b.Percent*total }

// A pointer is a JSON pointer, in parts.
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
		return nil, fmt.Errorf("%q can't be ignored: it says what the object is", text)
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
