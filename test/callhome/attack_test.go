package callhome_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/bundle"
)

// dial connects to the server as the holder of the key of an agent; without, if state is "".
func (w *world) dial(state string) agentpb.AgentsClient {
	w.t.Helper()
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(w.ca)
	w.check(err)
	pool.AppendCertsFromPEM(ca)
	secure := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	if state != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(state, "tls.crt"), filepath.Join(state, "tls.key"))
		w.check(err)
		secure.Certificates = []tls.Certificate{pair}
	}
	conn, err := grpc.NewClient(w.agents, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	w.check(err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return agentpb.NewAgentsClient(conn)
}

// request returns a certificate request with a new key.
func (w *world) request() []byte {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.check(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"b"}}, key)
	w.check(err)
	return der
}

// conversation sends messages after a Hello, and returns what the server sends until it is silent
// for a while, or ends.
func (w *world) conversation(c agentpb.AgentsClient, messages ...*agentpb.ConnectRequest) (all []*agentpb.ConnectResponse, err error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 4*time.Second)
	defer cancel()
	stream, err := c.Connect(ctx)
	w.check(err)
	for _, m := range messages {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			w.t.Fatal(err)
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

func hello(entries ...*agentpb.Entry) *agentpb.ConnectRequest {
	return &agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Hello{Hello: &agentpb.Hello{Cursor: 1 << 40, Entries: entries}}}
}

func need(digests ...string) *agentpb.ConnectRequest {
	return &agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Need{Need: &agentpb.Need{Packages: digests}}}
}

func states(all ...*agentpb.State) *agentpb.ConnectRequest {
	return &agentpb.ConnectRequest{Message: &agentpb.ConnectRequest_Report{Report: &agentpb.Report{States: all}}}
}

// An attacker has the key of the agent of a site, and tries each request with what is of b/1.
func keyIsOfNoUseForOtherSites(w *world) {
	t := w.t
	w.site(w.home)
	w.site("b/1")
	own := w.deploy(w.home, "one", "of-a")
	foreign := w.deploy("b/1", "secret", "of-b")
	a := w.agent()
	a.has([]string{"value: of-a"}, []string{"of-b"})
	a.kill()
	attacker := w.dial(a.state)
	d, err := w.client.Deployment(w.patient(), foreign, 0)
	w.check(err)
	site, err := w.client.Site(w.patient(), "b/1", 0)
	w.check(err)
	content, err := bundle.NewContent(d.Stamp.Revision, d.Package)
	w.check(err)
	ofSite, err := bundle.NewContent(site.Stamp.Revision, site.Package)
	w.check(err)

	// Renew: only for the own site.
	renewed, err := attacker.Renew(w.patient(), &agentpb.RenewRequest{CertificateRequest: w.request()})
	if err != nil || renewed.GetSiteId() != w.home {
		t.Errorf("renewed: %v, %v", renewed, err)
	}

	// Connect: it claims to have what is of b/1, and to need it.
	got, err := w.conversation(attacker, hello(&agentpb.Entry{Id: string(foreign), Digest: content.Digest}), need(content.Digest, ofSite.Digest, "", strings.Repeat("0", 64)))
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the conversation ends with %v", err)
	}
	packages := 0
	for _, m := range got {
		if p := m.GetPackage(); p != nil {
			packages++
			// The packages of both sites are equal, and it has its own.
			if len(p.GetData()) > 0 && p.GetDigest() != ofSite.Digest {
				t.Errorf("it gets the package %s", p.GetDigest())
			}
		}
		for _, e := range m.GetUpdate().GetChanged() {
			if e.GetId() == string(foreign) || strings.Contains(string(e.GetDocument()), "b/1") || strings.Contains(string(e.GetDocument()), "of-b") {
				t.Errorf("it gets %s: %s", e.GetId(), e.GetDocument())
			}
		}
	}
	if packages != 4 {
		t.Errorf("the server responds to %d of 4 requests for packages", packages)
	}

	// Reports about what is of b/1 change nothing there.
	lie := func(kind tko.Kind, id string, revision int64) *agentpb.State {
		return &agentpb.State{Kind: string(kind), Id: id, Revision: revision, Conditions: []*agentpb.Condition{
			{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Lie"}, {Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Lie"},
		}}
	}
	mine, err := w.client.Deployment(w.patient(), own, 0)
	w.check(err)
	_, err = w.conversation(attacker, hello(), states(lie(tko.KindDeployment, string(foreign), d.Stamp.Revision), lie(tko.KindDeployment, string(own), mine.Stamp.Revision)))
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the conversation ends with %v", err)
	}
	if c := w.now(tko.KindDeployment, string(own), tko.ConditionHealthy); c == nil || c.Reason != "Lie" {
		t.Errorf("the report about its own deployment has no effect, so this shows nothing: %+v", c)
	}
	for name, m := range map[string]*agentpb.ConnectRequest{
		"another site":      states(lie(tko.KindSite, "b/1", site.Stamp.Revision)),
		"a plugin":          states(lie(tko.KindPlugin, "prepare|x", 1)),
		"another condition": states(&agentpb.State{Kind: "site", Id: w.home, Revision: 1, Conditions: []*agentpb.Condition{{Type: tko.ConditionConnected, Status: tko.ConditionTrue}}}),
	} {
		if _, err := w.conversation(attacker, hello(), m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a report about %s: %v", name, err)
		}
	}
	after, err := w.client.Deployment(w.patient(), foreign, 0)
	w.check(err)
	there, err := w.client.Site(w.patient(), "b/1", 0)
	w.check(err)
	for _, c := range append(after.Stamp.Conditions, there.Stamp.Conditions...) {
		if c.Reason == "Lie" || c.Type == tko.ConditionConnected {
			t.Errorf("b/1 has %+v", c)
		}
	}

	// Enroll: the token was used, by another key.
	text, err := os.ReadFile(a.token)
	w.check(err)
	for name, token := range map[string]string{"used": strings.TrimSpace(string(text)), "unknown": "tko_agent_ABCDEF", "empty": ""} {
		if _, err := attacker.Enroll(w.patient(), &agentpb.EnrollRequest{Token: token, CertificateRequest: w.request()}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a token that is %s: %v", name, err)
		}
	}
	expired, err := os.ReadFile(w.token("b/1", time.Second))
	w.check(err)
	time.Sleep(2 * time.Second) // until it has expired
	if _, err := attacker.Enroll(w.patient(), &agentpb.EnrollRequest{Token: strings.TrimSpace(string(expired)), CertificateRequest: w.request()}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an expired token: %v", err)
	}

	// Without a certificate, there is only Enroll.
	outsider := w.dial("")
	if _, err := outsider.Renew(w.patient(), &agentpb.RenewRequest{CertificateRequest: w.request()}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("renewed without a certificate: %v", err)
	}
	if _, err := w.conversation(outsider, hello()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("connected without a certificate: %v", err)
	}

	// The key is of no use after its revocation, whichever certificate it has.
	if err := w.client.Access().RevokeSite(w.patient(), tko.SiteID(w.home)); err != nil {
		t.Fatal(err)
	}
	if _, err := attacker.Renew(w.patient(), &agentpb.RenewRequest{CertificateRequest: w.request()}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("renewed after the revocation: %v", err)
	}
	if _, err := w.conversation(attacker, hello()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("connected after the revocation: %v", err)
	}
}

// No message of an agent has a place for the name of a site, except a claim that a person must approve.
func TestRequestsOfAgentsNameNoSite(t *testing.T) {
	t.Parallel()
	methods := agentpb.File_tko_agent_v1_agent_proto.Services().Get(0).Methods()
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if strings.Contains(strings.ToLower(string(f.Name())), "site") && f.FullName() != "tko.agent.v1.EnrollRequest.claimed_site" {
				t.Errorf("%s names a site", f.FullName())
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	for i := range methods.Len() {
		walk(methods.Get(i).Input())
	}
	if len(seen) < 8 {
		t.Errorf("only %d messages were compared", len(seen))
	}
}
