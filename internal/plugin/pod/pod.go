package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
)

const maxStderr = 2 << 10 // bytes of the end of stderr that are returned

// Options are the settings of an Executor.
type Options struct {
	// Kubeconfig is the path of the kubeconfig file. If empty: the file in the
	// environment variable KUBECONFIG, else that of the home directory, else the
	// cluster that this process runs in.
	Kubeconfig string
	MaxOutput  int // bytes of stdout; 64 MiB if 0
}

// An Executor runs programs in pods of one cluster. It is safe for concurrent
// use.
type Executor struct{ options Options }

// New returns an Executor. It does not connect to the cluster.
func New(o Options) *Executor {
	if o.MaxOutput == 0 {
		o.MaxOutput = 64 << 20
	}
	return &Executor{options: o}
}

// A Command is a program to run in a container of an existing pod.
type Command = plugin.PodCommand

// name matches names that are safe in a URL path. Kubernetes restricts names
// further.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}$`)

// Run runs a program with limits on time and output. It returns an error if the
// program exits with a code other than 0 or does not end in time. A program
// that does not end in time loses its stdin and stdout, but may continue in its
// pod: Kubernetes has no way to end it.
func (e *Executor) Run(ctx context.Context, c Command) (stdout []byte, stderr string, err error) {
	for what, value := range map[string]string{"namespace": c.Namespace, "pod": c.Pod, "container": c.Container} {
		if !name.MatchString(value) {
			return nil, "", tko.Errorf(tko.ErrInvalid, "%q can't be the name of a %s: see the plugin's properties", value, what)
		}
	}
	executor, err := e.executor(c)
	if err != nil {
		return nil, "", err
	}
	timed, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it did not end within %s", c.Timeout))
	defer cancel()
	running, stop := context.WithCancelCause(timed)
	defer stop(nil)
	out := &output{limit: e.options.MaxOutput, full: func() {
		stop(fmt.Errorf("it wrote more than %d bytes to stdout", e.options.MaxOutput))
	}}
	problems := &output{limit: maxStderr, tail: true}
	quiet := klog.NewContext(running, logr.Discard()) // the error contains what the library would log
	err = executor.StreamWithContext(quiet, remotecommand.StreamOptions{Stdin: bytes.NewReader(c.Input), Stdout: out, Stderr: problems})
	stderr = problems.text()
	var exit exec.CodeExitError
	switch {
	case running.Err() != nil:
		return nil, stderr, context.Cause(running)
	case errors.As(err, &exit):
		return nil, stderr, fmt.Errorf("it ended with exit code %d", exit.Code)
	case err != nil:
		return nil, stderr, fmt.Errorf("it could not be run in pod %q of namespace %q: %w", c.Pod, c.Namespace, err)
	}
	return out.bytes(), stderr, nil
}

// executor returns an executor for the pod of the command.
func (e *Executor) executor(c Command) (remotecommand.Executor, error) {
	config, err := e.config()
	if err != nil {
		return nil, fmt.Errorf("no cluster to run it in: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("no cluster to run it in: %w", err)
	}
	address := base.JoinPath("api", "v1", "namespaces", c.Namespace, "pods", c.Pod, "exec")
	address.RawQuery = url.Values{
		"container": {c.Container}, "command": c.Arguments, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	sockets, err := remotecommand.NewWebSocketExecutor(config, "GET", address.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", address)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(sockets, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// config reads the kubeconfig. It is read for every run, because credentials
// change.
func (e *Executor) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = e.options.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// output receives what a program writes, also after Run has returned. Writes
// never fail: excess output is dropped, and full is called once.
type output struct {
	limit int
	tail  bool // drop the beginning instead of the end
	full  func()

	mu   sync.Mutex
	data []byte
	cut  bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.tail:
		o.data = append(o.data, p...)
		if extra := len(o.data) - o.limit; extra > 0 {
			o.data = append(o.data[:0], o.data[extra:]...)
			o.cut = true
		}
	case o.cut:
	case len(o.data)+len(p) > o.limit:
		o.cut = true
		o.full()
	default:
		o.data = append(o.data, p...)
	}
	return len(p), nil
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.data
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := strings.TrimSpace(strings.ToValidUTF8(string(o.data), "\uFFFD"))
	if o.cut {
		s = "…" + s
	}
	return s
}
