package osm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the resources that trigger this target.
var GVK = place.OSM.GVK

// group is the group of the resources that this target applies.
const group = "osm.nephio.org"

// spec is the spec of an OSM resource.
type spec struct {
	URL         string `json:"url"`
	Project     string `json:"project"`
	VIMAccount  string `json:"vimAccount"`
	Credentials struct {
		Username     string `json:"username"`
		PasswordFile string `json:"passwordFile"`
	} `json:"credentials"`
	CAFile      string     `json:"caFile"`
	Insecure    bool       `json:"insecure"`
	Broken      osm.Broken `json:"broken"`
	Replace     bool       `json:"replace"`
	ResetValues *bool      `json:"resetValues"`
	Prune       struct {
		Percent   *int   `json:"percent"`
		Instances *int   `json:"instances"`
		Approve   string `json:"approve"`
	} `json:"prune"`
}

// readSpec reads an OSM resource. Errors are ErrInvalid, and name it.
func readSpec(r krm.Resource) (spec, error) {
	s := spec{Project: "admin"}
	if err := into(r["spec"], &s); err != nil {
		return spec{}, tko.Errorf(tko.ErrInvalid, "%s: spec: %w", r.Identity(), err)
	}
	var problem string
	switch {
	case s.URL == "":
		problem = "spec.url is missing: write where the NBI of OSM is"
	case s.Credentials.Username == "" || s.Credentials.PasswordFile == "":
		problem = "spec.credentials needs username and passwordFile"
	case !s.Broken.Valid():
		problem = fmt.Sprintf("spec.broken: %q is none of Keep and Recreate", s.Broken)
	case s.Insecure && s.CAFile != "":
		problem = "spec has both insecure and caFile: insecure skips the check of the certificate, so remove one of them"
	}
	if problem != "" {
		return spec{}, tko.Errorf(tko.ErrInvalid, "%s: %s", r.Identity(), problem)
	}
	return s, nil
}

func into(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // a misspelt field would lose parameters
	return d.Decode(to)
}

func (s spec) policy() osm.Policy {
	return osm.Policy{
		Prune: true, Budget: prune.Default.With(s.Prune.Instances, s.Prune.Percent), Approve: s.Prune.Approve,
		Broken: s.Broken, Replace: s.Replace, NoReset: s.ResetValues != nil && !*s.ResetValues,
	}
}

// endpoint returns the endpoint of a site. The password is read at each login.
func (t *Target) endpoint(s spec, site tko.SiteID) (nbi.Endpoint, error) {
	e := nbi.Endpoint{URL: s.URL, Insecure: s.Insecure, User: s.Credentials.Username, Project: s.Project}
	e.Password = func(ctx context.Context) (secret.Text, error) {
		name := s.Credentials.PasswordFile
		credential, err := t.secrets.Credential(name)
		if err != nil {
			return "", fmt.Errorf("spec.credentials.passwordFile: %w", err)
		}
		grant, err := t.options.Leash.Site(site).Grant(credential, s.URL)
		if err != nil {
			return "", fmt.Errorf("spec.credentials.passwordFile: %w", err)
		}
		if secret.IsReference(name) {
			text, err := t.options.References.Resolve(ctx, name, grant)
			if err != nil {
				return "", fmt.Errorf("spec.credentials.passwordFile: %w", err)
			}
			return text, nil
		}
		data, err := t.secrets.Read(name, grant)
		if err != nil {
			return "", fmt.Errorf("spec.credentials.passwordFile: %w", err)
		}
		return secret.Text(strings.TrimRight(string(data), "\r\n")), nil
	}
	if s.CAFile == "" {
		return e, nil
	}
	var err error
	if e.CA, err = t.secrets.ReadPublic(s.CAFile); err != nil {
		return e, fmt.Errorf("spec.caFile: %w", err)
	}
	return e, nil
}

// instanceSpec is the spec of an NsInstance.
type instanceSpec struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	NSD         string     `json:"nsd"`
	VIMAccount  string     `json:"vimAccount"`
	Broken      osm.Broken `json:"broken"`
	VNFs        []struct {
		Member string `json:"member"`
		KDUs   []struct {
			Name   string         `json:"name"`
			Model  string         `json:"model"`
			Params map[string]any `json:"params"`
		} `json:"kdus"`
	} `json:"vnfs"`
}

// readInstance reads an NsInstance. The default name is unique for the deployment.
func readInstance(r krm.Resource, d tko.DeploymentID, site spec) (osm.Instance, error) {
	var s instanceSpec
	if err := into(r["spec"], &s); err != nil {
		return osm.Instance{}, tko.Errorf(tko.ErrInvalid, "%s: spec: %w", r.Identity(), err)
	}
	i := osm.Instance{
		Name: s.Name, Description: s.Description, NSD: s.NSD, VIM: s.VIMAccount, Broken: s.Broken, Source: r.Identity().String(),
	}
	if i.Name == "" {
		i.Name = r.Name() + "." + string(d)
	}
	if i.VIM == "" {
		i.VIM = site.VIMAccount
	}
	for _, v := range s.VNFs {
		one := osm.VNF{Member: v.Member}
		for _, k := range v.KDUs {
			one.KDUs = append(one.KDUs, osm.KDU{Name: k.Name, Model: k.Model, Params: k.Params})
		}
		i.VNFs = append(i.VNFs, one)
	}
	return i, nil
}

// packageSpec is the spec of a VnfPackage or NsPackage.
type packageSpec struct {
	ID         string            `json:"id"`
	Descriptor map[string]any    `json:"descriptor"`
	Files      map[string]string `json:"files"`
	Binary     map[string]string `json:"binaryFiles"` // in base64
}

// readPackage reads a VnfPackage or NsPackage.
func readPackage(r krm.Resource) (bundle.Package, error) {
	var s packageSpec
	if err := into(r["spec"], &s); err != nil {
		return bundle.Package{}, tko.Errorf(tko.ErrInvalid, "%s: spec: %w", r.Identity(), err)
	}
	p := bundle.Package{Kind: nbi.KindVNF, ID: s.ID, Source: r.Identity().String()}
	if r.GVK().Kind == osm.NSPackageKind {
		p.Kind = nbi.KindNS
	}
	if p.ID == "" {
		p.ID = r.Name()
	}
	files := fstest.MapFS{}
	add := func(name string, data []byte) error {
		clean := path.Clean(name)
		if !filepath.IsLocal(clean) || clean != name || clean == "." {
			return tko.Errorf(tko.ErrInvalid, "%s: spec: %q is not the path of a file in a package", r.Identity(), name)
		}
		files[name] = &fstest.MapFile{Data: data, Mode: 0o644}
		return nil
	}
	if s.Descriptor != nil {
		data, err := yaml.Marshal(s.Descriptor)
		if err != nil {
			return bundle.Package{}, tko.Errorf(tko.ErrInvalid, "%s: spec.descriptor: %w", r.Identity(), err)
		}
		if err := add("descriptor.yaml", data); err != nil {
			return bundle.Package{}, err
		}
	}
	for name, text := range s.Files {
		if err := add(name, []byte(text)); err != nil {
			return bundle.Package{}, err
		}
	}
	for name, text := range s.Binary {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return bundle.Package{}, tko.Errorf(tko.ErrInvalid, "%s: spec.binaryFiles: %q is not in base64", r.Identity(), name)
		}
		if err := add(name, data); err != nil {
			return bundle.Package{}, err
		}
	}
	p.Files = files
	return p, nil
}
