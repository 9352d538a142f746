package config

import (
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/pflag"
)

// GitOps are the settings of the role gitops.
type GitOps struct {
	Git      []string // URL, or NAME=URL
	Ref      string   // of all of them, as what follows
	Path     string
	Interval time.Duration
	Prune    bool

	BudgetPercent  int
	BudgetEntities int

	Username       string
	PasswordFile   string
	TokenFile      string
	SSHKeyFile     string
	KnownHostsFile string
	CAFile         string

	Sources     string   // file
	Dir         string   // for the files of revisions
	Connections []string // folders of OSM's connection files

	FluxKubeconfig string   // of the cluster of Flux' sources; "" for none
	FluxInCluster  bool     // the cluster that this runs in
	FluxNamespaces []string // whose objects are followed; all if empty
	FluxAsItIs     bool     // use GitRepository objects that nobody refers to, as OSM Ops did
	FluxEvents     string   // URL of notification-controller, or ""
	FluxArtifacts  string   // host:port of artifacts, in place of what their URLs say

	FluxNoCrossNamespaceRefs bool
	AgeKeys                  string // file of keys for repositories that are polled
	PGPKeys                  string // the same

	Webhook       string // host:port, or "" for none
	WebhookSecret string // file
}

func (g *GitOps) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&g.Git, "git", nil, "git repository to keep TKO in step with, as URL or NAME=URL; more than one may be given. No credentials in it: see --git-token-file")
	flags.StringVar(&g.Ref, "git-ref", "", "branch, tag or commit of those repositories (default: what their HEAD names)")
	flags.StringVar(&g.Path, "git-path", "", "folder of the manifests in them (default: everything)")
	flags.DurationVar(&g.Interval, "git-interval", time.Minute, "how often to ask whether they have something new; one request each")
	flags.BoolVar(&g.Prune, "git-prune", true, "remove from TKO what left a repository")
	flags.IntVar(&g.BudgetPercent, "git-budget-percent", 50, "a removal of more than that part of what a repository owns, and of more than --git-budget-entities, waits for tko gitops approve")
	flags.IntVar(&g.BudgetEntities, "git-budget-entities", 20, "see --git-budget-percent")
	flags.StringVar(&g.Username, "git-username", "", "user name for the repositories")
	flags.StringVar(&g.PasswordFile, "git-password-file", "", "file with the password for that user")
	flags.StringVar(&g.TokenFile, "git-token-file", "", "file with a token for the repositories")
	flags.StringVar(&g.SSHKeyFile, "git-ssh-key-file", "", "file with an SSH key for the repositories, without a passphrase")
	flags.StringVar(&g.KnownHostsFile, "git-known-hosts-file", "", "file of the SSH hosts that may see the key used")
	flags.StringVar(&g.CAFile, "git-ca-file", "", "file of certificates that the repositories' servers are signed by (default: the system's)")
	flags.StringVar(&g.Sources, "gitops-sources", "", "YAML file of more sources, each with settings of its own: see docs/gitops.md")
	flags.StringVar(&g.Dir, "gitops-dir", "", "folder for the files of revisions (default: that of temporary files)")
	flags.StringSliceVar(&g.Connections, "osm-connections", []string{"/etc/osmops"}, "folders of connection files that repositories for Open Source MANO may name; no others are read")
	flags.StringVar(&g.FluxKubeconfig, "flux-kubeconfig", "", "kubeconfig of the cluster whose GitOps objects and Flux sources are followed; without one there is none")
	flags.BoolVar(&g.FluxInCluster, "flux-in-cluster", false, "follow those of the cluster that the server runs in")
	flags.StringSliceVar(&g.FluxNamespaces, "flux-namespaces", nil, "namespaces whose objects are followed (default: all)")
	flags.BoolVar(&g.FluxAsItIs, "flux-osm-ops", true, "use GitRepository objects that have an osm_ops_config.yaml without any other object, as OSM Ops does")
	flags.StringVar(&g.FluxEvents, "events-addr", "", "URL of Flux' notification-controller, which is told how GitOps objects are")
	flags.StringVar(&g.FluxArtifacts, "flux-artifacts", "", "host:port where artifacts are fetched, in place of what source-controller says: for a server outside of the cluster")
	flags.BoolVar(&g.FluxNoCrossNamespaceRefs, "no-cross-namespace-refs", false, "refuse GitOps objects that refer to other namespaces")
	flags.StringVar(&g.AgeKeys, "gitops-age-keys", "", "file of age keys that decrypt what SOPS encrypted in the repositories that --git and --gitops-sources name; GitOps objects name a Secret")
	flags.StringVar(&g.PGPKeys, "gitops-pgp-keys", "", "file of private PGP keys without passphrases that do the same, as gpg --export-secret-keys --armor writes it")
	flags.StringVar(&g.Webhook, "listen-webhook", "", "address of webhooks, POST /hook/NAME, that have a source looked at at once (port 50058 by convention); empty for none")
	flags.StringVar(&g.WebhookSecret, "webhook-secret-file", "", "file with the secret that webhooks are signed with")
}

// FollowsFlux says whether there are sources of Flux.
func (g *GitOps) FollowsFlux() bool { return g.FluxInCluster || g.FluxKubeconfig != "" }

// check says what doesn't make sense.
func (g *GitOps) check(here bool) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !here && (len(g.Git) > 0 || g.Sources != "" || g.Webhook != "" || g.FluxKubeconfig != "" || g.FluxInCluster) {
		add("--git, --gitops-sources, --flux-kubeconfig, --flux-in-cluster and --listen-webhook are the role gitops': add it to --roles")
	}
	if g.FluxKubeconfig != "" && g.FluxInCluster {
		add("--flux-kubeconfig and --flux-in-cluster name two clusters: use one")
	}
	if !g.FollowsFlux() && (len(g.FluxNamespaces) > 0 || g.FluxEvents != "" || g.FluxArtifacts != "" || g.FluxNoCrossNamespaceRefs) {
		add("--flux-namespaces, --flux-artifacts, --events-addr and --no-cross-namespace-refs need --flux-in-cluster or --flux-kubeconfig")
	}
	if u, err := url.Parse(g.FluxEvents); g.FluxEvents != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		add("--events-addr is %q: use a URL of http or https", g.FluxEvents)
	}
	if _, _, err := net.SplitHostPort(g.FluxArtifacts); g.FluxArtifacts != "" && err != nil {
		add("--flux-artifacts is %q: use host:port", g.FluxArtifacts)
	}
	if g.Interval < time.Second {
		add("--git-interval is %s: use at least 1s", g.Interval)
	}
	if g.BudgetPercent < 0 || g.BudgetPercent > 100 || g.BudgetEntities < 0 {
		add("--git-budget-percent is %d and --git-budget-entities %d: use 0 to 100, and 0 or more", g.BudgetPercent, g.BudgetEntities)
	}
	if g.Webhook == "" {
		return wrong
	}
	if _, _, err := net.SplitHostPort(g.Webhook); err != nil {
		add("--listen-webhook is %q: use host:port", g.Webhook)
	}
	if g.WebhookSecret == "" {
		add("--listen-webhook needs --webhook-secret-file: unsigned webhooks are refused")
	}
	return wrong
}
