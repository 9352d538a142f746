package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/internal/config"
)

// changed returns the paths of the fields in which two settings differ.
func changed(path string, a, b reflect.Value) (paths []string) {
	if a.Kind() != reflect.Struct {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return []string{path}
		}
		return nil
	}
	for i := range a.NumField() {
		if f := a.Type().Field(i); f.IsExported() {
			paths = append(paths, changed(path+"."+f.Name, a.Field(i), b.Field(i))...)
		}
	}
	return paths
}

// another returns a value that a setting doesn't have by default.
func another(t *testing.T, f *pflag.Flag) string {
	t.Helper()
	switch kind := f.Value.Type(); kind {
	case "bool":
		if f.DefValue == "true" {
			return "false"
		}
		return "true"
	case "int", "int64", "count":
		return "7919"
	case "float64":
		return "0.125"
	case "duration":
		return "7919s"
	case "string", "stringSlice", "strings", "dsn", "dsns", "text":
		return "postgres://another/value"
	default:
		t.Fatalf("--%s has the type %q, of which the test knows no value", f.Name, kind)
		return ""
	}
}

// elsewhere are the fields of settings whose names are others.
var elsewhere = map[string]string{
	"access":                           "Access.Mode",
	"access-anonymous":                 "Access.Anonymous",
	"access-kubernetes":                "Access.Kubernetes",
	"access-persons":                   "Access.Persons",
	"events-addr":                      "GitOps.FluxEvents",
	"flux-osm-ops":                     "GitOps.FluxAsItIs",
	"git-budget-entities":              "GitOps.BudgetEntities",
	"git-budget-percent":               "GitOps.BudgetPercent",
	"git-ca-file":                      "GitOps.CAFile",
	"git-interval":                     "GitOps.Interval",
	"git-known-hosts-file":             "GitOps.KnownHostsFile",
	"git-password-file":                "GitOps.PasswordFile",
	"git-path":                         "GitOps.Path",
	"git-prune":                        "GitOps.Prune",
	"git-ref":                          "GitOps.Ref",
	"git-rollout":                      "GitOps.Rollout",
	"git-ssh-key-file":                 "GitOps.SSHKeyFile",
	"git-token-file":                   "GitOps.TokenFile",
	"git-username":                     "GitOps.Username",
	"gitops-age-keys":                  "GitOps.AgeKeys",
	"gitops-dir":                       "GitOps.Dir",
	"gitops-osm-connections":           "GitOps.Connections",
	"gitops-pgp-keys":                  "GitOps.PGPKeys",
	"gitops-secrets":                   "GitOps.Secrets",
	"gitops-sources":                   "GitOps.Sources",
	"kubeconfig-secrets-kubeconfig":    "KubeconfigSecretsIn",
	"kubernetes-audit-log":             "KubernetesAudit.Log",
	"kubernetes-audit-log-max-age":     "KubernetesAudit.MaxAge",
	"kubernetes-audit-log-max-backups": "KubernetesAudit.MaxBackups",
	"kubernetes-audit-log-max-size":    "KubernetesAudit.MaxSize",
	"kubernetes-audit-policy":          "KubernetesAudit.Policy",
	"listen-webhook":                   "GitOps.Webhook",
	"listen-agents":                    "Agents.Listen",
	"agents-ca":                        "Agents.CA",
	"agents-ca-key":                    "Agents.CAKey",
	"agents-certificate-time":          "Agents.Certificate",
	"agents-silence":                   "Agents.Silence",
	"listen-tickets":                   "Tickets.Listen",
	"rollout-tickets":                  "Tickets.Systems",
	"no-cross-namespace-refs":          "GitOps.FluxNoCrossNamespaceRefs",
	"schema-kubernetes-version":        "KubernetesVersion",
	"schema-location":                  "SchemaLocations",
	"confirm-above":                    "Reach.Removed",
	"confirm-above-percent":            "Reach.RemovedPercent",
	"reach-created":                    "Reach.Created",
	"reach-off-reason":                 "Reach.OffReason",
	"reach-original":                   "Reach.Original",
	"reach-original-percent":           "Reach.OriginalPercent",
	"reach-policy":                     "Reach.Policy",
	"reach-limits":                     "Reach.Rules",
	"reach-sites":                      "Reach.Sites",
	"reach-window":                     "Reach.Window",
	"topology-depth":                   "Reach.Depth",
	"store-replicas":                   "Replicas",
	"store-readable":                   "StoreReadable",
	"target-git-cache":                 "GitCache",
	"target-git-local":                 "GitLocal",
	"target-git-secrets":               "GitSecrets",
	"tls-spiffe-domains":               "Identity.SPIFFEDomains",
	"vault-address":                    "Vault.Address",
	"vault-path":                       "Vault.Paths",
	"vault-role":                       "Vault.Role",
	"vault-service-account-file":       "Vault.JWTFile",
	"vault-token-file":                 "Vault.TokenFile",
	"webhook-secret-file":              "GitOps.WebhookSecret",
}

// Each setting is the field of its name, and of no other. A setting that was bound to the
// field of another one would have its effect.
func TestEachSettingIsTheFieldOfItsName(t *testing.T) {
	t.Parallel()
	fields := map[string]string{} // the settings, by field
	settings(t).VisitAll(func(f *pflag.Flag) {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c := config.Flags(flags)
		defaults := config.Flags(pflag.NewFlagSet("", pflag.ContinueOnError))
		if err := flags.Set(f.Name, another(t, f)); err != nil {
			t.Fatalf("--%s: %v", f.Name, err)
		}
		got := changed("", reflect.ValueOf(*defaults), reflect.ValueOf(*c))
		if len(got) != 1 {
			t.Errorf("--%s changes the fields %q, want one", f.Name, got)
			return
		}
		path := got[0][1:]
		if other := fields[path]; other != "" {
			t.Errorf("--%s and --%s are both the field %s", other, f.Name, path)
		}
		fields[path] = f.Name
		name := strings.ToLower(path[strings.LastIndex(path, ".")+1:])
		if want := elsewhere[f.Name]; want == "" && name != strings.ReplaceAll(f.Name, "-", "") || want != "" && path != want {
			t.Errorf("--%s is the field %s", f.Name, path)
		}
	})
	if unset := slices.DeleteFunc(leaves("", reflect.TypeFor[config.Config]()), func(path string) bool { return fields[path] != "" }); len(unset) > 0 {
		t.Errorf("no setting sets the fields %q", unset)
	}
}

// leaves returns the paths of all exported fields that are no structures.
func leaves(path string, of reflect.Type) (paths []string) {
	if of.Kind() != reflect.Struct {
		return []string{path[1:]}
	}
	for f := range of.Fields() {
		if f.IsExported() {
			paths = append(paths, leaves(path+"."+f.Name, f.Type)...)
		}
	}
	return paths
}

// Addresses in the settings of another role than that of the process are not served, so
// that they need no TLS.
func TestExposedAddressesAreThoseOfTheRoles(t *testing.T) {
	t.Parallel()
	all := []string{"--listen-debug=*:1", "--listen-grpc=*:2", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5", "--listen-web=*:6", "--listen-webhook=*:7", "--listen-tickets=*:8"}
	for role, want := range map[string][]string{
		config.RoleData:          {"--listen-debug=*:1", "--listen-grpc=*:2", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5", "--listen-web=*:6"},
		config.RoleGitOps:        {"--listen-debug=*:1", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5", "--listen-webhook=*:7"},
		config.RolePreparer:      {"--listen-debug=*:1", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5"},
		config.RoleMetaScheduler: {"--listen-debug=*:1", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5"},
		config.RoleRollout:       {"--listen-debug=*:1", "--listen-health=*:3", "--listen-log=*:4", "--listen-metrics=*:5", "--listen-tickets=*:8"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c := config.Flags(flags)
		if err := flags.Parse(append([]string{"--roles=" + role}, all...)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Exposed()); diff != "" {
			t.Errorf("the role %s (-want +got):\n%s", role, diff)
		}
	}
}
