package helm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"runtime"
	"strconv"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
)

const (
	// again is the time before a chart whose rendering exceeded a limit is rendered
	// again with the same values.
	again = time.Hour
	// grace is the additional time for a renderer to start, look up and respond.
	grace = 30 * time.Second

	maxHopeless = 10_000
	maxMemory   = 512 << 20 // bytes of a rendering process
)

// A Renderer renders charts' templates. Templates are programs whose time and memory
// can't be limited in the same process, so it runs this program again as a process
// for each rendering. It is safe for concurrent use.
type Renderer struct {
	limit time.Duration
	slots chan struct{} // has an element for each process

	mu       sync.Mutex
	hopeless map[string]hopeless // by digest of chart and values
}

// A hopeless records a rendering that exceeded a limit.
type hopeless struct {
	reason string
	until  time.Time // time of the next attempt
}

// NewRenderer returns a Renderer with a time limit for each chart, which is 30 s if limit is
// 0. It does not need to be closed.
func NewRenderer(limit time.Duration) *Renderer {
	return &Renderer{limit: cmp.Or(limit, 30*time.Second), slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), hopeless: map[string]hopeless{}}
}

// A task is the input of a rendering process.
type task struct {
	Archive         []byte // of the chart, or
	Files           []*archive.BufferedFile
	Values          []byte // JSON
	Name, Namespace string
	Revision        int
	Upgrade         bool
	Kubernetes      string // version
	APIs            []string
}

// A message is an output of a rendering process: a lookup, the rendered files, or an
// error.
type message struct {
	Lookup *lookup
	Files  map[string]string
	Error  string
}

// A lookup holds the arguments of the template function lookup.
type lookup struct{ APIVersion, Kind, Namespace, Name string }

// found is the result of a lookup.
type found struct {
	Object []byte // JSON
	Error  string
}

// render returns the rendered templates of a chart, by name. Errors are
// tko.ErrInvalid if the chart or its values are the cause.
func (r *Renderer) render(ctx context.Context, c *Chart, t task, lookUp func(lookup) (map[string]any, error)) (map[string]string, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s", c.Digest, t.Values))
	id := string(sum[:])
	r.mu.Lock()
	known, ok := r.hopeless[id]
	r.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return nil, tko.Errorf(tko.ErrInvalid, "%s", known.reason)
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	files, err := r.start(ctx, t, lookUp)
	if limit, ok := errors.AsType[*limitError](err); ok {
		known = hopeless{reason: limit.Error() + fmt.Sprintf("; it is not tried again within %s", again), until: time.Now().Add(again)}
		r.mu.Lock()
		if len(r.hopeless) >= maxHopeless {
			clear(r.hopeless)
		}
		r.hopeless[id] = known
		r.mu.Unlock()
		return nil, tko.Errorf(tko.ErrInvalid, "%s", known.reason)
	}
	return files, err
}

// A limitError names the limit that a chart exceeded.
type limitError struct{ what string }

func (e *limitError) Error() string { return e.what }

// start runs a rendering process and responds to its lookups.
func (r *Renderer) start(ctx context.Context, t task, lookUp func(lookup) (map[string]any, error)) (map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit+grace, r.late())
	defer cancel()
	self, err := child.Self()
	if err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	cmd := exec.CommandContext(ctx, self) //nolint:gosec // it is this program
	cmd.Args, cmd.Env, cmd.Dir = []string{rendererName, r.limit.String(), strconv.Itoa(maxMemory)}, []string{}, "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the renderer: %w", err)
	}
	responses, said := gob.NewEncoder(in), gob.NewDecoder(out)
	err = responses.Encode(t)
	for err == nil {
		var m message
		if err = said.Decode(&m); err != nil {
			break
		}
		if m.Lookup == nil {
			cancel() // all its output was read
			_ = cmd.Wait()
			if m.Error != "" {
				return nil, tko.Errorf(tko.ErrInvalid, "%s", m.Error)
			}
			return m.Files, nil
		}
		err = responses.Encode(foundOf(lookUp(*m.Lookup)))
	}
	waitErr := cmd.Wait()
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return nil, cause
	case cmd.ProcessState.ExitCode() == exitLate:
		return nil, r.late()
	case cmd.ProcessState.ExitCode() == exitLarge:
		return nil, &limitError{fmt.Sprintf("rendering its templates takes more than %d MiB of memory", maxMemory>>20)}
	default:
		return nil, fmt.Errorf("rendering its templates was interrupted: %w", errors.Join(err, waitErr))
	}
}

func (r *Renderer) late() error {
	return &limitError{fmt.Sprintf("rendering its templates takes longer than %s", r.limit)}
}

func foundOf(object map[string]any, err error) found {
	if err != nil {
		return found{Error: err.Error()}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return found{Error: err.Error()}
	}
	return found{Object: text}
}

// prerendered replaces the templates of a chart, whose dependencies were processed,
// by their rendered text. Call restore to undo that.
func prerendered(c *chart.Chart, files map[string]string) (restore func()) {
	was := map[*common.File][]byte{}
	var visit func(*chart.Chart)
	visit = func(c *chart.Chart) {
		own := make([]*common.File, 0, len(c.Templates)) // a chart that is used under two names has its templates twice
		for _, file := range c.Templates {
			if file == nil {
				continue
			}
			plain := *file
			plain.Data = nil
			if text := files[path.Join(c.ChartFullPath(), file.Name)]; text != "" {
				plain.Data = []byte("{{ " + strconv.Quote(text) + " }}")
			}
			own = append(own, &plain)
			was[&plain] = file.Data
		}
		c.Templates = own
		for _, d := range c.Dependencies() {
			visit(d)
		}
	}
	visit(c)
	return func() {
		for file, data := range was { // the library may have copied the chart, but not its files
			file.Data = data
		}
	}
}
