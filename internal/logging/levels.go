package logging

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The components of the log. Lines without a component are of Server.
const (
	Server        = "server"
	API           = "api"            // the gRPC API
	Web           = "web"            // the HTTP API
	KubernetesAPI = "kubernetes-api" // the Kubernetes API
	Catalog       = "catalog"
	Store         = "store"
	Security      = "security" // certificates and credentials
	Preparer      = "preparer"
	MetaScheduler = "meta-scheduler"
	GitOps        = "gitops"
	Plugins       = "plugins" // their runs, and the lines that they log
	Siblings      = "siblings"
	KubernetesLib = "kubernetes" // libraries of Kubernetes
	GRPC          = "grpc"       // the library
	TOSCA         = "tosca"      // the compiler and its libraries
	OpenTelemetry = "opentelemetry"
	Library       = "library" // other libraries
)

// componentKey is the attribute that names the component.
const componentKey = "component"

// Components returns the names of all components, sorted.
func Components() []string {
	return slices.Sorted(slices.Values([]string{
		Server, API, Web, KubernetesAPI, Catalog, Store, Security, Preparer, MetaScheduler, GitOps, Plugins, Siblings,
		KubernetesLib, GRPC, TOSCA, OpenTelemetry, Library,
	}))
}

var levelNames = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

const (
	defaultLevel = "default" // resets a level to that of the start
	maxSpec      = 1000      // bytes of the text of levels
	general      = ""        // the key of the level of components without one of their own
	maxLasting   = 24 * 365 * time.Hour
)

// A setting is an element of the text of levels.
type setting struct {
	component string // or general
	level     slog.Level
	reset     bool
}

// parse reads the text of levels: LEVEL for all components, and COMPONENT=LEVEL,
// separated by commas.
func parse(spec string, resets bool) ([]setting, error) {
	if len(spec) > maxSpec {
		return nil, tko.Errorf(tko.ErrInvalid, "the log levels have %d bytes: at most %d are allowed", len(spec), maxSpec)
	}
	var all []setting
	seen := map[string]bool{}
	for element := range strings.SplitSeq(spec, ",") {
		component, name, named := strings.Cut(strings.TrimSpace(element), "=")
		if !named {
			component, name = general, component
		} else if !slices.Contains(Components(), component) {
			return nil, tko.Errorf(tko.ErrInvalid, "log level %.60q: there is no component %.40q: use %s", element, component, strings.Join(Components(), ", "))
		}
		if seen[component] {
			return nil, tko.Errorf(tko.ErrInvalid, "log level %.60q: there is another level for the same: give one", element)
		}
		seen[component] = true
		s := setting{component: component, reset: resets && name == defaultLevel}
		level, ok := levelNames[name]
		switch {
		case ok:
			s.level = level
		case s.reset:
		case resets:
			return nil, tko.Errorf(tko.ErrInvalid, "log level %.60q: use debug, info, warn, error, or default", element)
		default:
			return nil, tko.Errorf(tko.ErrInvalid, "log level %.60q: use debug, info, warn or error", element)
		}
		all = append(all, s)
	}
	return all, nil
}

// CheckLevels returns what is wrong with the text of levels: LEVEL for all
// components, and COMPONENT=LEVEL, separated by commas.
func CheckLevels(spec string) error {
	_, err := parse(spec, false)
	return err
}

// Levels are the levels of the components of a program's log. They may be used
// by many goroutines.
type Levels struct {
	current map[string]*slog.LevelVar // by component; the map doesn't change

	mu      sync.Mutex
	start   map[string]slog.Level
	set     map[string]temporary
	timer   *time.Timer // ends the next of set; nil before the first
	changed chan struct{}
}

// A temporary is a level that was set while the program runs.
type temporary struct {
	level slog.Level
	until time.Time // zero: until the program ends
}

// NewLevels returns the levels of a text that [CheckLevels] accepts.
func NewLevels(spec string) (*Levels, error) {
	settings, err := parse(spec, false)
	if err != nil {
		return nil, err
	}
	l := &Levels{current: map[string]*slog.LevelVar{}, start: map[string]slog.Level{general: slog.LevelInfo}, set: map[string]temporary{}, changed: make(chan struct{})}
	for _, c := range Components() {
		l.current[c] = new(slog.LevelVar)
	}
	for _, s := range settings {
		l.start[s.component] = s.level
	}
	l.apply()
	return l, nil
}

// of returns the level of a component; that of Server for an unknown one.
func (l *Levels) of(component string) *slog.LevelVar {
	if v, ok := l.current[component]; ok {
		return v
	}
	return l.current[Server]
}

// apply computes the current levels. The mutex is held, or l isn't shared yet.
func (l *Levels) apply() {
	for component, v := range l.current {
		level, _ := l.effective(component)
		v.Set(level)
	}
}

// effective returns the level of a component, and until when it is set. A level
// of the component itself comes before that of all.
func (l *Levels) effective(component string) (slog.Level, time.Time) {
	for _, key := range []string{component, general} {
		if t, ok := l.set[key]; ok {
			return t.level, t.until
		}
		if level, ok := l.start[key]; ok {
			return level, time.Time{}
		}
	}
	return slog.LevelInfo, time.Time{}
}

// Set changes levels, for a time, after which they are again those of the start;
// until the program ends if it is 0. Elements of the text may also be
// COMPONENT=default and default: the levels of the start. If any element is
// wrong, nothing changes.
func (l *Levels) Set(spec string, lasting time.Duration) error {
	settings, err := parse(spec, true)
	if err != nil {
		return err
	}
	if lasting < 0 || lasting > maxLasting {
		return tko.Errorf(tko.ErrInvalid, "log levels can't be set for %s: give 0 (until the server ends) to %s", lasting, maxLasting)
	}
	until := time.Time{}
	if lasting > 0 {
		until = time.Now().Add(lasting)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range settings {
		switch {
		case s.reset && s.component == general:
			clear(l.set)
		case s.reset:
			delete(l.set, s.component)
		default:
			l.set[s.component] = temporary{s.level, until}
		}
	}
	l.update(time.Now())
	return nil
}

// update drops levels that have ended, applies the others, and waits for the
// next end. The mutex is held.
func (l *Levels) update(now time.Time) {
	var next time.Time
	for _, t := range l.set {
		if !t.until.IsZero() && (next.IsZero() || t.until.Before(next)) && t.until.After(now) {
			next = t.until
		}
	}
	maps.DeleteFunc(l.set, func(_ string, t temporary) bool { return !t.until.IsZero() && !t.until.After(now) })
	l.apply()
	close(l.changed)
	l.changed = make(chan struct{})
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if !next.IsZero() {
		l.timer = time.AfterFunc(next.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.update(time.Now())
		})
	}
}

// All returns the level of each component, sorted by component.
func (l *Levels) All() []tko.LogLevel {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []tko.LogLevel
	for _, c := range Components() {
		level, until := l.effective(c)
		all = append(all, tko.LogLevel{Component: c, Level: strings.ToLower(level.String()), Until: until})
	}
	return all
}

// Watch returns the current levels as a text for [Levels.Set] of another
// program, and a channel that is closed when they change.
func (l *Levels) Watch() (spec string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, c := range Components() {
		level, _ := l.effective(c)
		parts = append(parts, fmt.Sprintf("%s=%s", c, strings.ToLower(level.String())))
	}
	return strings.Join(parts, ","), l.changed
}
