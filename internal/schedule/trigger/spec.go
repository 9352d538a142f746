package trigger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the resources that trigger this target.
var GVK = place.Kubernetes.GVK

// The values of drift: what to do with an object that another client changed.
const (
	DriftCorrect = "Correct"
	DriftReport  = "Report"
	DriftIgnore  = "Ignore"
)

// The values of cleanup: what to do with the objects in a cluster that a site's
// package no longer names.
const (
	CleanupLeave  = "Leave"
	CleanupRemove = "Remove"
)

// The orders of a replacement: whether the objects that a deployment no longer has, or that
// the deployments had that it replaced, are removed after its new objects are healthy, or
// before these are created.
const (
	CreateFirst = "CreateFirst"
	DeleteFirst = "DeleteFirst"
)

// MetadataReplace is the key of the metadata of a deployment whose value is the order of its
// replacements, instead of the one of the Cluster resource.
const MetadataReplace = "tko.nephio.org/replace"

// DefaultReplaceTimeout is how long new objects may take to become healthy before the
// deployment reports that its replacement is overdue.
const DefaultReplaceTimeout = 15 * time.Minute

// A Replace says how objects are replaced by others.
type Replace struct {
	Order   string        // CreateFirst or DeleteFirst; if empty, objects that are not wanted are removed at once
	Timeout time.Duration // after which a replacement is reported as overdue; nothing is removed for that
}

// IsReplaceOrder returns whether a text is an order of replacements.
func IsReplaceOrder(text string) bool { return text == CreateFirst || text == DeleteFirst }

// A Spec is the content of a Cluster resource.
type Spec struct {
	Kubeconfig  KubeconfigRef
	Impersonate Impersonation // for all but inventories
	Namespace   string        // default namespace of namespaced resources
	Inventory   string        // namespace of the inventories
	Drift       string
	Ignore      []Ignore
	Health      []HealthRule
	Budget      prune.Budget
	Cleanup     string // what happens to the objects when the resource leaves the package
	Approve     string // digest of an approved removal beyond the budget
	Replace     Replace
}

// A KubeconfigRef refers to a kubeconfig: by one of File, Secret, InCluster, Agent, Management
// and Labelled.
type KubeconfigRef struct {
	File    string // path in the meta-scheduler's folder of kubeconfigs, or the name of a labelled Secret
	Context string // the current context if empty

	Secret, SecretNamespace, SecretKey string // in the management cluster

	InCluster  bool
	Agent      bool // the one of the site's agent: see [ByAgent]
	Management bool // the management cluster itself
	Labelled   bool // the cluster whose labelled Secrets are kubeconfigs
}

// An Impersonation is the user as whom the credentials of a kubeconfig are used. User is
// empty for none.
type Impersonation struct {
	User   string
	Groups []string
}

// An Ignore selects fields of objects that TKO does not manage.
type Ignore struct {
	Group, Kind, Namespace, Name string // empty selects all; Kind is required
	Pointers                     []Pointer
}

// A HealthRule decides on the health of the objects of a kind by CEL expressions.
type HealthRule struct {
	Group, Kind string
	Current     string // true: the object is healthy
	Failed      string // true: it will not become healthy by itself; none if empty
}

// DefaultNamespace is the default of namespaces.
const DefaultNamespace = "default"

const (
	defaultInventory = "tko-system"
	maxIgnores       = 1000
	maxHealthRules   = 100
	maxGroups        = 20
)

// DNSLabel matches names of namespaces.
var DNSLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// DNSName matches names of Secrets.
var DNSName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// SecretKey matches keys of Secrets.
var SecretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// A specJSON is the JSON form of a Spec.
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
	InCluster   bool           `json:"inCluster"`
	Agent       map[string]any `json:"agent"`
	Impersonate *struct {
		ServiceAccount *struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"serviceAccount"`
		User   string   `json:"user"`
		Groups []string `json:"groups"`
	} `json:"impersonate"`
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
	Health []struct {
		Group   string `json:"group"`
		Kind    string `json:"kind"`
		Current string `json:"current"`
		Failed  string `json:"failed"`
	} `json:"health"`
	Prune struct {
		Percent *int   `json:"percent"`
		Objects *int   `json:"objects"`
		Approve string `json:"approve"`
	} `json:"prune"`
	Replace struct {
		Order   string `json:"order"`
		Timeout string `json:"timeout"`
	} `json:"replace"`
}

// Read parses a Cluster resource. Errors are ErrInvalid and name the field.
func Read(r krm.Resource) (Spec, error) {
	s, err := parseSpec(r["spec"])
	if err != nil {
		return Spec{}, tko.Errorf(tko.ErrInvalid, "spec.%w", err)
	}
	return s, nil
}

func parseSpec(value any) (Spec, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return Spec{}, fmt.Errorf("kubeconfig or another field: not JSON: %w", err)
	}
	var w specJSON
	if err := json.Unmarshal(text, &w); err != nil {
		return Spec{}, fmt.Errorf("kubeconfig or another field: %w", err)
	}
	s := Spec{
		Namespace: cmp.Or(w.Namespace, DefaultNamespace), Inventory: cmp.Or(w.InventoryNamespace, defaultInventory),
		Drift: cmp.Or(w.Drift, DriftCorrect), Approve: w.Prune.Approve,
		Cleanup: cmp.Or(w.Cleanup, CleanupLeave),
		Budget:  prune.Default.With(w.Prune.Objects, w.Prune.Percent),
	}
	if s.Kubeconfig, err = w.kubeconfigRef(); err != nil {
		return Spec{}, err
	}
	if s.Impersonate, err = w.impersonation(s.Namespace); err != nil {
		return Spec{}, err
	}
	if s.Replace, err = w.replace(); err != nil {
		return Spec{}, err
	}
	switch {
	case !DNSLabel.MatchString(s.Namespace):
		return Spec{}, fmt.Errorf("namespace: %q is not the name of a namespace", s.Namespace)
	case !DNSLabel.MatchString(s.Inventory):
		return Spec{}, fmt.Errorf("inventoryNamespace: %q is not the name of a namespace", s.Inventory)
	case s.Drift != DriftCorrect && s.Drift != DriftReport && s.Drift != DriftIgnore:
		return Spec{}, fmt.Errorf("drift: %q is none of Correct, Report and Ignore", s.Drift)
	case s.Cleanup != CleanupLeave && s.Cleanup != CleanupRemove:
		return Spec{}, fmt.Errorf("cleanup: %q is neither Leave nor Remove", s.Cleanup)
	case len(w.Ignore) > maxIgnores:
		return Spec{}, fmt.Errorf("ignore: there are more than %d rules", maxIgnores)
	case len(w.Health) > maxHealthRules:
		return Spec{}, fmt.Errorf("health: there are more than %d rules", maxHealthRules)
	}
	for i, rule := range w.Health {
		one := HealthRule{Group: rule.Group, Kind: rule.Kind, Current: rule.Current, Failed: rule.Failed}
		if one.Kind == "" || one.Current == "" {
			return Spec{}, fmt.Errorf("health[%d]: kind and current are required", i)
		}
		if slices.ContainsFunc(s.Health, func(other HealthRule) bool { return other.Group == one.Group && other.Kind == one.Kind }) {
			return Spec{}, fmt.Errorf("health[%d]: an earlier rule is for kind %q of group %q, too: write one rule for each kind", i, one.Kind, one.Group)
		}
		s.Health = append(s.Health, one)
	}
	if err := s.Budget.Check("objects"); err != nil {
		return Spec{}, fmt.Errorf("prune: %w", err)
	}
	for i, rule := range w.Ignore {
		if rule.Kind == "" || len(rule.Pointers) == 0 {
			return Spec{}, fmt.Errorf("ignore[%d]: kind and pointers are required", i)
		}
		one := Ignore{Group: rule.Group, Kind: rule.Kind, Namespace: rule.Namespace, Name: rule.Name}
		for _, text := range rule.Pointers {
			p, err := parsePointer(text)
			if err != nil {
				return Spec{}, fmt.Errorf("ignore[%d].pointers: %w", i, err)
			}
			one.Pointers = append(one.Pointers, p)
		}
		s.Ignore = append(s.Ignore, one)
	}
	return s, nil
}

func (w specJSON) replace() (Replace, error) {
	r := Replace{Order: cmp.Or(w.Replace.Order, CreateFirst), Timeout: DefaultReplaceTimeout}
	if !IsReplaceOrder(r.Order) {
		return Replace{}, fmt.Errorf("replace.order: %q is neither CreateFirst nor DeleteFirst", r.Order)
	}
	if w.Replace.Timeout == "" {
		return r, nil
	}
	timeout, err := time.ParseDuration(w.Replace.Timeout)
	if err != nil || timeout < time.Second {
		return Replace{}, fmt.Errorf("replace.timeout: %q is not a duration of at least a second, such as 15m", w.Replace.Timeout)
	}
	r.Timeout = timeout
	return r, nil
}

// impersonation reads the field impersonate. namespace is the default of the service
// account's namespace. The names that start with system: have rights of their own, so
// only those of service accounts are accepted.
func (w specJSON) impersonation(namespace string) (Impersonation, error) {
	i := w.Impersonate
	if i == nil {
		return Impersonation{}, nil
	}
	if (i.ServiceAccount == nil) == (i.User == "") || i.ServiceAccount != nil && len(i.Groups) > 0 {
		return Impersonation{}, errors.New("impersonate: give either serviceAccount, or user with optional groups")
	}
	if a := i.ServiceAccount; a != nil {
		namespace = cmp.Or(a.Namespace, namespace)
		if !DNSName.MatchString(a.Name) || !DNSLabel.MatchString(namespace) {
			return Impersonation{}, fmt.Errorf("impersonate.serviceAccount: %q is not a service account: give a name and a namespace", namespace+"/"+a.Name)
		}
		return Impersonation{User: "system:serviceaccount:" + namespace + ":" + a.Name}, nil
	}
	if len(i.Groups) > maxGroups {
		return Impersonation{}, fmt.Errorf("impersonate.groups: there are more than %d", maxGroups)
	}
	for _, name := range append([]string{i.User}, i.Groups...) {
		if name == "" || len(name) > 253 || strings.HasPrefix(name, "system:") || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
			return Impersonation{}, fmt.Errorf("impersonate: %q can't be impersonated: names that start with system: are reserved, and others have 1 to 253 visible ASCII characters", name)
		}
	}
	return Impersonation{User: i.User, Groups: i.Groups}, nil
}

// ReadKubeconfig parses a reference to a kubeconfig, in JSON, and the field inCluster next to
// it, of another resource than a Cluster: they have the same form and meaning everywhere.
func ReadKubeconfig(kubeconfig []byte, inCluster bool) (KubeconfigRef, error) {
	w := specJSON{InCluster: inCluster}
	if len(kubeconfig) > 0 {
		if err := json.Unmarshal(kubeconfig, &w.Kubeconfig); err != nil {
			return KubeconfigRef{}, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	return w.kubeconfigRef()
}

func (w specJSON) kubeconfigRef() (KubeconfigRef, error) {
	k := w.Kubeconfig
	if w.Agent != nil {
		if k != nil || w.InCluster {
			return KubeconfigRef{}, errors.New("agent: the site's agent has the kubeconfig: remove kubeconfig and inCluster, or agent")
		}
		return KubeconfigRef{Agent: true}, nil
	}
	if k == nil {
		if !w.InCluster {
			return KubeconfigRef{}, errors.New("kubeconfig: missing: give one of file, secret and clusterAPI")
		}
		return KubeconfigRef{InCluster: true}, nil
	}
	s := KubeconfigRef{File: k.File, Context: k.Context}
	given := 0
	for _, there := range []bool{k.File != "", k.Secret != nil, k.ClusterAPI != nil, w.InCluster} {
		if there {
			given++
		}
	}
	if given != 1 {
		return KubeconfigRef{}, errors.New("kubeconfig: give exactly one of file, secret and clusterAPI, or inCluster without kubeconfig")
	}
	switch {
	case k.Secret != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.Secret.Name, cmp.Or(k.Secret.Namespace, DefaultNamespace), cmp.Or(k.Secret.Key, "value")
	case k.ClusterAPI != nil:
		s.Secret, s.SecretNamespace, s.SecretKey = k.ClusterAPI.Name+"-kubeconfig", cmp.Or(k.ClusterAPI.Namespace, DefaultNamespace), "value"
		if k.ClusterAPI.Name == "" {
			return KubeconfigRef{}, errors.New("kubeconfig.clusterAPI.name: missing")
		}
	default:
		if filepath.IsAbs(s.File) || !filepath.IsLocal(filepath.FromSlash(s.File)) {
			return KubeconfigRef{}, fmt.Errorf("kubeconfig.file: %q is not below the meta-scheduler's folder of kubeconfigs: write a path relative to it", s.File)
		}
		return s, nil
	}
	switch {
	case !DNSName.MatchString(s.Secret):
		return KubeconfigRef{}, fmt.Errorf("kubeconfig: %q is not the name of a Secret", s.Secret)
	case !DNSLabel.MatchString(s.SecretNamespace):
		return KubeconfigRef{}, fmt.Errorf("kubeconfig: %q is not the name of a namespace", s.SecretNamespace)
	case !SecretKey.MatchString(s.SecretKey):
		return KubeconfigRef{}, fmt.Errorf("kubeconfig.secret.key: %q is not a key of a Secret", s.SecretKey)
	}
	return s, nil
}

func (s KubeconfigRef) String() string {
	switch {
	case s.Management:
		return "the management cluster"
	case s.Labelled:
		return "the cluster of the kubeconfigs' Secrets"
	case s.InCluster:
		return "the cluster that the meta-scheduler runs in"
	case s.Agent:
		return "the cluster of the site's agent"
	case s.Secret != "":
		return fmt.Sprintf("Secret %q of the management cluster", s.SecretNamespace+"/"+s.Secret)
	default:
		return fmt.Sprintf("kubeconfig file %q", s.File)
	}
}

// Ignored returns the pointers to fields of an object that TKO does not manage.
func (s Spec) Ignored(group, kind, namespace, name string) []Pointer {
	var all []Pointer
	for _, rule := range s.Ignore {
		if rule.Kind == kind && (rule.Group == "" || rule.Group == group) &&
			(rule.Namespace == "" || rule.Namespace == namespace) && (rule.Name == "" || rule.Name == name) {
			all = append(all, rule.Pointers...)
		}
	}
	return all
}

// A Pointer is a JSON pointer, as a list of unescaped tokens.
type Pointer []string

func parsePointer(text string) (Pointer, error) {
	if !strings.HasPrefix(text, "/") || text == "/" {
		return nil, fmt.Errorf("%q is not a JSON pointer to a field, such as /spec/replicas", text)
	}
	var p Pointer
	for part := range strings.SplitSeq(text[1:], "/") {
		p = append(p, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	if p[0] == "apiVersion" || p[0] == "kind" || len(p) == 1 && p[0] == "metadata" {
		return nil, fmt.Errorf("%q can't be ignored: it identifies the object", text)
	}
	return p, nil
}

func (p Pointer) String() string {
	var b strings.Builder
	for _, part := range p {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}
