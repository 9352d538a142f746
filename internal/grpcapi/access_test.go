package grpcapi

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/wire"
)

func TestRulesOfAccessAreWrittenWithAllFields(t *testing.T) {
	at := time.Unix(5, 0).UTC()
	scope := access.Scope{Kinds: []tko.Kind{tko.KindSite}, SiteID: "s/**", TemplateID: "t", Metadata: map[string]string{"k": "v"}}
	message := &tkopb.Scope{Kinds: []string{"site"}, SiteId: "s/**", TemplateId: "t", Metadata: map[string]string{"k": "v"}}
	binding := bindings.Write(access.Binding{
		ID: "b", Subject: "ada", Group: "g", Role: access.Role("viewer"), Scope: scope, Expires: at, Reason: "why", By: tko.Author{Who: "root", Why: "no field"}, Created: at,
	})
	wantBinding := &tkopb.Binding{
		Id: "b", Subject: "ada", Group: "g", Role: "viewer", Scope: message, Expires: wire.NewTime(at), Reason: "why", BoundBy: "root", Created: wire.NewTime(at),
	}
	if diff := cmp.Diff(wantBinding, binding, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	policy := policies.Write(access.Policy{ID: "p", Scope: scope, Approvers: 2, Groups: []string{"g"}, Reason: "why", By: tko.Author{Who: "root"}, Created: at})
	wantPolicy := &tkopb.Policy{Id: "p", Scope: message, Approvers: 2, Groups: []string{"g"}, Reason: "why", AddedBy: "root", Created: wire.NewTime(at)}
	if diff := cmp.Diff(wantPolicy, policy, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(scope, scopes.Read(message)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(access.Scope{}, scopes.Read(nil)); diff != "" {
		t.Errorf("no scope (-want +got):\n%s", diff)
	}
}
