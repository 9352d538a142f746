package helm

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/tko-orchestrator/tko"
)

const (
	// rendererName is the program name that makes a process a renderer.
	rendererName = "tko-chart-renderer"

	exitLate  = 3 // the time limit was exceeded
	exitLarge = 4 // the memory limit was exceeded

	memoryTick = 10 * time.Millisecond
)

// A process that is started as a renderer renders a chart and exits before main
// begins.
func init() {
	if len(os.Args) == 3 && os.Args[0] == rendererName {
		os.Exit(rendererMain(os.Args[1], os.Args[2], os.Stdin, os.Stdout))
	}
}

// rendererMain renders a chart. It ends at its time limit, even if the parent process
// has ended.
func rendererMain(limit, memory string, in io.Reader, out io.Writer) (code int) {
	after, err := time.ParseDuration(limit)
	bytes, memoryErr := strconv.ParseInt(memory, 10, 64)
	if err = errors.Join(err, memoryErr); err != nil {
		return 1
	}
	time.AfterFunc(after, func() { os.Exit(exitLate) })
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // if memory runs out, the kernel ends the renderer rather than the server
	debug.SetMemoryLimit(bytes / 2)
	go watchMemory(uint64(max(bytes, 0)))
	questions, answers := gob.NewEncoder(out), gob.NewDecoder(in)
	var t task
	if err := answers.Decode(&t); err != nil {
		return 1
	}
	files, err := t.render(func(l lookup) (map[string]any, error) {
		if err := questions.Encode(message{Lookup: &l}); err != nil {
			return nil, err
		}
		var f found
		if err := answers.Decode(&f); err != nil {
			return nil, err
		}
		if f.Error != "" {
			return map[string]any{}, errors.New(f.Error)
		}
		var object map[string]any
		err := json.Unmarshal(f.Object, &object)
		whole, _ := wholeNumbers(object).(map[string]any)
		return whole, err
	})
	m := message{Files: files}
	if err != nil {
		m.Error = err.Error()
	}
	if err := questions.Encode(m); err != nil {
		return 1
	}
	return 0
}

// watchMemory ends the process when its heap exceeds the limit in bytes.
func watchMemory(bytes uint64) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	for {
		metrics.Read(heap)
		if heap[0].Value.Uint64()+heap[1].Value.Uint64() > bytes {
			os.Exit(exitLarge)
		}
		time.Sleep(memoryTick)
	}
}

// render does what Helm's library does before it accesses the cluster.
func (t task) render(lookUp func(lookup) (map[string]any, error)) (map[string]string, error) {
	made, err := (&Chart{archive: t.Archive, files: t.Files}).load()
	if err != nil {
		return nil, err
	}
	var read map[string]any
	if err := json.Unmarshal(t.Values, &read); err != nil {
		return nil, err
	}
	values, _ := wholeNumbers(read).(map[string]any)
	if err := chartutil.ProcessDependencies(made, values); err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(t.Kubernetes)
	if err != nil {
		return nil, err
	}
	if wants := made.Metadata.KubeVersion; wants != "" && !chartutil.IsCompatibleRange(wants, version.String()) {
		return nil, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", wants, version.Version)
	}
	capabilities := &common.Capabilities{KubeVersion: *version, APIVersions: t.APIs, HelmVersion: common.DefaultCapabilities.HelmVersion}
	options := common.ReleaseOptions{Name: t.Name, Namespace: t.Namespace, Revision: t.Revision, IsInstall: !t.Upgrade, IsUpgrade: t.Upgrade}
	given, err := commonutil.ToRenderValuesWithSchemaValidation(made, values, options, capabilities, refersElsewhere(made))
	if err != nil {
		return nil, err
	}
	templates := engine.Engine{CustomTemplateFuncs: template.FuncMap{
		"lookup": func(apiVersion, kind, namespace, name string) (map[string]any, error) {
			return lookUp(lookup{apiVersion, kind, namespace, name})
		},
	}}
	files, err := templates.RenderWithContext(context.Background(), made, given)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, text := range files {
		total += len(text)
	}
	if total > maxManifests {
		return nil, tko.Errorf(tko.ErrInvalid, "it renders to more than %d MiB", maxManifests>>20)
	}
	return files, nil
}

// refersElsewhere returns whether the values schema of a chart, or of a dependency,
// refers to other files or hosts: the library would read any of them.
func refersElsewhere(c *chart.Chart) bool {
	var schema any
	if len(c.Schema) > 0 && json.Unmarshal(c.Schema, &schema) == nil && leads(schema) {
		return true
	}
	return slices.ContainsFunc(c.Dependencies(), refersElsewhere)
}

func leads(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			text, isText := inner.(string)
			switch {
			case !isText:
			case name == "$schema" && !strings.HasPrefix(text, "http://json-schema.org/") && !strings.HasPrefix(text, "https://json-schema.org/"),
				(name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef") && !strings.HasPrefix(text, "#"):
				return true
			}
			if leads(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, leads)
	}
	return false
}
