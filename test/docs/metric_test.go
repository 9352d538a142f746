package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/rollout/measure/prometheustest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The example of metrics works with a real server: the canary's harm, which only the metric
// shows, stops the rollout, while the server of metrics is the only one with credentials; and
// the server is killed between the measurements.
func TestMetricOfTheExampleDecides(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/what-a-rollout-knows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Metrics\n")
	example := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindStringSubmatch(section)
	if example == nil {
		t.Fatal("the section has no example")
	}
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(folder, "sites.git")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	flags := []string{"--store=sqlite:" + filepath.Join(folder, "tko.db"), "--target-git-local=" + folder, "--remote-addresses=127.0.0.0/8"}
	server := process.StartServer(t, flags...)
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := server.CLI(args...)
		if code != 0 && code != 7 {
			t.Fatalf("tko %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	list := func(args ...string) (rows []map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(append(args, "-o", "json")...)), &rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var sites []string
	repository := write("site.yaml", fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: sites}, spec: {url: %s/sites.git}}\n", folder))
	for _, version := range []string{"v1", "v2"} {
		run("template", "register", "nf/smf:"+version, "--url", write(version+".yaml", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: smf}, data: {version: %s}}\n", version)))
	}
	for i := range 5 {
		sites = append(sites, fmt.Sprintf("lagos/%d", i))
		run("site", "register", sites[i], "--url", repository)
		run("deployment", "create", "nf/smf:v1", "--site", sites[i], "--wait")
	}
	metrics := prometheustest.New(t, sites, nil)
	changed := map[string]bool{}
	metrics.Value = func(site string, _ time.Time) (float64, bool) {
		if changed[site] {
			return 0.07, true
		}
		return 0.05, true
	}
	text := strings.NewReplacer("https://prometheus.example.net", metrics.URL, "soak: 10m", "soak: 1s", "- name: errors", "- name: errors\n      every: 10s").Replace(example[1])
	run("rollout", "create", "smf-v2", "--url", write("rollout.yaml", text))
	digest := ""
	eventually.True(t, "the rollout is planned", func() bool {
		var status map[string]any
		if err := json.Unmarshal([]byte(run("rollout", "status", "smf-v2", "-o", "json")), &status); err != nil {
			t.Fatal(err)
		}
		digest, _ = status["plan"].(string)
		return digest != ""
	})
	run("rollout", "start", "smf-v2", "--plan", digest, "--blind")
	upgraded := func() int {
		rows := list("deployment", "list", "--template-id", "nf/smf:v2")
		metrics.Lock()
		defer metrics.Unlock()
		for _, row := range rows {
			changed[fmt.Sprint(row["siteId"])] = true
		}
		return len(rows)
	}
	eventually.True(t, "the canary is changed", func() bool { return upgraded() == 2 })
	server.Kill()
	server = process.StartServer(t, flags...)
	eventually.True(t, "the rollout is paused", func() bool {
		return strings.Contains(run("rollout", "status", "smf-v2", "-o", "json"), `"Paused"`)
	})
	if n := upgraded(); n != 2 {
		t.Errorf("%d deployments were changed, want those of the canary", n)
	}
	evidence := list("rollout", "evidence", "smf-v2")
	if len(evidence) < 2 {
		t.Fatalf("evidence: %v", evidence)
	}
	if first, last := evidence[0], evidence[len(evidence)-1]; first["outcome"] != "Good" || last["outcome"] != "Bad" || !strings.Contains(fmt.Sprint(last["text"]), "0.07 at changed sites, 0.05 at unchanged sites") {
		t.Errorf("the first evidence is %v, the last %v", first, last)
	}
	run("rollout", "waive", "smf-v2", "--metric", "errors") // fails if there is no such metric, or it doesn't count
}
