package callhome_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var waitingKey = regexp.MustCompile(`tko site approve a/1 --key ([0-9a-f]{16})`)

// An agent with a token for several sites waits until a person approves it, with the key that its log
// shows. Another holder of the token, which claims the same site, gets nothing.
func TestAgentWithATokenForSeveralSitesIsApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site("a/1")
	id := w.deploy("a/1", "one", "first")
	if _, stderr, code := w.server.CLI("site", "enroll", "--sites", "**"); code == 0 || !strings.Contains(stderr, "confirm it with --confirm 1") {
		t.Errorf("a pattern of all sites isn't confirmed: %d, %s", code, stderr)
	}
	token, stderr, code := w.server.CLI("site", "enroll", "--sites", "a/*")
	if code != 0 {
		t.Fatal(stderr)
	}
	file := filepath.Join(w.dir, "several.token")
	w.check(os.WriteFile(file, []byte(token), 0o600))
	start := func(name string) *agent {
		a := &agent{w: w, state: filepath.Join(w.dir, name), repository: filepath.Join(w.dir, name+".git"), token: file, site: "a/1", server: w.agents}
		w.run(a)
		return a
	}
	key := func(a *agent) (found string) {
		t.Helper()
		eventually.Within(t, timeLimit, "the log of the agent has its key", func() error {
			m := waitingKey.FindStringSubmatch(a.output.String())
			if m == nil {
				return compare(a.output.String(), []string{"tko site approve"}, nil)
			}
			found = m[1]
			return nil
		})
		return found
	}
	attacker := start("attacker")
	theirs := key(attacker)
	a := start("good")
	ours := key(a)
	list, stderr, code := w.server.CLI("site", "waiting", "-o", "table")
	if code != 0 || !strings.Contains(list, ours) || !strings.Contains(list, theirs) || !strings.Contains(list, "127.0.0.1:") {
		t.Errorf("it lists, with %d, %s:\n%s", code, stderr, list)
	}
	w.server.Kill() // nothing that waits is lost
	w.start()
	if _, stderr, code := w.server.CLI("site", "approve", "a/1"); code == 0 || !strings.Contains(stderr, "2 agents wait") {
		t.Errorf("one of two is approved: %d, %s", code, stderr)
	}
	if _, stderr, code := w.server.CLI("site", "approve", "a/1", "--key", theirs, "--refuse"); code != 0 {
		t.Fatal(stderr)
	}
	eventually.Within(t, timeLimit, "the attacker ends", func() error { return compare(attacker.output.String(), []string{"a user has refused the agent"}, nil) })
	if out, stderr, code := w.server.CLI("site", "approve", "a/1"); code != 0 || !strings.Contains(stderr, ours) {
		t.Fatal(out, stderr)
	}
	a.has([]string{"value: first"}, nil)
	w.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionTrue, tko.ReasonHeard)
	if _, err := os.Stat(filepath.Join(attacker.state, "tls.crt")); err == nil {
		t.Error("the attacker has a certificate")
	}

	// With the approval, the server restarts as well; the end of the token concerns nothing that was approved.
	w.server.Kill()
	w.start()
	if _, stderr, code := w.server.CLI("site", "revoke", "--sites", "a/*"); code != 0 {
		t.Fatal(stderr)
	}
	w.change(id, "second")
	a.has([]string{"value: second"}, nil)
}
