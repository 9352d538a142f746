package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// A habit is a key or a command of k9s, and what it does here.
type habit struct {
	key    string   // as k9s names it; a command begins with ":"
	before []string // keys that are pressed first
	sees   string   // on the screen after it
	at     string   // the row of the cursor after it, if it moves
	reads  bool     // it reads the list again
	quits  bool
}

// habits are all keys of k9s in its help, and those of its views of workloads, and its commands.
var habits = []habit{
	// general
	{key: "?", sees: "any key closes this"},
	{key: "Ctrl-a", sees: "any key closes this"},
	{key: ":", sees: ":"},
	{key: "/", sees: "/"},
	{key: "Esc", before: []string{"space"}, sees: "[1 Deployments]"},
	{key: "q", before: []string{"enter"}, sees: "[1 Deployments]"},
	{key: "Tab", sees: "[2 Sites]"},
	{key: "Shift-Tab", sees: "[6 Events]"},
	{key: "Ctrl-r", sees: "[1 Deployments]", reads: true},
	{key: "Ctrl-u", before: []string{"j"}, at: name(2)},
	{key: "Ctrl-e", sees: "the header stays"},
	{key: "Ctrl-g", sees: "the header stays"},
	{key: "Shift-t", sees: "--colorize=false"},
	{key: "Ctrl-c", quits: true},
	{key: "Space", sees: "1 marked"},
	{key: "Ctrl-Space", sees: "* selects all that match the filter"},
	{key: "Ctrl-\\", before: []string{"space"}, sees: "[1 Deployments]"},
	{key: "Ctrl-s", sees: "with -o yaml it saves it"},
	{key: "Ctrl-w", sees: ":columns KEY KEY shows metadata"},
	{key: "Ctrl-z", sees: "p shows only what is failing"},
	{key: "Ctrl-l", sees: "[1 Deployments]", reads: true},
	{key: "Enter", sees: "d0000002"},
	{key: "c", sees: "copied, if the terminal allows it: d0000002"},
	{key: "n", sees: "/ filters, c copies the ID"},
	{key: "0", sees: "esc shows all again"},
	{key: "1", sees: "[1 Deployments]"},
	{key: "2", sees: "[2 Sites]"},
	{key: "3", sees: "[3 Templates]"},
	{key: "4", sees: "[4 Plugins]"},
	{key: "5", sees: "[5 Rollouts]"},
	{key: "6", sees: "[6 Events]"},
	{key: "7", sees: "1 to 6 open lists"},
	{key: "8", sees: "1 to 6 open lists"},
	{key: "9", sees: "1 to 6 open lists"},
	// navigation
	{key: "g", before: []string{"G"}, at: name(2)},
	{key: "Shift-g", at: name(30)},
	{key: "Ctrl-b", before: []string{"j"}, at: name(2)},
	{key: "Ctrl-f", at: name(30)},
	{key: "h", sees: "tab and shift-tab change lists"},
	{key: "j", at: name(3)},
	{key: "k", before: []string{"j"}, at: name(2)},
	{key: "[", sees: "esc goes back"},
	{key: "]", sees: "esc goes back"},
	{key: "-", before: []string{"2", "5"}, sees: "[2 Sites]"},
	{key: "Shift-Left", sees: "s sorts by the next column"},
	{key: "Shift-Right", sees: "s sorts by the next column"},
	// what is selected
	{key: "y", sees: "apiVersion"},
	{key: "v", sees: "apiVersion"},
	{key: "d", sees: "revision"},
	{key: "e", sees: "tko deployment edit d0000002"},
	{key: "l", sees: "runs"},
	{key: "p", sees: "state=failing"},
	{key: "Ctrl-d", sees: "D deletes, and asks first"},
	{key: "Ctrl-k", sees: "D deletes, and asks first"},
	{key: "a", sees: "with a tool of its cluster"},
	{key: "b", sees: "no benchmarks"},
	{key: "f", sees: "with a tool of its cluster"},
	{key: "Shift-f", sees: "with a tool of its cluster"},
	{key: "i", sees: "tko deployment edit d0000002, or a rollout"},
	{key: "o", sees: "enter shows the site"},
	{key: "r", sees: "ctrl-r reads again"},
	{key: "s", sees: "[1 Deployments]"},
	{key: "t", sees: "tree"},
	{key: "u", sees: "t shows children"},
	{key: "x", sees: "1 marked"},
	{key: "z", sees: "t shows children"},
	{key: "Shift-a", sees: "Approve deployment d0000002"},
	{key: "Shift-c", sees: "copied, if the terminal allows it: tko deployment list"},
	{key: "Shift-i", sees: "s sorts by the next column"},
	{key: "Shift-j", sees: "t shows ancestors"},
	{key: "Shift-m", sees: "s sorts by the next column"},
	{key: "Shift-n", sees: "s sorts by the next column"},
	{key: "Shift-o", sees: "s sorts by the next column"},
	{key: "Shift-p", sees: "s sorts by the next column"},
	{key: "Shift-r", sees: "only rollouts have commands"},
	{key: "Shift-s", sees: "s sorts by the next column"},
	// commands
	{key: ":q", quits: true},
	{key: ":quit", quits: true},
	{key: ":q!", quits: true},
	{key: ":?", sees: "any key closes this"},
	{key: ":h", sees: "any key closes this"},
	{key: ":help", sees: "any key closes this"},
	{key: ":a", sees: "any key closes this"},
	{key: ":alias", sees: "any key closes this"},
	{key: ":-", before: []string{"2", "5"}, sees: "[2 Sites]"},
	{key: ":dp", before: []string{"2"}, sees: "[1 Deployments]"},
	{key: ":deploy", before: []string{"2"}, sees: "[1 Deployments]"},
	{key: ":deployments /site-id=south/**", before: []string{"2"}, sees: "/ site-id=south/**"},
	{key: ":ev", sees: "[6 Events]"},
	{key: ":events", sees: "[6 Events]"},
	{key: ":ctx", sees: "tko dashboard --context NAME"},
	{key: ":ns", sees: "site-id=north/**"},
	{key: ":po", sees: "tko site diff ID"},
	{key: ":svc", sees: "tko site diff ID"},
	{key: ":nodes", sees: "tko site diff ID"},
	{key: ":helm", sees: "tko site diff ID"},
	{key: ":crd", sees: "tko site diff ID"},
	{key: ":xray", sees: "t shows the tree"},
	{key: ":pulses", sees: "tko status"},
	{key: ":popeye", sees: "p shows only what is failing"},
	{key: ":dir", sees: "tko apply -f DIRECTORY"},
	{key: ":screendump", sees: "no screen dumps"},
	{key: ":can", sees: "tko access can-i"},
	{key: ":skin", sees: "--colorize=false"},
}

// press returns the message of the key.
func (h habit) press() tea.KeyPressMsg {
	named := map[string]rune{"Tab": tea.KeyTab, "Esc": tea.KeyEscape, "Enter": tea.KeyEnter, "Space": tea.KeySpace, "Left": tea.KeyLeft, "Right": tea.KeyRight}
	k, rest := tea.KeyPressMsg{}, h.key
	for {
		mod, after, ok := strings.Cut(rest, "-")
		if !ok || after == "" {
			break
		}
		k.Mod |= map[string]tea.KeyMod{"Ctrl": tea.ModCtrl, "Shift": tea.ModShift}[mod]
		rest = after
	}
	if code, ok := named[rest]; ok {
		k.Code = code
		return k
	}
	k.Code = []rune(rest)[0]
	switch k.Mod {
	case tea.ModShift:
		k.Text = strings.ToUpper(rest)
	case 0:
		k.Text = rest
	}
	return k
}

// TestEachKeyOfK9sDoesTheSameOrSaysWhatDoes walks through all of k9s. No key changes anything, and
// none does nothing without a word.
func TestEachKeyOfK9sDoesTheSameOrSaysWhatDoes(t *testing.T) {
	t.Parallel()
	for _, h := range habits {
		t.Run(h.key, func(t *testing.T) {
			t.Parallel()
			f := sample()
			u := newUser(t, f, 160, 40)
			u.press(h.before...)
			requests := f.listed()
			var cmd tea.Cmd
			if h.key != ":" && strings.HasPrefix(h.key, ":") {
				u.press(":")
				u.press(strings.Split(h.key[1:], "")...)
				_, cmd = u.m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
			} else {
				_, cmd = u.m.Update(h.press())
			}
			if quit := quits(cmd); quit != h.quits {
				t.Fatalf("quits: %v, want %v", quit, h.quits)
			}
			if h.quits {
				return
			}
			u.run(cmd)
			u.sees(h.sees)
			if id := u.m.lists[0].selected(); h.at != "" && id != h.at {
				t.Errorf("the cursor is at %s, want %s", id, h.at)
			}
			if h.reads && f.listed() == requests {
				t.Error("the list was not read again")
			}
			if slices.Contains(h.before, "space") && len(u.m.lists[0].marks) > 0 {
				t.Error("a row is still marked")
			}
			if len(f.approved)+len(f.removed)+len(f.commands) > 0 {
				t.Errorf("it has changed something: %v, %v, %v", f.approved, f.removed, f.commands)
			}
		})
	}
}

// quits reports whether a command ends the dashboard.
func quits(cmd tea.Cmd) bool {
	if cmd == nil {
		return false
	}
	switch msg := cmd().(type) {
	case tea.QuitMsg:
		return true
	case tea.BatchMsg:
		return slices.ContainsFunc(msg, quits)
	}
	return false
}

// TestTheTableOfK9sIsComplete compares the table of the documentation with the keys above.
func TestTheTableOfK9sIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text2, ok := strings.Cut(string(text), "### Keys of k9s")
	if !ok {
		t.Fatal(`docs/dashboard.md has no section "Keys of k9s"`)
	}
	table, _, _ := strings.Cut(text2, "\n#")
	inTable := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) < 3 {
			continue
		}
		for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			inTable[found[1]] = true
		}
	}
	for _, h := range habits {
		name, _, _ := strings.Cut(h.key, " ")
		if !inTable[name] && !inTable[h.key] {
			t.Errorf("the table lacks %q", h.key)
		}
		delete(inTable, name)
		delete(inTable, h.key)
	}
	for name := range inTable {
		if !slices.ContainsFunc(habits, func(h habit) bool { return strings.HasPrefix(h.key, name) }) {
			t.Errorf("the table has %q, which no test presses", name)
		}
	}
	for name := range hints {
		if !slices.ContainsFunc(habits, func(h habit) bool { return h.press().String() == name }) {
			t.Errorf("the hint of %q is not tried", name)
		}
	}
}
