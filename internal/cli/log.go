package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

func (a *app) logCommand() *cobra.Command {
	return group("log", "Log of the server", a.logLevel())
}

// A logServer has the levels of the server's log.
type logServer interface {
	LogLevels(ctx context.Context) ([]tko.LogLevel, error)
	SetLogLevels(ctx context.Context, levels string, lasting time.Duration) ([]tko.LogLevel, error)
}

var logLevelView = view[tko.LogLevel]{
	id: func(l tko.LogLevel) string { return l.Component },
	row: func(l tko.LogLevel) map[string]any {
		row := map[string]any{"component": l.Component, "level": l.Level}
		setText(row, "until", momentText(l.Until))
		return row
	},
	columns: []column[tko.LogLevel]{
		{name: "COMPONENT", text: func(l tko.LogLevel) string { return l.Component }},
		{name: "LEVEL", text: func(l tko.LogLevel) string { return l.Level }},
		{name: "UNTIL", text: func(l tko.LogLevel) string {
			if l.Until.IsZero() {
				return ""
			}
			return l.Until.Local().Format(time.RFC3339)
		}},
	},
}

func (a *app) logLevel() *cobra.Command {
	lasting := time.Hour
	cmd := &cobra.Command{
		Use: "level [LEVEL] [COMPONENT=LEVEL]...", Short: "Show or change the levels of the server's log",
		Long: `Show the levels of the components of the server's log, or change them while the server
runs: LEVEL for all components that have no level of their own, COMPONENT=LEVEL for one.
Levels are debug, info, warn, error, and default, the level of the start of the server.

A change lasts an hour, or --for a time, and concerns the server that the command
connects to and the programs that it started, not other servers. Administrators may
change levels; the audit log has the changes.`,
		Example: "  tko log level\n  tko log level store=debug preparer=debug --for 10m\n  tko log level default",
		Args:    cobra.ArbitraryArgs,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			levels, err := call(ctx, s, func(ctx context.Context) ([]tko.LogLevel, error) {
				if len(args) == 0 {
					return s.LogLevels(ctx)
				}
				return s.SetLogLevels(ctx, strings.Join(args, ","), lasting)
			})
			if err != nil {
				return err
			}
			return listItems(ctx, s, logLevelView, levels)
		}),
	}
	cmd.Flags().DurationVar(&lasting, "for", lasting, "`duration` of the change (0: until the server ends)")
	return cmd
}
