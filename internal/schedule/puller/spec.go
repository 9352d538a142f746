package puller

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// A Tool is a kind of tools that pull commits.
type Tool string

// The tools.
const (
	Flux   Tool = "flux"
	ArgoCD Tool = "argocd"
)

// GVK returns the kind of the objects that report what became of commits.
func (t Tool) GVK() krm.GVK {
	if t == ArgoCD {
		return krm.GVK{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}
	}
	return krm.GVK{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
}

// namespace returns the namespace in which the tool is usually installed.
func (t Tool) namespace() string {
	if t == ArgoCD {
		return "argocd"
	}
	return "flux-system"
}

// DefaultSilence is how old the report of a tool may be, or twice its interval if that is more.
const DefaultSilence = 30 * time.Minute

// A Spec names the object of a tool that pulls the commits of a site.
type Spec struct {
	Tool       Tool
	Namespace  string
	Name       string
	Kubeconfig trigger.KubeconfigRef
	Silence    time.Duration // maximum age of a report; DefaultSilence if 0
}

// String returns the name of the object, as in messages.
func (s Spec) String() string {
	return fmt.Sprintf("%s %q of %s", s.Tool.GVK().Kind, s.Namespace+"/"+s.Name, s.Kubeconfig)
}

type reference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type toolJSON struct {
	Kustomization *reference      `json:"kustomization"`
	Application   *reference      `json:"application"`
	Kubeconfig    json.RawMessage `json:"kubeconfig"`
	InCluster     bool            `json:"inCluster"`
	Silence       string          `json:"silence"`
}

type statusJSON struct {
	Flux   *toolJSON `json:"flux"`
	ArgoCD *toolJSON `json:"argocd"`
	None   *struct{} `json:"none"`
}

// Read reads spec.status of a Repository of a site; nil if no tool reports what became of
// its commits. Errors are ErrInvalid and name the field.
func Read(r krm.Resource, site tko.SiteID) (*Spec, error) {
	value, ok := r.Get("spec", "status")
	if !ok || value == nil {
		return nil, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s: spec.status: not JSON: %s", r.Identity(), err)
	}
	s, err := parse(text, site)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s: spec.status%w", r.Identity(), err)
	}
	return s, nil
}

// parse parses the field; its errors continue the text "spec.status".
func parse(text []byte, site tko.SiteID) (*Spec, error) {
	var w statusJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	switch {
	case w.Flux != nil && w.ArgoCD == nil && w.None == nil:
		return w.Flux.spec(Flux, site)
	case w.ArgoCD != nil && w.Flux == nil && w.None == nil:
		return w.ArgoCD.spec(ArgoCD, site)
	case w.None != nil && w.Flux == nil && w.ArgoCD == nil:
		return nil, nil
	}
	return nil, fmt.Errorf(": give exactly one of flux, argocd and none")
}

func (w *toolJSON) spec(tool Tool, site tko.SiteID) (*Spec, error) {
	object, other, field := w.Kustomization, w.Application, "kustomization"
	if tool == ArgoCD {
		object, other, field = w.Application, w.Kustomization, "application"
	}
	if other != nil {
		return nil, fmt.Errorf(".%s: write %s: the other field is not of this tool", tool, field)
	}
	if object == nil {
		object = &reference{}
	}
	s := &Spec{Tool: tool, Namespace: cmp.Or(object.Namespace, tool.namespace()), Name: cmp.Or(object.Name, defaultName(site))}
	if !trigger.DNSLabel.MatchString(s.Namespace) || !trigger.DNSName.MatchString(s.Name) {
		return nil, fmt.Errorf(".%s.%s: %q is not the name of an object: give name and namespace", tool, field, s.Namespace+"/"+s.Name)
	}
	var err error
	if s.Kubeconfig, err = trigger.ReadKubeconfig(w.Kubeconfig, w.InCluster); err != nil {
		return nil, fmt.Errorf(".%s.%w", tool, err)
	}
	if w.Silence != "" {
		if s.Silence, err = time.ParseDuration(w.Silence); err != nil || s.Silence < time.Minute {
			return nil, fmt.Errorf(".%s.silence: %q is not a duration of at least a minute, such as 30m", tool, w.Silence)
		}
	}
	return s, nil
}

// defaultName returns the name of an object for a site: its ID, with hyphens for all
// characters that names of Kubernetes don't have.
func defaultName(site tko.SiteID) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' {
			return c
		}
		return '-'
	}, strings.ToLower(string(site)))
}
