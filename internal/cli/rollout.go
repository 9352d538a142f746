package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

func (a *app) rolloutCommand() *cobra.Command {
	command := func(verb, short, long string, flags func(*cobra.Command, *tko.RolloutCommand)) *cobra.Command {
		c := tko.RolloutCommand{Verb: verb}
		cmd := &cobra.Command{
			Use: verb + " ID", Short: short, Long: long, Args: arguments(1, 1), Example: "  tko rollout " + verb + " smf-v2", ValidArgsFunction: a.completeArgs(completeRollouts),
			RunE: a.run(func(ctx context.Context, s *session, args []string) error {
				c.ID = tko.RolloutID(args[0])
				status, err := s.command(ctx, c)
				if err != nil {
					return err
				}
				return a.commanded(verb, status)
			}),
		}
		if flags != nil {
			flags(cmd, &c)
		}
		return cmd
	}
	digest := func(cmd *cobra.Command, c *tko.RolloutCommand) {
		cmd.Flags().StringVar(&c.Plan, "plan", "", "`DIGEST` of the plan that you have reviewed, or its first 12 characters")
	}
	deployment := func(cmd *cobra.Command, c *tko.RolloutCommand) {
		cmd.Flags().StringVar((*string)(&c.Deployment), "deployment", "", "`ID` of the deployment (default: all that can be)")
	}
	return group("rollout", "Planned changes of many deployments, in waves",
		a.rolloutCreate(), a.rolloutPlan(),
		command("start", "Start a rollout with the plan that you have reviewed", "", func(cmd *cobra.Command, c *tko.RolloutCommand) {
			digest(cmd, c)
			cmd.Example = "  tko rollout start smf-v2 --plan 4f5c1d2e3b4a"
			cmd.Flags().BoolVar(&c.SkipBlocked, "skip-blocked", false, "leave out deployments in conflict or invalid; the status reports them as skipped")
			cmd.Flags().BoolVar(&c.Blind, "blind", false, "take deployments for healthy once they are scheduled, at sites that report no health")
		}),
		a.rolloutStatus(),
		command("approve", "Approve the next wave of a rollout",
			`Approve the next wave of a rollout. While the wave that was approved last is in progress, the
server refuses to approve the one after it, unless --wave names it: a second run approves
nothing more. A wave with approval: {external: NAME} is approved by a ticket at that ticket
system, and not by this command: tko rollout status names the ticket. If that system is lost,
--emergency approves the wave in place of the ticket. It needs the right emergency, and
--reason: the evidence and the audit log have both.`,
			func(cmd *cobra.Command, c *tko.RolloutCommand) {
				digest(cmd, c)
				cmd.Example += "\n  tko rollout approve smf-v2 --wave rest"
				cmd.Flags().BoolVar(&c.Emergency, "emergency", false, "approve the wave in place of the ticket that it waits for; needs the right emergency, and --reason")
				cmd.Flags().StringVar(&c.Wave, "wave", "", "`name` of the wave to approve: if it isn't the next one, nothing is changed")
			}),
		command("pause", "Pause a rollout: nothing more is changed; what is changed already is observed", "", nil),
		command("resume", "Resume a paused rollout", "Resume a paused rollout. If what is left was planned again, name the digest of that plan.", digest),
		command("cancel", "Cancel a rollout: what waits is skipped; what is changed stays, and can be undone", "", nil),
		command("undo", "Return all that a rollout changed to what it was, last wave first",
			"Return all that a rollout changed to what it was, byte for byte: recreate what it deleted,\ndelete what it created. The undo is a rollout, too: see it with tko rollout status ID-undo.",
			func(cmd *cobra.Command, c *tko.RolloutCommand) {
				cmd.Flags().BoolVar(&c.Force, "force", false, "also what others changed since: their changes are lost")
				cmd.Flags().BoolVar(&c.AnyTime, "any-time", false, "also outside of the rollout's windows")
			}),
		command("skip", "Leave out deployments that are no longer as planned", "", deployment),
		command("waive", "Ignore failed deployments, or a metric",
			"Ignore failed deployments in the budget of failures and in the limits; or, with --metric, ignore a\nmetric from now on.",
			func(cmd *cobra.Command, c *tko.RolloutCommand) {
				deployment(cmd, c)
				cmd.Example += "\n  tko rollout waive smf-v2 --metric errors"
				cmd.Flags().StringVar(&c.Metric, "metric", "", "`name` of a metric of the rollout, in place of deployments")
				cmd.MarkFlagsMutuallyExclusive("deployment", "metric")
			}),
		a.rolloutEvidence(),
		asOfFlag(rolloutKind.listCommand(a, &cobra.Command{Short: "List rollouts", Example: "  tko rollout list\n  tko rollout list --id 'smf/**' -o json"}, &rolloutFilter{})),
		asOfFlag(rolloutKind.getCommand(a, &cobra.Command{Short: "Print a rollout's package", Example: "  tko rollout get smf-v2 > smf-v2.yaml"})),
		a.rolloutDelete())
}

// command does a command of a rollout.
func (s *session) command(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error) {
	status, err := call(ctx, s, func(ctx context.Context) (tko.RolloutStatus, error) { return s.RolloutDo(ctx, c) })
	if errors.Is(err, tko.ErrConflict) {
		err = &hintedError{err: err, hint: "see tko rollout status " + string(c.ID)}
	}
	return status, err
}

func (s *session) status(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	return call(ctx, s, func(ctx context.Context) (tko.RolloutStatus, error) { return s.RolloutStatus(ctx, id) })
}

func (a *app) commanded(verb string, s tko.RolloutStatus) error {
	text := s.State
	if s.UndoneBy != "" {
		text += fmt.Sprintf(", undone by rollout %q", s.UndoneBy)
	}
	if verb == "approve" { // waves are approved in their order
		approved := func(w tko.RolloutWave) bool { return strings.HasPrefix(w.Approval, "by ") }
		if waves := slices.DeleteFunc(slices.Clone(s.Waves), func(w tko.RolloutWave) bool { return !approved(w) }); len(waves) > 0 {
			text += fmt.Sprintf("; wave %q is approved", waves[len(waves)-1].Name)
		}
	}
	a.notice("rollout %q is %s", s.ID, text)
	return a.printResult(statusRow(s))
}

func statusRow(s tko.RolloutStatus) map[string]any {
	row := map[string]any{"rolloutId": string(s.ID), "state": s.State, "reason": s.Reason, "plan": s.Plan, "failures": int64(s.Failures), "failing": int64(s.Failing), "touched": int64(s.Touched), "kinds": countsValue(s.Kinds), "blocks": listValue(s.Blocks)}
	setText(row, "undoes", string(s.Undoes))
	setText(row, "undoneBy", string(s.UndoneBy))
	setText(row, "until", momentText(s.Until))
	setText(row, "firstFailure", momentText(s.FirstFailure))
	row["waves"] = values(s.Waves, func(w tko.RolloutWave) map[string]any {
		return map[string]any{"name": w.Name, "deployments": int64(w.Rows), "approval": w.Approval, "progress": countsValue(w.Progress)}
	})
	row["deployments"] = values(s.Examples, rolloutRow)
	return row
}

func countsValue(counts map[string]int) map[string]any {
	out := map[string]any{}
	for key, n := range counts {
		out[key] = int64(n)
	}
	return out
}

func rolloutRow(r tko.RolloutRow) map[string]any {
	return map[string]any{
		"deploymentId": string(r.Deployment), "siteId": string(r.Site), "kind": r.Kind, "wave": int64(r.Wave), "revision": r.Revision, "group": int64(r.Group),
		"findings": listValue(r.Findings), "unknown": listValue(r.Unknown), "progress": r.Progress, "reason": r.Reason, "applied": r.Applied, "staging": r.Staging,
		"changes": changesValue(r.Changes),
	}
}

// rolloutEdits holds the flags of one edit.
type rolloutEdits struct {
	upgrade, merge, function string
	config                   map[string]string
	del, upgradable          bool
	filter                   deploymentFilter
	waves, limits            []string
	health, stage            map[string]string
	blind                    bool
	conflicts, onFailure     string
	unreachable              string
}

func (e *rolloutEdits) given() bool {
	return e.upgrade != "" || e.upgradable || e.merge != "" || e.function != "" || e.del
}

// check refuses flags that would have no effect. complete is true if the whole rollout is
// read.
func (e *rolloutEdits) check(cmd *cobra.Command, complete bool) error {
	var ignored string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Changed || ignored != "" || f.Name == "metadata" || f.Name == "url" || f.Name == "stdin":
		case complete, f.Name == "config" && e.function == "":
			ignored = f.Name
		}
	})
	switch {
	case ignored == "":
		return nil
	case complete:
		return usageError(cmd, tko.Errorf(errUsage, "--%s and a rollout that is read can't be used together: write it into the rollout", ignored))
	}
	return usageError(cmd, tko.Errorf(errUsage, "--%s is for --function only", ignored))
}

// pkg returns the package of a rollout that the flags describe.
func (e *rolloutEdits) pkg(ctx context.Context, s *session, cmd *cobra.Command, id tko.RolloutID) (krm.Package, error) {
	deployments, err := e.filter.selection()
	if err != nil {
		return nil, err
	}
	sel := spec.SelectValue(deployments)
	var more krm.Package
	var edits []any
	edit := map[string]any{}
	switch {
	case e.upgradable:
		newer, err := upgradableIn(ctx, s, deployments)
		if err != nil {
			return nil, err
		}
		for _, from := range slices.Sorted(maps.Keys(newer)) {
			edits = append(edits, upgradeEdit(sel, from, newer[from]))
		}
	case e.upgrade != "":
		from, to, ok := strings.Cut(e.upgrade, "=")
		if !ok || from == "" || to == "" {
			return nil, usageError(cmd, tko.Errorf(errUsage, "--upgrade %q: use OLD=NEW, such as nf/smf:v1=nf/smf:v2", e.upgrade))
		}
		edits = append(edits, upgradeEdit(sel, from, to))
	case e.merge != "":
		p := packageFlag{url: e.merge}
		if more, err = p.read(ctx, s.app); err != nil {
			return nil, err
		}
		edit["merge"] = values(more, func(r krm.Resource) map[string]any {
			return map[string]any{"apiVersion": r.Text("apiVersion"), "kind": r.Text("kind"), "name": r.Name()}
		})
	case e.function != "":
		f := map[string]any{"image": e.function}
		if len(e.config) > 0 {
			f["config"] = metadataValue(e.config)
		}
		edit["function"] = f
	default:
		edit["delete"] = map[string]any{}
	}
	if len(edits) == 0 && len(sel) == 0 {
		return nil, usageError(cmd, tko.Errorf(errUsage, "no filter is given, so every deployment would be changed: add one, such as --template-id or --site-metadata (--template-id '**' selects those of all templates)"))
	}
	if len(edits) == 0 {
		edit["select"] = sel
		edits = append(edits, edit)
	}
	content := map[string]any{"edits": edits}
	if err := e.bounds(content); err != nil {
		return nil, usageError(cmd, err)
	}
	return append(rolloutPackage(id, content), more...), nil
}

// rolloutPackage returns the package of a rollout.
func rolloutPackage(id tko.RolloutID, content map[string]any) krm.Package {
	return krm.Package{{"apiVersion": entityVersion, "kind": "Rollout", "metadata": map[string]any{"name": strings.ReplaceAll(string(id), "/", "-")}, "spec": content}}
}

// newRolloutID returns an ID that no other rollout has.
func newRolloutID(verb string) tko.RolloutID {
	return tko.RolloutID(fmt.Sprintf("%s-%s-%s", verb, time.Now().UTC().Format("20060102-150405"), strings.ToLower(rand.Text()[:8])))
}

// upgradeEdit returns the edit that upgrades the selected deployments of a template.
func upgradeEdit(sel map[string]any, from, to string) map[string]any {
	sel = maps.Clone(sel)
	templates, _ := sel["templateIdPatterns"].([]any) // all must match: OLD isn't widened by --template-id
	sel["templateIdPatterns"] = append(slices.Clone(templates), tko.LiteralPattern(from))
	return map[string]any{"upgrade": map[string]any{"to": to}, "select": sel}
}

// bounds adds waves, limits and policies to a spec.
func (e *rolloutEdits) bounds(content map[string]any) error {
	var waves []any
	for _, text := range e.waves {
		wave, err := waveOf(text)
		if err != nil {
			return err
		}
		waves = append(waves, wave)
	}
	if waves != nil {
		content["waves"] = waves
	}
	limits := map[string]any{}
	for _, text := range e.limits {
		if err := addLimit(limits, text); err != nil {
			return err
		}
	}
	if len(limits) > 0 {
		content["limits"] = limits
	}
	if e.blind {
		if e.health == nil {
			e.health = map[string]string{}
		}
		e.health["none"] = "Accept"
	}
	if len(e.health) > 0 {
		content["health"] = metadataValue(e.health)
	}
	if len(e.stage) > 0 {
		stage, err := stageValue(e.stage)
		if err != nil {
			return err
		}
		content["stage"] = stage
	}
	setText(content, "conflicts", e.conflicts)
	setText(content, "onFailure", e.onFailure)
	setText(content, "unreachable", e.unreachable)
	return nil
}

// stageValue returns spec.stage of the values of --stage. The server checks them.
func stageValue(values map[string]string) (map[string]any, error) {
	stage := metadataValue(values)
	if text, ok := values["images"]; ok {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return nil, tko.Errorf(errUsage, "--stage images=%s: use images=true", text)
		}
		stage["images"] = on
	}
	if text, ok := values["concurrent"]; ok {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, tko.Errorf(errUsage, "--stage concurrent=%s: use a number, such as concurrent=20", text)
		}
		stage["concurrent"] = n
	}
	return stage, nil
}

// waveOf reads NAME[=COUNT|=PERCENT%][,spread=KEY][,approve|,ticket=SYSTEM].
func waveOf(text string) (map[string]any, error) {
	parts := strings.Split(text, ",")
	name, size, sized := strings.Cut(parts[0], "=")
	wave := map[string]any{"name": name}
	if number, percent := strings.CutSuffix(size, "%"); percent {
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, tko.Errorf(errUsage, "--wave %q: %q is not a number: use NAME=PERCENT%%", text, number)
		}
		wave["percent"] = n
	} else if sized {
		n, err := strconv.ParseInt(size, 10, 32)
		if err != nil {
			return nil, tko.Errorf(errUsage, "--wave %q: %q is not a number of deployments: use NAME=COUNT or NAME=PERCENT%%", text, size)
		}
		wave["count"] = n
	}
	for _, part := range parts[1:] {
		switch key, value, _ := strings.Cut(part, "="); {
		case key == "spread" && value != "":
			wave["spread"] = value
		case part == "approve":
			wave["approval"] = "Required"
		case key == "ticket" && value != "":
			wave["approval"] = map[string]any{"external": value}
		default:
			return nil, tko.Errorf(errUsage, "--wave %q: %q is unknown: use spread=KEY, approve or ticket=SYSTEM", text, part)
		}
	}
	return wave, nil
}

// addLimit adds concurrent=N, failures=N, failures=N%, apart=KEY, or KEY=N to limits.
func addLimit(limits map[string]any, text string) error {
	key, value, _ := strings.Cut(text, "=")
	number, percent := strings.CutSuffix(value, "%")
	switch {
	case key == "" || value == "" || percent && key != "failures":
		return tko.Errorf(errUsage, "--limit %q: use concurrent=N, failures=N or failures=N%%, apart=KEY, or KEY=N for sites with equal metadata KEY", text)
	case key == "apart":
		apart, _ := limits["apart"].([]any)
		limits["apart"] = append(apart, value)
		return nil
	case percent:
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return tko.Errorf(errUsage, "--limit %q: %q is not a number", text, number)
		}
		limits["failures"] = map[string]any{"percent": n}
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return tko.Errorf(errUsage, "--limit %q: %q is not a number of deployments", text, value)
	}
	switch key {
	case "concurrent":
		limits["concurrent"] = n
	case "failures":
		limits["failures"] = map[string]any{"count": n}
	default:
		// A mistyped name would limit by metadata that no site has, which limits nothing.
		for _, name := range []string{"concurrent", "failures", "apart"} {
			if near(key, name) {
				return tko.Errorf(errUsage, "--limit %q: use %s; for a limit by metadata %q, write the rollout in a file (limits.per)", text, name, key)
			}
		}
		per, _ := limits["per"].([]any)
		limits["per"] = append(per, map[string]any{"key": key, "max": n})
	}
	return nil
}

// near reports whether a word is a likely misspelling of another: at most two letters
// are missing, added or different, or upper case.
func near(word, meant string) bool {
	return levenshtein.ComputeDistance(strings.ToLower(word), meant) <= 2
}

func (a *app) rolloutCreate() *cobra.Command {
	var pkg packageFlag
	var metadata map[string]string
	var e rolloutEdits
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Write a rollout, plan it, and print the summary of the plan",
		Long: `Write a rollout, plan it, and print the summary of the plan. It is read from --url or
--stdin, or described by an edit (--upgrade, --upgradable, --merge, --function or --delete) with the
filters of tko deployment list. Nothing is changed until tko rollout start.`,
		Example: `  tko rollout create smf-v2 --url ./smf-v2.yaml
  tko rollout create smf-v2 --upgrade nf/smf:v1=nf/smf:v2 --site-metadata region=north --wave canary=3,spread=region --wave rest
  tko rollout create newest --upgradable --template-id 'nephio/**' --wave canary=1 --wave rest
  tko rollout create logging --merge ./logging.yaml --template-id 'nf/**' --limit concurrent=100 --limit tac=5 --limit apart=redundancy`,
		Args: arguments(1, 1),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if pkg.given() == e.given() {
			return usageError(cmd, tko.Errorf(errUsage, "give the rollout with --url or --stdin, or one edit: --upgrade, --upgradable, --merge, --function or --delete"))
		}
		if err := e.check(cmd, pkg.given()); err != nil {
			return err
		}
		var content krm.Package
		var err error
		id := tko.RolloutID(args[0])
		if pkg.given() {
			content, err = pkg.read(ctx, a)
		} else {
			content, err = e.pkg(ctx, s, cmd, id)
		}
		if err == nil {
			err = s.replaceable(ctx, id)
		}
		if err != nil {
			return err
		}
		if _, err := s.plan(ctx, tko.Rollout{ID: id, Metadata: metadata, Package: content}); err != nil {
			return err
		}
		return a.printPlanOf(ctx, s, id, formatTable, false)
	})
	f := cmd.Flags()
	pkg.flags(f)
	metadataFlag(f, &metadata)
	e.flags(a, cmd)
	return cmd
}

func (e *rolloutEdits) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.upgrade, "upgrade", "", "`OLD=NEW`: upgrade the deployments of template OLD to template NEW")
	f.BoolVar(&e.upgradable, "upgradable", false, "upgrade all deployments whose template has a newer version to the newest one, as tko deployment list --upgradable lists them")
	f.StringVar(&e.merge, "merge", "", "`LOCATION` of resources to merge into the packages")
	f.StringVar(&e.function, "function", "", "`IMAGE` of a KRM function to run on the packages")
	keyValues(f, &e.config, "config", "", "`KEY=VALUE` for --function; may be repeated")
	f.BoolVar(&e.del, "delete", false, "delete the deployments")
	e.boundFlags(cmd)
	f.StringVar(&e.conflicts, "conflicts", "", "Fail, KeepTheirs or TakeEdit (default Fail)")
	cmd.MarkFlagsMutuallyExclusive("upgrade", "upgradable", "merge", "function", "delete", "url")
	cmd.MarkFlagsMutuallyExclusive("upgrade", "upgradable", "merge", "function", "delete", "stdin")
	complete(cmd, "conflicts", fixed("Fail", "KeepTheirs", "TakeEdit"))
	metadataPatterns(f, &e.filter.sel.Metadata, "deployment-metadata", "", " of the deployment") // -m is the metadata of the rollout itself
	filterFlags(a, cmd, tko.KindDeployment, filter.Without(filter.Deployments, "metadata"), &e.filter.sel)
}

// boundFlags adds the flags of waves, limits and health.
func (e *rolloutEdits) boundFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&e.waves, "wave", nil, "`WAVE`: NAME, NAME=COUNT or NAME=PERCENT%, then ,spread=KEY and ,approve or ,ticket=SYSTEM; may be repeated, in order")
	f.StringArrayVar(&e.limits, "limit", nil, "`LIMIT`: concurrent=N, failures=N or N%, apart=KEY, or KEY=N among sites with equal metadata; may be repeated")
	keyValues(f, &e.health, "health", "", "within=DURATION, soak=DURATION, and none=Accept for sites that report no health")
	keyValues(f, &e.stage, "stage", "", "images=true to pull images first; and before=DURATION, within=DURATION, concurrent=N, namespace=NAME, nodes=Any, onFailure=Go")
	f.BoolVar(&e.blind, "blind", false, "the same as --health none=Accept")
	f.StringVar(&e.onFailure, "on-failure", "", "Pause, Undo or Continue (default Pause)")
	complete(cmd, "on-failure", fixed("Pause", "Undo", "Continue"))
	f.StringVar(&e.unreachable, "unreachable", "", "Wait, Skip or Fail: what happens at sites whose agents are not heard (default Wait)")
	complete(cmd, "unreachable", fixed("Wait", "Skip", "Fail"))
}

// replaceable returns an error if there is a rollout that was started.
func (s *session) replaceable(ctx context.Context, id tko.RolloutID) error {
	if was, err := s.status(ctx, id); err == nil && !slices.Contains([]string{"Draft", "Planning", "Planned"}, was.State) {
		return tko.Errorf(tko.ErrConflict, "rollout %q exists and is %s: use another ID", id, was.State)
	}
	return nil
}

// plan writes a rollout, and waits until it is planned.
func (s *session) plan(ctx context.Context, r tko.Rollout) (tko.RolloutStatus, error) {
	if _, err := call(ctx, s, func(ctx context.Context) (int64, error) { return s.RegisterRollout(ctx, r) }); err != nil {
		return tko.RolloutStatus{}, err
	}
	return s.planned(ctx, r.ID)
}

// start starts a rollout with the plan of its status, prints its ID, and waits for its end if
// the user wants it.
func (s *session) start(ctx context.Context, status tko.RolloutStatus, blind bool, wait *waitFlag) error {
	if _, err := s.command(ctx, tko.RolloutCommand{ID: status.ID, Verb: "start", Plan: status.Plan, Blind: blind}); err != nil {
		return err
	}
	if err := s.app.printScalar(string(status.ID)); err != nil || !wait.wait {
		return err
	}
	if err := s.app.out.Flush(); err != nil {
		return err
	}
	return waitRollout(ctx, s, status.ID, wait.timeout)
}

// changing returns how many deployments a plan changes, and how many it can't change.
func changing(kinds map[string]int) (changed, blocked int) {
	return kinds["Change"] + kinds["Create"] + kinds["Delete"], kinds["Conflict"] + kinds["Invalid"]
}

// planned waits until a rollout is planned, and returns its status.
func (s *session) planned(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	for {
		status, err := s.status(ctx, id)
		if err != nil {
			return status, err
		}
		switch {
		case status.State == "Draft" && status.Reason != "":
			return status, tko.Errorf(tko.ErrInvalid, "rollout %q: %s", id, status.Reason)
		case status.State != "Draft" && status.State != "Planning" && status.Plan != "" && !strings.HasPrefix(status.Reason, "what is left is planned"):
			return status, nil
		}
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return status, err
		}
	}
}

func (a *app) rolloutPlan() *cobra.Command {
	var rows tko.RolloutRows
	var show bool
	cmd := &cobra.Command{
		Use:   "plan ID",
		Short: "Plan a rollout anew, and print what it would change",
		Long: `Plan a rollout anew, and print what it would change: groups of equal changes, or with
--deployment or --site single deployments, with -o diff or -o json each with its changes.
The exit code is 7 if there are changes. A rollout that is running isn't planned again:
its plan is printed. Values of Secrets are never shown.`,
		Example: "  tko rollout plan smf-v2\n  tko rollout plan smf-v2 --site 'north/*' -o diff",
		Args:    arguments(1, 1), ValidArgsFunction: a.completeArgs(completeRollouts),
		Annotations: map[string]string{withDiff: ""},
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			id := tko.RolloutID(args[0])
			status, err := s.status(ctx, id)
			if err != nil {
				return err
			}
			single := rows.Deployment != "" || rows.Site != ""
			if slices.Contains([]string{"Draft", "Planned", "Paused", "Cancelled"}, status.State) && !show && !single {
				if _, err := s.command(ctx, tko.RolloutCommand{ID: id, Verb: "plan"}); err != nil {
					return err
				}
			}
			if _, err := s.planned(ctx, id); err != nil {
				return err
			}
			if single {
				rows.ID = id
				return a.printRows(ctx, s, rows)
			}
			return a.printPlanOf(ctx, s, id, "", true)
		}),
	}
	f := cmd.Flags()
	f.StringVar((*string)(&rows.Deployment), "deployment", "", "`ID` of the deployment to show")
	f.StringVar(&rows.Site, "site", "", "`PATTERN` of the sites whose deployments to show")
	f.BoolVar(&show, "show", false, "print the plan that was made, without planning anew")
	return cmd
}

var rolloutRowView = view[tko.RolloutRow]{
	id:  func(r tko.RolloutRow) string { return string(r.Deployment) },
	row: rolloutRow,
	below: func(r tko.RolloutRow) []string {
		lines := slices.Clone(r.Findings)
		for _, unknown := range r.Unknown {
			lines = append(lines, "known after preparation: "+unknown)
		}
		return lines
	},
	columns: []column[tko.RolloutRow]{
		{name: "DEPLOYMENT", text: func(r tko.RolloutRow) string { return string(r.Deployment) }},
		{name: "SITE", text: func(r tko.RolloutRow) string { return string(r.Site) }},
		{name: "KIND", text: func(r tko.RolloutRow) string { return r.Kind }},
		{name: "WAVE", text: func(r tko.RolloutRow) string { return strconv.Itoa(r.Wave) }},
		{name: "PROGRESS", text: func(r tko.RolloutRow) string { return r.Progress }},
		{name: "REASON", text: func(r tko.RolloutRow) string { return r.Reason }},
	},
}

func (a *app) printRows(ctx context.Context, s *session, sel tko.RolloutRows) error {
	sel.Changes = a.globals.format != "" && !isForPeople(a.globals.format)
	if a.globals.format == formatDiff {
		return a.printRowDiffs(ctx, s, sel)
	}
	changes := 0
	err := list(ctx, s, rolloutRowView, nil, func(ctx context.Context) iter.Seq2[tko.RolloutRow, error] {
		return func(yield func(tko.RolloutRow, error) bool) {
			for row, err := range s.RolloutRows(ctx, sel) {
				if row.Wave >= 0 {
					changes++
				}
				if !yield(row, err) {
					return
				}
			}
		}
	})
	if err == nil && changes > 0 {
		err = errChanges
	}
	return err
}

// printPlanOf prints the summary of a plan. With exitCode, the error is errChanges if it
// changes something.
func (a *app) printPlanOf(ctx context.Context, s *session, id tko.RolloutID, otherwise string, exitCode bool) error {
	p, err := call(ctx, s, func(ctx context.Context) (tko.RolloutPlan, error) { return s.RolloutPlan(ctx, id) })
	if err != nil {
		return err
	}
	switch f := cmp.Or(a.globals.format, otherwise, formatTable); f {
	case formatTable, formatWide, formatBare:
		if err := a.planText(ctx, s, p); err != nil {
			return err
		}
	case formatDiff:
		if err := a.planDiff(p); err != nil {
			return err
		}
	default:
		if err := a.encoder(f).value(a.out, planValue(p)); err != nil {
			return err
		}
	}
	if changed, _ := changing(p.Kinds); exitCode && changed > 0 {
		return errChanges
	}
	return nil
}

func (a *app) planText(ctx context.Context, s *session, p tko.RolloutPlan) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Rollout %s: %s\n", p.ID, planCounts(p.Kinds))
	for _, w := range p.Waves {
		fmt.Fprintf(&text, "  wave %-12s %s", w.Name, count(w.Rows, "deployment", "deployments"))
		if w.Approval != "" {
			fmt.Fprintf(&text, ", approval %s", strings.ToLower(w.Approval[:1])+w.Approval[1:])
		}
		text.WriteString("\n")
	}
	for _, image := range p.Images {
		fmt.Fprintf(&text, "  %s %s at %s\n", image.Kind, image.Reference, count(image.Sites, "site", "sites"))
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&text, "  warning: %s\n", w)
	}
	for _, g := range p.Groups {
		fmt.Fprintf(&text, "\n%s %s, such as %s\n", g.Kind, count(g.Count, "deployment", "deployments"), strings.Join(idTexts(g.Examples), ", "))
		if g.Kind == "Invalid" && len(g.Examples) > 0 { // nothing comes of it, so there are no changes to show
			for row, err := range s.RolloutRows(ctx, tko.RolloutRows{ID: p.ID, Deployment: g.Examples[0]}) {
				if err != nil {
					return err
				}
				for _, finding := range row.Findings[:min(maxFindings, len(row.Findings))] {
					fmt.Fprintf(&text, "  %s\n", strings.ReplaceAll(finding, "\n", " "))
				}
			}
			fmt.Fprintf(&text, "  all of one: tko rollout plan %s --deployment %s\n", p.ID, g.Examples[0])
			continue
		}
		for _, templates := range g.Templates {
			fmt.Fprintf(&text, "  template %s\n", templates)
		}
		for _, c := range g.Changes {
			fmt.Fprintf(&text, "  %s %s: %s → %s\n", c.Resource, c.Path, c.Before, c.After)
		}
		if g.More > 0 {
			fmt.Fprintf(&text, "  and %s\n", count(g.More, "more change", "more changes"))
		}
		if g.Coarse {
			fmt.Fprintf(&text, "  (the same fields, with %s)\n", count(g.Distinct, "different set of values", "different sets of values"))
		}
	}
	switch changes, blocked := changing(p.Kinds); {
	case p.Digest == "" || p.State != "Planned":
	case changes == 0 && len(p.Groups) == 0:
		fmt.Fprintf(&text, "\nNothing would change: check the filters (tko rollout get %s)\n", p.ID)
	case changes > 0:
		more := ""
		if blocked > 0 {
			more = " --skip-blocked (without those in conflict or invalid)"
		}
		fmt.Fprintf(&text, "\nTo start it: tko rollout start %s --plan %.12s%s\n", p.ID, p.Digest, more)
	}
	return a.printLines(text.String())
}

// maxFindings limits the findings of a group of equal rows that the text of a plan shows.
const maxFindings = 3

func idTexts(ids []tko.DeploymentID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

func planCounts(kinds map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if kinds[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", kinds[kind], kind))
		}
	}
	if len(parts) == 0 {
		return "it selects no deployment"
	}
	return strings.Join(parts, ", ")
}

func planValue(p tko.RolloutPlan) map[string]any {
	waves := values(p.Waves, func(w tko.RolloutWave) map[string]any {
		return map[string]any{"name": w.Name, "deployments": int64(w.Rows), "approval": w.Approval}
	})
	groups := values(p.Groups, func(g tko.RolloutGroup) map[string]any {
		return map[string]any{
			"kind": g.Kind, "count": int64(g.Count), "examples": listValue(g.Examples), "changes": changesValue(g.Changes), "more": int64(g.More), "coarse": g.Coarse, "distinct": int64(g.Distinct), "templates": listValue(g.Templates),
		}
	})
	images := values(p.Images, func(i tko.RolloutImage) map[string]any {
		return map[string]any{"reference": i.Reference, "kind": i.Kind, "sites": int64(i.Sites)}
	})
	return map[string]any{"images": images, "rolloutId": string(p.ID), "plan": p.Digest, "state": p.State, "kinds": countsValue(p.Kinds), "waves": waves, "groups": groups, "warnings": listValue(p.Warnings), "unreported": int64(p.Unreported)}
}

func (a *app) rolloutStatus() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Show how far a rollout is, and what it waits for",
		Long: `With --watch, the command shows the status until the rollout is Done, Undone or Cancelled. If
the rollout is Paused, or becomes so, it returns with exit code 1: a paused rollout goes on
only after a command.`,
		Example: "  tko rollout status smf-v2 --watch",
		Args:    arguments(1, 1), ValidArgsFunction: a.completeArgs(completeRollouts),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			last := ""
			for {
				status, err := s.status(ctx, tko.RolloutID(args[0]))
				if err != nil {
					return err
				}
				text := statusText(status)
				switch f := cmp.Or(a.globals.format, formatTable); {
				case !isForPeople(f):
					err = a.encoder(f).value(a.out, statusRow(status))
				case text != last:
					err = a.printLines(text)
				}
				last = text
				if err != nil || !watch || slices.Contains([]string{"Done", "Undone", "Cancelled"}, status.State) {
					return err
				}
				if status.State == "Paused" {
					return pausedError(status)
				}
				if err := a.out.Flush(); err != nil {
					return err
				}
				if err := pause.For(ctx, time.Second); err != nil {
					return err
				}
			}
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "until the rollout has ended or is paused")
	return cmd
}

// pausedError returns the error of a wait for a rollout that is paused.
func pausedError(s tko.RolloutStatus) error {
	reason := ""
	if s.Reason != "" {
		reason = " (" + s.Reason + ")"
	}
	return fmt.Errorf("rollout %q is Paused%s: it does not go on by itself: use tko rollout resume or tko rollout undo, then watch again", s.ID, reason)
}

// barWidth is the width of the bar of a wave.
const barWidth = 30

// statusText returns a status for people: a line and a bar for each wave.
func statusText(s tko.RolloutStatus) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s", s.ID, s.State)
	if s.Reason != "" {
		fmt.Fprintf(&text, " (%s)", s.Reason)
	}
	text.WriteString("\n")
	for _, w := range s.Waves {
		fmt.Fprintf(&text, "  %-12s %s %s", w.Name, bar(w), progressText(w))
		if w.Approval != "" {
			fmt.Fprintf(&text, ", approval %s", strings.ToLower(w.Approval[:1])+w.Approval[1:])
		}
		text.WriteString("\n")
	}
	for _, b := range s.Blocks {
		fmt.Fprintf(&text, "  %s\n", b)
	}
	if !s.FirstFailure.IsZero() {
		fmt.Fprintf(&text, "  first failure at %s: %d failed, %d unhealthy now, %s changed since\n", s.FirstFailure.UTC().Format(time.RFC3339), s.Failures, s.Failing, count(s.Touched, "site was", "sites were"))
	}
	for _, r := range s.Examples {
		fmt.Fprintf(&text, "  %s at %q: %s %s\n", r.Deployment, r.Site, r.Progress, r.Why())
	}
	if s.UndoneBy != "" {
		fmt.Fprintf(&text, "  it is undone by rollout %q\n", s.UndoneBy)
	}
	if !s.Until.IsZero() && !s.Now.IsZero() {
		fmt.Fprintf(&text, "  about %s left\n", s.Until.Sub(s.Now).Round(time.Second))
	}
	return text.String()
}

// bar draws the healthy, failed, changed and waiting deployments of a wave.
func bar(w tko.RolloutWave) string {
	if w.Rows == 0 {
		return "[" + strings.Repeat(" ", barWidth) + "]"
	}
	var text strings.Builder
	done := 0
	drawn := 0
	for _, part := range []struct {
		sign  string
		names []string
	}{{"#", []string{"Healthy", "Waived", "AsBefore", "Superseded", "Skipped"}}, {"!", []string{"Failed", "Stale"}}, {">", []string{"Applied", "Soaking"}}} {
		for _, name := range part.names {
			done += w.Progress[name]
		}
		width := done*barWidth/w.Rows - drawn
		text.WriteString(strings.Repeat(part.sign, width))
		drawn += width
	}
	return "[" + text.String() + strings.Repeat(".", barWidth-drawn) + "]"
}

func progressText(w tko.RolloutWave) string {
	var parts []string
	for _, name := range []string{"Waiting", "Applied", "Soaking", "Healthy", "Failed", "Waived", "AsBefore", "Stale", "Skipped", "Superseded"} {
		if n := w.Progress[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(name)))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

var rolloutView = view[tko.Rollout]{
	id:  func(r tko.Rollout) string { return string(r.ID) },
	row: func(r tko.Rollout) map[string]any { return entityRow(r, nil, r.Stamp) },
	columns: []column[tko.Rollout]{
		{name: "ID", text: func(r tko.Rollout) string { return string(r.ID) }},
		{name: "STATE", text: func(r tko.Rollout) string { return r.State }},
		{name: "AGE", age: func(r tko.Rollout) time.Time { return r.Stamp.Created }},
		{name: "REASON", text: func(r tko.Rollout) string { return r.Reason }},
		{name: "BY", wide: true, text: func(r tko.Rollout) string { return r.Stamp.String() }},
		{name: "METADATA", wide: true, text: func(r tko.Rollout) string { return metadataText(r.Metadata) }},
	},
}

var rolloutKind = entityKind[tko.Rollout, tko.RolloutSelect]{
	kind: tko.KindRollout, view: rolloutView,
	list: server.Rollouts,
}

// A rolloutFilter holds the flags that select rollouts.
type rolloutFilter struct{ sel tko.RolloutSelect }

func (r *rolloutFilter) flags(a *app, cmd *cobra.Command) {
	filterFlags(a, cmd, tko.KindRollout, filter.Rollouts, &r.sel)
}

func (r *rolloutFilter) selection() (tko.RolloutSelect, error) { return r.sel, nil }

func (a *app) rolloutDelete() *cobra.Command {
	return a.ofOne(tko.KindRollout, &cobra.Command{
		Use: "delete ID", Short: "Delete a rollout that isn't in progress; what it changed stays, and can't be undone any more", Example: "  tko rollout delete smf-v2",
	}, func(ctx context.Context, s *session, id string) error {
		err := s.do(ctx, func(ctx context.Context) error { return s.DeleteRollout(ctx, tko.RolloutID(id)) })
		if err == nil {
			a.notice("deleted rollout %q", id)
		}
		return err
	})
}

func (a *app) deploymentUpgrade() *cobra.Command {
	var to string
	var wait waitFlag
	var blind bool
	cmd := &cobra.Command{
		Use:   "upgrade ID…",
		Short: "Upgrade deployments to another template, keeping the changes made to them",
		Long: `Upgrade deployments to another template by a three-way merge: changes made to them stay.
It is a rollout of one wave, which is planned, and started at once unless something
conflicts. Its ID is printed: tko rollout undo ID takes the upgrade back.`,
		Example: "  tko deployment upgrade 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --to nf/smf:v2 --wait",
		Args:    arguments(1, 1000), ValidArgsFunction: a.completeArgs(completeDeployments),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if to == "" {
			return usageError(cmd, tko.Errorf(errUsage, "no template is named: add --to TEMPLATE"))
		}
		for _, id := range args {
			if err := expectID("deployment ID", id); err != nil {
				return err
			}
		}
		if err := s.upgradable(ctx, args, tko.TemplateID(to)); err != nil {
			return err
		}
		id := newRolloutID("upgrade")
		edit := map[string]any{"upgrade": map[string]any{"to": to}, "select": map[string]any{"deploymentIds": listValue(args)}}
		status, err := s.plan(ctx, tko.Rollout{ID: id, Package: rolloutPackage(id, map[string]any{"edits": []any{edit}})})
		if err != nil {
			return err
		}
		if _, blocked := changing(status.Kinds); blocked > 0 {
			if err := a.printPlanOf(ctx, s, id, formatTable, false); err != nil {
				return err
			}
			for _, row := range status.Examples {
				a.notice("deployment %s: %s", row.Deployment, strings.Join(row.Findings, "; "))
			}
			return tko.Errorf(tko.ErrConflict, "%s in conflict or invalid, nothing was changed: see tko rollout plan %s", count(blocked, "deployment is", "deployments are"), id)
		}
		return s.start(ctx, status, blind, &wait)
	})
	cmd.Flags().BoolVar(&blind, "blind", false, "take the deployments for healthy once they are scheduled, at sites that report no health")
	cmd.Flags().StringVar(&to, "to", "", "`TEMPLATE` to upgrade to")
	wait.flags(cmd.Flags(), "wait until all are upgraded and healthy")
	complete(cmd, "to", a.completion(completeTemplates))
	return cmd
}

// upgradable returns an error if the template or a deployment doesn't exist, so that no
// rollout is made in vain.
func (s *session) upgradable(ctx context.Context, ids []string, to tko.TemplateID) error {
	if _, err := call(ctx, s, func(ctx context.Context) (tko.Template, error) { return s.Template(ctx, to, 0) }); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.deployment(ctx, tko.DeploymentID(id), 0); err != nil {
			return err
		}
	}
	return nil
}
