package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// monitoring returns the folder of Prometheus and its Alertmanager.
func monitoring(t *testing.T) string {
	t.Helper()
	script := exec.Command(filepath.Join(process.Root(), "test", "setup", "monitoring.sh"))
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// startMonitor starts a program that serves HTTP at an address, waits until it is ready, and stops it when the test ends.
func startMonitor(t *testing.T, ready, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of the log of %s:\n%s", program, text[max(0, len(text)-4000):])
		}
	})
	eventually.True(t, program+" is ready", func() bool {
		response, err := http.Get(ready)
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
}

func localAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// shares are the shares of requests that fail at sites, of which a Prometheus scrapes the sums.
type shares struct {
	mu             sync.Mutex
	share          map[string]float64
	errors, served map[string]float64
	last           time.Time
}

func newShares(sites []string, share float64) *shares {
	s := &shares{share: map[string]float64{}, errors: map[string]float64{}, served: map[string]float64{}, last: time.Now()}
	for _, site := range sites {
		s.share[site] = share
	}
	return s
}

func (s *shares) set(share float64, sites ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, site := range sites {
		s.share[site] = share
	}
}

func (s *shares) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := time.Since(s.last).Seconds()
	s.last = time.Now()
	for site, share := range s.share {
		s.served[site] += 1000 * passed
		s.errors[site] += 1000 * passed * share
		fmt.Fprintf(w, "requests_total{site=%q} %f\nerrors_total{site=%[1]q} %[3]f\n", site, s.served[site], s.errors[site])
	}
}

// The real Prometheus decides about rollouts: a harm of 2 % at the sites that are changed stops one in its canary; the same
// harm everywhere doesn't.
func TestPrometheusDecidesAboutRollouts(t *testing.T) {
	t.Parallel()
	programs := monitoring(t)
	for name, everywhere := range map[string]bool{"a harm at changed sites": false, "a bad night everywhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sites []string
			for i := range 6 {
				sites = append(sites, fmt.Sprintf("lagos/%d", i))
			}
			harm := newShares(sites, 0.05)
			target := httptest.NewServer(harm)
			t.Cleanup(target.Close)
			folder, at := t.TempDir(), localAddress(t)
			write := func(name, text string) string {
				t.Helper()
				path := filepath.Join(folder, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			settings := write("prometheus.yaml", fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: sites, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(target.URL, "http://")))
			startMonitor(t, "http://"+at+"/-/ready", filepath.Join(programs, "bin", "prometheus"), "--config.file="+settings, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+at)

			gittest.Run(t, folder, "init", "--quiet", "--bare", "--initial-branch=main", "sites.git")
			server := process.StartServer(t, "--store=sqlite:"+filepath.Join(folder, "tko.db"), "--target-git-local="+folder, "--remote-addresses=127.0.0.0/8")
			run := func(args ...string) string {
				t.Helper()
				out, errs, code := server.CLI(args...)
				if code != 0 && code != 7 {
					t.Fatalf("tko %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
				}
				return out
			}
			repository := write("site.yaml", fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: sites}, spec: {url: %s/sites.git}}\n", folder))
			for _, version := range []string{"v1", "v2"} {
				run("template", "register", "nf/smf:"+version, "--url", write(version+".yaml", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: smf}, data: {version: %s}}\n", version)))
			}
			for _, site := range sites {
				run("site", "register", site, "--url", repository)
				run("deployment", "create", "nf/smf:v1", "--site", site, "--wait")
			}
			run("rollout", "create", "smf-v2", "--url", write("rollout.yaml", `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: smf-v2}
spec:
  edits: [{upgrade: {to: "nf/smf:v2"}, select: {templateIdPatterns: ["nf/smf:v1"]}}]
  waves: [{name: canary, count: 2}, {name: rest}]
  health:
    soak: 15s
    metrics:
    - name: errors
      every: 10s
      prometheus:
        url: http://`+at+`
        query: 'sum(rate(errors_total{site=~"${site}"}[10s])) / sum(rate(requests_total{site=~"${site}"}[10s]))'
      compare: {to: unchanged, maxDifference: 0.01}
`))
			status := func() (s struct{ State, Plan string }) {
				t.Helper()
				if err := json.Unmarshal([]byte(run("rollout", "status", "smf-v2", "-o", "json")), &s); err != nil {
					t.Fatal(err)
				}
				return s
			}
			eventually.True(t, "the rollout is planned", func() bool { return status().Plan != "" })
			run("rollout", "start", "smf-v2", "--plan", status().Plan, "--blind")
			changed := func() (changed []string) {
				t.Helper()
				var rows []struct{ SiteID string }
				if err := json.Unmarshal([]byte(run("deployment", "list", "--template-id", "nf/smf:v2", "-o", "json")), &rows); err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					changed = append(changed, row.SiteID)
				}
				return changed
			}
			want := "Paused"
			if everywhere {
				want = "Done"
			}
			eventually.True(t, "the rollout is "+want, func() bool {
				switch there := changed(); {
				case len(there) > 0 && everywhere:
					harm.set(0.07, sites...)
				case len(there) > 0:
					harm.set(0.07, there...)
				}
				return status().State == want
			})
			evidence := run("rollout", "evidence", "smf-v2")
			if n := len(changed()); everywhere && n != len(sites) || !everywhere && n != 2 {
				t.Errorf("%d sites were changed\n%s", n, evidence)
			}
			if strings.Contains(evidence, "Bad") == everywhere {
				t.Errorf("the evidence is\n%s", evidence)
			}
		})
	}
}

// The real Alertmanager gets a message as an alert, and sends it on.
func TestAlertmanagerGetsMessages(t *testing.T) {
	t.Parallel()
	programs, folder, at := monitoring(t), t.TempDir(), localAddress(t)
	type notice struct {
		Status string
		Alerts []struct{ Labels, Annotations map[string]string }
	}
	notices := make(chan notice, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n notice
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		notices <- n
	}))
	t.Cleanup(hook.Close)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	settings := write("alertmanager.yaml", fmt.Sprintf("route: {receiver: all, group_by: [alertname, message], group_wait: 1s, group_interval: 1s}\nreceivers: [{name: all, webhook_configs: [{url: %q}]}]\n", hook.URL))
	startMonitor(t, "http://"+at+"/-/ready", filepath.Join(programs, "bin", "alertmanager"), "--config.file="+settings, "--storage.path="+filepath.Join(folder, "alerts"), "--web.listen-address="+at, "--cluster.listen-address=")
	server := process.StartServer(t, "--store=sqlite:"+filepath.Join(folder, "tko.db"), "--remote-addresses=127.0.0.0/8")
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := server.CLI(args...)
		if code != 0 {
			t.Fatalf("tko %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out
	}
	run("apply", "-f", write("subscription.yaml", fmt.Sprintf(`apiVersion: tko.nephio.org/v1alpha1
kind: Subscription
metadata: {name: ops}
spec:
  about: [{of: changes, kinds: [site], ops: [created]}]
  group: {wait: 1s, every: 1s}
  to: {alertmanager: {url: "http://%s", labels: {team: noc}}}
`, at)))
	run("site", "register", "lagos/1", "--url", write("site.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: site}}\n"))
	select {
	case n := <-notices:
		if n.Status != "firing" || len(n.Alerts) != 1 || n.Alerts[0].Labels["team"] != "noc" || n.Alerts[0].Labels["subscription"] != "ops" || n.Alerts[0].Annotations["summary"] != "ops: 1 site created" {
			t.Errorf("the Alertmanager sends %+v", n)
		}
	case <-time.After(2 * time.Minute):
		response, err := http.Get((&url.URL{Scheme: "http", Host: at, Path: "/api/v2/alerts"}).String())
		if err == nil {
			_ = response.Body.Close()
		}
		t.Fatalf("the Alertmanager sends nothing (%v): %s", err, run("subscription", "get", "ops"))
	}
}
