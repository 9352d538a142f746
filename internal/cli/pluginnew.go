package cli

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli/scaffold"
)

func (a *app) pluginNew() *cobra.Command {
	var language, directory, trigger string
	cmd := &cobra.Command{
		Use:   "new TYPE NAME",
		Short: "Create the files of a new plugin, with a test that passes",
		Long: `Create the files of a new plugin, with a golden test that passes. TYPE is validate,
prepare or schedule. The folder has the name of the last part of NAME; its
README.md describes how to test and register the plugin. The command contacts no
server.`,
		Example: `  tko plugin new prepare my-plugin --language python
  tko plugin new validate network/limits --language go -g network.plugin.nephio.org,v1alpha1,Limits`,
		Args:              arguments(2, 2),
		ValidArgsFunction: fixedFirst(tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule),
		RunE: func(_ *cobra.Command, args []string) error {
			p := scaffold.Plugin{Type: args[0], Name: args[1], Language: language}
			if trigger != "" {
				gvk, err := parseTrigger(trigger)
				if err != nil {
					return err
				}
				p.Trigger = gvk
			}
			if directory == "" {
				directory = path.Base(strings.ReplaceAll(p.Name, ":", "-"))
			}
			names, err := scaffold.Write(p, directory)
			if err != nil {
				return err
			}
			files := values(names, func(name string) string { return filepath.Join(directory, name) })
			a.notice("wrote %s: see %s", pluginText(p.Type, p.Name), filepath.Join(directory, "README.md"))
			return a.printResult(map[string]any{"type": p.Type, "name": p.Name, "files": files})
		},
	}
	f := cmd.Flags()
	f.StringVar(&language, "language", "python", "programming `language`: "+strings.Join(scaffold.Languages(), ", "))
	f.StringVar(&directory, "directory", "", "`folder` to create (default: the last part of NAME)")
	f.StringVarP(&trigger, "trigger", "g", "", "`group,version,kind` of the plugin's resources (default: made from NAME)")
	complete(cmd, "language", fixed(scaffold.Languages()...))
	return cmd
}
