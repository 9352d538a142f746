package inventory

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// Settings describe an inventory.
type Settings struct {
	// From lists the origins of records; earlier ones take precedence.
	From []OriginSettings `json:"from"`
	// AllowEmpty permits an inventory, and origins, without sites. Otherwise that is an error.
	AllowEmpty bool `json:"allowEmpty,omitempty"`
	// Editable are patterns of parts of sites that users may set: template, metadata.KEY.
	// Their values take precedence over those of all origins.
	Editable []string `json:"editable,omitempty"`
	// Grace is for how long values that users set at a removed site are saved: they come back
	// with a site that comes back. 24h if empty; 0s saves none.
	Grace string `json:"grace,omitempty"`
	// Source is the name of the source, which servers of origins notify.
	Source string `json:"-"`
}

// OriginSettings describe one origin of records. One of File, URL, NetBox, O2IMS,
// Kubernetes and SQL is set.
type OriginSettings struct {
	Name       string              `json:"name,omitempty"` // the kind of the origin if empty
	File       string              `json:"file,omitempty"`
	URL        string              `json:"url,omitempty"`
	NetBox     *NetBoxSettings     `json:"netbox,omitempty"`
	O2IMS      *O2IMSSettings      `json:"o2ims,omitempty"`
	Kubernetes *KubernetesSettings `json:"kubernetes,omitempty"`
	SQL        *SQLSettings        `json:"sql,omitempty"`

	Format string `json:"format,omitempty"` // of File and URL: csv, json or yaml; by the name's end if empty
	Items  string `json:"items,omitempty"`  // path of the list in JSON or YAML, such as data.sites; the document itself if empty

	remote.Credentials
	MaxBytes   int64 `json:"maxBytes,omitempty"`   // 256 MiB if 0
	MaxRecords int   `json:"maxRecords,omitempty"` // 100,000 if 0

	// Enrich adds to sites of other origins only, and makes none.
	Enrich bool `json:"enrich,omitempty"`
	// AllowEmpty permits an origin that makes no sites. Otherwise it is an error.
	AllowEmpty bool    `json:"allowEmpty,omitempty"`
	Map        Mapping `json:"map"`
}

// Mapping holds expressions (CEL) over the variable record.
type Mapping struct {
	When     string            `json:"when,omitempty"` // records for which it is false are left out
	ID       string            `json:"id"`
	Template string            `json:"template,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"` // expressions by key; empty values are left out
	Package  string            `json:"package,omitempty"`  // a list of resources
}

// NetBoxSettings select objects of NetBox.
type NetBoxSettings struct {
	URL      string              `json:"url"`
	Object   string              `json:"object,omitempty"` // dcim/sites if empty
	Filter   map[string][]string `json:"filter,omitempty"` // query parameters
	PageSize int                 `json:"pageSize,omitempty"`
	// FullEvery is the time after which all records are read even if nothing seems to
	// have changed; 15m if empty.
	FullEvery string `json:"fullEvery,omitempty"`
}

// O2IMSSettings select resources of an O2 IMS.
type O2IMSSettings struct {
	URL      string `json:"url"`                // with the API's root, if it isn't at the server's
	Resource string `json:"resource,omitempty"` // deploymentManagers or resourcePools; deploymentManagers if empty
	Filter   string `json:"filter,omitempty"`   // in the API's own syntax
	// CallbackURL is the URL at which the IMS reaches the server's webhooks. With it there
	// is a subscription, by which the IMS reports changes.
	CallbackURL string `json:"callbackURL,omitempty"`
}

// KubernetesSettings select objects of a management cluster.
type KubernetesSettings struct {
	URL       string `json:"url"`      // of the API server
	Resource  string `json:"resource"` // such as managedclusters.v1.cluster.open-cluster-management.io
	Namespace string `json:"namespace,omitempty"`
	Selector  string `json:"selector,omitempty"` // of labels
	PageSize  int    `json:"pageSize,omitempty"`
}

const (
	maxOrigins       = 20
	maxBytes         = 256 << 20
	maxRecords       = 100_000
	defaultFullEvery = 15 * time.Minute
	defaultGrace     = 24 * time.Hour
	maxGrace         = 90 * 24 * time.Hour
)

// check completes the settings of an origin. The error is an ErrInvalid.
func (s *OriginSettings) check() error {
	kinds := map[string]bool{"file": s.File != "", "url": s.URL != "", "netbox": s.NetBox != nil, "o2ims": s.O2IMS != nil, "kubernetes": s.Kubernetes != nil, "sql": s.SQL != nil}
	kind := ""
	for name, set := range kinds {
		if set && kind != "" {
			return tko.Errorf(tko.ErrInvalid, "%s and %s are both set: use one, and another element of from for the other", min(kind, name), max(kind, name))
		}
		if set {
			kind = name
		}
	}
	if kind == "" {
		return tko.Errorf(tko.ErrInvalid, "set one of file, url, netbox, o2ims, kubernetes and sql")
	}
	if s.Name == "" {
		s.Name = kind
	}
	if strings.HasPrefix(s.Name, tko.OriginUser) {
		return tko.Errorf(tko.ErrInvalid, "the name %q begins with %s, which names users: use another", s.Name, tko.OriginUser)
	}
	if s.MaxBytes < 0 || s.MaxRecords < 0 {
		return tko.Errorf(tko.ErrInvalid, "maxBytes is %d and maxRecords %d: use 0 for the defaults, or more", s.MaxBytes, s.MaxRecords)
	}
	if s.MaxBytes == 0 {
		s.MaxBytes = maxBytes
	}
	if s.MaxRecords == 0 {
		s.MaxRecords = maxRecords
	}
	if kind != "file" && kind != "url" && (s.Format != "" || s.Items != "") {
		return tko.Errorf(tko.ErrInvalid, "format and items are settings of file and url, not of %s: leave them out", kind)
	}
	if s.File != "" {
		if s.Credentials != (remote.Credentials{}) {
			return tko.Errorf(tko.ErrInvalid, "a file needs no credentials: leave them out")
		}
		return nil
	}
	if s.SQL != nil {
		return s.SQL.check(s.Credentials)
	}
	return s.Check(s.Address())
}

// editable returns the patterns of parts that users may set. The error is an ErrInvalid.
func (s Settings) editable() ([]tko.Pattern, error) {
	var all []tko.Pattern
	for _, text := range s.Editable {
		p, err := tko.ParseValuePattern(text)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "inventory.editable: %w", err)
		}
		if text != "template" && text != "*" && !strings.HasPrefix(p.Prefix(), "metadata.") {
			return nil, tko.Errorf(tko.ErrInvalid, "inventory.editable has %.100q: use template, metadata.KEY, metadata.* or *; a package can't be edited in part", text)
		}
		all = append(all, p)
	}
	return all, nil
}

// grace returns the time for which values of users are saved. The error is an ErrInvalid.
func (s Settings) grace() (time.Duration, error) {
	if s.Grace == "" {
		return defaultGrace, nil
	}
	grace, err := time.ParseDuration(s.Grace)
	if err != nil || grace < 0 || grace > maxGrace {
		return 0, tko.Errorf(tko.ErrInvalid, "inventory.grace is %q: use a time up to %s, such as 24h, or 0s to save no values", s.Grace, maxGrace)
	}
	return grace, nil
}

// Address returns the URL that the origin is read from; "" for a file.
func (s *OriginSettings) Address() string {
	switch {
	case s.NetBox != nil:
		return s.NetBox.URL
	case s.O2IMS != nil:
		return s.O2IMS.URL
	case s.Kubernetes != nil:
		return s.Kubernetes.URL
	case s.SQL != nil:
		return s.SQL.URL
	}
	return s.URL
}

// format returns the format of a file or URL. The error is an ErrInvalid.
func (s *OriginSettings) format() (string, error) {
	format := s.Format
	if format == "" {
		name := s.File
		if u, err := url.Parse(s.URL); s.URL != "" && err == nil {
			name = u.Path
		}
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			format = strings.ToLower(name[i+1:])
		}
		if format == "yml" {
			format = "yaml"
		}
	}
	if !slices.Contains([]string{"csv", "json", "yaml"}, format) {
		return "", tko.Errorf(tko.ErrInvalid, "the format is %q: set format to csv, json or yaml", format)
	}
	return format, nil
}
