package login

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// A user of the issuer.
type user struct {
	Email  string   `json:"email"`
	Groups []string `json:"groups"`
}

// An issuer is a running Dex.
type issuer struct {
	url, ca string
	users   string // file
	browser *http.Client
}

func startIssuer(t *testing.T, life time.Duration, users map[string]user) *issuer {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "dex")
	process.Reads(t, "tools/dex", "web/test", "test/setup")
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join("..", "..", "tools", "dex"), "build", "-o", program, ".")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build Dex: %v\n%s", err, out)
	}
	authority := certstest.New(t, "authority of the issuer")
	cert, key, _ := authority.Issue("dex", certstest.Localhost)
	paths := certstest.Write(t, dir, certstest.File{Name: "issuer-ca.crt", Data: authority.PEM()}, certstest.File{Name: "dex.crt", Data: cert}, certstest.File{Name: "dex.key", Data: key})
	i := &issuer{ca: paths[0], users: filepath.Join(dir, "users.json")}
	i.set(t, users)
	var log bytes.Buffer
	cmd := exec.Command(program, "-cert="+paths[1], "-key="+paths[2], "-users="+i.users, "-life="+life.String())
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Dex:\n%s", &log)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("Dex did not start: %v\n%s", err, &log)
	}
	i.url = strings.TrimSpace(line)
	pool := authority.Pool()
	i.browser = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, Timeout: time.Minute}
	return i
}

// set replaces the users of the issuer.
func (i *issuer) set(t *testing.T, users map[string]user) {
	t.Helper()
	data, err := json.Marshal(users)
	if err == nil {
		err = os.WriteFile(i.users+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(i.users+".new", i.users)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var (
	shownAddress = regexp.MustCompile(`(?m)^\s+(https://\S+)\s*$`)
	shownCode    = regexp.MustCompile(`the code (\S+)`)
)

// confirm does what a user does in the browser: it opens the address, enters the code,
// and logs in as the user.
func (i *issuer) confirm(ctx context.Context, address, code, name string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	browser := *i.browser
	browser.Jar = jar
	fetch := func(method, address string, form url.Values) (page string, err error) {
		request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
		if err != nil {
			return "", err
		}
		if form != nil {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response, err := browser.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s: %s\n%s", method, address, response.Status, body)
		}
		return string(body), err
	}
	if _, err := fetch(http.MethodGet, address, nil); err != nil {
		return err
	}
	page, err := fetch(http.MethodPost, i.url+"/device/auth/verify_code", url.Values{"user_code": {code}})
	if err != nil {
		return err
	}
	link := regexp.MustCompile(`href="(/auth/` + name + `\?[^"]*)"`).FindStringSubmatch(page)
	if link != nil { // there are several users to choose from
		page, err = fetch(http.MethodGet, i.url+html.UnescapeString(link[1]), nil)
	}
	if err == nil && !strings.Contains(page, "Login Successful") {
		err = fmt.Errorf("the login of %s did not end:\n%s", name, page)
	}
	return err
}

// A person is a user with a computer.
type person struct {
	t      *testing.T
	name   string
	server *secure.Server
	folder string
}

// run runs tko, and returns its output and its error.
func (p *person) run(args ...string) (string, error) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := p.server.Command(p.t, p.folder, nil, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

// login runs tko login, and confirms in the browser.
func (p *person) login(i *issuer) {
	p.t.Helper()
	cmd := p.server.Command(p.t, p.folder, nil, "login")
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	text, address, code := "", "", ""
	for lines := bufio.NewScanner(errs); code == "" && lines.Scan(); {
		text += lines.Text() + "\n"
		if m := shownAddress.FindStringSubmatch(text); m != nil {
			address = m[1]
		}
		if m := shownCode.FindStringSubmatch(text); m != nil {
			code = m[1]
		}
	}
	if address == "" || code == "" {
		p.t.Fatalf("tko login prints no address or no code: %s", text)
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), timeLimit)
	defer cancel()
	if err := i.confirm(ctx, address, code, p.name); err != nil {
		p.t.Fatal(err)
	}
	rest, _ := io.ReadAll(errs)
	if err := cmd.Wait(); err != nil {
		p.t.Fatalf("tko login: %v\n%s%s", err, text, rest)
	}
}

// token returns the ID token of the login.
func (p *person) token() string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.folder, "logins", "production.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	var login struct {
		IDToken string `json:"idToken"`
	}
	if err := json.Unmarshal(data, &login); err != nil || login.IDToken == "" {
		p.t.Fatalf("the stored login has no token: %v", err)
	}
	return login.IDToken
}

// whoami returns the identity that the server sees.
func (p *person) whoami() tko.Caller {
	p.t.Helper()
	out, err := p.run("whoami", "-o", "json")
	if err != nil {
		p.t.Fatal(err)
	}
	var seen struct {
		Subject     string   `json:"subject"`
		Groups      []string `json:"groups"`
		DisplayName string   `json:"displayName"`
	}
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	return tko.Caller{Subject: seen.Subject, Groups: seen.Groups, Display: seen.DisplayName}
}

func newPerson(t *testing.T, name string, server *secure.Server, i *issuer) *person {
	t.Helper()
	p := &person{t: t, name: name, server: server, folder: t.TempDir()}
	if out, err := p.run("context", "set", "production", "--address=localhost:"+server.Port(), "--tls-ca="+server.CA, "--oidc-issuer="+i.url, "--oidc-ca="+i.ca); err != nil {
		t.Fatal(out, err)
	}
	p.login(i)
	return p
}

func startServer(t *testing.T, i *issuer) *secure.Server {
	t.Helper()
	return secure.Start(t, nil, "--oidc-issuer="+i.url, "--oidc-alias=corp", "--oidc-ca="+i.ca)
}

// TestLoginAtARealIssuerGivesTheRightsOfItsGroups logs in by the device flow, changes
// something as a member of a group, and loses that right when the issuer no longer
// lists the group, and the login when the user leaves.
func TestLoginAtARealIssuerGivesTheRightsOfItsGroups(t *testing.T) {
	t.Parallel()
	i := startIssuer(t, 20*time.Second, map[string]user{"ann": {Email: "ann@example.org", Groups: []string{"noc", "staff"}}, "bob": {Email: "bob@example.org", Groups: []string{"staff"}}})
	server := startServer(t, i)
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:noc", Role: "editor"})
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:staff", Role: "viewer"})
	ann, bob := newPerson(t, "ann", server, i), newPerson(t, "bob", server, i)

	seen := ann.whoami()
	if !strings.HasPrefix(seen.Subject, "oidc:corp:") || strings.Join(seen.Groups, " ") != "oidc:corp:noc oidc:corp:staff" || seen.Display != "ann@example.org" {
		t.Errorf("the server sees %+v", seen)
	}
	if info, err := os.Stat(filepath.Join(ann.folder, "logins", "production.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the stored login: %v, %v, want it readable by the user only", info.Mode(), err)
	}
	if _, err := ann.run("site", "register", "lagos"); err != nil {
		t.Errorf("an editor: %v", err)
	}
	if _, err := bob.run("site", "register", "abuja"); err == nil || !strings.Contains(err.Error(), "may not create") {
		t.Errorf("a viewer registers a site: %v", err)
	}
	if out, err := bob.run("site", "list"); err != nil || !strings.Contains(out, "lagos") {
		t.Errorf("a viewer lists sites: %s, %v", out, err)
	}
	site, err := server.Dial(t, server.Tokens[secure.Root]).Site(t.Context(), "lagos", 0)
	if err != nil || site.Stamp.Who != seen.Subject {
		t.Errorf("the author of the site is %q, want %q (%v)", site.Stamp.Who, seen.Subject, err)
	}

	// Each command renews a login that is about to expire, with the groups of that time.
	before := ann.token()
	i.set(t, map[string]user{"ann": {Email: "ann@example.org", Groups: []string{"staff"}}})
	if now := ann.whoami(); strings.Join(now.Groups, " ") != "oidc:corp:staff" || now.Subject != seen.Subject {
		t.Errorf("after the issuer removed the group, the server sees %+v", now)
	}
	if ann.token() == before {
		t.Error("the login was not renewed")
	}
	if _, err := ann.run("site", "register", "abuja"); err == nil || !strings.Contains(err.Error(), "may not create") {
		t.Errorf("a former editor registers a site: %v", err)
	}
	if _, err := bob.run("site", "list"); err == nil || !strings.Contains(err.Error(), "tko login") {
		t.Errorf("a user who has left lists sites: %v, want the remedy tko login", err)
	}

	// A token of the issuer ends by itself, also for who copied it.
	copied := server.Dial(t, before)
	eventually.Within(t, timeLimit, "the copied token expires", func() error {
		if _, err := copied.Site(t.Context(), "lagos", 0); !errors.Is(err, tko.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired") {
			return fmt.Errorf("a call with it: %w", err)
		}
		return nil
	})
}

// TestTokensForOtherApplicationsOfTheIssuerAreRefused gets a token for another client of
// the same issuer.
func TestTokensForOtherApplicationsOfTheIssuerAreRefused(t *testing.T) {
	t.Parallel()
	i := startIssuer(t, time.Hour, map[string]user{"ann": {Groups: []string{"noc"}}})
	server := startServer(t, i)
	server.Bind(t, &tkopb.Binding{Group: "oidc:corp:noc", Role: "admin"})
	token := func(client string) string {
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, i.browser)
		o := oauth2.Config{ClientID: client, Scopes: []string{"openid", "groups"}, Endpoint: oauth2.Endpoint{
			AuthStyle: oauth2.AuthStyleInParams, DeviceAuthURL: i.url + "/device/code", TokenURL: i.url + "/token",
		}}
		device, err := o.DeviceAuth(ctx)
		if err == nil {
			err = i.confirm(ctx, device.VerificationURI, device.UserCode, "ann")
		}
		if err != nil {
			t.Fatal(err)
		}
		issued, err := o.DeviceAccessToken(ctx, device)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := issued.Extra("id_token").(string)
		return text
	}
	if who, err := server.Dial(t, token("tko")).WhoAmI(t.Context()); err != nil || !strings.HasPrefix(who.Subject, "oidc:corp:") {
		t.Errorf("a token for TKO: %+v, %v", who, err)
	}
	if who, err := server.Dial(t, token("grafana")).WhoAmI(t.Context()); !errors.Is(err, tko.ErrUnauthenticated) || !strings.Contains(err.Error(), "audience") {
		t.Errorf("a token for another application: %+v, %v", who, err)
	}
}
