package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
)

// A Group is settings that belong together.
type Group struct {
	Title    string
	About    string // one line
	Settings []string
}

// Groups are all settings, in the order of tko-server --help.
var Groups = []Group{
	{"Roles and store", "What this process does, and where the state is", words(`config check print-config help version roles store store-readable store-replicas store-wait data instance-name instance-description
		ready-file stop-timeout allow-root`)},
	{"APIs", "The addresses of the APIs", words(`listen-grpc listen-web listen-unix web-hosts ip-stack package-format max-message`)},
	{"Kubernetes API", "The aggregated API of kubectl", words(`kubernetes kubernetes-cert kubernetes-key kubernetes-kubeconfig kubernetes-events kubernetes-trust-everybody
		kubernetes-audit-policy kubernetes-audit-log kubernetes-audit-log-max-age kubernetes-audit-log-max-backups kubernetes-audit-log-max-size`)},
	{"Identities", "Who calls, and TLS", words(`insecure tls-cert tls-key tls-client-ca tls-client-auth tls-crl tls-spiffe-domains oidc-issuer oidc-alias oidc-audience oidc-secret-file oidc-scopes web-url
		oidc-algorithms oidc-groups-claim oidc-ca token-file token-review token-review-audience controllers data-tls data-tls-ca data-tls-cert data-tls-key
		data-tls-server-name data-token-file`)},
	{"Agents", "Sites that call home", words(`listen-agents agents-ca agents-ca-key agents-certificate-time agents-silence`)},
	{"Rights and audit", "Who may do what, and the record of it", words(`access access-anonymous access-kubernetes access-persons owner-groups audit audit-keep audit-export audit-interval`)},
	{"Limits", "Limits of clients and of changes, and retention", words(`streams streams-per-client streams-per-connection requests-per-client slow-watch confirm-above
		confirm-above-percent reach-created reach-sites reach-window reach-policy reach-limits reach-original reach-original-percent reach-off-reason topology-depth modification-time work-lease retry retry-max keep-changes keep-revisions keep-longer`)},
	{"Validation and secrets", "Schemas, and secrets in packages and in the store", words(`schema-location schema-kubernetes-version secrets-check encryption-key secret-environment credentials vault-address
		vault-path vault-token-file vault-role vault-service-account-file`)},
	{"Preparing", "The role preparer, and service templates", words(`preparer-concurrency preparer-iterations preparer-auto-approve withdraw-approval tosca-schemes tosca-local
		tosca-local-addresses`)},
	{"Plugins", "Programs, KRM functions and jobs", words(`plugin-programs plugin-isolation plugin-users plugin-files plugin-files-writable plugin-environment plugin-timeout
		plugin-schedule-timeout plugin-concurrency plugin-memory plugin-kubeconfig python-env awx-secrets kpt-builtin kpt-engine kpt-memory kpt-cpus kpt-fetch-timeout kpt-cache`)},
	{"Targets", "The role meta-scheduler, and the repositories, clusters and OSMs of sites", words(`scheduler-concurrency scheduler-gather target-git-local target-git-cache target-git-secrets osm-secrets kubeconfigs
		kubeconfig-secrets kubeconfig-secrets-kubeconfig management-kubeconfig allow-in-cluster cluster-proxies cluster-interval cluster-watches charts chart-credentials chart-timeout`)},
	{"Remote locations", "Where URLs in packages and plugins may lead", words(`remote-schemes remote-hosts remote-addresses`)},
	{"GitOps sources", "The role gitops: the repositories that TKO's entities come from", words(`git git-ref git-path git-interval git-prune git-budget-percent git-budget-entities git-rollout
		git-username git-password-file git-token-file git-ssh-key-file git-known-hosts-file git-ca-file gitops-sources gitops-secrets gitops-dir gitops-age-keys gitops-pgp-keys gitops-osm-connections
		listen-webhook webhook-secret-file`)},
	{"Rollouts", "The role rollout: the ticket systems that approve waves", words(`rollout-tickets listen-tickets`)},
	{"Flux", "Sources and objects of Flux", words(`flux-kubeconfig flux-in-cluster flux-namespaces flux-osm-ops flux-artifacts events-addr no-cross-namespace-refs`)},
	{"Logs, metrics and traces", "What the server reports about itself", words(`log-format log-level verbose listen-log listen-metrics listen-health listen-debug disk-low traces-endpoint
		traces-sample`)},
}

func words(text string) []string { return strings.Fields(text) }

// grouped returns the flags of each group. Flags of no group are a last one.
func grouped(flags *pflag.FlagSet) (groups []Group, sets [][]*pflag.Flag) {
	var rest []*pflag.Flag
	seen := map[string]bool{}
	for _, g := range Groups {
		var set []*pflag.Flag
		for _, name := range g.Settings {
			if f := flags.Lookup(name); f != nil {
				set = append(set, f)
				seen[name] = true
			}
		}
		groups, sets = append(groups, g), append(sets, set)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] {
			rest = append(rest, f)
		}
	})
	if len(rest) > 0 {
		groups, sets = append(groups, Group{Title: "Other"}), append(sets, rest)
	}
	return groups, sets
}

// Usage returns the help of all flags, by group.
func Usage(flags *pflag.FlagSet) string {
	var b strings.Builder
	groups, sets := grouped(flags)
	for i, g := range groups {
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		one.SortFlags = false
		for _, f := range sets[i] {
			one.AddFlag(f)
		}
		title := g.Title
		if g.About != "" {
			title += ": " + strings.ToLower(g.About[:1]) + g.About[1:]
		}
		fmt.Fprintf(&b, "\n%s\n%s", title, one.FlagUsages())
	}
	return b.String()
}

// onlyFlags are flags that a file of settings doesn't have.
var onlyFlags = []string{"config", "print-config", "check", "help", "version"}

// Print returns all settings as a file for --config, with their descriptions. Settings that
// have their default are comments. Secrets are hidden.
func Print(flags *pflag.FlagSet) (string, error) {
	var b strings.Builder
	b.WriteString("# Settings of tko-server, for --config. Commented settings have their default.\n")
	groups, sets := grouped(flags)
	for i, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n", g.Title)
		for _, f := range sets[i] {
			if slices.Contains(onlyFlags, f.Name) {
				continue
			}
			value, err := yaml.Marshal(map[string]any{f.Name: plain(f)})
			if err != nil {
				return "", fmt.Errorf("setting %s: %w", f.Name, err)
			}
			text := strings.TrimSuffix(string(value), "\n")
			if !f.Changed {
				text = "#" + strings.ReplaceAll(text, "\n", "\n#")
			}
			fmt.Fprintf(&b, "\n# %s\n%s\n", f.Usage, text)
		}
	}
	return b.String(), nil
}

// credentials are those in a URL: all of them for HTTP, where a user may be a token, else
// the password.
var credentials = regexp.MustCompile(`(\bhttps?://|://[^/:@\s]*:)[^/\s]*@`)

func withoutCredentials(text string) string {
	return credentials.ReplaceAllString(text, "${1}[secret]@")
}

// plain returns the value of a setting as it is written in a file: its default, if it isn't
// set. Credentials in URLs are hidden.
func plain(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		texts := make([]string, len(list.GetSlice()))
		for i, text := range list.GetSlice() {
			texts[i] = withoutCredentials(text)
		}
		return texts
	}
	text := f.DefValue
	if f.Changed {
		text = f.Value.String()
	}
	switch f.Value.Type() {
	case "bool":
		return text == "true"
	case "int", "int64", "count":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case "float64":
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return withoutCredentials(text)
}

// Reference returns all settings as a page.
func Reference(flags *pflag.FlagSet) string {
	var b strings.Builder
	b.WriteString(`# Settings of the server

This page is generated from ` + "`tko-server --help`" + `. A setting is a flag (` + "`--store`" + `), an environment variable
(` + "`TKO_STORE`" + `), or an entry of the file that ` + "`--config`" + ` names (` + "`store: …`" + `): flags win over the environment, and that over
the file. [tko-server.yaml](tko-server.yaml) is such a file with all defaults. ` + "`tko-server --print-config`" + ` prints the
settings that a server would have, and ` + "`--check`" + ` checks them. [The server](server.md) explains the most important ones.
`)
	groups, sets := grouped(flags)
	for i, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.Title)
		if g.About != "" {
			fmt.Fprintf(&b, "%s.\n\n", g.About)
		}
		b.WriteString("| setting | default | meaning |\n|---|---|---|\n")
		for _, f := range sets[i] {
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name += ", `-" + f.Shorthand + "`"
			}
			value := strings.Trim(f.DefValue, "[]")
			if value != "" && f.Value.Type() != "count" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value, strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`).Replace(f.Usage))
		}
	}
	return b.String()
}

// isPath returns whether a setting names files or folders that must exist.
func isPath(name string) bool {
	switch name {
	case "ready-file", "kubeconfig-secrets":
		return false
	case "gitops-osm-connections", "credentials", "kubeconfigs", "charts", "chart-credentials", "gitops-sources", "rollout-tickets", "gitops-age-keys", "gitops-pgp-keys", "plugin-programs", "plugin-files", "plugin-files-writable",
		"kubernetes-audit-policy", "tosca-local", "target-git-local", "python-env", "keep-longer":
		return true
	}
	for _, suffix := range []string{"-file", "-cert", "-key", "-ca", "-crl", "kubeconfig", "-secrets"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// CheckFiles returns an error that lists the settings whose files or folders can't be
// read.
func CheckFiles(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || !isPath(f.Name) {
			return
		}
		paths := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			paths = list.GetSlice()
		}
		for _, path := range paths {
			if path == "" || f.Name == "encryption-key" && strings.Contains(path, ":") {
				continue
			}
			file, err := os.Open(path) //nolint:gosec // the operator names the file
			if err != nil {
				wrong = append(wrong, fmt.Errorf("--%s: %w", f.Name, err))
				continue
			}
			_ = file.Close() // nothing was read
		}
	})
	if len(wrong) == 0 {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid, "%w", errors.Join(wrong...))
}
