package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// dashboardURL is the address of the dashboard that is registered at the issuer.
const dashboardURL = "https://tko.test"

// browserLimit bounds the steps in Chromium. It is generous for busy machines.
const browserLimit = 15 * time.Minute

// A browser keeps cookies, and finds the dashboard at its name.
type browser struct {
	t      *testing.T
	client *http.Client
	jar    *cookiejar.Jar
}

func newBrowser(t *testing.T, server *secure.Server, i *issuer) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := i.browser.Transport.(*http.Transport).Clone()
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		settings := transport.TLSClientConfig.Clone()
		if address == "tko.test:443" {
			address, settings = server.Web, server.TLS(t)
			settings.ServerName = "localhost"
		}
		return (&tls.Dialer{Config: settings}).DialContext(ctx, network, address)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, &http.Client{Transport: transport, Jar: jar, Timeout: timeLimit}, jar}
}

// get opens an address, and returns where it led and the page.
func (b *browser) get(address string) (at *url.URL, page string, status int) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.Request.URL, string(body), response.StatusCode
}

// login logs a user in, and returns where the browser is then.
func (b *browser) login(i *issuer, name, to string) *url.URL {
	b.t.Helper()
	at, page, _ := b.get(dashboardURL + "/auth/login?return=" + url.QueryEscape(to))
	if link := regexp.MustCompile(`href="(/auth/` + name + `\?[^"]*)"`).FindStringSubmatch(page); link != nil {
		at, _, _ = b.get(i.url + html.UnescapeString(link[1]))
	}
	return at
}

func (b *browser) subject() string {
	b.t.Helper()
	_, page, status := b.get(dashboardURL + "/api/v1/me")
	var me struct{ Subject string }
	if err := json.Unmarshal([]byte(page), &me); status != http.StatusOK || err != nil {
		return fmt.Sprintf("%d %s", status, page)
	}
	return me.Subject
}

// TestBrowserLogsInAtARealIssuer follows the code flow as a browser does: it ends with a
// session of the user with the rights of the groups, at the view where it began, and
// with no token that a script could read.
func TestBrowserLogsInAtARealIssuer(t *testing.T) {
	t.Parallel()
	i := startIssuer(t, time.Hour, map[string]user{"ann": {Email: "ann@example.org", Groups: []string{"staff"}}, "bob": {Groups: []string{}}})
	server := secure.Start(t, nil, "--oidc-issuer="+i.url, "--oidc-alias=corp", "--oidc-ca="+i.ca, "--web-hosts=tko.test", "--web-url="+dashboardURL)
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:staff", Role: "viewer"})

	ann := newBrowser(t, server, i)
	if _, page, _ := ann.get(dashboardURL + "/auth/logins"); !strings.Contains(page, `"oidc"`) {
		t.Errorf("the dashboard offers the logins %s", page)
	}
	if at := ann.login(i, "ann", "/sites?metadata=region%3Dnorth"); at.String() != dashboardURL+"/sites?metadata=region%3Dnorth" {
		t.Errorf("after the login, the browser is at %s", at)
	}
	if subject := ann.subject(); !strings.HasPrefix(subject, "oidc:corp:") {
		t.Errorf("after the login, the server sees %s", subject)
	}
	if _, page, status := ann.get(dashboardURL + "/api/v1/site/list"); status != http.StatusOK {
		t.Errorf("a viewer lists sites: %d %s", status, page)
	}
	for _, cookie := range ann.jar.Cookies(&url.URL{Scheme: "https", Host: "tko.test", Path: "/"}) {
		if cookie.Name != "__Host-tko" || strings.Count(cookie.Value, ".") == 2 {
			t.Errorf("after the login, the browser has the cookie %s=%s", cookie.Name, cookie.Value)
		}
	}

	// Without the group, there is a session, but no right.
	bob := newBrowser(t, server, i)
	bob.login(i, "bob", "/")
	if _, page, status := bob.get(dashboardURL + "/api/v1/site/list"); status != http.StatusForbidden {
		t.Errorf("a user without rights lists sites: %d %s", status, page)
	}

	// A login ends only in the browser that has begun it, and leads to no other server.
	stranger := newBrowser(t, server, i)
	for _, address := range []string{"/auth/callback?code=x&state=y", "/auth/callback?error=access_denied", "/auth/callback"} {
		if at, _, _ := stranger.get(dashboardURL + address); at.Path != "/login" || at.Query().Get("problem") == "" {
			t.Errorf("%s leads to %s", address, at)
		}
	}
	if subject := stranger.subject(); strings.HasPrefix(subject, "oidc:") {
		t.Errorf("without a login, the server sees %s", subject)
	}
	for _, to := range []string{"https://evil.test/", "//evil.test/", `/\evil.test`, "/auth/login", "evil"} {
		if at := newBrowser(t, server, i).login(i, "ann", to); at.String() != dashboardURL+"/" {
			t.Errorf("a login that should return to %s ends at %s", to, at)
		}
	}
}

// TestSingleSignOnInChromium runs web/test/login.mjs: the button, the issuer's page, the
// rights that the dashboard shows then, and the logout.
func TestSingleSignOnInChromium(t *testing.T) {
	t.Parallel()
	setup, err := exec.CommandContext(t.Context(), filepath.Join("..", "setup", "web.sh")).Output()
	if err != nil {
		t.Fatalf("set up the browser: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(setup)), "\n")
	i := startIssuer(t, time.Hour, map[string]user{"ann": {Email: "ann@example.org", Groups: []string{"staff"}}, "eve": {Groups: []string{"owners"}}})
	server := secure.Start(t, nil, "--oidc-issuer="+i.url, "--oidc-alias=corp", "--oidc-ca="+i.ca, "--web-hosts=tko.test", "--web-url="+dashboardURL)
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:staff", Role: "viewer"})
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:owners", Role: "admin"})
	if _, err := server.Dial(t, server.Tokens[secure.Root]).RegisterSite(t.Context(), tko.Site{ID: "north/one", Metadata: map[string]string{"region": "north"}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("..", "..", "web", "test", "login.mjs"))
	cmd.Env = append(os.Environ(), "URL="+dashboardURL, "ADDRESS="+server.Web, "ISSUER="+i.url, "BROWSER="+lines[len(lines)-1])
	cmd.Stdout, cmd.Stderr = &out, &out
	stop := time.AfterFunc(browserLimit, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err = cmd.Run()
	if err != nil || strings.Count(out.String(), "ok ") != 2 {
		t.Errorf("the steps in the browser: %v\n%s", err, &out)
	}
}
