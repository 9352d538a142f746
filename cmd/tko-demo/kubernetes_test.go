package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/server"
)

// A fleet stands in for the API of a server, whose deployments are done at once.
type fleet struct {
	registered []string
	created    []tko.NewDeployment
	children   int // of a created deployment
	rollout    tko.RolloutStatus
}

func (f *fleet) RegisterTemplate(_ context.Context, t tko.Template) (int64, error) {
	f.registered = append(f.registered, "template "+string(t.ID))
	return 1, nil
}

func (f *fleet) RegisterSite(_ context.Context, s tko.Site) (int64, error) {
	f.registered = append(f.registered, "site "+string(s.ID))
	return 1, nil
}

func (f *fleet) RegisterPlugin(_ context.Context, p tko.Plugin) (int64, error) {
	f.registered = append(f.registered, "plugin "+p.Name)
	return 1, nil
}

func (f *fleet) CreateDeployment(_ context.Context, d tko.NewDeployment) (tko.DeploymentID, error) {
	f.created = append(f.created, d)
	return "topology-1", nil
}

func (f *fleet) Sites(context.Context, tko.SiteSelect, tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) { yield(tko.Site{ID: "central"}, nil) }
}

func (f *fleet) Deployments(context.Context, tko.DeploymentSelect, tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		if len(f.created) == 0 || !yield(tko.Deployment{ID: "topology-1", Prepared: true, Approved: true}, nil) {
			return
		}
		scheduled := tko.Stamp{Conditions: []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}}}
		for range f.children {
			if !yield(tko.Deployment{Parent: "topology-1", Template: "workload/smf:v1", Site: "central", Prepared: true, Approved: true, Stamp: scheduled}, nil) {
				return
			}
		}
	}
}

func (f *fleet) RolloutPlan(context.Context, tko.RolloutID) (tko.RolloutPlan, error) {
	return tko.RolloutPlan{}, nil
}

func (f *fleet) RolloutStatus(context.Context, tko.RolloutID) (tko.RolloutStatus, error) {
	return f.rollout, nil
}

// scripted returns a shell in which tko and kubectl are scripts: they record their
// arguments, and what kubectl shows of the SMFs is the next of some lines.
func scripted(t *testing.T, smfs ...string) (s *shell, commands func() []string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"tko":       "#!/bin/sh\necho \"tko $*\" >>" + bin + "/log\n",
		"kubectl":   "#!/bin/sh\necho \"kubectl $*\" >>" + bin + "/log\ncase \"$*\" in *' get deployment smf '*) head -n 1 " + bin + "/smfs; sed -i 1d " + bin + "/smfs;; esac\n",
		"tko-agent": "#!/bin/sh\necho \"tko-agent $*\" >>" + bin + "/log\nexec sleep 600\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "smfs"), []byte(strings.Join(smfs, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := newShell(options{dir: dir, bin: bin, ca: "/ca.crt"}, &tkoServer{Server: &server.Server{GRPC: []string{"[::1]:7"}, Agents: []string{"[::1]:8"}}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s, func() []string { return strings.Split(strings.TrimSpace(content(bin, "log")), "\n") }
}

// printed returns what do prints.
func printed(t *testing.T, do func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func(out *os.File) { os.Stdout = out }(os.Stdout)
	os.Stdout = file
	do()
	text, err := os.ReadFile(file.Name())
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	paused = tko.RolloutStatus{ID: "smf-v3", State: "Paused"}
	good   = []string{"u1 smf:v1.5.0 3 ready; ", "u2 smf:v1.5.0 3 ready; "}
	canary = []string{"u1 " + neverReady + " 3 ready; ", "u2 smf:v1.5.0 3 ready; "}
)

// The broken version must stop at one site, lose no pod that is ready, and be undone.
func TestBrokenRolloutIsCheckedAtBothSites(t *testing.T) { //nolint:paralleltest // replaces the standard output
	both := []string{canary[0], "u2 " + neverReady + " 3 ready; "}
	for name, test := range map[string]struct {
		status tko.RolloutStatus
		smfs   [][]string
		says   string // of the error; none if empty
	}{
		"as it should be":           {paused, [][]string{good, canary, good}, ""},
		"no canary":                 {paused, [][]string{good, both, good}, "not one of the sites got the image"},
		"no site":                   {paused, [][]string{good, good, good}, "not one of the sites got the image"},
		"a pod that was ready left": {paused, [][]string{good, {"u1 " + neverReady + " 2 ready; ", good[1]}, good}, "pods that were ready are gone"},
		"a rollout that goes on":    {tko.RolloutStatus{ID: "smf-v3", State: "Done"}, [][]string{good, canary, good}, `rollout "smf-v3" is Done`},
		"an undo without effect":    {paused, [][]string{good, canary, canary}, "the undo didn't lead back"},
		"an undo that replaces":     {paused, [][]string{good, canary, {"u3 smf:v1.5.0 3 ready; ", good[1]}}, "the undo didn't lead back"},
	} {
		s, commands := scripted(t, slices.Concat(test.smfs...)...)
		var err error
		out := printed(t, func() { err = demonstrateRollout(t.Context(), &fleet{rollout: test.status}, s) })
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
			continue
		}
		if err != nil || !strings.HasSuffix(out, "Both sites run what they ran before.\n") {
			t.Errorf("%s: %v, after\n%s", name, err, out)
		}
		for _, want := range []string{
			"tko template register workload/smf:v3 --stdin", "tko rollout create smf-v3 --upgrade workload/smf:v2=workload/smf:v3 --wave canary=1 --wave rest --health within=90s",
			"tko rollout undo smf-v3", "tko rollout status smf-v3 --watch",
			"kubectl --kubeconfig central.yaml get pods --namespace core --selector app.kubernetes.io/name=smf",
			"kubectl --kubeconfig edge-1.yaml get pods --namespace core --selector app.kubernetes.io/name=smf",
		} {
			if !slices.Contains(commands(), want) {
				t.Errorf("%s: %q was not run: %s", name, want, strings.Join(commands(), "\n"))
			}
		}
	}
}

// kubernetesCatalog writes a catalog with a topology, and returns its folder.
func kubernetesCatalog(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(`
templates: [{id: topology/core}, {id: "workload/smf:v1"}]
sites: [{id: central}]
plugins: [{type: schedule, name: kustomize, arguments: ["${BIN}/kustomize"]}]
topologies: [{template: topology/core, metadata: {purpose: demo}}]
expect: {deployments: 3}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The demo with clusters places the topology, waits for each cluster, and checks that
// objects are updated in place.
func TestClustersFollowTheTopology(t *testing.T) { //nolint:paralleltest // replaces the standard output
	same := []string{"u1 ", "u2 "}
	for name, test := range map[string]struct {
		children int
		smfs     [][]string
		says     string // of the error; none if empty
	}{
		"as it should be":      {2, [][]string{same, same, good, canary, good}, ""},
		"too few deployments":  {1, [][]string{same, same}, "the number of deployments is 2, want 3"},
		"too many deployments": {3, [][]string{same, same}, "the number of deployments is 4, want 3"},
		"replaced objects":     {2, [][]string{same, {"u1 ", "u3 "}}, "were replaced instead of updated in place: UIDs \"u1 \\nu2 \\n\", then \"u1 \\nu3 \\n\""},
	} {
		s, commands := scripted(t, slices.Concat(test.smfs...)...)
		f := &fleet{children: test.children, rollout: paused}
		var err error
		out := printed(t, func() {
			err = demonstrateKubernetes(t.Context(), options{catalog: kubernetesCatalog(t), bin: "/bin"}, f, s)
		})
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v, after\n%s", name, err, out)
		}
		if diff := cmp.Diff([]string{"plugin kustomize", "template topology/core", "template workload/smf:v1", "site central"}, f.registered); diff != "" {
			t.Errorf("registered (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]tko.NewDeployment{{Template: "topology/core", Metadata: map[string]string{"purpose": "demo"}}}, f.created); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		for _, want := range []string{
			"catalog 2 templates, 1 sites, 1 plugins from ", "create  topology-1 from template topology/core\n", "        3 deployments, 3 prepared, 2 of 2 scheduled",
			"\nBoth clusters run what they should, ", "\n$ tko template get workload/smf:v1 | sed 's/:v1.4.0/:v1.5.0/; s/replicas: 2/replicas: 3/'", "tko deployment get topology-1 | sed",
			"\nBoth sites have followed ", "A broken version of the SMF",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not printed:\n%s", want, out)
			}
		}
		for _, want := range []string{
			"tko site enroll north/edge-1", "tko-agent run --server [::1]:8 --ca /ca.crt --token-file edge-1.token --kubeconfig edge-1.yaml --state " + filepath.Join(s.folder, "tko-agent"),
			"tko wait site north/edge-1 --for condition=Connected",
		} {
			if !slices.Contains(commands(), want) {
				t.Errorf("%q was not run: %s", want, strings.Join(commands(), "\n"))
			}
		}
		if n := strings.Count(out, "SITE  "); n != 2 {
			t.Errorf("the table of sites is printed %d times, want twice:\n%s", n, out)
		}
		for _, cluster := range clusterNames {
			for _, want := range []string{
				" get deployments --all-namespaces -o wide",
				" wait --namespace core deployment/smf --timeout=4m --for=jsonpath={.spec.template.spec.containers[0].image}=registry.example/5g/smf:v1.5.0",
				" wait --namespace core deployment/smf --timeout=4m --for=jsonpath={.status.readyReplicas}=3",
			} {
				want = "kubectl --kubeconfig " + cluster + ".yaml" + want
				if !slices.Contains(commands(), want) {
					t.Errorf("%q was not run: %s", want, strings.Join(commands(), "\n"))
				}
			}
		}
	}
}

// What the demo started ends with it.
func TestAgentsEndWithTheDemo(t *testing.T) { //nolint:paralleltest // replaces the standard output
	s, _ := scripted(t)
	out := printed(t, func() {
		if err := s.begin(t.Context(), "tko-agent run"); err != nil {
			t.Fatal(err)
		}
	})
	agent := s.background[0]
	s.close()
	if agent.ProcessState == nil || out != "\n$ tko-agent run &\n" {
		t.Errorf("the agent ended as %v, after %q", agent.ProcessState, out)
	}
	(*shell)(nil).close()
}

// The server has a certificate, which agents require, and an authority for theirs.
func TestServerOfTheDemoIsSecured(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "tko-server"), []byte("#!/bin/sh\ntest \"$1\" = agents-ca && touch \"$2.crt\" \"$2.key\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := options{dir: t.TempDir(), bin: bin}
	if err := o.secure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--tls-cert=", "--tls-key=", "--agents-ca=", "--agents-ca-key="} {
		i := slices.IndexFunc(o.arguments, func(a string) bool { return strings.HasPrefix(a, flag) })
		if i < 0 {
			t.Fatalf("%s is not given: %q", flag, o.arguments)
		}
		if _, err := os.Stat(strings.TrimPrefix(o.arguments[i], flag)); err != nil {
			t.Error(err)
		}
	}
	c, err := client.Dial(client.Options{Address: "localhost:1", TLS: o.tls()})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if (options{}).tls() != nil {
		t.Error("a server without a certificate is called with TLS")
	}
	broken := options{dir: t.TempDir(), bin: t.TempDir()}
	if err := broken.secure(t.Context()); err == nil || !strings.Contains(err.Error(), "the authority of agents") {
		t.Errorf("%v, want that the authority can't be made", err)
	}
}

// A command that fails ends the demo: later ones are not run.
func TestDemoEndsWithTheFirstCommandThatFails(t *testing.T) { //nolint:paralleltest // replaces the standard output
	s, commands := scripted(t)
	var err error
	out := printed(t, func() { err = s.demonstrate(t.Context(), "tko a", "echo shown; exit 4", "tko b") })
	if err == nil || !strings.Contains(err.Error(), "exit status 4") || out != "\n$ tko a\n\n$ echo shown; exit 4\nshown\n" {
		t.Errorf("%v, after %q", err, out)
	}
	if diff := cmp.Diff([]string{"tko a"}, commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// A demo serves until Ctrl-C, or until its server ends, unless it is to run once.
func TestDemoServesUntilItIsStopped(t *testing.T) { //nolint:paralleltest // replaces the standard output
	failure := errors.New("nothing is placed")
	for name, test := range map[string]struct {
		once, tour bool
		work       func(stop func(), s *tkoServer) error
		says       []string // of the error; none if empty
		out        string
	}{
		"once":             {true, false, func(func(), *tkoServer) error { return nil }, nil, ""},
		"Ctrl-C":           {false, true, func(func(), *tkoServer) error { return nil }, nil, "the tour\n\nStopping it.\n"},
		"Ctrl-C in work":   {false, false, func(stop func(), _ *tkoServer) error { stop(); return failure }, nil, ""},
		"the server's end": {false, true, func(_ func(), s *tkoServer) error { s.Stop(); return nil }, []string{"the server ended: see ", "server.log"}, "the tour\n"},
		"a failure":        {false, false, func(func(), *tkoServer) error { return failure }, []string{"nothing is placed\nThe server's log is in ", "server.log, and advice"}, ""},
		"a late call":      {false, false, func(func(), *tkoServer) error { return context.DeadlineExceeded }, []string{"not done after 1m0s: context deadline exceeded"}, ""},
	} {
		bin := programs(t)
		ctx, stop := context.WithCancel(t.Context())
		o := options{once: test.once, dir: t.TempDir(), bin: bin, catalog: t.TempDir(), store: "sqlite:x", timeout: time.Minute}
		var err error
		out := printed(t, func() {
			err = perform(ctx, o, demonstration{
				advice: ", and advice", stopping: "Stopping it.",
				work: func(_ context.Context, s *tkoServer, _ *client.Client) error { return test.work(stop, s) },
				tour: func(*tkoServer) {
					say("the tour")
					if strings.Contains(test.out, "Stopping") {
						stop()
					}
				},
			})
		})
		stop()
		if (err != nil) != (len(test.says) > 0) || slices.ContainsFunc(test.says, func(part string) bool { return !strings.Contains(err.Error(), part) }) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.says)
		}
		if _, after, _ := strings.Cut(out, "server.log\n"); after != test.out {
			t.Errorf("%s: it prints %q after the server's log, want %q", name, after, test.out)
		}
		if content(bin, "ended") == "" {
			t.Errorf("%s: the server goes on", name)
		}
	}
}

// Another server may take the usual port between the check and the start.
func TestDemoUsesOtherPortsThanTakenOnes(t *testing.T) {
	t.Setenv("STAND_IN", "taken")
	bin := programs(t)
	s, err := start(t.Context(), options{dir: t.TempDir(), bin: bin, catalog: t.TempDir(), store: "sqlite:x"})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if args := content(bin, "arguments"); !strings.Contains(args, "--listen-grpc=localhost:0\n--listen-web=localhost:0\n") {
		t.Errorf("the server's arguments are %s, want any ports", args)
	}
}

// Examples with clusters use the scripts of the examples next to them.
func TestScriptsAreThoseOfTheCatalog(t *testing.T) {
	t.Parallel()
	examples := t.TempDir()
	own := filepath.Join(examples, "kubernetes")
	if err := errors.Join(os.Mkdir(filepath.Join(examples, "plugins"), 0o700), os.Mkdir(own, 0o700)); err != nil {
		t.Fatal(err)
	}
	if got, want := (options{catalog: own, kubernetes: "/kube"}).plugins(), filepath.Join(examples, "plugins"); got != want {
		t.Errorf("a catalog for clusters without scripts uses %s, want %s", got, want)
	}
	if got, want := (options{catalog: own}).plugins(), filepath.Join(own, "plugins"); got != want {
		t.Errorf("a catalog uses %s, want %s", got, want)
	}
	if err := os.Mkdir(filepath.Join(own, "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := (options{catalog: own, kubernetes: "/kube"}).plugins(), filepath.Join(own, "plugins"); got != want {
		t.Errorf("a catalog for clusters uses %s, want its own, %s", got, want)
	}
}
