package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

var pluginView = view[tko.Plugin]{
	id:  tko.Plugin.ID,
	row: func(p tko.Plugin) map[string]any { return entityRow(p, nil, p.Stamp) },
	columns: []column[tko.Plugin]{
		{name: "TYPE", text: func(p tko.Plugin) string { return p.Type }},
		{name: "NAME", text: func(p tko.Plugin) string { return p.Name }},
		{name: "EXECUTOR", text: func(p tko.Plugin) string { return p.Executor }},
		{name: "TRIGGERS", text: triggersText},
		{name: "AGE", age: func(p tko.Plugin) time.Time { return p.Stamp.Created }},
		{name: "UPDATED", wide: true, age: func(p tko.Plugin) time.Time { return p.Stamp.Updated }},
		{name: "REVISION", wide: true, text: func(p tko.Plugin) string { return strconv.FormatInt(p.Stamp.Revision, 10) }},
		{name: "BY", wide: true, text: func(p tko.Plugin) string { return p.Stamp.String() }},
		{name: "CONDITIONS", wide: true, text: func(p tko.Plugin) string { return conditionsText(p.Stamp.Conditions) }},
		{name: "ARGUMENTS", wide: true, text: func(p tko.Plugin) string { return strings.Join(p.Arguments, " ") }},
		{name: "PROPERTIES", wide: true, text: func(p tko.Plugin) string { return metadataText(p.Properties) }},
	},
}

func triggersText(p tko.Plugin) string {
	texts := make([]string, len(p.Triggers))
	for i, t := range p.Triggers {
		texts[i] = t.Group + "," + t.Version + "," + t.Kind
	}
	return strings.Join(texts, " ")
}

var pluginKind = entityKind[tko.Plugin, tko.PluginSelect]{
	kind: tko.KindPlugin, view: pluginView,
	list: server.Plugins,
	one: func(sel tko.PluginSelect, id string) tko.PluginSelect {
		typ, name, _ := strings.Cut(id, "|")
		if sel.Type == nil {
			sel.Type = &typ
		}
		sel.Names = append(slices.Clone(sel.Names), tko.LiteralPattern(name))
		return sel
	},
	purge: server.PurgePlugins,
	delete: func(ctx context.Context, s *session, id string) (tko.Deleted, error) {
		typ, name, _ := strings.Cut(id, "|")
		return s.DeletePlugin(ctx, typ, name)
	},
}

func (a *app) pluginCommand() *cobra.Command {
	return group("plugin", "Plugins: programs that validate, prepare and schedule",
		a.pluginNew(), a.pluginRegister(), asOfFlag(a.pluginGet()), a.pluginDelete(),
		asOfFlag(pluginKind.listCommand(a, &cobra.Command{
			Short: "List plugins", Example: "  tko plugin list -t prepare -o wide\n  tko plugin list -g ,v1,ConfigMap",
		}, &pluginFilter{})),
		pluginKind.purgeCommand(a, &cobra.Command{
			Short: "Delete all matching plugins, or --all", Example: "  tko plugin purge -n 'free5gc/*' --dry-run\n  tko plugin purge -n 'free5gc/*'",
		}, &pluginFilter{}))
}

func (a *app) pluginDelete() *cobra.Command {
	bulk := bulkFlag{unasked: 1}
	cmd := &cobra.Command{
		Use: "delete TYPE NAME", Short: "Delete a plugin", Example: "  tko plugin delete validate free5gc/smf",
		Args: arguments(2, 2), ValidArgsFunction: completePluginArgs(a, true),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			return pluginKind.deleteOne(ctx, s, tko.PluginID(args[0], args[1]), args[1], &bulk)
		}),
	}
	bulk.confirmFlag(cmd.Flags())
	dryRunFlag(cmd.Flags(), &bulk.dryRun)
	return cmd
}

func (a *app) pluginRegister() *cobra.Command {
	var p tko.Plugin
	var triggers []string
	confirm := 0
	cmd := &cobra.Command{
		Use:   "register TYPE NAME ARGUMENT...",
		Short: "Create or replace a plugin",
		Long: `Create or replace a plugin. TYPE is validate, prepare or schedule. The ARGUMENTs
are the program and its arguments for the executor command, one KRM function (an
image, exec:PATH, wasm:PATH, wasm:oci://REFERENCE or builtin:NAME) for kpt, and
one job template of AWX, workflow:NAME or playbook:PATH for ansible.
Put -- before arguments that begin with a dash.

A schedule plugin that changes runs again at all sites with what triggers it. If these are
more than --reach-sites of the server, give their number with --confirm.`,
		Example: `  tko plugin register validate free5gc/smf /opt/plugins/smf.py -g free5gc.plugin.nephio.org,v1alpha1,SMF
  tko plugin register prepare namespace gcr.io/kpt-fn/set-namespace:v0.4 -e kpt \
    -r namespace=spec.namespace -g workload.plugin.nephio.org,v1alpha1,Namespace`,
		Args:              arguments(3, -1),
		ValidArgsFunction: completePluginArgs(a, false),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			p.Type, p.Name, p.Arguments = args[0], args[1], args[2:]
			for _, text := range triggers {
				gvk, err := parseTrigger(text)
				if err != nil {
					return err
				}
				p.Triggers = append(p.Triggers, gvk)
			}
			if err := p.Check(); err != nil {
				return err
			}
			if confirm > 0 {
				ctx = tko.WithConfirmation(ctx, confirm)
			}
			revision, err := call(ctx, s, func(ctx context.Context) (int64, error) { return s.RegisterPlugin(ctx, p) })
			if err != nil {
				return err
			}
			a.notice("registered %s, revision %d", pluginText(p.Type, p.Name), revision)
			if now, err := call(ctx, s, func(ctx context.Context) (tko.Plugin, error) { return s.Plugin(ctx, p.Type, p.Name) }); err == nil {
				if c := tko.FindCondition(now.Stamp.Conditions, tko.ConditionRunnable); c != nil && c.Status == tko.ConditionFalse {
					a.notice("the plugin can't run, and until it can, packages that need it are invalid or wait: %s", c.Message)
				}
			}
			if len(p.Triggers) == 0 {
				a.notice("the plugin has no trigger and never runs: register it with --trigger group,version,kind of its resources")
			}
			return a.printResult(map[string]any{"type": p.Type, "name": p.Name, "revision": revision})
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&p.Executor, "executor", "e", tko.ExecutorCommand, "`executor` of the plugin: command, kpt, ansible")
	f.IntVar(&confirm, "confirm", 0, "consent to the runs of a changed schedule plugin at at most this `count` of sites")
	keyValues(f, &p.Properties, "property", "r", "`key=value` (may be repeated); keys that begin with _ configure the executor")
	f.StringArrayVarP(&triggers, "trigger", "g", nil, "`group,version,kind` of the plugin's resources (may be repeated)")
	complete(cmd, "executor", fixed(tko.ExecutorCommand, tko.ExecutorKpt, tko.ExecutorAnsible))
	return cmd
}

func (a *app) pluginGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get TYPE NAME",
		Short:             "Print a plugin",
		Example:           "  tko plugin get validate free5gc/smf",
		Args:              arguments(2, 2),
		ValidArgsFunction: completePluginArgs(a, true),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			p, err := call(ctx, s, func(ctx context.Context) (tko.Plugin, error) { return s.Plugin(ctx, args[0], args[1]) })
			if err != nil {
				return err
			}
			switch f := a.format(); f {
			case formatTable, formatWide:
				return printTable(a, pluginView.columns, []tko.Plugin{p})
			case formatBare:
				return a.encoder(formatYAML).value(a.out, pluginView.row(p))
			default:
				return a.encoder(f).value(a.out, pluginView.row(p))
			}
		}),
	}
}

// pluginFilter holds the flags that select plugins.
type pluginFilter struct {
	typ, executor, trigger string
	names                  []string
}

func (p *pluginFilter) flags(_ *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.typ, "type", "t", "", "`type` of the plugins: validate, prepare, schedule")
	patterns(f, &p.names, "name", "n", "the name")
	f.StringVarP(&p.executor, "executor", "e", "", "`executor` of the plugins: command, kpt, ansible")
	f.StringVarP(&p.trigger, "trigger", "g", "", "trigger of the plugins: `group,version,kind`")
	complete(cmd, "type", fixed(tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule))
	complete(cmd, "executor", fixed(tko.ExecutorCommand, tko.ExecutorKpt, tko.ExecutorAnsible))
}

func (p *pluginFilter) selection() (tko.PluginSelect, error) {
	sel := tko.PluginSelect{Names: p.names}
	if p.typ != "" {
		sel.Type = &p.typ
	}
	if p.executor != "" {
		sel.Executor = &p.executor
	}
	if p.trigger != "" {
		gvk, err := parseTrigger(p.trigger)
		if err != nil {
			return tko.PluginSelect{}, err
		}
		sel.Trigger = &gvk
	}
	return sel, nil
}
