package callhome_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// One site from its enrollment to its revocation.
func TestSiteThatCallsHomeGetsWhatItShallHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--agents-silence=8s")
	w.site("a/1")
	id := w.deploy("a/1", "one", "first")
	w.condition(tko.KindDeployment, string(id), tko.ConditionScheduled, tko.ConditionUnknown, tko.ReasonByAgent)

	a := w.agent()
	a.has([]string{"value: first"}, nil)
	w.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionTrue, tko.ReasonHeard)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	w.reported(id, tko.ConditionHealthy, tko.ConditionUnknown) // a repository reports none

	// A change, a further deployment, and a deletion.
	w.change(id, "second")
	a.has([]string{"value: second"}, []string{"value: first"})
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	other := w.deploy("a/1", "two", "third")
	a.has([]string{"value: second", "value: third"}, nil)
	if _, err := w.client.DeleteDeployment(tko.WithConfirmation(w.patient(), 1), other); err != nil {
		t.Fatal(err)
	}
	a.has([]string{"value: second"}, []string{"value: third"})

	// What is stopped stays, also when the agent starts again.
	if out, stderr, code := w.server.CLI("stop", "--site", "a/1", "--reason", "test"); code != 0 {
		t.Fatal(out, stderr)
	}
	eventually.Within(t, timeLimit, "the agent knows that the site is stopped", func() error {
		text, err := os.ReadFile(filepath.Join(a.state, "hold.json"))
		if err == nil && !strings.Contains(string(text), "stopped") {
			err = fmt.Errorf("it has %s", text)
		}
		return err
	})
	a.drift("value: second")
	n := len(a.commits())
	for range 2 {
		time.Sleep(3 * time.Second) // nothing happens, which has no end
		if got := len(a.commits()); got != n {
			t.Errorf("the stopped site has %d commits, and had %d", got, n)
		}
		a.kill()
		a.start()
	}
	if out, stderr, code := w.server.CLI("resume", "--confirm", "1", stopID(t, w)); code != 0 {
		t.Fatal(out, stderr)
	}
	w.change(id, "fourth")
	a.has([]string{"value: fourth"}, nil)

	// Without the server, the agent corrects what others change.
	w.server.Stop()
	a.drift("value: fourth")
	a.has([]string{"value: fourth"}, []string{"value: drifted"})
	w.start()
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)

	// An agent that isn't heard leaves nothing healthy from memory.
	a.kill()
	c := w.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonNotHeard)
	if !strings.Contains(c.Message, "was not heard since 2") {
		t.Errorf("the condition is %+v", c)
	}
	w.condition(tko.KindDeployment, string(id), tko.ConditionHealthy, tko.ConditionUnknown, tko.ReasonNotHeard)
	a.start()
	w.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionTrue, tko.ReasonHeard)
	w.reported(id, tko.ConditionHealthy, tko.ConditionUnknown)

	// A revoked agent is cut off, and leaves the site as it is.
	if out, stderr, code := w.server.CLI("site", "revoke", "a/1"); code != 0 {
		t.Fatal(out, stderr)
	}
	w.condition(tko.KindSite, "a/1", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonRevoked)
	w.condition(tko.KindDeployment, string(id), tko.ConditionHealthy, tko.ConditionUnknown, tko.ReasonNotHeard)
	w.change(id, "fifth")
	time.Sleep(4 * time.Second) // nothing happens, which has no end
	a.has([]string{"value: fourth"}, []string{"value: fifth"})
	if got := w.now(tko.KindSite, "a/1", tko.ConditionConnected); got.Status != tko.ConditionFalse {
		t.Errorf("the revoked agent is connected: %+v", got)
	}

	// With a new token in the file, it is back.
	text, err := os.ReadFile(w.token("a/1", time.Hour))
	w.check(err)
	w.check(os.WriteFile(a.token, text, 0o600))
	a.has([]string{"value: fifth"}, nil)
}

func stopID(t *testing.T, w *world) string {
	t.Helper()
	out, stderr, code := w.server.CLI("stop", "list", "-o", "bare")
	if code != 0 {
		t.Fatal(stderr)
	}
	return strings.TrimSpace(out)
}

// drift commits a change of a value in the repository.
func (a *agent) drift(from string) {
	a.w.t.Helper()
	work := filepath.Join(a.w.t.TempDir(), "clone")
	script := fmt.Sprintf(`set -e; git clone -q %[1]s %[2]s; cd %[2]s; f=$(grep -rl '%[3]s' --exclude-dir .git .); sed -i 's/%[3]s/%[4]s/' $f
git -c user.name=x -c user.email=x@example.com commit -qam drift; git push -q origin HEAD`, a.repository, work, from, "value: drifted")
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		a.w.t.Fatalf("%v: %s", err, out)
	}
}

// Agent and server are killed at random moments while the site changes. The site ends with what it
// shall have; no commit lacks what was not deleted, and none repeats the one before.
func TestKillsLoseNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site("a/1")
	stays := w.deploy("a/1", "stays", "untouched")
	id := w.deploy("a/1", "one", "v0")
	a := w.agent()
	a.has([]string{"value: untouched", "value: v0"}, nil)
	first := len(a.commits())

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const rounds = 8
	for round := range rounds {
		w.change(id, fmt.Sprintf("v%d", round+1))
		time.Sleep(time.Duration(random.Int64N(int64(700 * time.Millisecond)))) // the random moment
		if round%2 == 0 {
			a.kill()
			a.start()
		} else {
			w.server.Kill()
			w.start()
		}
	}
	a.has([]string{"value: untouched", fmt.Sprintf("value: v%d", rounds)}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	w.reported(stays, tko.ConditionScheduled, tko.ConditionTrue)
	before, last := "", -1
	for _, commit := range a.commits()[first-1:] {
		text, err := a.text(commit)
		w.check(err)
		w.check(compare(text, []string{"value: untouched", "value: v"}, nil))
		if text == before {
			t.Errorf("the commit %s repeats the one before", commit)
		}
		var now int
		_, number, found := strings.Cut(text, "value: v")
		if _, err := fmt.Sscanf(number, "%d", &now); err != nil || !found || now < last {
			t.Errorf("the commit %s goes back from v%d to v%d: %v", commit, last, now, err)
		}
		before, last = text, now
	}
}

// A certificate is renewed while the agent is connected, and the connection with the former one ends.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--agents-certificate-time=12s")
	w.site("a/1")
	id := w.deploy("a/1", "one", "v0")
	a := w.agent()
	a.has([]string{"value: v0"}, nil)
	was, err := os.ReadFile(filepath.Join(a.state, "tls.crt"))
	w.check(err)
	eventually.Within(t, timeLimit, "the certificate is another one", func() error {
		is, err := os.ReadFile(filepath.Join(a.state, "tls.crt"))
		if err == nil && string(is) == string(was) {
			err = os.ErrExist
		}
		return err
	})
	time.Sleep(13 * time.Second) // until the first certificate has expired
	w.change(id, "v1")
	a.has([]string{"value: v1"}, nil)
	if strings.Contains(a.output.String(), "expired") {
		t.Error("the certificate was not renewed in time")
	}
}
