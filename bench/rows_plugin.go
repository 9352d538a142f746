package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli/scaffold"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/krm"
)

// waitTime is the duration of a request to the waiting plugin, in seconds: so long that
// preparers don't compete for processors.
const waitTime = "0.2"

// waitingPlugin is a persistent plugin that waits, and returns a prepared package. It is
// a bash script that only reads and waits: other programs would need more processor time
// than everything else.
const waitingPlugin = `
answer='{"prepared": true, "package": [{"apiVersion": "bench.example/v1", "kind": "Waiting", "metadata": {"name": "w", "annotations": {"nephio.org/prepared": "true"}}}]}'
exec {never}<> <(:)
while read -r word number size; do
	read -r -N "$size"
	read -r -t ` + waitTime + ` -u "$never"
	printf 'tko-response %s %s\n%s' "$number" "${#answer}" "$answer"
done`

var waitingGVK = krm.GVK{Group: "bench.example", Version: "v1", Kind: "Waiting"}

func rowWaiting(n, preparers int) string {
	return fmt.Sprintf("prepare %d deployments by a plugin that waits %s s, %s", n, waitTime, numbered(preparers))
}

func rowsPython(n int) []string {
	return []string{fmt.Sprintf("prepare %d deployments by a plugin in Python", n), fmt.Sprintf("prepare %d deployments by a persistent plugin in Python", n)}
}

// waiting measures how preparers share work that consists of waiting for plugins.
func (r *run) waiting(ctx context.Context) error {
	var one float64
	for _, preparers := range []int{1, 2, 4} {
		rate, err := r.prepareBy(ctx, tko.Plugin{
			Arguments: []string{"env", "LC_ALL=C", "bash", "-c", waitingPlugin}, Properties: map[string]string{tko.PropertyPersistent: "true"}, Triggers: []krm.GVK{waitingGVK},
		}, krm.Package{{"apiVersion": "bench.example/v1", "kind": "Waiting", "metadata": map[string]any{"name": "w"}}}, preparers)
		if err != nil {
			return err
		}
		row := Row{What: rowWaiting(r.Prepared, preparers), Value: rate, Unit: PerSecond}
		if preparers == 1 {
			one = rate
		} else {
			row.Aim, row.Note = 0.8*float64(preparers)*one, fmt.Sprintf("%.2f times one", rate/one)
		}
		r.add(row)
	}
	return nil
}

// python measures a plugin in Python, as tko plugin new writes it, with a package of ten
// resources.
func (r *run) python(ctx context.Context) error {
	if r.Python == "" {
		return &notMeasuredError{"no Python environment: set -python, with the SDK in it or in PYTHONPATH"}
	}
	folder, err := os.MkdirTemp("", "tko-bench-plugin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	trigger := krm.GVK{Group: "bench.example", Version: "v1", Kind: "Example"}
	if _, err := scaffold.Write(scaffold.Plugin{Type: tko.PluginPrepare, Name: "example", Language: "python", Trigger: trigger}, folder); err != nil {
		return err
	}
	pkg := krm.Package{{"apiVersion": "bench.example/v1", "kind": "Example", "metadata": map[string]any{"name": "e"}, "spec": map[string]any{"size": int64(3)}}}
	for i := range 9 {
		pkg = append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("c", i)}, "data": map[string]any{"a": "b", "c": "d"}})
	}
	var once float64
	for i, what := range rowsPython(r.Prepared) {
		rate, err := r.prepareBy(ctx, tko.Plugin{
			Arguments: []string{filepath.Join(folder, "example.py")}, Properties: map[string]string{tko.PropertyPersistent: strconv.FormatBool(i == 1)}, Triggers: []krm.GVK{trigger},
		}, pkg, 1)
		if err != nil {
			return err
		}
		row := Row{What: what, Value: rate, Unit: PerSecond}
		if i == 0 {
			once = rate
		} else {
			row.Note = fmt.Sprintf("%.1f times as many", rate/once)
		}
		r.add(row)
	}
	return nil
}

// prepareBy measures how many deployments of a package preparers prepare with a plugin
// per second. It removes all that it created.
func (r *run) prepareBy(ctx context.Context, plugin tko.Plugin, pkg krm.Package, preparers int) (perSecond float64, err error) {
	if r.Preparers == nil {
		return 0, errNoPreparers
	}
	if err := r.withPreparers(ctx, 1, func([]int) error { // so that only the new deployments wait
		_, _, err := r.drain(ctx)
		return err
	}); err != nil {
		return 0, err
	}
	own := r.scope("prepared")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	plugin.Type, plugin.Name = tko.PluginPrepare, own.name
	if _, err := r.client.RegisterPlugin(ctx, plugin); err != nil {
		return 0, err
	}
	defer func() {
		_, deleted := r.client.DeletePlugin(ctx, plugin.Type, plugin.Name)
		err = errors.Join(err, deleted)
	}()
	template, err := own.template(ctx, "template", pkg, nil)
	if err != nil {
		return 0, err
	}
	if _, err := parallel(ctx, r.Clients, r.Prepared, func(ctx context.Context, _ int) error {
		_, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: template})
		return err
	}); err != nil {
		return 0, err
	}
	return r.preparing(ctx, template, preparers)
}

// preparing starts preparers and waits until they have prepared a template's
// deployments. It excludes their start-up time if enough deployments are left after it.
func (r *run) preparing(ctx context.Context, template tko.TemplateID, preparers int) (perSecond float64, err error) {
	no, began := false, time.Now()
	unprepared := tko.DeploymentSelect{Templates: []string{string(template)}, Prepared: &no}
	err = r.withPreparers(ctx, preparers, func([]int) error {
		ready := time.Now()
		left, err := count(r.client.Deployments(ctx, unprepared, tko.ListOptions{}))
		if left < r.Prepared/2 {
			left, ready = r.Prepared, began
		}
		for err == nil {
			var waits tko.Deployment
			if waits, err = first(r.client.Deployments(ctx, unprepared, upTo(1))); err != nil {
				break
			}
			if c := tko.FindCondition(waits.Stamp.Conditions, tko.ConditionPrepared); c != nil && c.Status == tko.ConditionFalse {
				return fmt.Errorf("deployment %s: %s: %s", waits.ID, c.Reason, c.Message)
			}
			err = pause.For(ctx, 20*time.Millisecond)
		}
		if errors.Is(err, errNoRow) {
			perSecond, err = float64(left)/time.Since(ready).Seconds(), nil
		}
		return err
	})
	return perSecond, err
}
