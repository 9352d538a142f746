package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/dashboard"
)

// The range of --frequency.
const (
	leastFrequency = 0.1
	mostFrequency  = 30
)

func (a *app) dashboardCommand() *cobra.Command {
	var frequency float64
	var zone string
	var ascii, mouse bool
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Show deployments, sites, templates, plugins and changes in full screen, live",
		Long: `Show deployments, sites, templates, plugins and changes in full screen, live.
Lists are read in pages, whatever the size of the fleet. The key ? shows all keys:
/ filters in the words of the list commands, enter opens a row, A approves and D
deletes; both show what would change, and ask.

Colors are off with --colorize=false or NO_COLOR. Without a UTF-8 locale, or with
--ascii, states have signs of ASCII. For scripts, use the list commands.`,
		Example: "  tko dashboard\n  tko dashboard -f 0.5 -t UTC",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !(frequency >= leastFrequency && frequency <= mostFrequency) {
			return usageError(cmd, fmt.Errorf("--frequency %v: use %v to %v redraws per second", frequency, leastFrequency, mostFrequency))
		}
		location, err := time.LoadLocation(zone)
		if err != nil {
			return usageError(cmd, fmt.Errorf("--timezone %q: use UTC, Local, or a name such as Europe/Berlin: %w", zone, err))
		}
		if !isTerminal(a.streams.In) || !isTerminal(a.streams.Out) || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
			return &hintedError{err: tko.Errorf(errUsage, "the dashboard needs a terminal that can move the cursor"), hint: "use the list commands, such as tko deployment list"}
		}
		return a.run(func(ctx context.Context, s *session, _ []string) error {
			err := dashboard.Run(ctx, s, dashboard.Options{
				In: a.streams.In, Out: a.streams.Out, Every: time.Duration(float64(time.Second) / frequency), Timeout: a.timeout(),
				Location: location, Color: a.colors(a.streams.Out), ASCII: ascii || !utf8Locale(), Mouse: mouse, Now: a.now,
			})
			return s.explain(ctx, err)
		})(cmd, args)
	}
	f := cmd.Flags()
	f.Float64VarP(&frequency, "frequency", "f", 4, "redraws per `second`, at most, because of changes: 0.1 to 30")
	f.StringVarP(&zone, "timezone", "t", "Local", "`zone` of times: UTC, Local, or a name such as Europe/Berlin")
	f.BoolVar(&ascii, "ascii", false, "ASCII signs for states")
	f.BoolVar(&mouse, "mouse", true, "mouse for rows and tabs; with =false, or the key m, the terminal selects text")
	complete(cmd, "timezone", fixed("UTC", "Local"))
	return cmd
}

// utf8Locale reports whether the terminal's characters are UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToUpper(os.Getenv(name)); value != "" {
			return strings.Contains(value, "UTF-8") || strings.Contains(value, "UTF8")
		}
	}
	return false
}
