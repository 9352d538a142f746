package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
)

func TestOwnersHoldBackChanges(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
	for name, test := range map[string]struct{ file, reason, text string }{
		"nothing":       {"", "", ""},
		"a comment":     {"# refuse: true\n", "", ""},
		"permits":       {"refuse: false\n", "", ""},
		"refuses":       {"{refuse: true, reason: at sea}", tko.ReasonOwnerRefuses, "the owner of the site refuses changes: at sea"},
		"frozen":        {"freeze: {until: 2026-11-23T13:00:00Z}", tko.ReasonOwnerFreeze, "permits no changes until 2026-11-23T13:00:00Z"},
		"freeze's end":  {"freeze: {until: 2026-11-23T12:00:00Z}", "", ""},
		"window":        {`window: [{from: "11:00", to: "13:00"}]`, "", ""},
		"closed":        {`window: [{days: [Tue], from: "01:00", to: "02:00", zone: {default: Europe/Berlin}}]`, tko.ReasonOwnerWindow, "is closed until 2026-11-24T00:00:00Z"},
		"frozen window": {"freeze: {until: 2026-11-23T13:00:00Z}\nwindow: [{from: \"11:00\", to: \"13:00\"}]", tko.ReasonOwnerFreeze, "until"},
		// What can't be read holds: the owner has something to say.
		"another field": {"refused: true", tko.ReasonOwnerUnreadable, "so nothing is changed there"},
		"no YAML":       {"{", tko.ReasonOwnerUnreadable, "can't be used"},
		"no time":       {"freeze: {}", tko.ReasonOwnerUnreadable, "freeze.until is missing"},
		"no window":     {"window: []", tko.ReasonOwnerUnreadable, "window has no element"},
		"a wrong one":   {`window: [{from: "25:00", to: "26:00"}]`, tko.ReasonOwnerUnreadable, "window[0].from"},
		"too large":     {"# " + strings.Repeat("x", 64<<10), tko.ReasonOwnerUnreadable, "it is not a file of at most"},
		"a long reason": {"{refuse: true, reason: " + strings.Repeat("x", 501) + "}", tko.ReasonOwnerUnreadable, "reason has 501 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "owner.yaml")
		if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		reason, text := agent.Owner(path, noon)
		if reason != test.reason || !strings.Contains(text, test.text) || text == "" != (reason == "") {
			t.Errorf("%s: it is %q, %q", name, reason, text)
		}
	}
	dir := t.TempDir()
	if reason, _ := agent.Owner(filepath.Join(dir, "absent"), noon); reason != "" {
		t.Errorf("without a file, it is %q", reason)
	}
	if reason, _ := agent.Owner(dir, noon); reason != tko.ReasonOwnerUnreadable {
		t.Errorf("a folder: %q", reason)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if reason, _ := agent.Owner(pipe, noon); reason != tko.ReasonOwnerUnreadable {
		t.Errorf("a pipe: %q", reason)
	}
}
