package agents

import (
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func (s *seat) woken() bool {
	select {
	case <-s.wake:
		return true
	default:
		return false
	}
}

func ids(all ...string) map[string]entry {
	entries := map[string]entry{"": {}}
	for _, id := range all {
		entries[id] = entry{}
	}
	return entries
}

func TestAgentsAreWokenByChangesOfWhatTheyHave(t *testing.T) {
	t.Parallel()
	h := newHub()
	if h.changed("x") {
		t.Error("there is an agent")
	}
	a, again := h.join(tko.AgentEnrollment{ID: "a", Site: "a"}, 0)
	b, alsoAgain := h.join(tko.AgentEnrollment{ID: "b", Site: "b"}, 0)
	if again || alsoAgain {
		t.Error("a first connection is a further one")
	}
	h.follow(a, ids("x", "y"), h.count())
	h.follow(b, ids("z"), h.count())
	h.changed("y")
	if !a.woken() || b.woken() {
		t.Error("another agent is woken")
	}
	h.follow(a, ids("y"), h.count())
	if h.changed("x"); a.woken() {
		t.Error("an agent is woken by what it no longer has")
	}
	since := h.count() // it reads now, and follows later
	h.changed("w")
	if h.follow(a, ids("w"), since); !a.woken() {
		t.Error("a change is lost between reading and following")
	}
	if h.follow(a, ids("w"), h.count()); a.woken() {
		t.Error("an agent is woken by a change that it has read")
	}
	since = h.count()
	for n := range 2 * noted {
		h.changed(tko.DeploymentID(strconv.Itoa(n)))
	}
	if h.follow(a, ids("w"), since); !a.woken() {
		t.Error("a change may be lost if there are very many")
	}

	newer, again := h.join(tko.AgentEnrollment{ID: "a", Site: "a"}, 0)
	if !again {
		t.Error("a further connection is a first one")
	}
	if err := <-a.ended; err == nil {
		t.Error("the former connection goes on")
	}
	h.follow(newer, ids("w"), h.count())
	h.follow(a, ids("z"), h.count()) // too late
	h.leave(a)
	h.changed("z")
	if h.changed("w"); !newer.woken() || !b.woken() {
		t.Error("a former connection takes the place of others")
	}
	h.leave(newer)
	h.leave(b)
	if h.changed("w") || len(h.members) != 0 {
		t.Errorf("agents that left are still there: %v", h.members)
	}
}
