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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/tko-orchestrator/tko"
)

const maxStderr = 2 << 10 // of the end, which is kept

// Options are the settings of an Executor.
type Options struct {
	// Kubeconfig is the file that says which cluster. If empty: that of
	// KUBECONFIG, else of the home directory, else the cluster that we run in.
	Kubeconfig string
	MaxOutput  int // bytes of stdout; 64 MiB if 0
}

// An Executor runs programs in pods of one cluster. It is safe for concurrent
// use.
type Executor struct{ options Options }

// New makes an Executor. The cluster is looked for when it is needed.
func New(o Options) *Executor {
	if o.MaxOutput == 0 {
		o.MaxOutput = 64 << 20
	}
	return &Executor{options: o}
}

// A Command is a program in a container of a pod that is there.
type Command struct {
	Namespace, Pod, Container string
	Arguments                 []string
	Input                     []byte // goes to stdin
	Timeout                   time.Duration
}

// Names that can be in a path. Kubernetes is stricter still.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}$`)

// Run runs a program, bounded in time and output. An exit code is an error, and
// so is everything else that keeps it from ending well. What doesn't end in
// time loses its stdin and stdout, but may go on in its pod: Kubernetes has no
// way to end it.
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
	quiet := klog.NewContext(running, logr.Discard()) // what the library would log is in the error
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

// executor knows how to reach the pod.
func (e *Executor) executor(c Command) (remotecommand.Executor, error) {
	config, err := e.config()
	if err != nil {
		return nil, fmt.Errorf("there is no cluster to run it in: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("there is no cluster to run it in: %w", err)
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

// config is read for every run: credentials change.
func (e *Executor) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = e.options.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// output takes what a program writes, also after nobody waits for it any more.
// It never fails: what is too much is dropped, and told once.
type output struct {
	limit int
	tail  bool // what is too much is what came first
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
