package config

import (
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/pflag"
)

// Flux are the settings of sources that are objects of a Kubernetes cluster.
type Flux struct {
	InCluster            bool   // watch the cluster that the server runs in
	Kubeconfig           string // or the one that this file names
	Namespace            string // the only one; all if ""
	OSMOps               bool   // GitRepository objects by themselves
	NoCrossNamespaceRefs bool
	EventsAddress        string // URL of notification-controller, or ""
	Host                 string // of artifacts, in place of what their URLs say
	AgeKeys              string // file of keys for repositories that are polled
}

// Enabled says whether there are such sources.
func (f *Flux) Enabled() bool { return f.InCluster || f.Kubeconfig != "" }

func (f *Flux) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.InCluster, "flux", false, "role gitops: take sources of Flux, and GitOps objects that say what to do with them, from the cluster that the server runs in")
	flags.StringVar(&f.Kubeconfig, "flux-kubeconfig", "", "take them from the cluster of this kubeconfig")
	flags.StringVar(&f.Namespace, "flux-namespace", "", "the only namespace to look at (default: all)")
	flags.BoolVar(&f.OSMOps, "flux-osmops", true, "take a GitRepository that no GitOps object refers to by itself, if osm_ops_config.yaml is in its root, as OSM Ops did")
	flags.BoolVar(&f.NoCrossNamespaceRefs, "flux-no-cross-namespace-refs", false, "refuse GitOps objects that refer to other namespaces")
	flags.StringVar(&f.EventsAddress, "flux-events-addr", "", "URL of Flux's notification-controller, such as http://notification-controller.flux-system.svc/; empty to tell it nothing")
	flags.StringVar(&f.Host, "flux-artifact-host", "", "host:port to get artifacts from, in place of that in their URLs: for servers outside of the cluster")
	flags.StringVar(&f.AgeKeys, "gitops-age-keys", "", "file of age keys that decrypt what SOPS encrypted in the repositories that --git and --gitops-sources name; GitOps objects name a Secret")
}

// check says what doesn't make sense.
func (f *Flux) check(here bool) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !here && f.Enabled() {
		add("--flux and --flux-kubeconfig are the role gitops': add it to --roles")
	}
	if f.InCluster && f.Kubeconfig != "" {
		add("--flux and --flux-kubeconfig both say where Flux is: use one")
	}
	if !f.Enabled() && (f.Namespace != "" || f.EventsAddress != "" || f.Host != "" || f.NoCrossNamespaceRefs) {
		add("--flux-namespace, --flux-no-cross-namespace-refs, --flux-events-addr and --flux-artifact-host need --flux or --flux-kubeconfig")
	}
	if f.EventsAddress != "" {
		if u, err := url.Parse(f.EventsAddress); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			add("--flux-events-addr is %q: use a URL of http or https", f.EventsAddress)
		}
	}
	if f.Host != "" {
		if _, _, err := net.SplitHostPort(f.Host); err != nil {
			add("--flux-artifact-host is %q: use host:port", f.Host)
		}
	}
	return wrong
}
