package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// databases runs the query of an inventory by tko-server, which has the drivers of
// databases. It is next to this program, or on the PATH.
func databases(ctx context.Context, q remote.Query) ([]byte, error) {
	const program = "tko-server"
	path, err := child.Find(program)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "queries of databases need the program %s next to this one, or on the PATH: %w", program, err)
	}
	text, err := json.Marshal(q.Plain()) //nolint:gosec // for the standard input of the program, which needs the password
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, path, remote.QueryCommand) //nolint:gosec // the server of the same installation
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &stdout, &stderr
	if err := command.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended || ctx.Err() != nil {
			return nil, fmt.Errorf("run %s: %w", path, err)
		}
		text, _ := strings.CutSuffix(strings.TrimSpace(stderr.String()), "\nSee tko-server --help.")
		return nil, tko.Errorf(tko.ErrInvalid, "%s", strings.TrimPrefix(text, program+": "))
	}
	return stdout.Bytes(), nil
}
