package config

import (
	"net"
	"net/url"
	"time"

	"github.com/spf13/pflag"
)

// GitOps holds the settings of the role gitops.
type GitOps struct {
	Git      []string // URL, or NAME=URL
	Ref      string   // of all repositories in Git, as the settings that follow
	Path     string
	Interval time.Duration
	Prune    bool

	BudgetPercent  int
	BudgetEntities int
	Rollout        string // YAML of the settings of rollouts; "" for none

	Username       string
	PasswordFile   string
	TokenFile      string
	SSHKeyFile     string
	KnownHostsFile string
	CAFile         string

	Sources     string   // path of the file of more sources
	Secrets     string   // folder of the files that registered sources may name; none if empty
	Dir         string   // folder for the files of revisions
	Connections []string // folders of OSM's connection files

	FluxKubeconfig string   // of the cluster with Flux sources; "" for none
	FluxInCluster  bool     // the cluster that this runs in
	FluxNamespaces []string // namespaces of the objects to reconcile; all if empty
	FluxAsItIs     bool     // use GitRepository objects that no GitOps object refers to, as OSM Ops did
	FluxEvents     string   // URL of notification-controller, or ""
	FluxArtifacts  string   // host:port of artifacts, in place of the one in their URLs

	FluxNoCrossNamespaceRefs bool
	AgeKeys                  string // path of the file of keys for repositories that are polled
	PGPKeys                  string // the same

	Webhook       string // host:port, or "" for none
	WebhookSecret string // path of a file
}

func (g *GitOps) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&g.Git, "git", nil, "git repository to apply to TKO, as URL or NAME=URL; the flag may be repeated. The URL must not hold credentials: see --git-token-file")
	flags.StringVar(&g.Ref, "git-ref", "", "branch, tag or commit of those repositories (default: their HEAD)")
	flags.StringVar(&g.Path, "git-path", "", "folder of the manifests in them (default: all folders)")
	flags.DurationVar(&g.Interval, "git-interval", time.Minute, "interval at which they are checked for a new revision, with one request each")
	flags.BoolVar(&g.Prune, "git-prune", true, "delete entities from TKO that were removed from a repository")
	flags.IntVar(&g.BudgetPercent, "git-budget-percent", 50, "percentage of a repository's entities that are deleted without tko gitops approve; larger deletions wait if they are also more than --git-budget-entities")
	flags.IntVar(&g.BudgetEntities, "git-budget-entities", 20, "see --git-budget-percent")
	flags.StringVar(&g.Rollout, "git-rollout", "", "YAML of the rollouts that change deployments, such as {waves: [{name: canary, count: 3}]} or {} for one wave: each commit that changes deployments waits until its rollout is started (default: deployments are changed at once)")
	flags.StringVar(&g.Username, "git-username", "", "user name for the repositories")
	flags.StringVar(&g.PasswordFile, "git-password-file", "", "file with the password for that user")
	flags.StringVar(&g.TokenFile, "git-token-file", "", "file with a token for the repositories")
	flags.StringVar(&g.SSHKeyFile, "git-ssh-key-file", "", "file with an SSH key for the repositories, without a passphrase")
	flags.StringVar(&g.KnownHostsFile, "git-known-hosts-file", "", "known_hosts file of the repositories' SSH hosts")
	flags.StringVar(&g.CAFile, "git-ca-file", "", "file of the CA certificates of the repositories' servers (default: the system's)")
	flags.StringVar(&g.Sources, "gitops-sources", "", "YAML file of more sources, each with settings of its own: see docs/gitops.md, and docs/inventories.md for sources of sites")
	flags.StringVar(&g.Secrets, "gitops-secrets", "", "folder of the credentials and keys that registered sources may name: see docs/gitops.md (default: none)")
	flags.StringVar(&g.Dir, "gitops-dir", "", "folder for the files of revisions (default: the folder of temporary files)")
	flags.StringSliceVar(&g.Connections, "gitops-osm-connections", []string{"/etc/osmops"}, "folders of connection files that repositories for Open Source MANO may name")
	flags.StringVar(&g.FluxKubeconfig, "flux-kubeconfig", "", "kubeconfig of the cluster whose GitOps objects and Flux sources are reconciled (default: none)")
	flags.BoolVar(&g.FluxInCluster, "flux-in-cluster", false, "reconcile GitOps objects and Flux sources of the cluster that the server runs in")
	flags.StringSliceVar(&g.FluxNamespaces, "flux-namespaces", nil, "namespaces of the reconciled objects (default: all)")
	flags.BoolVar(&g.FluxAsItIs, "flux-osm-ops", true, "use GitRepository objects that have an osm_ops_config.yaml without any other object, as OSM Ops does")
	flags.StringVar(&g.FluxEvents, "events-addr", "", "URL of Flux' notification-controller, which gets events about GitOps objects")
	flags.StringVar(&g.FluxArtifacts, "flux-artifacts", "", "host:port of artifacts, in place of the one in source-controller's URLs: for a server outside of the cluster")
	flags.BoolVar(&g.FluxNoCrossNamespaceRefs, "no-cross-namespace-refs", false, "reject GitOps objects that refer to other namespaces")
	flags.StringVar(&g.AgeKeys, "gitops-age-keys", "", "file of age keys for SOPS-encrypted files in the repositories of --git and --gitops-sources; GitOps objects name a Secret")
	flags.StringVar(&g.PGPKeys, "gitops-pgp-keys", "", "file of private PGP keys without passphrases for the same files, as gpg --export-secret-keys --armor writes it")
	flags.StringVar(&g.Webhook, "listen-webhook", "", "address of webhooks, POST /hook/NAME, which reconcile a source at once (port 50058 by convention); empty for none")
	flags.StringVar(&g.WebhookSecret, "webhook-secret-file", "", "file with the secret that signs webhooks")
}

// FollowsFlux returns whether sources of Flux are configured.
func (g *GitOps) FollowsFlux() bool { return g.FluxInCluster || g.FluxKubeconfig != "" }

// check adds the problems of the settings; here is true if this process has the role
// gitops.
func (g *GitOps) check(wrong *problems, here bool) {
	add := wrong.add
	if !here && (len(g.Git) > 0 || g.Sources != "" || g.Webhook != "" || g.FluxKubeconfig != "" || g.FluxInCluster) {
		add("--git, --gitops-sources, --flux-kubeconfig, --flux-in-cluster and --listen-webhook need the role gitops: add it to --roles")
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
		return
	}
	if _, _, err := net.SplitHostPort(g.Webhook); err != nil {
		add("--listen-webhook is %q: use host:port", g.Webhook)
	}
	if g.WebhookSecret == "" {
		add("--listen-webhook needs --webhook-secret-file: unsigned webhooks are refused")
	}
}
