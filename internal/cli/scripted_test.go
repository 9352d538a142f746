package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const scripts = "../../test/cli/testdata/*.txtar"

// unscripted are the commands that no script runs, with the test that runs them instead or
// the reason why there is none. Remove a command from it when you add a script.
var unscripted = map[string]string{
	"tko dashboard":          "needs a terminal: test/dashboard",
	"tko login":              "needs an issuer and a browser: test/login",
	"tko access break-glass": "needs the Unix socket of a server with a fixed port: internal/grpcapi",
	"tko site approve":       "needs an agent that waits: test/callhome",
	"tko inventory approve":  "needs an inventory that the server reads: the same command as tko gitops approve",
	"tko inventory sync":     "needs an inventory that the server reads: the same command as tko gitops sync",
	"tko subscription test":  "needs a destination that accepts messages: TestMessagesOfTheExampleArrive of test/docs",
	"tko catalog sync":       "needs a catalog that the server reads: the same command as tko gitops sync",
}

var (
	scriptLine = regexp.MustCompile(`(?:^|[\s;|&('"$])tko\s+([^;|&)'"]+)`)
	scriptFail = regexp.MustCompile(`test \$\? = [1-6]`)
)

// scriptedCommands returns the commands that the lines of scripts run successfully. Runs
// that only print help or complete words don't count.
func scriptedCommands(root *cobra.Command, text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		line, isExec := strings.CutPrefix(strings.TrimSpace(line), "exec ")
		if !isExec || scriptFail.MatchString(line) {
			continue
		}
		for _, match := range scriptLine.FindAllStringSubmatch(line, -1) {
			args := strings.Fields(match[1])
			if slices.Contains(args, "--help") || slices.Contains(args, "__complete") {
				continue
			}
			if cmd, _, err := root.Find(args); err == nil {
				found[cmd.CommandPath()] = true
			}
		}
	}
	return found
}

// leaves returns the paths of all commands that hold no others.
func leaves(cmd *cobra.Command) (paths []string) {
	if !cmd.HasSubCommands() {
		return []string{cmd.CommandPath()}
	}
	for _, child := range cmd.Commands() {
		paths = append(paths, leaves(child)...)
	}
	return paths
}

func TestEveryCommandHasScript(t *testing.T) {
	t.Parallel()
	root := newApp(Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}, nil).rootCommand()
	files, err := filepath.Glob(scripts)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	scripted := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for path := range scriptedCommands(root, string(text)) {
			scripted[path] = true
		}
	}
	all := leaves(root)
	for _, path := range all {
		_, excepted := unscripted[path]
		switch {
		case !scripted[path] && !excepted:
			t.Errorf("no script in test/cli/testdata runs %q: add one", path)
		case scripted[path] && excepted:
			t.Errorf("a script runs %q: remove it from the exceptions", path)
		}
	}
	for path, why := range unscripted {
		if !slices.Contains(all, path) {
			t.Errorf("there is no command %q: remove it from the exceptions", path)
		}
		if why == "" {
			t.Errorf("the exception for %q has no reason", path)
		}
	}
}

func TestScriptedCommandsCountOnlyRuns(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want string // no command if empty
	}{
		"run":                {line: "exec tko site list -o bare", want: "tko site list"},
		"flag before":        {line: "exec tko -q template list", want: "tko template list"},
		"in a shell":         {line: `exec sh -c 'id=$(tko -q deployment create nf:v1) && true'`, want: "tko deployment create"},
		"in the background":  {line: "exec tko events --watch &events&", want: "tko events"},
		"failure":            {line: "! exec tko site list"},
		"last in a shell":    {line: "exec sh -c 'true; tko logout'", want: "tko logout"},
		"changes":            {line: "exec sh -c 'tko gitops plan --exit-code; test $? = 7'", want: "tko gitops plan"},
		"failure in a shell": {line: "exec sh -c 'tko site get x; test $? = 3'"},
		"help":               {line: "exec tko site list --help"},
		"completion":         {line: "exec tko __complete site list ''"},
		"only a comparison":  {line: "stdout 'tko site list'"},
		"another program":    {line: "exec cat site list"},
		"name in a pathname": {line: "exec cat /etc/tko-server site"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newApp(Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}, nil).rootCommand()
			found := scriptedCommands(root, test.line)
			if test.want == "" && len(found) > 0 || test.want != "" && (len(found) != 1 || !found[test.want]) {
				t.Errorf("got %v, want %q", found, test.want)
			}
		})
	}
}
