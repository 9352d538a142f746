package gitops

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/catalog"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/gitops/repository"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/prune"
	rolloutspec "github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// Settings describe a source in the file of an operator.
type Settings struct {
	Name string      `json:"name"`
	Git  GitSettings `json:"git,omitzero"`
	// Inventory, if not nil, takes the place of Git.
	Inventory *inventory.Settings `json:"inventory,omitempty"`
	// Catalog, if not nil, makes templates of the packages in Git, instead of reading
	// manifests.
	Catalog  *catalog.Settings `json:"catalog,omitempty"`
	Path     string            `json:"path,omitempty"`
	Interval string            `json:"interval,omitempty"` // 1m
	Resync   string            `json:"resync,omitempty"`   // 10m
	Suspend  bool              `json:"suspend,omitempty"`
	Prune    *bool             `json:"prune,omitempty"` // true
	Adopt    bool              `json:"adopt,omitempty"`

	Budget    *BudgetSettings `json:"budget,omitempty"` // 50 %, 20 entities
	Reach     *ReachSettings  `json:"reach,omitempty"`
	DependsOn []string        `json:"dependsOn,omitempty"`
	// Rollout are the fields of the spec of rollouts that change deployments, other than
	// edits; nil: deployments are changed at once.
	Rollout map[string]any `json:"rollout,omitempty"`
	OSM     OSMSettings    `json:"osm,omitzero"`
	// Report, if not nil, says where the statuses of commits and the plans of pull requests
	// are reported.
	Report *forge.Settings `json:"report,omitempty"`
	// AllowSources lets the repository declare other sources; PruneSources deletes those
	// that it declares no longer, and keeps their entities.
	AllowSources bool `json:"allowSources,omitempty"`
	PruneSources bool `json:"pruneSources,omitempty"`

	// registered settings are those of a definition in the store: see confine.
	registered bool
	folder     string // of the files that registered settings name
}

// BudgetSettings limit removals: one that exceeds both limits needs an approval.
type BudgetSettings struct {
	Percent  int `json:"percent"`
	Entities int `json:"entities"`
}

// ReachSettings raise the limits of what a registered source changes without an approval, up
// to what the operator allows its owner. The data controller reads them from the definition.
type ReachSettings struct {
	Created int `json:"created"` // deployments in a day
}

// check returns an ErrInvalid for settings that no definition in the store may have, or that
// are in a file of an operator, whose limits are those of the server.
func (r *ReachSettings) check(s *Settings) error {
	switch {
	case r == nil:
		return nil
	case !s.registered:
		return tko.Errorf(tko.ErrInvalid, "reach is for sources in the store: for this one, the operator sets --reach-limits '[{limit: created, most: COUNT, author: \"gitops:%s\"}]'", s.Name)
	case r.Created < 1:
		return tko.Errorf(tko.ErrInvalid, "reach.created is %d: use a number of deployments above 0", r.Created)
	}
	return nil
}

// GitSettings are the location and credentials of a repository.
type GitSettings struct {
	URL            string `json:"url"`
	Ref            string `json:"ref,omitempty"`
	Username       string `json:"username,omitempty"`
	PasswordFile   string `json:"passwordFile,omitempty"`
	TokenFile      string `json:"tokenFile,omitempty"`
	SSHKeyFile     string `json:"sshKeyFile,omitempty"`
	KnownHostsFile string `json:"knownHostsFile,omitempty"`
	CAFile         string `json:"caFile,omitempty"`
	MaxBytes       int64  `json:"maxBytes,omitempty"`
	MaxFiles       int    `json:"maxFiles,omitempty"`
}

// OSMSettings limit the changes that a source may make in Open Source MANO.
type OSMSettings struct {
	Prune     *bool  `json:"prune,omitempty"`     // the source's if nil
	Broken    string `json:"broken,omitempty"`    // Keep or Recreate
	Replace   bool   `json:"replace,omitempty"`   // recreate instances whose NSD or VIM account changed
	NoReset   bool   `json:"noReset,omitempty"`   // the server doesn't support kdu_reset_values
	Instances *int   `json:"instances,omitempty"` // budget of removals
	Percent   *int   `json:"percent,omitempty"`
}

// ReadSettings reads a file of sources. The error is an ErrInvalid.
func ReadSettings(file string) ([]Settings, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the file of sources: %w", err)
	}
	var read struct {
		Sources []Settings `json:"sources"`
	}
	if err := yaml12.UnmarshalStrict(data, &read); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the file of sources %q: %w", file, err)
	}
	return read.Sources, nil
}

// ReadRollout reads the settings of rollouts; nil if the text is empty. The error is an
// ErrInvalid.
func ReadRollout(text string) (map[string]any, error) {
	if text == "" {
		return nil, nil
	}
	var settings map[string]any
	if err := yaml12.UnmarshalStrict([]byte(text), &settings); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	if settings == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is empty: write {} for rollouts of one wave")
	}
	_, err := rolloutspec.Settings(settings)
	return settings, err
}

// NameOf returns the default name of a source: the last part of its URL's path,
// without .git; "" if there is none.
func NameOf(address string) string {
	p := address
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		p = u.Path
	} else if _, after, ok := strings.Cut(address, ":"); ok {
		p = after
	}
	name := strings.TrimSuffix(path.Base(strings.TrimRight(p, "/")), ".git")
	if name == "." || name == "/" {
		return ""
	}
	return name
}

// Spec returns the Spec of the settings. The files of revisions are stored below
// dir, "" for the system's temporary folder. The error is an ErrInvalid.
func (s Settings) Spec(dir string) (Spec, error) { return s.SpecWith(dir, remote.Access{}) }

// SpecWith is Spec with what inventories may use.
func (s Settings) SpecWith(dir string, access remote.Access) (Spec, error) {
	if s.Name == "" {
		s.Name = NameOf(s.Git.URL)
	}
	fail := func(format string, args ...any) (Spec, error) {
		return Spec{}, tko.Errorf(tko.ErrInvalid, "source %q: %w", s.Name, tko.Errorf(tko.ErrInvalid, format, args...))
	}
	if s.Name == "" || strings.ContainsFunc(s.Name, func(c rune) bool { return c <= ' ' || c > '~' }) || len(s.Name) > 253 {
		return fail("use a name of 1 to 253 visible ASCII characters")
	}
	access.User, access.Folder = leash.Operator(), "" // the settings are the operator's
	if s.registered {
		access.User, access.Folder = access.Leash.Source(s.Name), s.folder
	}
	spec := Spec{
		Name: s.Name, Registered: s.registered, Path: s.Path, Suspend: s.Suspend, Prune: s.Prune == nil || *s.Prune, Adopt: s.Adopt, Budget: prune.Default, DependsOn: s.DependsOn,
	}
	var err error
	switch {
	case s.Inventory != nil && s.Catalog != nil:
		return fail("inventory and catalog are both set: make them two sources")
	case s.Inventory != nil && s.Git != (GitSettings{}):
		return fail("git and inventory are both set: make them two sources")
	case s.Inventory != nil:
		err = s.inventory(&spec, access)
	case s.Catalog != nil && (s.Catalog.OCI != nil || s.Catalog.Helm != nil):
		err = s.registry(&spec, dir, access)
	default:
		err = s.repository(&spec, dir, access)
	}
	if err != nil {
		return fail("%w", err)
	}
	for name, d := range map[string]struct {
		text  string
		least time.Duration
		to    *time.Duration
	}{"interval": {s.Interval, time.Second, &spec.Interval}, "resync": {s.Resync, time.Second, &spec.Resync}} {
		if d.text == "" {
			continue
		}
		if *d.to, err = time.ParseDuration(d.text); err != nil || *d.to < d.least {
			return fail("%s is %q: use a time of at least %s, such as 1m", name, d.text, d.least)
		}
	}
	if err := s.Reach.check(&s); err != nil {
		return fail("%w", err)
	}
	if s.Budget != nil {
		spec.Budget = prune.Budget{Percent: s.Budget.Percent, Count: s.Budget.Entities}
		if err := spec.Budget.Check("entities"); err != nil {
			return fail("budget: %w", err)
		}
	}
	if s.Rollout != nil {
		if spec.Inventory != nil {
			return fail("rollout is a setting of sources with deployments: leave it out for an inventory or a catalog")
		}
		if spec.Rollout, err = rolloutspec.Settings(s.Rollout); err != nil {
			return fail("%w", err)
		}
	}
	if s.Report != nil {
		if spec.Kind != KindGit {
			return fail("report is a setting of sources with manifests in git: leave it out for an inventory or a catalog")
		}
		if spec.Forge, err = forge.New(*s.Report, access); err != nil {
			return fail("report: %w", err)
		}
	}
	if err := s.OSM.check(); err != nil {
		return fail("%w", err)
	}
	spec.OSM.Policy = s.OSM.Policy(spec.Prune)
	switch {
	case s.AllowSources && spec.Inventory != nil:
		return fail("allowSources is a setting of repositories with manifests: leave it out for an inventory or a catalog")
	case s.PruneSources && !s.AllowSources:
		return fail("pruneSources has no effect without allowSources: set both, or none")
	}
	spec.AllowSources, spec.PruneSources = s.AllowSources, s.PruneSources
	spec.Generation, err = generation(s)
	return spec, err
}

// repository has a spec read a git repository.
func (s Settings) repository(spec *Spec, dir string, access remote.Access) error {
	if s.Git.URL == "" {
		return tko.Errorf(tko.ErrInvalid, "git.url is missing")
	}
	var limits *guard.Guard
	if s.registered {
		limits = access.Guard
	}
	repo, err := repository.New(repository.Options{
		Guard: limits, User: access.User, Folder: access.Folder, URL: s.Git.URL, Ref: s.Git.Ref, CAFile: s.Git.CAFile, Dir: dir, Limits: tree.Limits{Bytes: s.Git.MaxBytes, Files: s.Git.MaxFiles},
		Credentials: repository.Credentials{
			Username: s.Git.Username, PasswordFile: s.Git.PasswordFile, TokenFile: s.Git.TokenFile,
			SSHKeyFile: s.Git.SSHKeyFile, KnownHostsFile: s.Git.KnownHostsFile,
		},
	})
	if err != nil {
		return err
	}
	spec.Kind, spec.URL, spec.Ref, spec.From = KindGit, s.Git.URL, s.Git.Ref, repo
	spec.Heads = repo
	if s.Catalog == nil {
		return nil
	}
	if err := s.addsOnly(spec); err != nil {
		return err
	}
	spec.From = nil
	spec.Inventory, err = catalog.NewGit(*s.Catalog, s.Path, repo)
	return err
}

// addsOnly makes a spec that of a catalog.
func (s Settings) addsOnly(spec *Spec) error {
	if s.Git.Ref != "" || s.Prune != nil && *s.Prune || s.Adopt || !reflect.ValueOf(s.OSM).IsZero() {
		return tko.Errorf(tko.ErrInvalid, "git.ref, prune, adopt and osm are not settings of catalogs, which only add templates: leave them out")
	}
	spec.Kind, spec.Prune, spec.AddOnly = KindCatalog, false, true
	return nil
}

// registry has a spec read an OCI registry or a Helm repository.
func (s Settings) registry(spec *Spec, dir string, access remote.Access) (err error) {
	if s.Git != (GitSettings{}) || s.Path != "" {
		return tko.Errorf(tko.ErrInvalid, "git or path, and catalog.oci or catalog.helm, are set: make them two sources")
	}
	if err := s.addsOnly(spec); err != nil {
		return err
	}
	if s.Catalog.OCI != nil {
		spec.URL = s.Catalog.OCI.URL
		spec.Inventory, err = catalog.NewOCI(*s.Catalog, dir, access)
		return err
	}
	spec.URL = s.Catalog.Helm.URL
	spec.Inventory, err = catalog.NewHelm(*s.Catalog, access)
	return err
}

// inventory has a spec read an inventory.
func (s Settings) inventory(spec *Spec, access remote.Access) error {
	if s.Path != "" || !reflect.ValueOf(s.OSM).IsZero() {
		return tko.Errorf(tko.ErrInvalid, "path and osm are settings of repositories, not of inventories: leave them out")
	}
	settings := *s.Inventory
	settings.Source = s.Name
	read, err := inventory.New(settings, access)
	if err != nil {
		return err
	}
	spec.Kind, spec.URL, spec.Inventory, spec.Budget, spec.Editable = KindInventory, read.URL(), read, prune.Careful, read.Editable()
	return nil
}

// The kinds of sources that settings describe, as the status shows them.
const (
	KindGit       = "git"
	KindInventory = "inventory"
	KindCatalog   = "catalog"
)

// generation returns a hash of the settings.
func generation(of any) (string, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
