package cli

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko/internal/version"
)

func (a *app) aboutCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "about",
		Short:             "What the server says of itself",
		Example:           "  tko about --grpc-address tko.example.com\n  tko about -o json",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			about, err := call(ctx, s, s.About)
			if err != nil {
				return err
			}
			text := func(name, s string) fact { return fact{name, s, s} }
			return a.printFacts([]fact{
				text("Instance name", about.InstanceName),
				text("Instance description", about.InstanceDescription),
				text("TKO version", about.Version),
				text("Backend", about.Backend),
				{"Address ports", strings.Join(about.AddressPorts, " "), listValue(about.AddressPorts)},
				text("Default package format", string(about.DefaultPackageFormat)),
			})
		}),
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "The version of this command",
		Example:           "  tko version",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			text := func(name, s string) fact { return fact{name, s, s} }
			return a.printFacts([]fact{
				text("Version", version.String()),
				text("Commit", commit()),
				text("Go", strings.TrimPrefix(runtime.Version(), "go")),
				text("Platform", runtime.GOOS+"/"+runtime.GOARCH),
			})
		},
	}
}

// commit is what this program was built from.
func commit() string {
	text := "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text
	}
	changed := ""
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			text = setting.Value
		}
		if setting.Key == "vcs.modified" && setting.Value == "true" {
			changed = " (changed)"
		}
	}
	return text + changed
}
