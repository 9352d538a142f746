package cli

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// Limits of completions: the number of IDs, and the time to find them, so that a
// shell is never blocked for long.
const (
	completionCount = 200
	completionTime  = 2 * time.Second
)

func (a *app) completionCommand() *cobra.Command {
	shell := func(name, how string, write func(root *cobra.Command) error) *cobra.Command {
		return &cobra.Command{
			Use:     name,
			Short:   "Print the completions of " + name,
			Example: how,
			RunE:    func(cmd *cobra.Command, _ []string) error { return write(cmd.Root()) },
		}
	}
	return group("completion", "Print shell completions of this command, with IDs from the server",
		shell("bash", "  source <(tko completion bash)", func(root *cobra.Command) error { return root.GenBashCompletionV2(a.out, true) }),
		shell("zsh", "  tko completion zsh > \"${fpath[1]}/_tko\"", func(root *cobra.Command) error { return root.GenZshCompletion(a.out) }),
		shell("fish", "  tko completion fish > ~/.config/fish/completions/tko.fish", func(root *cobra.Command) error { return root.GenFishCompletion(a.out, true) }))
}

// completer returns the IDs that begin with prefix. A tab and a description may
// follow each ID.
type completer func(ctx context.Context, s *session, prefix string) ([]string, error)

func completeTemplates(ctx context.Context, s *session, prefix string) ([]string, error) {
	sel := tko.TemplateSelect{IDs: []string{prefixPattern(prefix)}}
	return offers(s.Templates(ctx, sel, firstFew("")), func(t tko.Template) string {
		return describe(string(t.ID), metadataText(t.Metadata))
	})
}

func completeSites(ctx context.Context, s *session, prefix string) ([]string, error) {
	sel := tko.SiteSelect{IDs: []string{prefixPattern(prefix)}}
	return offers(s.Sites(ctx, sel, firstFew("")), func(site tko.Site) string {
		return describe(string(site.ID), metadataText(site.Metadata))
	})
}

func completeDeployments(ctx context.Context, s *session, prefix string) ([]string, error) {
	return offers(s.Deployments(ctx, tko.DeploymentSelect{}, firstFew(prefix)), func(d tko.Deployment) string {
		if !strings.HasPrefix(string(d.ID), prefix) {
			return ""
		}
		return describe(string(d.ID), strings.TrimSpace(string(d.Template)+" "+string(d.Site)))
	})
}

func completeRollouts(ctx context.Context, s *session, prefix string) ([]string, error) {
	sel := tko.RolloutSelect{IDs: []string{prefixPattern(prefix)}}
	return offers(s.Rollouts(ctx, sel, firstFew("")), func(r tko.Rollout) string { return describe(string(r.ID), r.State) })
}

func completePlugins(typ string) completer {
	return func(ctx context.Context, s *session, prefix string) ([]string, error) {
		sel := tko.PluginSelect{Type: &typ, Names: []string{prefixPattern(prefix)}}
		return offers(s.Plugins(ctx, sel, firstFew("")), func(p tko.Plugin) string { return p.Name })
	}
}

// completeMetadata completes KEY=VALUE, a key or a value of it, from the metadata of some
// entities of a kind.
func completeMetadata(kind tko.Kind) completer {
	return func(ctx context.Context, s *session, prefix string) ([]string, error) {
		found := map[string]bool{}
		key, _, isValue := strings.Cut(prefix, "=")
		err := s.eachMetadata(ctx, kind, func(metadata map[string]string) {
			for name, value := range metadata {
				offer := name + "="
				if isValue && name == key {
					offer += value
				}
				if strings.HasPrefix(offer, prefix) && len(found) < completionCount {
					found[offer] = true
				}
			}
		})
		return slices.Sorted(maps.Keys(found)), err
	}
}

// eachMetadata calls do with the metadata of the first entities of a kind.
func (s *session) eachMetadata(ctx context.Context, kind tko.Kind, do func(map[string]string)) error {
	views := filter.View[map[string]string]{
		Deployment: func(d tko.Deployment) map[string]string { return d.Metadata },
		Site:       func(x tko.Site) map[string]string { return x.Metadata },
		Template:   func(t tko.Template) map[string]string { return t.Metadata },
		Rollout:    func(r tko.Rollout) map[string]string { return r.Metadata },
	}
	all, err := filter.Parse(kind, nil)
	if err != nil {
		return err
	}
	for metadata, err := range views.List(ctx, s, all, firstFew("")) {
		if err != nil {
			return err
		}
		do(metadata)
	}
	return nil
}

// completeMetadataFlags completes the flags of a command, and of those below it, that select or
// set metadata. kind is that of the command's entities, or else one whose metadata is typical.
func (a *app) completeMetadataFlags(cmd *cobra.Command, kind tko.Kind) {
	if of := tko.Kind(cmd.Name()); completers[of] != nil {
		kind = of
	}
	for name, of := range map[string]tko.Kind{"metadata": kind, "site-metadata": tko.KindSite, "template-metadata": tko.KindTemplate} {
		if _, done := cmd.GetFlagCompletionFunc(name); !done && cmd.Flags().Lookup(name) != nil {
			complete(cmd, name, a.keyValueCompletion(of))
		}
	}
	for _, below := range cmd.Commands() {
		a.completeMetadataFlags(below, kind)
	}
}

// keyValueCompletion completes KEY=VALUE: after a key, no space follows.
func (a *app) keyValueCompletion(kind tko.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		found, directive := a.completion(completeMetadata(kind))(cmd, args, prefix)
		if !strings.Contains(prefix, "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return found, directive
	}
}

func offers[T any](items iter.Seq2[T, error], offer func(T) string) ([]string, error) {
	var all []string
	for item, err := range items {
		if err != nil {
			return all, err
		}
		text := offer(item)
		if text == "" {
			break
		}
		all = append(all, text)
	}
	return all, nil
}

func prefixPattern(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(prefix) + "**"
}

func firstFew(after string) tko.ListOptions {
	few := completionCount
	return tko.ListOptions{Window: tko.Window{Max: &few, After: after}}
}

func describe(id, text string) string {
	if text == "" {
		return id
	}
	return id + "\t" + printable.Text(text)
}

// completion returns a function that offers the results of a completer; none if the
// server can't be reached.
func (a *app) completion(find completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		// Shells call this without the command's PersistentPreRunE.
		if setFromEnvironment(cmd) != nil || a.globals.check() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		ctx, s, err := a.connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, err := find(ctx, s, prefix)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArgs completes each argument by its own completer.
func (a *app) completeArgs(finds ...completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(finds) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completion(finds[len(args)])(cmd, args, prefix)
	}
}

// completers find the IDs of kinds of entities.
var completers = map[tko.Kind]completer{
	tko.KindTemplate: completeTemplates, tko.KindSite: completeSites, tko.KindDeployment: completeDeployments, tko.KindRollout: completeRollouts,
}

// completePluginArgs completes a type, a name and, unless all is set, files.
func completePluginArgs(a *app, all bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return []string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule}, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1:
			return a.completion(completePlugins(args[0]))(cmd, args, prefix)
		case all:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
}

func fixed(choices ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
}

// complete registers the completion of a flag, which must exist.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}
