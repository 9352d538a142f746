package callhome_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// says writes the file with which the owner of the site holds back changes.
func (a *agent) says(text string) {
	a.w.t.Helper()
	path := filepath.Join(a.state, "owner.yaml")
	a.w.check(os.WriteFile(path+".new", []byte(text), 0o600))
	a.w.check(os.Rename(path+".new", path))
}

// The owner of a site has the last word: nothing is applied or corrected, the server shows why, and
// a rollout waits.
func ownerHoldsChangesBack(w *world) {
	t := w.t
	w.site(w.home)
	id := w.deploy(w.home, "one", "first")
	a := w.agent()
	a.has([]string{"value: first"}, nil)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	if c := w.now(tko.KindSite, w.home, tko.ConditionHeldByOwner); c != nil {
		t.Errorf("a site whose owner says nothing has the condition %+v", c)
	}

	a.says("{refuse: true, reason: at sea}")
	c := w.condition(tko.KindSite, w.home, tko.ConditionHeldByOwner, tko.ConditionTrue, tko.ReasonOwnerRefuses)
	if !strings.Contains(c.Message, "refuses changes: at sea") {
		t.Errorf("the condition is %+v", c)
	}
	a.drift("value: first")
	w.change(id, "second")
	n := len(a.commits())
	for range 2 {
		time.Sleep(3 * time.Second) // nothing happens, which has no end
		if got := len(a.commits()); got != n {
			t.Errorf("the site has %d commits, and had %d", got, n)
		}
		a.kill()
		a.start()
	}
	if w.now(tko.KindDeployment, string(id), tko.ConditionScheduled).Status == tko.ConditionTrue {
		t.Error("what was held back is scheduled")
	}

	// A file that can't be used holds, too.
	a.says("refused: true")
	w.condition(tko.KindSite, w.home, tko.ConditionHeldByOwner, tko.ConditionTrue, tko.ReasonOwnerUnreadable)
	a.says("freeze: {until: " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "}")
	w.condition(tko.KindSite, w.home, tko.ConditionHeldByOwner, tko.ConditionTrue, tko.ReasonOwnerFreeze)
	if got := len(a.commits()); got != n {
		t.Errorf("the site has %d commits, and had %d", got, n)
	}

	a.says("freeze: {until: " + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) + "}")
	a.has([]string{"value: second"}, []string{"value: drifted"})
	w.condition(tko.KindSite, w.home, tko.ConditionHeldByOwner, tko.ConditionFalse, tko.ReasonOwnerPermits)
	w.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
}
