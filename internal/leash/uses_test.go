package leash_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kinds"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// public are the fields that name no credential, although they look so, with the reason.
var public = map[string]string{
	"credentials.username":                          "it is no secret",
	"credentials.knownHostsFile":                    "public keys, which are sent nowhere",
	"caFile":                                        "certificates, which are sent nowhere",
	"kubeconfig.context":                            "a part of the kubeconfig",
	"agent.key":                                     "a public key, which is sent nowhere",
	"kubeconfig.secret.namespace":                   "with the name",
	"kubeconfig.secret.key":                         "with the name",
	"kubeconfig.clusterAPI.namespace":               "with the name",
	"prune.approve":                                 "a digest",
	"status.flux.kubeconfig.context":                "a part of the kubeconfig",
	"status.flux.kubeconfig.secret.namespace":       "with the name",
	"status.flux.kubeconfig.secret.key":             "with the name",
	"status.flux.kubeconfig.clusterAPI.namespace":   "with the name",
	"status.argocd.kubeconfig.context":              "a part of the kubeconfig",
	"status.argocd.kubeconfig.secret.namespace":     "with the name",
	"status.argocd.kubeconfig.secret.key":           "with the name",
	"status.argocd.kubeconfig.clusterAPI.namespace": "with the name",
	"ignore.name":                                   "an object of the cluster",
	"impersonate.serviceAccount.name":               "a user of the kubeconfig",
	"impersonate.user":                              "a user of the kubeconfig",
	"impersonate.groups":                            "users of the kubeconfig",
	"impersonate.serviceAccount.namespace":          "with the name",
}

// Each field of a target's resource by which a user can name a credential gives a use: also
// the fields that are added later.
func TestAllFieldsThatNameCredentialsAreUses(t *testing.T) {
	t.Parallel()
	var schemas map[string]map[string]any
	if err := yaml.Unmarshal(kinds.Schemas, &schemas); err != nil {
		t.Fatal(err)
	}
	found, targets := 0, 0
	for id, schema := range schemas {
		version, kind, _ := strings.Cut(id, " ")
		if !slices.ContainsFunc(place.All, func(k place.Kind) bool { return k.GVK.APIVersion()+" "+k.GVK.Kind == id }) {
			continue
		}
		targets++
		var visit func(schema map[string]any, path []string)
		visit = func(schema map[string]any, path []string) {
			if items, ok := schema["items"].(map[string]any); ok {
				visit(items, path)
			}
			properties, _ := schema["properties"].(map[string]any)
			for name, of := range properties {
				visit(of.(map[string]any), append(slices.Clone(path), name))
			}
			at := strings.Join(path, ".")
			lower := strings.ToLower(at)
			names := strings.Contains(lower, "file") || strings.Contains(lower, "secret") || strings.Contains(lower, "token") || strings.Contains(lower, "password") ||
				strings.Contains(lower, "credential") || strings.Contains(lower, "kubeconfig") || strings.Contains(lower, "key") || strings.HasSuffix(lower, "incluster")
			if len(properties) > 0 || !names || public[at] != "" {
				return
			}
			found++
			var value any = "canary"
			if schema["type"] == "boolean" {
				value = true
			}
			r := krm.Resource{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"url": "https://mine.example.org"}}
			r.Set(value, append([]string{"spec"}, path...)...)
			uses := leash.OfPackage(leash.By{Kind: tko.KindSite, ID: "a"}, krm.Package{r})
			if len(uses) != 1 || value == "canary" && !strings.Contains(uses[0].Credential, "canary") {
				t.Errorf("%s: spec.%s gives the uses %v: have it in package leash, or in the list of fields without a credential", kind, at, uses)
			}
		}
		visit(schema, nil)
	}
	if targets != len(place.All) || found < 8 {
		t.Errorf("only %d fields of %d targets were found", found, targets)
	}
}

func TestPluginsAndManagementObjectsUseCredentials(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"file:a/b": "awx:a/b", "file:./a//b": "awx:a/b", "env:A": "env:A", "vault:a#b": "vault:a#b", "literal": "", "": "", "http://x": "",
	} {
		if got := leash.PluginReference(value); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
	p := tko.Plugin{Type: "schedule", Name: "a", Properties: map[string]string{tko.PropertyAWXHost: "awx.example.com"}}
	for _, property := range leash.PluginProperties {
		p.Properties[property] = "env:" + property
	}
	if uses := leash.OfPlugin(p); len(uses) != 4 || uses[0].Host != "https://awx.example.com" || uses[0].By.ID != "schedule/a" {
		t.Errorf("got %v", uses)
	}
	r := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "annotations": map[string]any{leash.ManagementTarget: "management"}}}
	if uses := leash.OfPackage(leash.By{Kind: tko.KindSite, ID: "a"}, krm.Package{r}); len(uses) != 1 || uses[0].Credential != "server:management" {
		t.Errorf("got %v, want the credentials of the management cluster", uses)
	}
}
