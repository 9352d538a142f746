package python

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// TestSDKHasTheIdentityOfItsCredentials calls a server over mutual TLS, and with a
// token.
func TestSDKHasTheIdentityOfItsCredentials(t *testing.T) {
	t.Parallel()
	s := secure.Start(t, []string{"robot"}, "--roles=data")
	cert, key, _ := s.Authority.Issue("ada", nil)
	foreign, foreignKey, _ := certstest.New(t, "another authority").Issue("ada", nil)
	paths := certstest.Write(t, t.TempDir(), certstest.File{Name: "ada.crt", Data: cert}, certstest.File{Name: "ada.key", Data: key},
		certstest.File{Name: "foreign.crt", Data: foreign}, certstest.File{Name: "foreign.key", Data: foreignKey})
	s.Bind(t, &tkopb.Binding{Subject: "cert:ada", Role: "editor"})
	s.Bind(t, &tkopb.Binding{Subject: "token:robot", Role: "viewer"})
	script := `
import sys
import tko
host, ca, cert, key, foreign_cert, foreign_key, token = sys.argv[1:]

def outcome(**options):
    try:
        with tko.Client(host, timeout=30, **options) as client:
            client.register_site("by-" + sys.argv[0].replace("-", "c"))
            return "registered"
    except tko.Error as error:
        return type(error).__name__ + ": " + str(error)

print("mutual TLS:", outcome(tls=ca, certificate=cert, key=key))
print("a token:", outcome(tls=ca, token=token))
print("a wrong token:", outcome(tls=ca, token="tko_wrong"))
print("no identity:", outcome(tls=ca))
print("a foreign certificate:", outcome(tls=ca, certificate=foreign_cert, key=foreign_key))
print("a foreign authority:", outcome(tls=foreign_cert))
`
	cmd := python(t, append([]string{"-c", script, "localhost:" + s.Port(), s.CA}, append(paths, s.Tokens["robot"])...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := strings.ToLower(string(out))
	for _, want := range []string{"mutual tls: registered", "token:robot may not create", "a wrong token: ", "anonymous may not create", "a foreign certificate: ", "a foreign authority: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Count(text, ": registered") != 1 {
		t.Errorf("not only the client with a certificate registered a site")
	}
	t.Logf("%s", out)
	site, err := s.Dial(t, s.Tokens[secure.Root]).Site(t.Context(), "by-cc", 0)
	if err != nil || site.Stamp.Who != "cert:ada" {
		t.Errorf("the author is %q, %v, want the name of the certificate", site.Stamp.Who, err)
	}
}
