package gitops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm"
)

// A source that is suspended stays as ready as it was, and so do those that depend on it.
func TestSuspendedSourceStaysReady(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	first := r.push(map[string]string{"a.yaml": template("a:1", "1"), "below/b.yaml": template("b:1", "1")})
	c := data(t)
	base := gitops.Settings{Name: "base", Git: gitops.GitSettings{URL: r.url}, Interval: "1s"}
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, base)}})
	w.sync("base", first)
	base.Suspend = true
	w.controller.Set(spec(t, base))
	s := w.until("base", "suspended", func(s tko.Source) bool {
		return tko.ConditionIs(s.Status.Conditions, tko.ConditionSuspended) == tko.ConditionTrue
	})
	if ready(s).Status != tko.ConditionTrue {
		t.Errorf("the suspended source has the condition %+v", ready(s))
	}
	other := newRepo(t)
	other.push(map[string]string{"c.yaml": template("c:1", "1")})
	w.controller.Set(spec(t, gitops.Settings{Name: "above", Git: gitops.GitSettings{URL: other.url}, Interval: "1s", DependsOn: []string{"base"}}))
	w.until("above", "ready", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	base.Suspend = false
	w.controller.Set(spec(t, base))
	w.until("base", "resumed", func(s tko.Source) bool {
		return ready(s).Status == tko.ConditionTrue && tko.FindCondition(s.Status.Conditions, tko.ConditionSuspended) == nil
	})
}

// late is a Fetcher whose first revision isn't there yet.
type late struct {
	gitops.Fetcher
	there atomic.Bool
}

func (l *late) Revision(ctx context.Context) (string, error) {
	if !l.there.Load() {
		return "", &gitops.AgainError{After: 100 * time.Millisecond, First: true, Err: errors.New("it has no artifact yet")}
	}
	return l.Fetcher.Revision(ctx)
}

// A source whose first revision isn't there yet has not failed: there is no error to report
// for each new source.
func TestSourceWithoutAFirstRevisionIsProgressing(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	first := r.push(map[string]string{"a.yaml": template("a:1", "1")})
	s := spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}, Interval: "1s"})
	from := &late{Fetcher: s.From}
	s.From = from
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}})
	w.until("fleet", "progressing", func(s tko.Source) bool {
		if c := ready(s); c.Status == tko.ConditionFalse {
			t.Errorf("the new source has failed: %+v", c)
		}
		return ready(s).Status == tko.ConditionUnknown && strings.Contains(ready(s).Message, "no artifact yet")
	})
	from.there.Store(true)
	w.sync("fleet", first)
}

// A condition names a few instances, and counts the others: the inventory has them all.
func TestConditionNamesAFewInstances(t *testing.T) {
	t.Parallel()
	report := osm.Report{Instances: map[string]osm.Status{}}
	for i := range 200 {
		report.Instances[fmt.Sprintf("upf-%03d", i)] = osm.Status{Phase: osm.PhaseFailed, Message: "no image"}
	}
	text := gitops.FirstWith(report, osm.PhaseFailed)
	if strings.Count(text, "no image") != 3 || !strings.HasSuffix(text, "and 197 more") {
		t.Errorf("the message is %q", text)
	}
}
