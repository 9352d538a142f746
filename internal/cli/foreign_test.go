package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The command explains the words of kubectl.
func TestWordsOfOtherToolsAreExplained(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"get deployments":               "did you mean tko deployment list?",
		"get deployment x":              "did you mean tko deployment get x?",
		"get sites/a":                   "did you mean tko site get a?",
		"describe site a/1":             "did you mean tko site explain a/1?",
		"delete template x":             "did you mean tko template delete x?",
		"create deployment":             "did you mean tko deployment create?",
		"get pods":                      "unknown command \"tko get\"\n",
		"deployment list --limit=5":     "unknown flag: --limit: lists have no limit: narrow them with filters, or use | head",
		"events --follow":               "unknown flag: --follow: use --watch",
		"about --follow":                "unknown flag: --follow\n",
		"deployment list --output yaml": "use --format, or -o",
		"site list -n kube-system":      "IDs are paths: use --id 'PATH/*'",
		"site list --heathy=false":      "did you mean --healthy?",
	} {
		got := run(t, example(), "", strings.Fields(line)...)
		if got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("tko %s: exit code %d, %q; want %q", line, got.code, got.err, want)
		}
	}
}

func TestFlagsOfAllCommandsHaveOneHelp(t *testing.T) {
	t.Parallel()
	short, flags := run(t, example(), "", "site", "get", "--help"), run(t, example(), "", "help", "flags")
	if strings.Contains(short.out, "--grpc-address") || !strings.Contains(short.out, "Flags of all commands: see tko help flags") || !strings.Contains(short.out, "--as-of") {
		t.Errorf("the help of a command is\n%s", short.out)
	}
	if !strings.Contains(flags.out, "--grpc-address") || strings.Contains(flags.out, "--as-of") || flags.code != 0 {
		t.Errorf("the help of flags is, with exit code %d,\n%s%s", flags.code, flags.out, flags.err)
	}
}

// A watch of the status prints it when it has changed, and only then.
func TestStatusIsWatched(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), eventually.Limit)
	defer stop()
	f := example()
	reads := 0
	f.deployments = func() []tko.Deployment {
		switch reads++; reads {
		case 1, 2: // the same twice
			return nil
		case 4:
			stop()
		}
		return make([]tko.Deployment, 1)
	}
	got := runContext(ctx, f, "", "status", "--watch", "-o", "json", "-p=false")
	if n := strings.Count(got.out, `"sites":`); n != 2 || got.code != 130 {
		t.Errorf("exit code %d, with %d summaries:\n%s%s", got.code, n, got.out, got.err)
	}
}
