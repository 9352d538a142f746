package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/tracing"
	"github.com/tko-orchestrator/tko/krm"
)

// The roles of a server.
const (
	RoleData          = "data"
	RolePreparer      = "preparer"
	RoleMetaScheduler = "meta-scheduler"
	RoleGitOps        = "gitops"
	RoleRollout       = "rollout"
)

var toscaSchemes = []string{"file", "http", "https", "git"}

// Roles are all roles, in the order in which they start.
var Roles = []string{RoleData, RolePreparer, RoleMetaScheduler, RoleGitOps, RoleRollout}

// minKeepChanges is the least value of --keep-changes. With less, watchers would have
// to list again after every pause.
const minKeepChanges = 10 * time.Minute

// Config holds all settings of tko-server.
type Config struct {
	Roles     []string      // roles of this process
	Store     secret.Text   // sqlite:PATH, sqlite::memory:, a PostgreSQL DSN, or spanner:DATABASE
	Replicas  secret.DSNs   // hot standbys of the store, for reads
	StoreWait time.Duration // time limit for a database that is not available at the start
	Data      string        // address of the data controller, for roles without RoleData

	ListenGRPC    string   // host:port; see Listen
	ListenWeb     string   // host:port, or "" for none
	Kubernetes    string   // host:port of the Kubernetes API, or "" for none
	ListenLog     string   // host:port of the plugins' log server, or "" for none
	ListenDebug   string   // host:port of Go's profiles, or "" for none
	ListenHealth  string   // host:port of health probes, or "" for none
	ListenMetrics string   // host:port of metrics, or "" for none
	DiskLow       float64  // percentage of free space below which a disk is reported
	IPStack       string   // dual, ipv6, ipv4
	WebHosts      []string // names under which browsers may reach the HTTP API, in addition to the safe ones; * for any
	AllowRoot     bool
	ReadyFile     string // path of the file for the addresses that are served, or ""

	KubernetesCert           string // file
	KubernetesKey            string // file
	KubernetesKubeconfig     string // of the cluster that authenticates users; "" for the one that this runs in
	KubernetesEvents         bool   // post Events to that cluster
	KubernetesTrustEverybody bool   // do not authenticate users; on loopback only
	KubernetesAudit          KubernetesAudit

	InstanceName         string
	InstanceDescription  string
	PackageFormat        string
	MaxMessage           int // bytes
	Streams              int // concurrent watches, lists and waits for work; 0: no limit
	StreamsPerClient     int
	StreamsPerConnection int
	RequestsPerClient    float64       // per second; 0: no limit
	SlowWatch            time.Duration // time without progress after which a watch of a slow client ends
	StopTimeout          time.Duration // time limit of stopping

	ModificationTime time.Duration
	Retry            time.Duration // first back-off after a failure
	RetryMax         time.Duration

	KeepChanges   time.Duration // retention of every change and revision; 0: for ever
	KeepRevisions int           // newest revisions of each entity that are retained longer; 0: all
	KeepLonger    string        // file of policies that retain the changes of deployments longer; "": none

	// StoreReadable allows a SQLite file that other users of the machine may read.
	StoreReadable     bool
	EncryptionKey     string   // file of the key that encrypts packages in the store, or vault:MOUNT/NAME; "" for none
	SecretsCheck      string   // exact, strict, off
	KubernetesVersion string   // version in schema locations that have several
	SchemaLocations   []string // in Kubeconform's format; "default" is the built-in schemas

	WorkLease           time.Duration
	PreparerConcurrency int
	PreparerIterations  int
	PreparerAutoApprove bool
	WithdrawApproval    bool // when a deployment changes that a person approved

	Reach Reach

	TOSCASchemes        []string // schemes of the URLs of service templates
	TOSCALocalAddresses bool     // allow service templates from this machine

	RemoteSchemes   []string // schemes of URLs from users
	RemoteHosts     []string // hosts of such URLs; all if empty
	RemoteAddresses []string // loopback and link-local addresses that are allowed in such URLs
	GitLocal        []string // folders that may hold sites' repositories
	TOSCALocal      []string // folders that may hold service templates
	ClusterProxies  []string // URLs of proxies that kubeconfigs may name

	SchedulerConcurrency int
	SchedulerGather      time.Duration // how long ready deployments wait for others of their site; not at all if 0
	GitCache             string
	GitSecrets           string
	SecretEnvironment    []string // names of variables that packages may refer to
	Vault                Vault
	OSMSecrets           string
	AWXSecrets           string
	Credentials          string // file of the declarations of credentials; none if empty

	Kubeconfigs          string // folder
	KubeconfigSecrets    string // selector of labels
	KubeconfigSecretsIn  string // kubeconfig
	ManagementKubeconfig string
	AllowInCluster       bool
	ClusterInterval      time.Duration
	Charts               string // folder
	ChartCredentials     string // file
	ChartTimeout         time.Duration
	ClusterWatches       int // sites whose clusters are watched concurrently

	GitOps  GitOps
	Tickets Tickets
	// Agents are those of sites that call home.
	Agents Agents

	Identity Identity
	Access   Access

	PluginTimeout         time.Duration // validate and prepare
	PluginScheduleTimeout time.Duration
	PluginConcurrency     int
	PluginMemory          int64    // bytes of a plugin; 0: no limit
	PluginPrograms        []string // folders of the programs that plugins may run
	PluginIsolation       string   // best, require, off
	PluginUsers           string   // FIRST-LAST, auto, none
	PluginFiles           []string // files and folders that plugins may read
	PluginFilesWritable   []string // the same, and may write
	PythonEnv             string
	PluginEnvironment     []string // names of variables
	PluginKubeconfig      string   // of plugins that run in pods

	KptBuiltin      bool // whether images of the public catalog are replaced by built-in functions
	KptEngine       string
	KptMemory       int64   // bytes of a function
	KptCPUs         float64 // of a container
	KptFetchTimeout time.Duration
	KptCache        string

	LogFormat string // auto, text, json, journald
	LogLevel  string // see logging.NewLevels
	Verbose   int    // more than 0 is debug

	TracesEndpoint string  // URL of an OTLP receiver; "" for OpenTelemetry's variables
	TracesSample   float64 // part of the requests that are traced

	earlier []string // names in use that have changed
}

// Vault configures the Vault that packages may refer to.
type Vault struct {
	Address   string // URL
	Paths     []string
	TokenFile string
	Role      string
	JWTFile   string
}

// Flags adds the flags of the connection to Vault.
func (v *Vault) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&v.Address, "vault-address", "", "URL of the Vault that sites may refer to for credentials, as vault:PATH#KEY, and that --encryption-key may name a key of (default: none)")
	flags.StringVar(&v.TokenFile, "vault-token-file", "", "file of the token for Vault (default: the Kubernetes login of --vault-role)")
	flags.StringVar(&v.Role, "vault-role", "", "role of Vault's Kubernetes login")
	flags.StringVar(&v.JWTFile, "vault-service-account-file", "/var/run/secrets/kubernetes.io/serviceaccount/token", "file of the service account's token for that login")
}

// check adds what is wrong. If encrypts, a key of Vault encrypts packages.
func (v Vault) check(wrong *problems, encrypts bool) {
	u, err := url.Parse(v.Address)
	switch {
	case v.Address == "" && (len(v.Paths) > 0 || v.TokenFile != "" || v.Role != ""):
		wrong.add("--vault-path, --vault-token-file and --vault-role need --vault-address")
	case v.Address == "" && encrypts:
		wrong.add("--encryption-key names a key in Vault: give --vault-address")
	case v.Address == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		wrong.add("--vault-address is %q: use a URL such as https://vault.example.com:8200", v.Address)
	case len(v.Paths) == 0 && !encrypts:
		wrong.add("--vault-address needs --vault-path, the paths that packages may refer to")
	case v.TokenFile == "" && v.Role == "":
		wrong.add("--vault-address needs --vault-token-file or --vault-role")
	}
}

// KubernetesAudit configures the audit log of the Kubernetes API.
type KubernetesAudit struct {
	Policy     string // file; "" for nothing
	Log        string // file, or - for standard output
	MaxAge     int    // days
	MaxBackups int
	MaxSize    int // MiB
}

// Flags adds a flag for each setting to a flag set, with its default, and returns the
// settings.
func Flags(flags *pflag.FlagSet) *Config {
	c := &Config{Store: "sqlite:tko.db"}
	flags.SetNormalizeFunc(c.normalize)
	flags.StringSliceVar(&c.Roles, "roles", Roles, "roles of this process: "+strings.Join(Roles, ", "))
	flags.Var(&c.Store, "store", `store of the state: sqlite:PATH, sqlite::memory:, a PostgreSQL DSN (postgres://user@host/db), or, with tko-server-spanner, spanner:projects/P/instances/I/databases/D`)
	flags.Lookup("store").DefValue = string(c.Store) // without the secret of a value from elsewhere
	flags.BoolVar(&c.StoreReadable, "store-readable", false, "open a SQLite file that other users of this machine may read")
	flags.Var(&c.Replicas, "store-replicas", "PostgreSQL DSNs of hot standbys of the store's database, for lists and concurrent gets; a standby that is away or behind is not used (default: none)")
	flags.DurationVar(&c.StoreWait, "store-wait", time.Minute, "time limit for a database that is not available at the start")
	flags.StringVar(&c.Data, "data", "localhost:50050", "address of the data controller, for roles in other processes than it")

	flags.StringVar(&c.ListenGRPC, "listen-grpc", "localhost:50050", "address of the gRPC API; *:50050 for all interfaces")
	flags.StringVar(&c.ListenWeb, "listen-web", "localhost:50051", "address of the HTTP API; empty for none")
	flags.StringVar(&c.Kubernetes, "kubernetes", "", "address of the Kubernetes aggregated API, which the role data serves (port 50052 by convention); empty for none, *:50052 for all interfaces")
	flags.StringVar(&c.KubernetesCert, "kubernetes-cert", "", "certificate file of the Kubernetes API, reloaded when it changes (default: --tls-cert; on loopback without it, a self-signed certificate)")
	flags.StringVar(&c.KubernetesKey, "kubernetes-key", "", "key file of that certificate")
	flags.StringVar(&c.KubernetesKubeconfig, "kubernetes-kubeconfig", "", "kubeconfig of the cluster that authenticates and authorizes users of the Kubernetes API (default: the cluster that the server runs in)")
	flags.BoolVar(&c.KubernetesEvents, "kubernetes-events", true, "post Kubernetes Events about TKO's objects to that cluster, in the namespace default")
	flags.BoolVar(&c.KubernetesTrustEverybody, "kubernetes-trust-everybody", false, "give every client of the Kubernetes API all rights, without authentication: on loopback only, for development without a cluster")
	flags.StringVar(&c.KubernetesAudit.Policy, "kubernetes-audit-policy", "", "Kubernetes audit policy file for requests to the Kubernetes API; empty for no audit log")
	flags.StringVar(&c.KubernetesAudit.Log, "kubernetes-audit-log", "-", "audit log file; - for standard output")
	flags.IntVar(&c.KubernetesAudit.MaxAge, "kubernetes-audit-log-max-age", 0, "days after which audit log files are deleted; 0 for never")
	flags.IntVar(&c.KubernetesAudit.MaxBackups, "kubernetes-audit-log-max-backups", 10, "number of old audit log files to retain; 0 for all")
	flags.IntVar(&c.KubernetesAudit.MaxSize, "kubernetes-audit-log-max-size", 100, "size in MiB at which the audit log file is rotated")
	flags.StringVar(&c.ListenLog, "listen-log", DefaultListenLog, "address of the log server for plugins that run elsewhere; empty for none. If another server uses the default address, this server has none")
	flags.StringVar(&c.ListenDebug, "listen-debug", "", "address of Go's profiles (/debug/pprof/), for debugging; empty for none")
	flags.StringVar(&c.ListenHealth, "listen-health", "", "address of health probes over HTTP (port 50059 by convention): /healthz is OK while the process runs, /readyz while it reaches the data controller and the programs that it started serve; empty for none")
	flags.StringVar(&c.ListenMetrics, "listen-metrics", DefaultListenMetrics, "address of metrics for Prometheus over HTTP, /metrics; empty for none. If another server uses the default address, this server has none")
	flags.Float64Var(&c.DiskLow, "disk-low", 5, "percentage of free space on the disks of the server's folders below which /readyz warns; 0 for no warning")
	flags.StringSliceVar(&c.WebHosts, "web-hosts", nil, "host names under which the HTTP API may be reached, in addition to IP addresses, localhost, names without a dot, *.svc, *.svc.cluster.local, the machine's name and that of --listen-web; *.example.com is every name below, * is any name")
	flags.StringVar(&c.IPStack, "ip-stack", "dual", "IP stack: dual (IPv6 first), ipv6 or ipv4")
	flags.StringVar(&c.ReadyFile, "ready-file", "", "file that gets the addresses, as JSON, once they are served")

	flags.StringVar(&c.InstanceName, "instance-name", "tko", "name of this installation")
	flags.StringVar(&c.InstanceDescription, "instance-description", "", "purpose of this installation")
	flags.StringVar(&c.PackageFormat, "package-format", string(krm.CBOR), "format of packages for clients that request none: cbor or yaml")
	flags.IntVar(&c.MaxMessage, "max-message", 128<<20, "largest gRPC message, in bytes")

	flags.IntVar(&c.Streams, "streams", 5000, "concurrent watches, lists and waits for work of the gRPC API, and also of the Kubernetes API; 0 for no limit")
	flags.IntVar(&c.StreamsPerClient, "streams-per-client", 1000, "the same limit for one client: one identity (or address, without credentials) of the gRPC API, one user of the Kubernetes API; 0 for no limit")
	flags.IntVar(&c.StreamsPerConnection, "streams-per-connection", 250, "the same limit for one connection to the gRPC API; 0 for no limit")
	flags.Float64Var(&c.RequestsPerClient, "requests-per-client", 20000, "limit of requests per second of one identity (or address, without credentials), of the gRPC, HTTP and Kubernetes API each, on average of two seconds; 0 for no limit")
	flags.DurationVar(&c.SlowWatch, "slow-watch", 30*time.Second, "time limit for a client of a watch to read what was sent, before the watch is closed")
	flags.DurationVar(&c.StopTimeout, "stop-timeout", 25*time.Second, "time limit of stopping; requests that take longer are aborted")

	flags.DurationVar(&c.ModificationTime, "modification-time", 10*time.Second, "lifetime of a modification token")
	flags.DurationVar(&c.Retry, "retry", time.Second, "back-off after the first failure to prepare or schedule")
	flags.DurationVar(&c.RetryMax, "retry-max", time.Minute, "longest back-off")

	flags.DurationVar(&c.KeepChanges, "keep-changes", 168*time.Hour, "retention time of all changes and revisions, at least 10m; 0 for ever")
	flags.IntVar(&c.KeepRevisions, "keep-revisions", 10, "number of the newest revisions of each entity that are retained longer than that; 0 for all")
	flags.StringVar(&c.KeepLonger, "keep-longer", "", "YAML file of policies that retain all changes of some deployments longer than --keep-changes")

	flags.StringVar(&c.EncryptionKey, "encryption-key", "", "key that encrypts packages in the store: a file (tko-server keys create makes one), or vault:MOUNT/NAME for a key of Vault's transit engine; empty for no encryption")
	flags.StringVar(&c.SecretsCheck, "secrets-check", "exact", "check for secrets in packages: exact (private keys and tokens, by their form), strict (also passwords, by the names of fields and variables), off; the annotation tko.nephio.org/allow-secret, with a reason, exempts a resource")
	flags.StringVar(&c.KubernetesVersion, "schema-kubernetes-version", "", "version of Kubernetes in schema locations (default: that of the built-in schemas)")
	flags.StringSliceVar(&c.SchemaLocations, "schema-location", []string{"default"}, "locations of schemas, in Kubeconform's format; default for the built-in schemas")

	flags.DurationVar(&c.WorkLease, "work-lease", 30*time.Second, "time after which another controller takes over the work of one that died")
	flags.IntVar(&c.PreparerConcurrency, "preparer-concurrency", 64, "concurrently prepared deployments")
	flags.IntVar(&c.PreparerIterations, "preparer-iterations", 100, "limit of rounds to prepare a deployment")
	flags.BoolVar(&c.PreparerAutoApprove, "preparer-auto-approve", true, "approve prepared deployments that do not request otherwise")

	flags.BoolVar(&c.WithdrawApproval, "withdraw-approval", false, "withdraw the approval of a deployment that a person approves (nephio.org/approve: Manual; also Default, with --preparer-auto-approve=false here) when its package or site changes; its site keeps what was approved until it is approved again")

	c.Reach.flags(flags)

	flags.StringSliceVar(&c.TOSCASchemes, "tosca-schemes", toscaSchemes, "URL schemes of TOSCA service templates; git repositories are reached over http and https")
	flags.BoolVar(&c.TOSCALocalAddresses, "tosca-local-addresses", false, "allow service templates from loopback and link-local addresses")
	flags.StringSliceVar(&c.TOSCALocal, "tosca-local", nil, "local folders that may hold service templates (default: none)")

	flags.StringSliceVar(&c.RemoteSchemes, "remote-schemes", guard.Schemes, "allowed schemes of the URLs in packages and plugins: of repositories, charts, images and service templates")
	flags.StringSliceVar(&c.RemoteHosts, "remote-hosts", nil, "allowed hosts of such URLs: names, *.NAME, addresses and networks (default: all)")
	flags.StringSliceVar(&c.RemoteAddresses, "remote-addresses", nil, "loopback and link-local addresses and networks, such as 127.0.0.0/8, that such URLs may lead to (default: none)")

	flags.IntVar(&c.SchedulerConcurrency, "scheduler-concurrency", 64, "concurrently scheduled sites; sites that share a repository share commits")
	flags.DurationVar(&c.SchedulerGather, "scheduler-gather", 30*time.Second, "how long deployments that are ready wait at most for others of their site that are still being prepared, so that they share a reconciliation and a commit; 0: not at all")
	flags.StringSliceVar(&c.GitLocal, "target-git-local", nil, "local folders that may hold sites' git repositories (default: none)")
	flags.StringVar(&c.GitCache, "target-git-cache", "", "folder of the cached clones of the sites' repositories (default: in the user's cache folder)")

	flags.StringVar(&c.OSMSecrets, "osm-secrets", "", "folder of the passwords and CAs that sites' OSMs may refer to (default: none)")
	flags.StringVar(&c.AWXSecrets, "awx-secrets", "", "folder of the passwords, tokens and CAs of AWX that plugins may refer to, as file:PATH (default: none)")
	flags.StringVar(&c.GitSecrets, "target-git-secrets", "", "folder of the credentials that sites' repositories and artifacts may refer to (default: none)")

	flags.StringSliceVar(&c.SecretEnvironment, "secret-environment", nil, "names of variables of the server's environment that sites and metrics of rollouts may refer to as credentials, as env:NAME (default: none)")
	flags.StringVar(&c.Credentials, "credentials", "", "file of the hosts, and the sites, sources, plugins or rollouts, that credentials are for: see docs/secrets.md; users without the role credential can use only what is declared (default: nothing is declared)")
	c.Vault.Flags(flags)
	flags.StringSliceVar(&c.Vault.Paths, "vault-path", nil, "paths in Vault, with the mount, such as secret/data/tko, below which sites may refer to secrets")

	flags.StringVar(&c.Kubeconfigs, "kubeconfigs", "", "folder of the kubeconfigs that sites' clusters may refer to (default: none)")
	flags.StringVar(&c.KubeconfigSecrets, "kubeconfig-secrets", "", "labels of the Secrets whose kubeconfigs sites' clusters may refer to, as a selector such as cluster.x-k8s.io/cluster-name, in the namespace that the server runs in (default: none)")
	flags.StringVar(&c.KubeconfigSecretsIn, "kubeconfig-secrets-kubeconfig", "", "kubeconfig for the Secrets of --kubeconfig-secrets, in the namespace of its context (default: the service account of the server)")
	flags.StringVar(&c.ManagementKubeconfig, "management-kubeconfig", "", "kubeconfig of the management cluster, whose Secrets sites' clusters may refer to (default: none)")
	flags.BoolVar(&c.AllowInCluster, "allow-in-cluster", false, "allow sites to use the cluster that the server runs in, with the rights of its service account")
	flags.StringSliceVar(&c.ClusterProxies, "cluster-proxies", nil, "URLs of the proxies that kubeconfigs of sites may name (proxy-url) (default: none)")
	flags.DurationVar(&c.ClusterInterval, "cluster-interval", 10*time.Minute, "interval at which a site's cluster is reconciled without a change, give or take a tenth")
	flags.StringVar(&c.Charts, "charts", "", "folder of the Helm charts that packages may refer to by path (default: none)")
	flags.StringVar(&c.ChartCredentials, "chart-credentials", "", "file of the credentials of Helm chart repositories and registries, by their hosts: a config.json as docker login and helm registry login write it; without one there are none")
	flags.DurationVar(&c.ChartTimeout, "chart-timeout", 5*time.Minute, "limit of a Helm chart's hook, and of an upgrade to become healthy before it is rolled back")
	flags.IntVar(&c.ClusterWatches, "cluster-watches", 200, "number of sites whose clusters are watched, the last changed ones first, to detect changes by other clients within seconds (0: none)")

	c.GitOps.flags(flags)
	c.Tickets.flags(flags)
	c.Agents.flags(flags)
	c.Identity.flags(flags)
	c.Access.flags(flags)

	flags.DurationVar(&c.PluginTimeout, "plugin-timeout", 30*time.Second, "time limit of a validate or prepare plugin")
	flags.DurationVar(&c.PluginScheduleTimeout, "plugin-schedule-timeout", 300*time.Second, "time limit of a schedule plugin")
	flags.IntVar(&c.PluginConcurrency, "plugin-concurrency", 16, "concurrent plugin processes")
	flags.Int64Var(&c.PluginMemory, "plugin-memory", 1<<30, "memory limit of a plugin and its child processes, in bytes, unless its property _memory sets another; 0 for no limit")
	flags.StringSliceVar(&c.PluginPrograms, "plugin-programs", nil, "folders of the programs that command plugins and exec: functions may run; the flag may be repeated (default: none, so no such plugin runs)")
	flags.StringVar(&c.PluginIsolation, "plugin-isolation", "best", "isolation of plugins from this machine: best (what this machine has: see tko about), require (don't start if a layer is missing), off")
	flags.StringVar(&c.PluginUsers, "plugin-users", "auto", "range FIRST-LAST of user IDs of plugins, of which each run gets one, if the server runs as root; auto is 2000000000-2000000255, none is the server's own user")
	flags.StringSliceVar(&c.PluginFiles, "plugin-files", nil, "files and folders that isolated plugins may read, in addition to the system's programs, --plugin-programs and --python-env")
	flags.StringSliceVar(&c.PluginFilesWritable, "plugin-files-writable", nil, "files and folders that isolated plugins may read and write")
	flags.BoolVar(&c.AllowRoot, "allow-root", false, "start as root, although a fault then concerns the whole machine")
	flags.StringSliceVar(&c.PluginEnvironment, "plugin-environment", []string{"KUBECONFIG"}, "names of variables of the server's environment that plugins get, in addition to PATH, LANG, LC_ALL and TZ")
	flags.StringVar(&c.PythonEnv, "python-env", "", "Python environment of .py plugins (default: PYTHON_ENV, else ~/tko-python-env if it exists)")

	flags.StringVar(&c.PluginKubeconfig, "plugin-kubeconfig", "", "kubeconfig of the cluster of plugins that run in pods (default: KUBECONFIG, else ~/.kube/config, else the cluster that the server runs in)")

	flags.BoolVar(&c.KptBuiltin, "kpt-builtin", false, "replace images of the public catalog of KRM functions by built-in functions, where available (set-namespace, set-labels, set-annotations, apply-replacements, apply-setters, starlark)")
	flags.StringVar(&c.KptEngine, "kpt-engine", "", "container engine for KRM functions: podman, docker, nerdctl, or a path (default: the first that is installed)")
	flags.Int64Var(&c.KptMemory, "kpt-memory", 512<<20, "memory limit of a KRM function, in bytes")
	flags.Float64Var(&c.KptCPUs, "kpt-cpus", 1, "CPU limit of a KRM function's container")
	flags.DurationVar(&c.KptFetchTimeout, "kpt-fetch-timeout", 5*time.Minute, "time limit of pulling an image or fetching a module of a KRM function")
	flags.StringVar(&c.KptCache, "kpt-cache", "", "folder for the WebAssembly modules of KRM functions, fetched and compiled (default: in the user's cache folder)")

	flags.StringVar(&c.LogFormat, "log-format", logging.Auto, "log format: auto (the journal under systemd, text on a terminal, else JSON), text, json, journald")
	flags.StringVar(&c.LogLevel, "log-level", "info", "log levels: debug, info, warn or error, and others for components, as in info,store=debug; tko log level changes them while the server runs. Components: "+strings.Join(logging.Components(), ", "))
	flags.CountVarP(&c.Verbose, "verbose", "v", "debug log, as --log-level=debug")
	flags.StringVar(&c.TracesEndpoint, "traces-endpoint", "", "URL of the OTLP receiver of traces: grpc://HOST:4317 or grpcs://HOST:4317 for gRPC, http://HOST:4318/v1/traces or https:// for HTTP (default: OpenTelemetry's variables OTEL_EXPORTER_OTLP_ENDPOINT and others; without them, no traces)")
	flags.Float64Var(&c.TracesSample, "traces-sample", 1, "part of the requests that are traced, 0 to 1; a request whose client traces it is traced in any case")
	return c
}

// Load sets the flags that are not on the command line: from the environment (TKO_
// and the flag's name in capitals with _), then from a YAML file of flag names and
// values, if file is not empty. It returns ErrInvalid for a name in the file that is
// not a flag.
func Load(flags *pflag.FlagSet, environment func(string) (string, bool), file string) error {
	values, err := read(file)
	if err != nil {
		return err
	}
	for name := range values {
		if flags.Lookup(name) == nil {
			return tko.Errorf(tko.ErrInvalid, "configuration %q: %q is not a setting: see tko-server --help for the names", file, name)
		}
	}
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil {
			return
		}
		for _, name := range names(f.Name) {
			if value, ok := environment(variable(name)); ok {
				if err := flags.Set(name, value); err != nil {
					failed = tko.Errorf(tko.ErrInvalid, "setting %s from the environment: %w", f.Name, err)
				}
				return
			}
		}
		for _, name := range names(f.Name) {
			if value, ok := values[name]; ok {
				if err := set(flags, name, &value); err != nil {
					failed = tko.Errorf(tko.ErrInvalid, "setting %s from %s: %w", name, file, err)
				}
				return
			}
		}
	})
	return failed
}

// read returns the values of a file of settings by name; none without a file.
func read(file string) (values map[string]yaml.Node, err error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "read configuration: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, tko.Errorf(tko.ErrInvalid, "read configuration %q: %w", file, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, tko.Errorf(tko.ErrInvalid, "read configuration %q: it has more than one document: write all settings into the first", file)
	}
	return values, nil
}

// set sets a flag to a value of a file, as the file has it: 1.30 is not 1.3, and off no
// boolean, unless the flag is.
func set(flags *pflag.FlagSet, name string, value *yaml.Node) error {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	f := flags.Lookup(name)
	list, isSlice := f.Value.(pflag.SliceValue)
	switch {
	case value.ShortTag() == "!!null":
		return errors.New(`it has no value: write "" for an empty one, or remove it`)
	case value.Kind == yaml.MappingNode:
		return errors.New("it is a mapping: write it as text, in quotes")
	case value.Kind == yaml.SequenceNode && !isSlice && f.Value.Type() != "strings":
		return errors.New("it is a list: write one value")
	case value.Kind == yaml.ScalarNode:
		var is bool
		if f.Value.Type() == "bool" && value.Decode(&is) == nil {
			return flags.Set(name, strconv.FormatBool(is))
		}
		return flags.Set(name, value.Value)
	}
	elements := make([]string, len(value.Content))
	for i, element := range value.Content {
		if element.Kind != yaml.ScalarNode || element.ShortTag() == "!!null" {
			return fmt.Errorf("entry %d of the list is no text: write each as one line", i+1)
		}
		elements[i] = element.Value
	}
	if isSlice { // an element may have commas
		if err := flags.Set(name, ""); err != nil {
			return err
		}
		return list.Replace(elements)
	}
	for _, element := range elements {
		if err := flags.Set(name, element); err != nil {
			return err
		}
	}
	return nil
}

// Has returns whether the process has a role.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }

// Log returns the options of the program's log.
func (c *Config) Log(to io.Writer) logging.Options {
	level := c.LogLevel
	if c.Verbose > 0 {
		level = verbose(level)
	}
	return logging.Options{Format: c.LogFormat, Level: level, To: to}
}

// verbose replaces the general level by debug.
func verbose(level string) string {
	parts := slices.DeleteFunc(strings.Split(level, ","), func(s string) bool { return !strings.Contains(s, "=") })
	return strings.Join(append([]string{"debug"}, parts...), ",")
}

// Validate checks the settings, each and together. The error lists all problems.
func (c *Config) Validate() error {
	var wrong problems
	add := wrong.add
	if len(c.Roles) == 0 {
		add("--roles is empty: name at least one of %s", strings.Join(Roles, ", "))
	}
	if len(c.Replicas) > 0 && !c.Has(RoleData) {
		add("--store-replicas is set, but --roles lacks %s: only this role uses the store", RoleData)
	}
	for prefix, name := range map[string]string{"sqlite:": "SQLite", "spanner:": "Spanner"} {
		if len(c.Replicas) > 0 && strings.HasPrefix(string(c.Store), prefix) {
			add("--store-replicas is set, but --store is %s, which has no replicas: use PostgreSQL, or leave it out", name)
		}
	}
	for _, r := range c.Roles {
		if !slices.Contains(Roles, r) {
			add("--roles has %q: use %s", r, strings.Join(Roles, ", "))
		}
	}
	wrong.word("ip-stack", c.IPStack, "dual", "ipv6", "ipv4")
	wrong.word("package-format", c.PackageFormat, string(krm.YAML), string(krm.CBOR))
	wrong.word("secrets-check", c.SecretsCheck, "exact", "strict", "off")
	wrong.word("plugin-isolation", c.PluginIsolation, "best", "require", "off")
	if !slices.Contains(logging.Formats(), c.LogFormat) {
		add("--log-format is %q: use %s", c.LogFormat, strings.Join(logging.Formats(), ", "))
	}
	if err := logging.CheckLevels(c.LogLevel); err != nil {
		add("--log-level: %v", err)
	}
	if _, err := tracing.ParseEndpoint(c.TracesEndpoint); err != nil {
		add("--traces-endpoint: %v", err)
	}
	if !(c.TracesSample >= 0 && c.TracesSample <= 1) {
		add("--traces-sample is %v: use 0 (none) to 1 (all)", c.TracesSample)
	}
	for name, address := range map[string]string{
		"listen-grpc": c.ListenGRPC, "listen-web": c.ListenWeb, "kubernetes": c.Kubernetes, "listen-log": c.ListenLog,
		"listen-debug": c.ListenDebug, "listen-health": c.ListenHealth, "listen-metrics": c.ListenMetrics, "data": c.Data,
	} {
		if address == "" && name != "listen-grpc" && name != "data" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			add("--%s is %q: use host:port", name, address)
		}
	}
	for name, d := range map[string]time.Duration{
		"modification-time": c.ModificationTime, "retry": c.Retry, "retry-max": c.RetryMax, "work-lease": c.WorkLease, "cluster-interval": c.ClusterInterval, "chart-timeout": c.ChartTimeout,
		"plugin-timeout": c.PluginTimeout, "plugin-schedule-timeout": c.PluginScheduleTimeout, "kpt-fetch-timeout": c.KptFetchTimeout, "store-wait": c.StoreWait, "stop-timeout": c.StopTimeout, "slow-watch": c.SlowWatch,
	} {
		if d <= 0 {
			add("--%s is %s: use more than 0", name, d)
		}
	}
	if text := c.KubeconfigSecrets; text != "" {
		// Packages could read Secrets that are not kubeconfigs, such as the password of the database.
		if selector, err := labels.Parse(text); err != nil || selector.Matches(labels.Set{}) {
			add("--kubeconfig-secrets is %q: use a selector of labels that no Secret without labels has, such as cluster.x-k8s.io/cluster-name", text)
		}
	} else if c.KubeconfigSecretsIn != "" {
		add("--kubeconfig-secrets-kubeconfig is set without --kubeconfig-secrets: add the labels of the Secrets")
	}
	if least := max(minKeepChanges, c.ModificationTime); c.KeepChanges < 0 || c.KeepChanges > 0 && c.KeepChanges < least {
		add("--keep-changes is %s: use at least %s, so that watchers and modifications can continue, or 0 to retain all changes", c.KeepChanges, least)
	}
	if _, err := c.LongerPolicies(); err != nil {
		add("%s", err)
	}
	if c.SchedulerGather < 0 || c.SchedulerGather > tko.MaxGather {
		add("--scheduler-gather is %s: use at most %s, or 0 to let nothing wait", c.SchedulerGather, tko.MaxGather)
	}
	if c.KeepRevisions < 0 {
		add("--keep-revisions is %d: use 1 or more, or 0 to keep all", c.KeepRevisions)
	}
	for name, n := range map[string]int{
		"max-message": c.MaxMessage, "preparer-concurrency": c.PreparerConcurrency, "preparer-iterations": c.PreparerIterations,
		"scheduler-concurrency": c.SchedulerConcurrency, "plugin-concurrency": c.PluginConcurrency,
	} {
		if n <= 0 {
			add("--%s is %d: use more than 0", name, n)
		}
	}
	c.Reach.validate(add)
	if !(c.DiskLow >= 0 && c.DiskLow <= 100) {
		add("--disk-low is %g: use 0 to 100 percent", c.DiskLow)
	}
	if !(c.RequestsPerClient >= 0) {
		add("--requests-per-client is %g: use 0 or more", c.RequestsPerClient)
	}
	for name, n := range map[string]int{"streams": c.Streams, "streams-per-client": c.StreamsPerClient, "streams-per-connection": c.StreamsPerConnection} {
		if n < 0 {
			add("--%s is %d: use 1 or more, or 0 for no limit", name, n)
		}
	}
	if c.ClusterWatches < 0 {
		add("--cluster-watches is %d: use 1 or more, or 0 for none", c.ClusterWatches)
	}
	c.checkKubernetes(&wrong)
	c.checkIdentity(&wrong)
	c.checkAccess(&wrong)
	c.GitOps.check(&wrong, c.Has(RoleGitOps))
	c.Tickets.check(&wrong, c.Has(RoleRollout))
	c.Agents.check(&wrong, c.Has(RoleData), c.Identity.TLSCert != "")
	c.Vault.check(&wrong, strings.HasPrefix(c.EncryptionKey, secret.TransitPrefix))
	for _, name := range c.WebHosts {
		if name == "" || strings.ContainsAny(name, "/: ") || strings.Contains(strings.TrimPrefix(name, "*."), "*") && name != "*" {
			add("--web-hosts has %q: use names such as tko.example.com or *.example.com, without scheme and port", name)
		}
	}
	for _, scheme := range c.TOSCASchemes {
		if !slices.Contains(toscaSchemes, scheme) {
			add("--tosca-schemes has %q: use %s", scheme, strings.Join(toscaSchemes, ", "))
		}
	}
	if c.PluginMemory != 0 && c.PluginMemory < tko.MinMemory {
		add("--plugin-memory is %d: use at least %d, 16 mebibytes, or 0 for no limit", c.PluginMemory, tko.MinMemory)
	}
	if c.KptMemory < 1<<20 {
		add("--kpt-memory is %d: use at least %d, a mebibyte", c.KptMemory, 1<<20)
	}
	if !(c.KptCPUs > 0) {
		add("--kpt-cpus is %g: use more than 0", c.KptCPUs)
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return tko.Errorf(tko.ErrInvalid, "%s", strings.Join(wrong, "\n"))
}

// checkKubernetes adds the problems of the settings of the Kubernetes API.
func (c *Config) checkKubernetes(wrong *problems) {
	wrong.pair("kubernetes", c.KubernetesCert, c.KubernetesKey)
	for what, value := range map[string]int{"age": c.KubernetesAudit.MaxAge, "backups": c.KubernetesAudit.MaxBackups, "size": c.KubernetesAudit.MaxSize} {
		if value < 0 {
			wrong.add("--kubernetes-audit-log-max-%s is %d: use 0 or more", what, value)
		}
	}
	if !isRemote(c.Kubernetes) {
		return
	}
	if c.KubernetesTrustEverybody {
		wrong.add("--kubernetes-trust-everybody with --kubernetes=%s: only on loopback, use --kubernetes=localhost:50052", c.Kubernetes)
	}
	if c.KubernetesCert == "" && c.Identity.TLSCert == "" {
		wrong.add("--kubernetes is %s, and there is no certificate: give --tls-cert and --tls-key, or --kubernetes-cert and --kubernetes-key; only on loopback there is one without", c.Kubernetes)
	}
}

// problems are what is wrong with settings, each with a remedy.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// word adds a problem if the value of a setting is none of some words.
func (p *problems) word(flag, value string, words ...string) {
	if last := len(words) - 1; !slices.Contains(words, value) {
		p.add("--%s is %q: use %s or %s", flag, value, strings.Join(words[:last], ", "), words[last])
	}
}

// pair adds a problem if there is a certificate without its key, or a key without its
// certificate.
func (p *problems) pair(flags, cert, key string) {
	if (cert == "") != (key == "") {
		p.add("--%[1]s-cert and --%[1]s-key belong together: give both, or none", flags)
	}
}
