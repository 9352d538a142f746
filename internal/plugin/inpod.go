package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Further properties of command plugins that run in pods; see [tko.PropertyPod].
const (
	namespaceProperty = "_kubernetes.namespace" // "tko" if absent
	containerProperty = "_kubernetes.container" // the pod's name if absent
)

// A PodCommand is a program to run in a container of an existing pod.
type PodCommand struct {
	Namespace, Pod, Container string
	Arguments                 []string
	Input                     []byte // stdin
	Timeout                   time.Duration
}

// Pods run programs in pods.
type Pods interface {
	// Run runs a program with limits on time and output. It returns an error if
	// the program exits with a code other than 0 or does not end in time.
	Run(ctx context.Context, c PodCommand) (stdout []byte, stderr string, err error)
}

// errNoPods is the error of a runner without [Options.Pods].
var errNoPods = errors.New("it was not run: this program can't run plugins in pods")

// inPod runs the plugin's program in a pod. The log file does not exist there,
// so the input names none.
func (r *Runner) inPod(ctx context.Context, j job) (output []byte, stderr string, err error) {
	input, err := r.encodeInput(j, "")
	if err != nil {
		return nil, "", fmt.Errorf("it was not run: %w", err)
	}
	if r.options.Pods == nil {
		return nil, "", errNoPods
	}
	properties := j.plugin.Properties
	return r.options.Pods.Run(ctx, PodCommand{
		Namespace: cmp.Or(properties[namespaceProperty], "tko"), Pod: properties[tko.PropertyPod],
		Container: cmp.Or(properties[containerProperty], properties[tko.PropertyPod]),
		Arguments: j.plugin.Arguments, Input: input, Timeout: j.timeout,
	})
}
