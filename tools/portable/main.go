// Portable reads SQL statements from its standard input, each ended by a NUL,
// and prints those that are not in CockroachDB's grammar, each with the reason,
// as JSON: a list of objects with "statement" and "reason".
//
// It is a module of its own, so that the parser and what comes with it stay out
// of TKO.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/cockroachdb-parser/pkg/sql/parser"
)

type refusal struct {
	Statement string `json:"statement"`
	Reason    string `json:"reason"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "portable:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	refusals := []refusal{}
	for statement := range strings.SplitSeq(string(text), "\x00") {
		if _, err := parser.Parse(statement); err != nil {
			refusals = append(refusals, refusal{statement, err.Error()})
		}
	}
	return json.NewEncoder(out).Encode(refusals)
}
