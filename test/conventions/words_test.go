package conventions_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// marker ends a line of text that needs a ruled-out word.
const marker = "plain-words: ok"

// A rule rules out a phrase.
type rule struct {
	phrase  *regexp.Regexp
	instead string
}

// rules are those of a list, and any matches the phrases of all of them.
type rules struct {
	each []rule
	any  *regexp.Regexp
}

func readRules(text string) (rules, error) {
	var read rules
	var phrases []string
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		phrase, instead, ok := strings.Cut(line, ": ")
		re, err := regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(phrase, " ", `\s+`) + `)\b`)
		if !ok || err != nil {
			return rules{}, fmt.Errorf("line %d: write PHRASE: REPLACEMENT, with a regular expression as the phrase: %w", n+1, err)
		}
		read.each = append(read.each, rule{re, instead})
		phrases = append(phrases, re.String())
	}
	var err error
	read.any, err = regexp.Compile(strings.Join(phrases, "|"))
	return read, err
}

// A passage is a text that people read, and the line where it begins, from 1.
type passage struct {
	line int
	text string
}

// passagesOf returns what people read in a file: comments, texts and the names of
// tests of Go; comments of Python (docstrings, too), shell, YAML and proto; all of Markdown but
// its blocks of code. Other files have none.
func passagesOf(name string, content []byte) []passage {
	switch filepath.Ext(name) {
	case ".go":
		return goPassages(content)
	case ".md":
		return markdownPassages(string(content))
	case ".py":
		return append(lines(string(content), regexp.MustCompile(`#.*`)), blocks(string(content), regexp.MustCompile(`(?s)""".*?"""`))...)
	case ".sh", ".yaml", ".yml", ".txt", ".txtar":
		return lines(string(content), regexp.MustCompile(`(?:^|\s)#.*`))
	case ".proto":
		return lines(string(content), regexp.MustCompile(`//.*`))
	default:
		return nil
	}
}

var testName = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz|Example)[A-Z]`)

// words splits a camel-case name.
var words = regexp.MustCompile(`[A-Z][a-z0-9]*`)

func goPassages(content []byte) []passage {
	var found []passage
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		position, kind, literal := s.Scan()
		line := file.Line(position)
		switch {
		case kind == token.EOF:
			return found
		case kind == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
			found = append(found, passage{line, literal})
		case kind == token.STRING:
			if text, err := strconv.Unquote(literal); err == nil {
				found = append(found, passage{line, text})
			}
		case kind == token.IDENT && testName.MatchString(literal):
			found = append(found, passage{line, strings.Join(words.FindAllString(literal, -1), " ")})
		}
	}
}

func markdownPassages(content string) []passage {
	var found []passage
	code := false
	for n, line := range strings.Split(content, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			found = append(found, passage{n + 1, line})
		}
	}
	return found
}

func lines(content string, comment *regexp.Regexp) []passage {
	var found []passage
	for n, line := range strings.Split(content, "\n") {
		if text := comment.FindString(line); text != "" {
			found = append(found, passage{n + 1, text})
		}
	}
	return found
}

func blocks(content string, block *regexp.Regexp) []passage {
	var found []passage
	for _, at := range block.FindAllStringIndex(content, -1) {
		found = append(found, passage{1 + strings.Count(content[:at[0]], "\n"), content[at[0]:at[1]]})
	}
	return found
}

// check returns the ruled-out words in a file.
func check(list rules, name string, content []byte) []string {
	var found []string
	all := strings.Split(string(content), "\n")
	for _, p := range passagesOf(name, content) {
		if !list.any.MatchString(p.text) {
			continue
		}
		for _, r := range list.each {
			for _, at := range r.phrase.FindAllStringIndex(p.text, -1) {
				line := p.line + strings.Count(p.text[:at[0]], "\n")
				if line <= len(all) && strings.Contains(all[line-1], marker) {
					continue
				}
				found = append(found, fmt.Sprintf("%s:%d: %q: write instead: %s", name, line, p.text[at[0]:at[1]], r.instead))
			}
		}
	}
	return found
}

// repository returns the root of the work tree and the names of the files in it that
// people write.
func repository(t *testing.T) (root string, names []string) {
	t.Helper()
	root = process.Root()
	process.Reads(t, ".")
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatalf("list the files of the work tree: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if !excluded(name) {
			names = append(names, name)
		}
	}
	return root, names
}

// excluded reports whether a file is generated, or is about the words themselves.
func excluded(name string) bool {
	return strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, "_pb2.py") || strings.HasSuffix(name, "_pb2.pyi") || strings.HasSuffix(name, "_pb2_grpc.py") ||
		strings.Contains(name, "zz_generated") || name == "test/conventions/words.txt" || name == "test/conventions/words_test.go"
}

func TestTextsUsePlainWords(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := readRules(string(text))
	if err != nil {
		t.Fatal(err)
	}
	root, names := repository(t)
	if len(names) < 100 {
		t.Fatalf("there are only %d files: they were not found", len(names))
	}
	for _, name := range names {
		content, err := fs.ReadFile(os.DirFS(root), name)
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range check(list, name, content) {
			t.Error(finding)
		}
	}
}

func TestRuledOutWordsAreFound(t *testing.T) {
	t.Parallel()
	list, err := readRules("# a comment\nanswers|answered: functions return\nis told: is passed\n")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		file, content string
		want          int // the line, 0 if the text is plain
	}{
		"comment":                {"a.go", "package p\n\n// F answers nothing.\nfunc F() {}\n", 3},
		"comment of two lines":   {"a.go", "package p\n\n/* F\nanswers. */\n", 4},
		"phrase across lines":    {"a.py", "\"\"\"It is\ntold.\"\"\"\n", 1},
		"text":                   {"a.go", "package p\n\nconst c = \"it Answered\"\n", 3},
		"name of a test":         {"a_test.go", "package p\n\nfunc TestServerAnswersTwice() {}\n", 3},
		"identifier":             {"a.go", "package p\n\nfunc answered() {}\n", 0},
		"part of a word":         {"a.go", "package p\n\n// unanswered\n", 0},
		"marked line":            {"a.go", "package p\n\n// answers // plain-words: ok, a quotation\n", 0},
		"prose":                  {"a.md", "It answers.\n", 1},
		"block of code in prose": {"a.md", "```\nanswers\n```\n", 0},
		"after a block of code":  {"a.md", "```\nx\n```\nanswers\n", 4},
		"docstring":              {"a.py", "x = 1\n\"\"\"\nanswers\n\"\"\"\n", 3},
		"value":                  {"a.yaml", "answers: 1 # fine\n", 0},
		"comment of YAML":        {"a.yaml", "a: 1 # answers\n", 1},
		"another kind of file":   {"a.bin", "answers", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := check(list, test.file, []byte(test.content))
			switch {
			case test.want == 0 && len(found) > 0:
				t.Errorf("found %q in a plain text", found)
			case test.want > 0 && (len(found) != 1 || !strings.HasPrefix(found[0], fmt.Sprintf("%s:%d: ", test.file, test.want))):
				t.Errorf("found %q, want one in line %d", found, test.want)
			}
		})
	}
}

func TestMalformedRuleIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"answers", "(: x"} {
		if _, err := readRules(text); err == nil {
			t.Errorf("the rule %q is accepted", text)
		}
	}
}

// clause is a comment of the protocol that begins with a clause in place of its subject.
var clause = regexp.MustCompile(`^//\s*(?:What|Whatever|Who|Whoever|How|Whether|Where|Why|what|who|how|whether|where|why)\s`)

// TestCommentsOfTheProtocolBeginWithTheirSubject reads the comments of proto/, which are in docs/grpc.md and in the
// generated code, too.
func TestCommentsOfTheProtocolBeginWithTheirSubject(t *testing.T) {
	files := 0
	err := filepath.WalkDir(filepath.Join("..", "..", "proto"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".proto" {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sentence := true // the comment before has ended
		for n, line := range strings.Split(string(content), "\n") {
			comment := regexp.MustCompile(`//.*`).FindString(line)
			if sentence && clause.MatchString(comment) {
				t.Errorf("%s:%d: %q begins with a clause: begin with the thing", path, n+1, comment)
			}
			continues := comment != "" && strings.HasPrefix(strings.TrimSpace(line), "//")
			sentence = !continues || strings.HasSuffix(comment, ".")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("proto/ has %d files: want 5 at least", files)
	}
}
