package tosca

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/child"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/krm"
)

// ErrMissing reports that the compiler isn't installed.
var ErrMissing = errors.New("the program " + Command + " is neither next to this one nor on the PATH: install it where the preparer runs")

// Options configure a preparer. The zero value works.
type Options struct {
	Schemes []string     // of permitted locations; [Schemes] if nil
	Guard   *guard.Guard // permits hosts and folders; all if nil
	Command []string     // compiler with its arguments; found if nil
}

// A Preparer compiles service templates into topologies, at most as many at once as
// there are processors. It may be used by many goroutines.
type Preparer struct {
	options Options
	slots   chan struct{} // one element for each running compiler
}

// New makes a preparer.
func New(options Options) *Preparer {
	if options.Schemes == nil {
		options.Schemes = Schemes
	}
	return &Preparer{options: options, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// fetchTime bounds the time to collect a service template.
const fetchTime = time.Minute

// Resources returns the topology resources for the service template at a location:
// Template, Site and Sites resources, the resources that are merged into their
// deployments, and a Placement. Equal service templates lead to equal resources.
// Errors: tko.ErrInvalid if the service template must be changed, tko.ErrDenied if it
// may not be read, [ErrMissing]; others may be temporary.
func (p *Preparer) Resources(ctx context.Context, location string) (krm.Package, error) {
	command := p.options.Command
	if command == nil {
		found, err := child.Find(Command)
		if errors.Is(err, exec.ErrNotFound) {
			return nil, ErrMissing
		}
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", Command, err)
		}
		command = []string{found}
	}
	fetching, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	request, err := fetch(fetching, location, p.options.Schemes, p.options.Guard)
	if err != nil {
		return nil, err
	}
	select { // each compiler may need half a gigabyte of memory
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	service, err := run(ctx, command, request)
	if err != nil {
		return nil, err
	}
	pkg, err := resources(service)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return pkg, nil
}
