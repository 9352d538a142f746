package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// terminal runs a command with a terminal.
func terminal(t *testing.T, f *fake, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	if f.deployments == nil {
		f.deployments = func() []tko.Deployment { return nil }
	}
	a := newApp(Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, func(target) (server, error) { return f, nil })
	a.terminal, a.interactive = true, true
	code := a.main(t.Context(), args)
	return result{out.String(), errs.String(), code}
}

// With a terminal, a command shows the number of entities and asks the user. The server
// deletes only that number.
func TestTerminalAsksBeforeManyAreDeleted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args  []string
		stdin string
		asked []string
		err   string
		code  int
	}{
		"yes": {
			[]string{"template", "purge", "--all"},
			"y\n",
			[]string{"purge templates [] map[] true", "purge templates [] map[] false confirmed 2"},
			"This will delete 2 templates. Continue? [y/N] deleted 2 templates\n", 0,
		},
		"no": {
			[]string{"template", "purge", "--id", "x"},
			"\n",
			[]string{"purge templates [x] map[] true"},
			"This will delete 2 templates. Continue? [y/N] tko: not confirmed: nothing was changed\n", exitOther,
		},
		"end of input": {
			[]string{"plugin", "purge", "--all"},
			"",
			[]string{"purge plugins [] true"},
			"This will delete 1 plugin. Continue? [y/N] tko: not confirmed: nothing was changed\n", exitOther,
		},
		"confirmed": {
			[]string{"template", "purge", "--all", "--confirm=2"},
			"",
			[]string{"purge templates [] map[] false confirmed 2"},
			"deleted 2 templates\n", 0,
		},
		"nothing": {
			[]string{"site", "purge", "--all"},
			"",
			[]string{"purge sites [] [] map[] true", "purge sites [] [] map[] false"},
			"deleted 0 sites\n", 0,
		},
		"approval": {
			[]string{"deployment", "approve", "--all"},
			"yes\n",
			[]string{`approve all "" map[] [] map[] [] map[] ? ? true`, `approve all "" map[] [] map[] [] map[] ? ? false confirmed 5`},
			"This will approve 5 deployments. Continue? [y/N] approved 5 deployments\n", 0,
		},
		"deletion with descendants": {
			[]string{"deployment", "delete", "D1"},
			"y\n",
			[]string{"deployment D1 0", `purge deployments "D1" map[] [] map[] [] map[] ? ? true`, "delete deployment D1 confirmed 3"},
			"This will delete 3 deployments. Continue? [y/N] deleted 4 deployments, of which 3 are descendants\n", 0,
		},
		"deletion of one": {[]string{"site", "delete", "lagos/1"}, "", []string{"purge sites [lagos/1] [] map[] true", "delete site lagos/1"}, "deleted 1 site\n", 0},
		"deletion of a template in use": {
			[]string{"template", "delete", "t"},
			"y\n",
			[]string{"purge templates [t] map[] true", "delete template t confirmed 1990"},
			"This will delete 2 templates, and leave 1988 entities without template or site. Continue? [y/N] deleted 1 template\n", 0,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example()
			got := terminal(t, f, test.stdin, test.args...)
			if got.code != test.code || got.err != test.err || !slices.Equal(f.asked, test.asked) {
				t.Errorf("exit code %d, %q, requests %q; want %d, %q, %q", got.code, got.err, f.asked, test.code, test.err, test.asked)
			}
		})
	}
}

// On a terminal, lists go through a pager, and errors don't.
func TestListsOnATerminalGoThroughAPager(t *testing.T) {
	t.Parallel()
	bare := []string{"template", "list", "-o", "bare"}
	tests := map[string]struct {
		args []string
		out  string
		err  string
		code int
	}{
		"a pager":                 {append(slices.Clone(bare), "--pager", "sed s/^/paged:/"), "paged:nf/smf:v1\npaged:nf/upf:v1\n", "", 0},
		"a list that is cut":      {append(slices.Clone(bare), "--pager", "sed s/^/paged:/", "--max-count=1"), "paged:nf/smf:v1\n", "this list is cut after 1 row", 0},
		"no pager":                {append(slices.Clone(bare), "--pager", ""), "nf/smf:v1\nnf/upf:v1\n", "", 0},
		"a pager that ends early": {append(slices.Clone(bare), "--pager", "true"), "", "", 0},
		"a missing pager":         {append(slices.Clone(bare), "--pager", "no-such-pager"), "", "", exitUsage},
		"a binary format":         {[]string{"site", "list", "--id", "x", "-o", "cbor", "--pager", "no-such-pager"}, "", "", 0},
		"no list":                 {[]string{"deployment", "create", "t", "--pager", "no-such-pager"}, "D1\n", "", 0},
		"an invalid command":      {[]string{"template", "list", "--frob", "--pager", "no-such-pager"}, "", "tko: unknown flag", exitUsage},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := terminal(t, example(), "", test.args...)
			if got.code != test.code || test.out != "" && got.out != test.out || !strings.HasPrefix(got.err, test.err) && test.err != "" {
				t.Errorf("exit code %d, %q, %q; want %d, %q, %q", got.code, got.out, got.err, test.code, test.out, test.err)
			}
		})
	}
	if got := run(t, example(), "", append(bare, "--pager", "no-such-pager")...); got.code != 0 || got.out != "nf/smf:v1\nnf/upf:v1\n" {
		t.Errorf("without a terminal: code %d, %q, %q", got.code, got.out, got.err)
	}
}

// A pager that the user quits in the middle of a long list ends the list.
func TestQuittingThePagerEndsTheList(t *testing.T) {
	t.Parallel()
	f := example()
	for range 50_000 {
		f.templates = append(f.templates, tko.Template{ID: "nf/another-template-with-a-long-name:v1"})
	}
	if got := terminal(t, f, "", "template", "list", "-o", "bare", "--pager", "head -n 1"); got.code != 0 || got.out != "nf/smf:v1\n" || got.err != "" {
		t.Errorf("code %d, %q, %q", got.code, got.out, got.err)
	}
}
