package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/internal/kube"
)

// clusterNames are the names of the sites' clusters and of their kubeconfigs. The server connects to
// the first one; an agent is at the other one, and connects to the server.
var clusterNames = []string{"central", atHome}

const atHome = "edge-1"

// runKubernetes runs the demo with Kubernetes clusters as sites. It removes its
// folder at the end, unless it fails.
func runKubernetes(ctx context.Context, o options) (err error) {
	if o.dir, err = os.MkdirTemp(o.dir, "kubernetes-"); err != nil {
		return err
	}
	o.store = cmp.Or(o.store, "sqlite:"+filepath.Join(o.dir, "tko.db"))
	defer func() {
		if err == nil {
			err = os.RemoveAll(o.dir)
		}
	}()
	kubeconfigs, clusters := filepath.Join(o.dir, "kubeconfigs"), filepath.Join(o.dir, "clusters")
	if err := errors.Join(os.Mkdir(kubeconfigs, 0o750), os.Mkdir(clusters, 0o750), o.secure(ctx)); err != nil {
		return err
	}
	say("Starting two Kubernetes clusters: etcd, API server, controllers, and a node by kwok for each.")
	began := time.Now()
	stop, err := startClusters(o.kubernetes, clusters) //nolint:contextcheck // they start within seconds, and are stopped in order
	defer stop()
	if err != nil || ctx.Err() != nil {
		return err
	}
	indented("ready after " + since(began))

	// The server has the kubeconfig of the cluster that it connects to, and no other one.
	if err := os.Link(filepath.Join(clusters, "central.yaml"), filepath.Join(kubeconfigs, "central.yaml")); err != nil {
		return err
	}
	o.arguments = append(o.arguments, "--kubeconfigs="+kubeconfigs)
	var s *shell
	defer func() { s.close() }()
	return perform(ctx, o, demonstration{
		why: "make demo-kubernetes", stopping: "Stopping the server and both clusters.",
		work: func(working context.Context, running *tkoServer, c *client.Client) (err error) {
			if s, err = newShell(o, running, clusters); err != nil {
				return err
			}
			if err = demonstrateKubernetes(working, o, c, s); err != nil {
				if p, lookErr := demo.Observe(ctx, c); lookErr == nil && len(p.Problems) > 0 {
					err = fmt.Errorf("%w\n%s", err, strings.Join(p.Problems, "\n"))
				}
			}
			return err
		},
		tour: func(*tkoServer) {
			say(`
Look around (in another terminal; export these first):
  export PATH=%s:%s:$PATH %s
  cd %s
  kubectl --kubeconfig edge-1.yaml get all -A -l tko.nephio.org/deployment
  tko site list -o wide
  tko site list --condition Connected                          # the sites whose agents are heard
Change something:
  kubectl --kubeconfig edge-1.yaml scale -n core deployment smf --replicas 9   # TKO restores it
  tko deployment delete ID                                     # deletes its objects; the topology recreates it when it changes
Serving until Ctrl-C.`, o.bin, o.kubernetes, strings.Join(s.tko, " "), clusters)
		},
	})
}

// secure makes the certificate of the server, which agents require, and the authority of their
// certificates.
func (o *options) secure(ctx context.Context) error {
	certificate, key, err := certs.SelfSigned()
	if err != nil {
		return err
	}
	files := []string{filepath.Join(o.dir, "server.crt"), filepath.Join(o.dir, "server.key")}
	agents := filepath.Join(o.dir, "agents")
	if err := errors.Join(os.WriteFile(files[0], certificate, 0o600), os.WriteFile(files[1], key, 0o600)); err != nil {
		return err
	}
	//nolint:gosec // the binary that make built
	if out, err := exec.CommandContext(ctx, filepath.Join(o.bin, "tko-server"), "agents-ca", agents).CombinedOutput(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("making the authority of agents: %w\n%s", err, out)
	}
	o.ca = files[0]
	o.arguments = append(o.arguments, "--tls-cert="+files[0], "--tls-key="+files[1], "--listen-agents=localhost:0", "--agents-ca="+agents+".crt", "--agents-ca-key="+agents+".key")
	return nil
}

// startClusters starts the clusters concurrently, and writes their kubeconfigs into a
// folder. Call stop also after an error.
func startClusters(programs, folder string) (stop func(), err error) {
	clusters, failures := make([]*kube.Cluster, len(clusterNames)), make([]error, len(clusterNames))
	var all sync.WaitGroup
	for i, name := range clusterNames {
		all.Go(func() {
			c, err := kube.New(kube.Options{Controllers: true, Programs: programs})
			if err != nil {
				failures[i] = fmt.Errorf("cluster %s: %w", name, err)
				return
			}
			clusters[i] = c
			text, err := os.ReadFile(c.Kubeconfig)
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, name+".yaml"), text, 0o600) //nolint:gosec // the folder is ours
			}
			failures[i] = err
		})
	}
	all.Wait()
	return func() {
		for _, c := range clusters {
			if c != nil {
				c.Close()
			}
		}
	}, errors.Join(failures...)
}

// An api is the part of the client that the demo with clusters uses.
type api interface {
	demo.Registrar
	demo.Creator
	demo.Lister
	demo.RolloutReader
}

// demonstrateKubernetes places a topology, waits until the clusters run it, changes
// one of its templates, and waits until the clusters follow.
func demonstrateKubernetes(ctx context.Context, o options, c api, s *shell) error {
	catalog, err := demo.Load(o.catalog, map[string]string{"BIN": o.bin})
	if err != nil {
		return err
	}
	if err := catalog.Register(ctx, c, indented); err != nil {
		return err
	}
	say("catalog %d templates, %d sites, %d plugins from %s", len(catalog.Templates), len(catalog.Sites), len(catalog.Plugins), o.catalog)
	say("\nThe server has no kubeconfig of the site north/%s: its agent calls. It gets a certificate for a token that is valid once.", atHome)
	if err := s.demonstrate(ctx, "tko site enroll north/"+atHome+" > "+atHome+".token"); err != nil {
		return err
	}
	if err := s.begin(ctx, fmt.Sprintf("tko-agent run --server %s --ca %s --token-file %[3]s.token --kubeconfig %[3]s.yaml --state %[4]s", s.agents, s.ca, atHome, filepath.Join(s.folder, "tko-agent"))); err != nil {
		return err
	}
	if err := s.demonstrate(ctx, "tko wait site north/"+atHome+" --for condition=Connected"); err != nil {
		return err
	}
	ids, err := catalog.Create(ctx, c)
	if err != nil {
		return err
	}
	say("create  %s from template %s", ids[0], catalog.Topologies[0].Template)
	follow := func() (progress demo.Progress, err error) {
		last := ""
		progress, err = demo.Follow(ctx, c, interval, func(p demo.Progress) {
			line := p.String()
			if n := len(p.Problems); n > 0 {
				line += fmt.Sprintf(", %d conditions are not true yet", n)
			}
			if line != last {
				indented(line)
			}
			last = line
		})
		if err == nil {
			report(progress)
		}
		return progress, err
	}
	began := time.Now()
	progress, err := follow()
	if err != nil {
		return err
	}
	if progress.Deployments != catalog.Expect.Deployments {
		return fmt.Errorf("the number of deployments is %[2]d, want %[1]d", catalog.Expect.Deployments, progress.Deployments)
	}
	say("\nBoth clusters run what they should, %s after the topology was created:", since(began))
	if err := s.demonstrate(ctx, append(everywhere("get deployments --all-namespaces -o wide"), "kubectl --kubeconfig edge-1.yaml get pods --namespace core")...); err != nil {
		return err
	}
	const uid = "{.metadata.uid} "
	before, err := s.smfs(ctx, uid)
	if err != nil {
		return err
	}

	say("\nA new version of the SMF: its template, with another image and a replica more. The topology gets it, and both sites follow.")
	if err := s.demonstrate(ctx,
		"tko template get workload/smf:v1 | sed 's/:v1.4.0/:v1.5.0/; s/replicas: 2/replicas: 3/' | tko template register workload/smf:v2 --stdin",
		fmt.Sprintf(`TOKEN=$(tko deployment mod start %[1]s) && tko deployment get %[1]s | sed 's/smf:v1/smf:v2/' | tko deployment mod end "$TOKEN" --stdin`, ids[0]),
	); err != nil {
		return err
	}
	changed := time.Now()
	for _, name := range clusterNames {
		wait := "kubectl --kubeconfig " + name + ".yaml wait --namespace core deployment/smf --timeout=4m --for=jsonpath='"
		if err := s.demonstrate(ctx, wait+"{.spec.template.spec.containers[0].image}=registry.example/5g/smf:v1.5.0'", wait+"{.status.readyReplicas}=3'"); err != nil {
			return err
		}
	}
	took := since(changed)
	if _, err := follow(); err != nil {
		return err
	}
	if err := s.demonstrate(ctx, "kubectl --kubeconfig edge-1.yaml get deployments --all-namespaces -o wide"); err != nil {
		return err
	}
	after, err := s.smfs(ctx, uid)
	if err != nil {
		return err
	}
	if before != after || before == "" {
		return fmt.Errorf("the SMFs were replaced instead of updated in place: UIDs %q, then %q", before, after)
	}
	say("\nBoth sites have followed %s after the change. The SMF's objects went from the old deployment to the new one, and were never deleted.", took)
	return demonstrateRollout(ctx, c, s)
}

// neverReady is the image of the SMF's last version. The clusters' nodes can't pull it.
const neverReady = "registry.example/5g/smf:v1.6.0-never-ready"

// demonstrateRollout upgrades the SMF to an image that never becomes ready: the rollout
// stops in the canary, and is undone.
func demonstrateRollout(ctx context.Context, c demo.RolloutReader, s *shell) error {
	const images = "{.metadata.uid} {.spec.template.spec.containers[0].image} {.status.readyReplicas} ready; "
	before, err := s.smfs(ctx, images)
	if err != nil {
		return err
	}
	say("\nA broken version of the SMF: its image can't be pulled. A rollout changes one site first, the canary, and expects it to be healthy within 90 seconds.")
	if err := s.demonstrate(ctx,
		"tko template get workload/smf:v2 | sed 's|registry.example/5g/smf:v1.5.0|"+neverReady+"|' | tko template register workload/smf:v3 --stdin",
		"tko rollout create smf-v3 --upgrade workload/smf:v2=workload/smf:v3 --wave canary=1 --wave rest --health within=90s",
		"tko rollout start smf-v3 --plan $(tko rollout status smf-v3 -o jsonpath='{.plan}')",
	); err != nil {
		return err
	}
	if _, err := demo.Await(ctx, c, "smf-v3", "Paused", indented); err != nil {
		return err
	}
	say("\nThe new pod isn't ready after 90 seconds, so the rollout has stopped in the canary. The other site is as it was, and the old pods of the canary serve on:")
	if err := s.demonstrate(ctx, append([]string{"tko rollout status smf-v3"}, everywhere("get pods --namespace core --selector app.kubernetes.io/name=smf")...)...); err != nil {
		return err
	}
	during, err := s.smfs(ctx, images)
	if err != nil {
		return err
	}
	if strings.Count(during, neverReady) != 1 || strings.Count(during, " 3 ready") != len(clusterNames) {
		return fmt.Errorf("not one of the sites got the image, or pods that were ready are gone: %s", during)
	}
	say("\nIt is undone:")
	if err := s.demonstrate(ctx, append([]string{"tko rollout undo smf-v3", "tko rollout status smf-v3 --watch"},
		everywhere("get deployments --namespace core --selector app.kubernetes.io/name=smf -o wide")...)...); err != nil {
		return err
	}
	after, err := s.smfs(ctx, images)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("the undo didn't lead back: the SMFs were %s, and are %s", before, after)
	}
	say("\nBoth sites run what they ran before.")
	return nil
}

func since(began time.Time) string { return time.Since(began).Round(100 * time.Millisecond).String() }

// everywhere returns a command of kubectl for all clusters.
func everywhere(command string) (commands []string) {
	for _, name := range clusterNames {
		commands = append(commands, "kubectl --kubeconfig "+name+".yaml "+command)
	}
	return commands
}

// A shell runs commands as a user would.
type shell struct {
	folder string
	tko    []string // environment variables for tko with the server's address
	env    []string
	agents string // address of the server for agents
	ca     string // file of the authority of the server's certificate

	background []*exec.Cmd
}

func newShell(o options, running *tkoServer, folder string) (*shell, error) {
	address := running.GRPC[0]
	i := strings.LastIndex(address, ":")
	if i < 0 {
		return nil, fmt.Errorf("the server's address %q has no port", address)
	}
	s := &shell{folder: folder, tko: []string{"TKO_GRPC_ADDRESS=" + strings.Trim(address[:i], "[]"), "TKO_GRPC_PORT=" + address[i+1:]}, ca: o.ca}
	if o.ca != "" {
		s.tko = append(s.tko, "TKO_TLS_CA="+o.ca)
	}
	if len(running.Agents) > 0 {
		s.agents = running.Agents[0]
	}
	path := strings.Join([]string{o.bin, o.kubernetes, os.Getenv("PATH")}, string(filepath.ListSeparator))
	s.env = append(append(os.Environ(), s.tko...), "PATH="+path, "KUBECACHEDIR="+filepath.Join(o.dir, "kubectl"), "HOME="+o.dir)
	return s, nil
}

// demonstrate prints commands, runs them, and prints their output, until one fails.
func (s *shell) demonstrate(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		say("\n$ %s", command)
		out, err := s.run(ctx, command)
		if text := strings.TrimRight(out, "\n"); text != "" {
			say("%s", text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin prints a command, and starts it in the background, until close. Its output is in a file with
// the name of its program.
func (s *shell) begin(ctx context.Context, command string) error {
	say("\n$ %s &", command)
	name, _, _ := strings.Cut(command, " ")
	log, err := os.Create(filepath.Join(s.folder, name+".log")) //nolint:gosec // the folder is ours
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	//nolint:gosec // the demo's own command
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "bash", "-c", "exec "+command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.folder, s.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C goes to this program only, which stops it
	if err := cmd.Start(); err != nil {
		return err
	}
	s.background = append(s.background, cmd)
	return nil
}

// close ends what begin has started. The shell may be nil.
func (s *shell) close() {
	if s == nil {
		return
	}
	for _, cmd := range s.background {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	s.background = nil
}

func (s *shell) run(ctx context.Context, command string) (string, error) {
	//nolint:gosec // the demo's own commands
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.folder, s.env, time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", command, err, &errs)
	}
	return out.String(), nil
}

// smfs returns values of the SMFs of all clusters, by a template of kubectl.
func (s *shell) smfs(ctx context.Context, jsonpath string) (string, error) {
	return s.each(ctx, "kubectl --kubeconfig %s.yaml get deployment smf --namespace core -o jsonpath='"+jsonpath+"'")
}

// each runs a command, in which %s is the name of a cluster, for all of them, and
// returns the outputs.
func (s *shell) each(ctx context.Context, command string) (string, error) {
	var all strings.Builder
	for _, name := range clusterNames {
		out, err := s.run(ctx, fmt.Sprintf(command, name))
		if err != nil {
			return "", err
		}
		all.WriteString(out)
	}
	return all.String(), nil
}
