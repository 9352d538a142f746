package conventions_test

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The packages that work for what users name: sites, plugins and GitOps sources.
var workForUsers = []string{"internal/schedule/", "internal/gitops/", "internal/plugin/awx/", "internal/osm/", "internal/gitclient/", "internal/location/", "internal/prepare/"}

// opens are the functions there that read files, or credentials without a check, with the
// reason: a credential that a user names is read by package secret, with a grant for it.
var opens = map[string]string{
	"internal/gitops/catalog/catalog.go keysDigest":           "public keys of signatures",
	"internal/gitops/catalog/signature.go keysIn":             "public keys of signatures",
	"internal/gitops/catalog/signature.go cosignKeyIn":        "public keys of signatures",
	"internal/gitops/database/database.go postgres":           "certificates of CAs",
	"internal/gitops/repository/repository.go remote":         "certificates of CAs",
	"internal/gitops/remote/remote.go Transport":              "certificates of CAs",
	"internal/gitops/tree/tree.go":                            "files of revisions",
	"internal/gitops/sops/keys.go":                            "keys that settings name, which decrypt and are sent nowhere",
	"internal/gitops/settings.go":                             "the operator's file of sources",
	"internal/gitops/inventory/origin.go":                     "a file of sites, which sources in the store can't name",
	"internal/schedule/osm/spec.go endpoint":                  "certificates of CAs",
	"internal/schedule/kubernetes/connect.go credentials":     "a token that a granted kubeconfig names",
	"internal/schedule/kubernetes/connect.go fromFile":        "a kubeconfig, after its grant in get",
	"internal/schedule/kubernetes/connect.go fromOperator":    "kubeconfigs of the settings",
	"internal/schedule/git/local.go takeLock":                 "the lock of a local repository",
	"internal/schedule/oci/registry.go transport":             "certificates, which are sent nowhere",
	"internal/schedule/kubernetes/labelled.go isFile":         "whether a file exists",
	"internal/schedule/kubernetes/labelled.go ofLabelled":     "the namespace of the server",
	"internal/schedule/kubernetes/connect.go fromSecret":      "the management cluster, to read the Secret that was granted",
	"internal/schedule/kubernetes/labelled.go fromLabelled":   "the cluster of the Secrets, to read the one that was granted",
	"internal/schedule/kubernetes/management.go ofManagement": "to look for what was applied",
	"internal/schedule/kubernetes/helm/credentials.go login":  "the operator's file of logins by host",
	"internal/schedule/kubernetes/helm/store.go":              "files of charts",
	"internal/gitops/osm.go secretConnection":                 "a connection file, after its grant",
	"internal/gitops/settings.go SpecWith":                    "settings of the operator",
	"internal/location/location.go":                           "files of packages",
	"internal/location/directory.go":                          "files of packages",
	"internal/prepare/tosca/files.go":                         "files of service templates",
}

// TestCredentialsAreReadWithAGrant finds functions that read a file past the rule for
// credentials, and callers that act as the operator.
func TestCredentialsAreReadWithAGrant(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	eachFile(t, func(file string, forTests bool, syntax *ast.File) {
		if forTests || strings.HasPrefix(file, "internal/leash/") || strings.HasPrefix(file, "internal/secret/") {
			return
		}
		within := slices.ContainsFunc(workForUsers, func(folder string) bool { return strings.HasPrefix(file, folder) })
		for _, d := range syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, _ := s.X.(*ast.Ident)
				name := s.Sel.Name
				reads := within && (of != nil && of.Name == "os" && slices.Contains([]string{"ReadFile", "Open", "OpenRoot", "OpenFile", "OpenInRoot", "DirFS", "Getenv", "LookupEnv"}, name) || name == "ReadPublic" || name == "LoadFromFile")
				if operator := of != nil && of.Name == "leash" && name == "Operator"; reads || operator && file != "cmd/tko/inventory.go" {
					if at := file + " " + f.Name.Name; opens[at] != "" {
						found[at] = true
					} else {
						found[file] = true
					}
					if opens[file+" "+f.Name.Name] == "" && opens[file] == "" {
						t.Errorf("%s: %s calls %s: read credentials that users name by package secret, with a grant of package leash; list others here with the reason", file, f.Name.Name, name)
					}
				}
				return true
			})
		}
	})
	for _, at := range slices.Sorted(maps.Keys(opens)) {
		if !found[at] {
			t.Errorf("%s: it reads no file: remove it from the list", at)
		}
	}
}
