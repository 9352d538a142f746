package cli

import (
	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko/kubename"
)

func (a *app) kubeCommand() *cobra.Command {
	convert := func(use, short, example string, f func(string) (string, error)) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Example: example,
			Args: arguments(1, 1),
			RunE: func(_ *cobra.Command, args []string) error {
				text, err := f(args[0])
				if err != nil {
					return err
				}
				return a.printScalar(text)
			},
		}
	}
	return group("kube", "Kubernetes names of TKO's entities",
		convert("to ID", "The Kubernetes name of an ID",
			"  kubectl get template.tko.nephio.org \"$(tko kube to demo/hello-world:v1.0.0)\"", kubename.Escape),
		convert("from NAME", "The ID of a Kubernetes name",
			"  tko kube from demo-002fhello-002dworld-003av1.0.0", kubename.Unescape))
}
