package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// A Block is a fenced block of a page.
type Block struct {
	Page     string // path from the root of the repository
	Line     int
	Language string
	Mark     string // the rest of the line of the fence
	Reason   string // why no test runs its commands: from a comment before it
	Text     string
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Commands of blocks are lines of sh, or lines of console that begin with a dollar sign.
func (b Block) script() string {
	switch b.Language {
	case "sh":
		return b.Text
	case "console":
		var script strings.Builder
		for line := range strings.Lines(b.Text) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script.WriteString(command)
			}
		}
		return script.String()
	}
	return ""
}

// A Command is a command of a block, as a shell passes it.
type Command struct {
	Block
	Words []string
}

func (c Command) String() string { return c.Block.String() + ": " + strings.Join(c.Words, " ") }

// Root returns the root of the repository.
func Root() string { return process.Root() }

// Pages returns the pages of the documentation, by their path from the root.
func Pages(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "deploy/*/README.md", "sdk/*/README.md"} {
		files, err := filepath.Glob(filepath.Join(Root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // a page of this repository
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(Root(), file)
			if err != nil {
				t.Fatal(err)
			}
			found[filepath.ToSlash(name)] = string(text)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d pages", len(found))
	}
	return found
}

var reason = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// Blocks returns the fenced blocks of a page.
func Blocks(page, text string) []Block {
	var all []Block
	var open *Block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case open != nil && line == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.Text += line + "\n"
		case isFence:
			language, mark, _ := strings.Cut(fence, " ")
			open = &Block{Page: page, Line: i + 1, Language: language, Mark: mark}
			if m := reason.FindStringSubmatch(before); m != nil {
				open.Reason = m[1]
			}
		}
		if line != "" {
			before = line
		}
	}
	return all
}

// The shell finds no program, so that it hands each command to the function, which writes the
// number of its words, and the words. Each prints an ID, for the commands after it.
const recorder = `
PATH=/none ID=ID TOKEN=TOKEN
exec 3>>"$1"
command -p mkdir -p testdata/good testdata/wrong
mkdir() { command -p mkdir -p "$@"; command_not_found_handle mkdir "$@"; }
cd() { :; }
source() { :; }
command_not_found_handle() { printf '%s\0' "$block" "$#" "$@" >&3; echo ID; }
`

// inFolder is a program that is named with its folder, where a command may begin.
var inFolder = regexp.MustCompile(`(?m)(^|[|&;(] *|^[A-Z]+=\S* +)((?:[\w.-]+/)+)([\w.-]+)`)

// outside is output to a file that is not in the current folder.
var outside = regexp.MustCompile(`>>? *["']?[~/$][^ \n]*`)

// Commands returns the commands in the blocks of all pages. A shell reads them, and runs none.
func Commands(t testing.TB) []Command {
	t.Helper()
	var blocks []Block
	var script strings.Builder
	script.WriteString(recorder)
	for page, text := range Pages(t) {
		for _, b := range Blocks(page, text) {
			commands := b.script()
			if commands == "" {
				continue
			}
			commands = inFolder.ReplaceAllStringFunc(commands, func(found string) string {
				m := inFolder.FindStringSubmatch(found)
				if _, err := os.Stat(filepath.Join(Root(), m[2], m[3])); err != nil && m[2] != "bin/" && m[2] != "env/bin/" {
					t.Errorf("%s: there is no program %s%s", b, m[2], m[3])
				}
				return m[1] + m[3]
			})
			commands = outside.ReplaceAllString(commands, ">/dev/null")
			fmt.Fprintf(&script, "block=%d\n(\nset -e\n%s\n:\n) >/dev/null || echo \"block $block fails\" >&2\n", len(blocks), commands)
			blocks = append(blocks, b)
		}
	}
	record := filepath.Join(t.TempDir(), "record")
	bash := exec.CommandContext(t.Context(), "bash", "--norc", "-s", record) //nolint:gosec // a file of the test
	bash.Stdin, bash.Dir, bash.Env = strings.NewReader(script.String()), t.TempDir(), []string{}
	if out, err := bash.CombinedOutput(); err != nil || len(out) > 0 {
		names := regexp.MustCompile(`block (\d+) fails`).ReplaceAllStringFunc(string(out), func(found string) string {
			i, _ := strconv.Atoi(strings.Fields(found)[1])
			return blocks[i].String() + " fails"
		})
		t.Fatalf("bash can't read the commands of the documentation: %v\n%s", err, names)
	}
	data, err := os.ReadFile(record) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	var all []Command
	words := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	for len(words) > 2 {
		block, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		count, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Command{Block: blocks[block], Words: words[2 : 2+count]})
		words = words[2+count:]
	}
	return all
}

// CommandsOf returns the commands of one program, without its name. There are at least as many as given.
func CommandsOf(t testing.TB, program string, least int) []Command {
	t.Helper()
	var found []Command
	for _, c := range Commands(t) {
		if c.Words[0] == program {
			c.Words = c.Words[1:]
			found = append(found, c)
		}
	}
	if len(found) < least {
		t.Fatalf("the documentation has only %d commands of %s", len(found), program)
	}
	return found
}

var inline = regexp.MustCompile("`([^`\n]+)`")

// Mentioned returns the commands of a program in the running text and the tables of all pages, by page.
// Their words may be placeholders. Those with an ellipsis are left out.
func Mentioned(t testing.TB, program string) []Command {
	t.Helper()
	var found []Command
	for page, text := range Pages(t) {
		for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			words := strings.Fields(strings.ReplaceAll(m[1], `\|`, "|"))
			if len(words) > 1 && words[0] == program && !strings.ContainsAny(m[1], "…") {
				found = append(found, Command{Block: Block{Page: page}, Words: words[1:]})
			}
		}
	}
	return found
}

var fence = regexp.MustCompile("(?ms)^```.*?^```")
