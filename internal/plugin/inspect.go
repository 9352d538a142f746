package plugin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
)

// The reasons of the Runnable condition.
const (
	ReasonProgramMissing    = "ProgramMissing"    // the program is missing or not executable
	ReasonProgramNotAllowed = "ProgramNotAllowed" // the program is not below a folder of --plugin-programs, and is not run
	ReasonProgramFound      = "ProgramFound"      // the program can be run again
)

const (
	inspectInterval = 10 * time.Second
	// doubtAfter is the age at which a server that has the program replaces
	// another server's ProgramMissing: that server may no longer exist. If it
	// does, it reports ProgramMissing again.
	doubtAfter = 2 * time.Minute
)

// Check returns an error if a plugin's program is missing or not executable, as
// far as that is known without running it: only command plugins and playbooks that run
// on this machine are checked. The error names the program.
func (r *Runner) Check(p tko.Plugin) error {
	if p.Executor == tko.ExecutorAnsible && len(p.Arguments) == 1 {
		return r.checkAnsible(p)
	}
	if p.Executor != tko.ExecutorCommand && p.Executor != "" || len(p.Arguments) == 0 || p.Properties[tko.PropertyPod] != "" {
		return nil
	}
	program, err := r.programs().Open(p.Arguments[0])
	program.Close()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, isolate.ErrOutside):
		return err
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("program %q: not executable", p.Arguments[0])
	default:
		return fmt.Errorf("program %q: not found", p.Arguments[0])
	}
}

// Plugins lists plugins and sets their conditions, for an Inspector.
type Plugins interface {
	// Plugins returns the plugins that match, sorted by type and name.
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
	// SetConditions sets conditions, each by its type.
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
}

// An Inspector sets the Runnable condition to False on plugins whose program is
// missing, long before a package needs them. Each server that runs plugins has
// an Inspector, because each server has its own programs. The fields Plugins,
// Runner and Types are required.
type Inspector struct {
	Plugins Plugins
	Runner  *Runner
	Types   []string      // the plugin types that this server runs
	Host    string        // this server's name in messages
	Every   time.Duration // interval; 10 s if 0
	Log     *slog.Logger  // discards if nil
}

// Run inspects the plugins every interval until ctx is done, and then returns
// nil.
func (i *Inspector) Run(ctx context.Context) error {
	if i.Every == 0 {
		i.Every = inspectInterval
	}
	if i.Log == nil {
		i.Log = slog.New(slog.DiscardHandler)
	}
	tick := time.NewTicker(i.Every)
	defer tick.Stop()
	for {
		if err := i.inspect(ctx); err != nil && ctx.Err() == nil {
			i.Log.DebugContext(ctx, "can't inspect the plugins, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (i *Inspector) inspect(ctx context.Context) error {
	for p, err := range i.Plugins.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{}) {
		if err != nil {
			return err
		}
		c, ok := i.Condition(p)
		if !ok {
			continue
		}
		err := i.Plugins.SetConditions(ctx, tko.KindPlugin, p.ID(), []tko.Condition{c})
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("set the condition of plugin %q: %w", p.ID(), err)
		}
	}
	return nil
}

// Condition returns the Runnable condition of a plugin; ok is false if it need
// not be written, or if this server doesn't run plugins of the type.
func (i *Inspector) Condition(p tko.Plugin) (c tko.Condition, ok bool) {
	if !slices.Contains(i.Types, p.Type) {
		return c, false
	}
	c = tko.Condition{Type: tko.ConditionRunnable, Status: tko.ConditionTrue, Reason: ReasonProgramFound, Message: "the program was found", ObservedRevision: p.Stamp.Revision}
	if err := i.Runner.Check(p); err != nil {
		c.Status, c.Reason = tko.ConditionFalse, ReasonProgramMissing
		c.Message = fmt.Sprintf("%v on the server %s: install it there, or register the plugin with the program's path", err, i.Host)
		if errors.Is(err, isolate.ErrOutside) {
			c.Reason, c.Message = ReasonProgramNotAllowed, fmt.Sprintf("program %q is not allowed on the server %s: %v", p.Arguments[0], i.Host, err)
		}
	}
	was := tko.FindCondition(p.Stamp.Conditions, c.Type)
	switch {
	case was == nil:
		return c, c.Status == tko.ConditionFalse
	case was.ObservedRevision != p.Stamp.Revision:
		return c, true
	case was.Status == c.Status: // two servers that both lack the program must not overwrite each other again and again
		return c, false
	case c.Status == tko.ConditionFalse:
		return c, true
	default:
		return c, time.Since(was.LastTransition) > doubtAfter || strings.Contains(was.Message, " on the server "+i.Host+":")
	}
}
