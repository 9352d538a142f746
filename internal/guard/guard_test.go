package guard_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
)

func made(t *testing.T, o guard.Options) *guard.Guard {
	t.Helper()
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var local = guard.Options{Addresses: []string{"127.0.0.0/8", "::1"}}

func TestURLsAreCheckedBySchemeHostAndAddress(t *testing.T) {
	t.Parallel()
	hosts := guard.Options{Hosts: []string{"git.example.net", "*.example.org", "192.0.2.0/24", "2001:db8::1"}}
	names := guard.Options{Hosts: hosts.Hosts[:2]}
	tests := map[string]struct {
		options guard.Options
		url     string
		allowed bool
	}{
		"all hosts":              {url: "https://git.example.net/x", allowed: true},
		"private networks":       {url: "https://10.1.2.3/x", allowed: true},
		"loopback":               {url: "http://127.9.9.9/x"},
		"loopback, allowed":      {url: "http://127.9.9.9/x", options: local, allowed: true},
		"loopback of IPv6":       {url: "http://[::1]:80/x"},
		"loopback as IPv6":       {url: "http://[::ffff:127.0.0.1]/x"},
		"localhost":              {url: "http://LocalHost./x"},
		"link-local":             {url: "http://169.254.169.254/latest", options: local},
		"link-local of IPv6":     {url: "http://[fe80::1%25eth0]/x", options: local},
		"translated":             {url: "http://[64:ff9b::a9fe:a9fe]/x"},
		"translated by a site":   {url: "http://[64:ff9b:1::a9fe:a9fe]/x"},
		"compatible":             {url: "http://[::7f00:1]/x"},
		"stateless":              {url: "http://[::ffff:0:7f00:1]/x"},
		"6to4":                   {url: "http://[2002:7f00:1::]/x"},
		"6to4 of another":        {url: "http://[2002:c000:201::]/x", allowed: true},
		"Teredo":                 {url: "http://[2001:0:1234::5601:5601]/x"},
		"ISATAP":                 {url: "http://[2001:db8::5efe:a9fe:a9fe]/x"},
		"ISATAP, global":         {url: "http://[2001:db8::200:5efe:7f00:1]/x"},
		"octal":                  {url: "http://0177.0.0.1/x", options: names},
		"hexadecimal":            {url: "http://0x7f000001/x", options: names},
		"short":                  {url: "http://127.1/x", options: names},
		"one number":             {url: "http://2130706433/x", options: names},
		"credentials of a cloud": {url: "http://[fd00:ec2::254]/x"},
		"unspecified":            {url: "http://0.0.0.0/x"},
		"this network":           {url: "http://0.1.2.3/x"},
		"multicast":              {url: "http://224.0.0.1/x"},
		"another scheme":         {url: "ftp://git.example.net/x"},
		"a file":                 {url: "file:///etc/passwd"},
		"schemes":                {url: "http://git.example.net/x", options: guard.Options{Schemes: []string{"https"}}},
		"a host":                 {url: "https://GIT.example.net:8443/x", options: hosts, allowed: true},
		"a pattern":              {url: "https://a.b.example.org/x", options: hosts, allowed: true},
		"a pattern's root":       {url: "https://example.org/x", options: names},
		"a lookalike":            {url: "https://evil-example.org/x", options: names},
		"a network":              {url: "https://192.0.2.77/x", options: hosts, allowed: true},
		"an address":             {url: "https://[2001:db8::1]/x", options: hosts, allowed: true},
		"another address":        {url: "https://198.51.100.1/x", options: hosts},
		"hosts aren't addresses": {url: "http://127.0.0.1/x", options: guard.Options{Hosts: []string{"127.0.0.1"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			err = made(t, test.options).URL(u)
			if test.allowed && err != nil || !test.allowed && !errors.Is(err, tko.ErrDenied) {
				t.Errorf("%s: %v", test.url, err)
			}
		})
	}
}

func TestMalformedOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]guard.Options{
		"a URL as a host":      {Hosts: []string{"https://git.example.net"}},
		"a star within":        {Hosts: []string{"git.*.net"}},
		"all":                  {Hosts: []string{"*"}},
		"a name as an address": {Addresses: []string{"localhost"}},
		"no folder":            {Folders: []string{""}},
	} {
		if _, err := guard.New(o); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name that resolves to a local address, and a redirect to one, are refused
// before a connection is made.
func TestNamesAndRedirectsToLocalAddressesAreRefused(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		}
		if r.URL.Path == "/file" {
			http.Redirect(w, r, "ftp://127.0.0.1/x", http.StatusFound)
		}
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	get := func(g *guard.Guard, location string) error {
		response, err := (&http.Client{Transport: g.Transport()}).Get(location)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	for _, location := range []string{server.URL, "http://localhost:" + port} {
		if err := get(made(t, guard.Options{}), location); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s: %v", location, err)
		}
	}
	if _, err := made(t, guard.Options{}).DialContext(t.Context(), "tcp", "localhost:"+port); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("connected by a name of a local address: %v, want it denied", err)
	}
	if len(asked) > 0 {
		t.Fatalf("the server got a request for %s, want none", <-asked)
	}
	allowed := made(t, local)
	if err := get(allowed, server.URL); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/away", "/file"} {
		if err := get(allowed, server.URL+path); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("a redirection from %s: %v", path, err)
		}
	}
}

func TestPathsOutsideAllowedFoldersAreRefused(t *testing.T) {
	t.Parallel()
	folder, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder, filepath.Join(outside, "back")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := made(t, guard.Options{Folders: []string{folder}, FoldersFlag: "--git-local"})
	for path, allowed := range map[string]bool{
		folder: true, folder + "/new/sites.git": true, folder + "/x/../y": true, filepath.Join(outside, "back", "y"): true,
		outside: false, folder + "/../x": false, folder + "/link/sites.git": false, folder + "/link/there": false, folder + "x": false, "/": false, "": false,
	} {
		if err := g.Folder(path); (err == nil) != allowed {
			t.Errorf("%s: %v", path, err)
		}
	}
	there, missing := g.Folder(filepath.Join(outside, "there")), g.Folder(filepath.Join(outside, "missing"))
	if fmt.Sprint(there) != fmt.Sprint(missing) {
		t.Errorf("the errors for an existing and a missing file differ: %v, %v", there, missing)
	}
}

func TestOnlyThisMachineIsLocal(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1": true, "127.1.2.3:80": true, "::1": true, "[::1]": true, "[::1]:443": true,
		"": false, "localhost.example.com": false, "10.0.0.1": false, "10.0.0.1:80": false, "::2": false, "0.0.0.0": false,
	} {
		if got := guard.IsLocal(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}
