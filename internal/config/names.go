package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// renamed has the present names of settings by their earlier ones, which are read, too.
var renamed = map[string]string{ //nolint:gosec // names of flags
	"git-cache": "target-git-cache", "git-local": "target-git-local", "git-secrets": "target-git-secrets",
	"osm-connections": "gitops-osm-connections", "kubernetes-version": "schema-kubernetes-version",
}

// normalize replaces an earlier name of a setting, and records its use.
func (c *Config) normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	now, ok := renamed[name]
	if !ok {
		return pflag.NormalizedName(name)
	}
	if !slices.Contains(c.earlier, name) {
		c.earlier = append(c.earlier, name)
	}
	return pflag.NormalizedName(now)
}

// Warnings returns what is probably unintended: earlier names of settings, and variables of
// the environment that no setting reads.
func (c *Config) Warnings(flags *pflag.FlagSet, environment []string) []string {
	var warnings []string
	for _, name := range slices.Sorted(slices.Values(c.earlier)) {
		warnings = append(warnings, fmt.Sprintf("the setting %s has the new name %s: the earlier one will be removed", name, renamed[name]))
	}
	known := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) {
		for _, name := range names(f.Name) {
			known[variable(name)] = true
		}
	})
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "TKO_") && !known[name] && !notSettings.MatchString(name) {
			warnings = append(warnings, fmt.Sprintf("the environment variable %s is no setting, and has no effect: see tko-server --help for the names", name))
		}
	}
	return warnings
}

// notSettings are variables that begin like those of settings: of the client, of tests, and
// those that Kubernetes sets for a Service whose name begins with tko.
var notSettings = regexp.MustCompile(`^TKO_(GRPC_.*|TOKEN|CONFIG|CONTEXT|TEST_.*|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_[0-9]+_(TCP|UDP).*)?)$`)

// names returns the name of a setting, and its earlier ones.
func names(name string) []string {
	all := []string{name}
	for earlier, now := range renamed {
		if now == name {
			all = append(all, earlier)
		}
	}
	return all
}

// variable returns the environment variable of a setting.
func variable(name string) string {
	return "TKO_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
