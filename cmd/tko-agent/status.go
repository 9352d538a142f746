package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/printable"
)

func statusCommand(folder *string) *cobra.Command {
	var encoded bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show which server the agent obeys, and which it refuses",
		Long: `Show the site of the agent, the server that it is connected to, the greatest fencing epoch that it has
seen, the servers that it refuses because their stores have a lower one, and why nothing is changed at the site, if
so. It reads the folder of --state, while the agent runs or not, and contacts no server.`,
		Example: "  tko-agent status",
		Args:    exactly(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := agent.ReadStatus(*folder)
			if err != nil {
				return err
			}
			if encoded {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(statusOf(s))
			}
			return printStatus(cmd.OutOrStdout(), s)
		},
	}
	cmd.Flags().BoolVar(&encoded, "json", false, "print JSON")
	return cmd
}

// A statusJSON is the status of an agent for programs.
type statusJSON struct {
	Site       tko.SiteID        `json:"site"`
	Running    bool              `json:"running"`
	Epoch      int64             `json:"epoch"`
	Hold       string            `json:"hold,omitempty"`
	Connection *agent.Connection `json:"connection,omitempty"`
}

func statusOf(s agent.Status) statusJSON {
	return statusJSON{s.Site, s.Running, s.Epoch, s.Hold, s.Connection}
}

func printStatus(out io.Writer, s agent.Status) error {
	lines := []string{fmt.Sprintf("site: %s", s.Site), "agent: " + map[bool]string{true: "running", false: "not running"}[s.Running]}
	if c := s.Connection; c != nil {
		switch {
		case c.Server == "":
			lines = append(lines, "server: none since "+c.Since.Format(time.RFC3339))
		case s.Running:
			lines = append(lines, fmt.Sprintf("server: %s since %s", c.Server, c.Since.Format(time.RFC3339)))
		default:
			lines = append(lines, fmt.Sprintf("server: last %s, from %s", c.Server, c.Since.Format(time.RFC3339)))
		}
	}
	lines = append(lines, "fencing epoch: "+tko.EpochText(s.Epoch))
	if c := s.Connection; c != nil {
		for _, one := range c.Refused {
			lines = append(lines, fmt.Sprintf("refused: %s since %s: its store has the fencing epoch %s", one.Server, one.Since.Format(time.RFC3339), tko.EpochText(one.Epoch)))
		}
	}
	if s.Hold != "" {
		lines = append(lines, "held: "+s.Hold)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, printable.Text(line)); err != nil {
			return err
		}
	}
	return nil
}
