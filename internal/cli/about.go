package cli

import (
	"context"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/version"
)

func (a *app) aboutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "about",
		Short:   "Information about the server",
		Example: "  tko about --grpc-address tko.example.com\n  tko about -o json",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			about, err := call(ctx, s, s.About)
			if err != nil {
				return err
			}
			facts := []fact{
				textFact("instanceName", "Instance name", about.InstanceName),
				textFact("instanceDescription", "Instance description", about.InstanceDescription),
				textFact("tkoVersion", "TKO version", about.Version),
				textFact("backend", "Backend", about.Backend),
				{"grpc.addressPorts", "Address ports", strings.Join(about.AddressPorts, " "), listValue(about.AddressPorts)},
				textFact("grpc.defaultPackageFormat", "Default package format", string(about.DefaultPackageFormat)),
			}
			for _, layer := range about.Isolation {
				value := strings.TrimSpace(layer.State + ", " + layer.Reason)
				facts = append(facts, textFact("isolation."+layer.Name, "Isolation of plugins, "+layer.Name, value))
			}
			if all := problems(about.Conditions); len(all) > 0 {
				facts = append(facts, fact{"problems", "Problems", strings.Join(all, "; "), listValue(all)})
			}
			return a.printFacts(facts)
		}),
	}
}

// problems returns the messages of a server's conditions.
func problems(conditions []tko.Condition) []string {
	var all []string
	for _, c := range conditions {
		if c.Status == tko.ConditionFalse {
			all = append(all, c.Reason+": "+c.Message)
		}
	}
	return all
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Version of this command",
		Example: "  tko version",
		RunE: func(*cobra.Command, []string) error {
			return a.printFacts([]fact{
				textFact("version", "Version", version.String()),
				textFact("commit", "Commit", version.BuiltFrom()),
				textFact("go", "Go", strings.TrimPrefix(runtime.Version(), "go")),
				textFact("platform", "Platform", runtime.GOOS+"/"+runtime.GOARCH),
			})
		},
	}
}
