package gitops_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

// publicFiles are the settings that name no credential, with the reason.
var publicFiles = map[string]string{
	"caFile": "certificates", "knownHostsFile": "public keys", "pgpKeyFile": "public keys", "cosignKeyFile": "a public key",
}

// Each setting of a source in the store that names a file with a credential is a use of it,
// at the host of the server that gets it: also those that are added later.
func TestAllSettingsThatNameCredentialsAreUses(t *testing.T) {
	t.Parallel()
	const url = `"url": "https://mine.example.org/x"`
	found := 0
	var visit func(typ reflect.Type, wrap func(inner string) string)
	visit = func(typ reflect.Type, wrap func(string) string) {
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || name == "-" {
				continue
			}
			of, inner := field.Type, func(text string) string { return wrap(`"` + name + `": ` + text) }
			switch {
			case field.Anonymous:
				visit(of, wrap)
				continue
			case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
				visit(of.Elem(), func(text string) string { return wrap(`"` + name + `": [{` + text + `, ` + url + `}]`) })
				continue
			case of.Kind() == reflect.Pointer:
				of = of.Elem()
			}
			if of.Kind() == reflect.Struct {
				visit(of, func(text string) string {
					if _, has := of.FieldByName("URL"); has {
						text += ", " + url
					}
					return inner("{" + text + "}")
				})
			}
			if of.Kind() != reflect.String || !strings.HasSuffix(name, "File") || publicFiles[name] != "" {
				continue
			}
			found++
			spec := "{" + inner(`"canary"`) + "}"
			uses := 0
			for _, kind := range tko.SourceKinds {
				for _, u := range gitops.CredentialUses(defined(kind, spec)) {
					uses++
					if u.Credential != "gitops:canary" || u.Host != "https://mine.example.org" || u.By.ID != "x" {
						t.Errorf("%s gives the use %v", spec, u)
					}
				}
			}
			if uses == 0 {
				t.Errorf("%s gives no use: have it in CredentialUses, or in the list of public files", spec)
			}
		}
	}
	visit(reflect.TypeFor[gitops.Settings](), func(text string) string { return text })
	if found < 7 {
		t.Errorf("only %d settings were found", found)
	}
}
