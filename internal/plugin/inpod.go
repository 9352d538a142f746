package plugin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
)

// Further properties of command plugins that run in pods.
const (
	namespaceProperty = "_kubernetes.namespace" // tko if it isn't there
	containerProperty = "_kubernetes.container" // named as the pod if it isn't there
)

// inPod runs the plugin's program in a pod, where there is no log file of ours.
func (r *Runner) inPod(ctx context.Context, j job) (output []byte, stderr string, err error) {
	input, err := r.encodeInput(j, "")
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	properties := j.plugin.Properties
	return r.pods.Run(ctx, pod.Command{
		Namespace: cmp.Or(properties[namespaceProperty], "tko"), Pod: properties[tko.PropertyPod],
		Container: cmp.Or(properties[containerProperty], properties[tko.PropertyPod]),
		Arguments: j.plugin.Arguments, Input: input, Timeout: j.timeout,
	})
}
