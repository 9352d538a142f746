package rights

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
)

func TestGroupsOfAnOwnerAreKnownForATime(t *testing.T) {
	t.Parallel()
	seen := func(age time.Duration) time.Time { return time.Now().UTC().Add(-age).Truncate(24 * time.Hour) }
	bindings := []access.Binding{
		{Group: "oidc:corp:noc", Role: access.Editor, Scope: access.Scope{SiteID: "a/**"}},
		{Subject: "oidc:corp:ann", Role: access.Editor, Scope: access.Scope{SiteID: "b/**"}},
	}
	may := access.Attributes{Kind: tko.KindSite, ID: "a/1"}
	for name, test := range map[string]struct {
		why       string
		owner     record.Owner
		keep      time.Duration
		held, may bool
	}{
		"within the time":      {"its groups count", record.Owner{Subject: "oidc:corp:ann", Groups: []string{"oidc:corp:noc"}, Seen: seen(24 * time.Hour)}, 72 * time.Hour, false, true},
		"after it":             {"its rights aren't known", record.Owner{Subject: "oidc:corp:ann", Groups: []string{"oidc:corp:noc"}, Seen: seen(240 * time.Hour)}, 72 * time.Hour, true, false},
		"for ever":             {"no time is set", record.Owner{Subject: "oidc:corp:ann", Groups: []string{"oidc:corp:noc"}, Seen: seen(24000 * time.Hour)}, 0, false, true},
		"groups without rules": {"its rights don't depend on them", record.Owner{Subject: "oidc:corp:ann", Groups: []string{"oidc:corp:other"}, Seen: seen(240 * time.Hour)}, 72 * time.Hour, false, false},
		"a group":              {"an operator named it", record.Owner{Groups: []string{"oidc:corp:noc"}}, 72 * time.Hour, false, true},
		"no binding":           {"it has no rights any more", record.Owner{Subject: "oidc:corp:eve"}, 0, true, false},
	} {
		book := &Book{Rules: access.Rules{Version: 1, Bindings: bindings}, grants: lru.New[string, *access.Grant](10)}
		g, unlimited, held := (&Authorizer{settings: Settings{OwnerGroups: test.keep}}).OwnerGrant(book, test.owner)
		if unlimited || (held != "") != test.held || g.May(access.Update, may) != test.may {
			t.Errorf("%s: held %q, may %t; want held %t, may %t: %s", name, held, g.May(access.Update, may), test.held, test.may, test.why)
		}
		if test.held && !strings.Contains(held, "tko access own") {
			t.Errorf("%s: %q doesn't say what to do", name, held)
		}
	}
}
