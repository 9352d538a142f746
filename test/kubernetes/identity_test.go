package kubernetes_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// allVerbs lets a group of the cluster use all verbs of TKO's API.
const allVerbs = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tko-all}
rules: [{apiGroups: [tko.nephio.org], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tko-all}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: tko-users}]
`

// TestCallersOfTheKubernetesAPIHaveTheRightsOfTheirBindings calls the API, which another
// process serves, as users to whom the cluster permits everything.
func TestCallersOfTheKubernetesAPIHaveTheRightsOfTheirBindings(t *testing.T) {
	c := kube.Shared(t, kube.Options{})
	c.Apply(t, rights+"---"+allVerbs)
	certificate, key := c.ServingCertificate(t)
	port := process.FreePort(t)
	s := secure.Start(t, nil, "--roles=data", "--kubernetes=localhost:"+strconv.Itoa(port), "--kubernetes-cert="+certificate, "--kubernetes-key="+key,
		"--kubernetes-kubeconfig="+c.UserKubeconfig(t, "tko-data"), "--access-kubernetes=")
	c.RegisterAPIService(t, "tko.nephio.org", "v1alpha1", port, c.CA())
	t.Cleanup(func() { c.UnregisterAPIService(t, "tko.nephio.org", "v1alpha1") })
	s.Bind(t, &tkopb.Binding{Subject: "k8s:vera", Role: "viewer", Scope: &tkopb.Scope{SiteId: "emea**"}})
	s.Bind(t, &tkopb.Binding{Subject: "k8s:ed", Role: "editor", Scope: &tkopb.Scope{SiteId: "emea**"}})
	root := s.Dial(t, s.Tokens[secure.Root])
	for _, id := range []tko.SiteID{"emealagos", "apacperth"} {
		if _, err := root.RegisterSite(t.Context(), tko.Site{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	vera, ed, mallory := c.UserKubeconfig(t, "vera", "tko-users"), c.UserKubeconfig(t, "ed", "tko-users"), c.UserKubeconfig(t, "mallory", "tko-users")
	try := func(kubeconfig, input string, want string, args ...string) {
		t.Helper()
		stdout, stderr, code := c.Try(t, kubeconfig, input, args...)
		if (code != 0) != (want != "") || !strings.Contains(stderr, want) {
			t.Errorf("kubectl %s: exit code %d, want an error with %q\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
	}
	site := func(name string) string { return manifest("Site", name, aPackage) }
	eventually.Within(t, timeLimit, "the cluster permits vera to list sites", func() error {
		if _, stderr, code := c.Try(t, vera, "", "get", "sites.tko.nephio.org"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	if out, stderr, code := c.Try(t, vera, "", "get", "sites.tko.nephio.org", "-o", "name"); code != 0 || strings.TrimSpace(out) != "site.tko.nephio.org/emealagos" {
		t.Errorf("a viewer of a scope lists %q, %s, want its site only", out, stderr)
	}
	try(vera, "", "not found", "get", "sites.tko.nephio.org", "apacperth")
	try(vera, site("emeaabuja"), "may not create", "create", "-f", "-")
	try(vera, site("emealagos"), "may not", "apply", "--server-side", "--force-conflicts", "-f", "-")
	try(vera, "", "may not", "label", "sites.tko.nephio.org", "emealagos", "by=vera")
	try(vera, "", "may not", "delete", "sites.tko.nephio.org", "emealagos")
	try(vera, "", "may not", "delete", "sites.tko.nephio.org", "--all")
	try(mallory, "", "may not", "get", "sites.tko.nephio.org")
	try(ed, site("apacsydney"), "may not create", "create", "-f", "-")
	try(ed, site("emeaabuja"), "", "create", "-f", "-")

	stored, err := root.Site(t.Context(), "emeaabuja", 0)
	if err != nil || stored.Stamp.Who != "k8s:ed" {
		t.Errorf("the author of the site is %q, want k8s:ed (%v)", stored.Stamp.Who, err)
	}
	if lagos, err := root.Site(t.Context(), "emealagos", 0); err != nil || lagos.Stamp.Revision != 1 {
		t.Errorf("the refused changes had an effect: %+v, %v", lagos.Stamp, err)
	}
	for subject, decision := range map[string]string{"k8s:ed": "allow", "k8s:vera": "refuse"} {
		n := 0
		for _, err := range root.Access().Audit(t.Context(), &tkopb.ListAudit{Subject: subject, Decision: decision}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n == 0 {
			t.Errorf("the audit log has no record (%s) of %s", decision, subject)
		}
	}

	// Clients that connect to the port without the API server name users in headers.
	call := func(certificate, key []byte, headers http.Header) (int, string) {
		config := &tls.Config{InsecureSkipVerify: true}
		if certificate != nil {
			pair, err := tls.X509KeyPair(certificate, key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://localhost:%d/apis/tko.nephio.org/v1alpha1/sites", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(request.Header, headers)
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	asEd := http.Header{"X-Remote-User": {"ed"}, "X-Remote-Group": {"tko-users"}}
	proxy, proxyKey := c.FrontProxy(t, "front-proxy-client")
	if code, body := call(proxy, proxyKey, asEd); code != http.StatusOK || !strings.Contains(body, "emeaabuja") {
		t.Errorf("the API server's own proxy: %d, %.200s", code, body)
	}
	other, otherKey := c.FrontProxy(t, "another-proxy")
	user, userKey := c.User(t, "mallory")
	server, serverKey := c.User(t, "front-proxy-client") // the name of the proxy, and the authority of users
	for why, attack := range map[string]struct {
		certificate, key []byte
		headers          http.Header
	}{
		"no certificate":                 {headers: asEd},
		"a proxy of another name":        {other, otherKey, asEd},
		"a user's certificate":           {user, userKey, asEd},
		"a user with the proxy's name":   {server, serverKey, asEd},
		"the header in another spelling": {user, userKey, http.Header{"x-remote-user": {"ed"}, "x-remote-group": {"tko-users"}}},
		"the header twice":               {user, userKey, http.Header{"X-Remote-User": {"mallory", "ed"}, "X-Remote-Group": {"tko-users"}}},
		"underscores":                    {user, userKey, http.Header{"X_Remote_User": {"ed"}, "X_Remote_Group": {"tko-users"}}},
		"our own controller":             {proxy, proxyKey, http.Header{"X-Remote-User": {"tko:preparer"}, "X-Remote-Group": {"tko-users"}}},
	} {
		if code, body := call(attack.certificate, attack.key, attack.headers); code < 400 || code >= 500 || strings.Contains(body, "emeaabuja") {
			t.Errorf("%s: %d, %.200s, want it refused", why, code, body)
		}
	}
}

// TestServiceAccountsAreIdentifiedByTheirCluster authenticates with tokens of a real
// API server.
func TestServiceAccountsAreIdentifiedByTheirCluster(t *testing.T) {
	c := kube.Shared(t, kube.Options{})
	c.Apply(t, rights+"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot, namespace: default}\n")
	s := secure.Start(t, nil, "--roles=data", "--token-review="+c.UserKubeconfig(t, "tko-data"))
	s.Bind(t, &tkopb.Binding{Group: "k8s:system:serviceaccounts:default", Role: "editor", Scope: &tkopb.Scope{SiteId: "emea/**"}})
	token := func(args ...string) string {
		return strings.TrimSpace(c.Kubectl(t, append([]string{"create", "token", "robot"}, args...)...))
	}
	robot := s.Dial(t, token("--audience=tko"))
	who, err := robot.WhoAmI(t.Context())
	if err != nil || who.Subject != "k8s:system:serviceaccount:default:robot" || !strings.Contains(strings.Join(who.Groups, " "), "k8s:system:serviceaccounts:default") {
		t.Errorf("the service account is %+v, %v", who, err)
	}
	if _, err := robot.RegisterSite(t.Context(), tko.Site{ID: "emea/lagos"}); err != nil {
		t.Errorf("within its scope: %v", err)
	}
	if _, err := robot.RegisterSite(t.Context(), tko.Site{ID: "apac/perth"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("outside of its scope: %v", err)
	}
	good := token("--audience=tko")
	for why, bad := range map[string]string{
		"for the API server":    token(),
		"for another program":   token("--audience=vault"),
		"with a wrong sum":      good[:len(good)-6] + "AAAAAA",
		"of another cluster":    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL290aGVyIiwiYXVkIjoidGtvIn0.AAAA",
		"without any signature": strings.Join(strings.Split(good, ".")[:2], ".") + ".",
	} {
		if who, err := s.Dial(t, bad).WhoAmI(t.Context()); !errors.Is(err, tko.ErrUnauthenticated) {
			t.Errorf("a token %s: %+v, %v", why, who, err)
		}
	}
	// A deleted account ends within the minute for which reviews are cached.
	c.Kubectl(t, "delete", "serviceaccount", "robot")
	eventually.Within(t, timeLimit, "the token ends with its account", func() error {
		if _, err := robot.WhoAmI(t.Context()); !errors.Is(err, tko.ErrUnauthenticated) {
			return fmt.Errorf("a call: %w", err)
		}
		return nil
	})
}

// TestWebhooksOfFluxSourcesAreServedOverTLS calls the webhooks, which another process serves.
func TestWebhooksOfFluxSourcesAreServedOverTLS(t *testing.T) {
	c := kube.Shared(t, kube.Options{})
	fluxtest.Install(t, c)
	crd, err := os.ReadFile("../../deploy/kubernetes/components/gitops/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(crd))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the secret of webhooks"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := secure.Start(t, nil, "--flux-kubeconfig="+c.Kubeconfig, "--listen-webhook=localhost:0", "--webhook-secret-file="+secret)
	_, port, _ := strings.Cut(s.Hooks[strings.LastIndex(s.Hooks, "]")+1:], ":")
	body := `{"ref": "refs/heads/main"}`
	call := func(signature string) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://localhost:"+port+"/hook/missing", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		request.Header.Set("X-Signature", signature)
		response, err := s.HTTP(t).Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	mac := hmac.New(sha256.New, []byte("the secret of webhooks"))
	_, _ = mac.Write([]byte(body))
	signed := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	// Without such a source, the response is the same as for a wrong signature.
	for _, signature := range []string{signed, "", "sha256=", "sha256=" + strings.Repeat("0", 64)} {
		if code, err := call(signature); err != nil || code != http.StatusUnauthorized {
			t.Errorf("a webhook over TLS with the signature %q: %d, %v, want 401", signature, code, err)
		}
	}
}
