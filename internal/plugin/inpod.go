package plugin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
)

// Further properties of command plugins that run in pods; see [tko.PropertyPod].
const (
	namespaceProperty = "_kubernetes.namespace" // "tko" if absent
	containerProperty = "_kubernetes.container" // the pod's name if absent
)

// inPod runs the plugin's program in a pod. The log file does not exist there,
// so the input names none.
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
