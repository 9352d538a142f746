//go:build !linux

package isolate

import (
	"context"
	"errors"

	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

var errSystem = errors.New("isolation of plugins works only on Linux")

func (*Isolation) methods(map[string]string) []method { return nil }

func (*Isolation) launch(context.Context, Run) (*supervise.Launch, func(), func(), error) {
	return nil, func() {}, func() {}, nil
}

func (*Isolation) runProbe(context.Context, *Program, string, []string) (string, error) {
	return "", errSystem
}
