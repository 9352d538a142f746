package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func manifestOf(kind tko.Kind, name string, change ...func(*Manifest)) Manifest {
	m := Manifest{File: "f.yaml", Name: name, Put: tko.Put{Kind: kind, ID: name}}
	if kind == tko.KindDeployment {
		m.Put.ID = ""
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func below(parent string) func(*Manifest) {
	return func(m *Manifest) { m.Put.Parent = tko.DeploymentID(parent) }
}

func consistsOf(kinds ...string) func(*Manifest) {
	return func(m *Manifest) {
		m.Put.Package = krm.Package{}
		for _, kind := range kinds {
			r := krm.Resource{"apiVersion": "apiextensions.k8s.io/v1", "kind": kind}
			m.Put.Package = append(m.Put.Package, r)
		}
	}
}

func TestEntitiesAreWrittenTogetherUnlessTheirOrderMatters(t *testing.T) {
	t.Parallel()
	const definition = "CustomResourceDefinition"
	tests := map[string]struct {
		why       string
		manifests []Manifest
		want      [][]int
	}{
		"none":             {"nothing to do", nil, nil},
		"sites":            {"sites don't refer to each other", []Manifest{manifestOf(tko.KindSite, "a"), manifestOf(tko.KindSite, "b")}, [][]int{{0, 1}}},
		"kinds":            {"a site may refer to any template, a deployment to any of both", []Manifest{manifestOf(tko.KindTemplate, "t", consistsOf()), manifestOf(tko.KindSite, "s"), manifestOf(tko.KindDeployment, "d")}, [][]int{{0}, {1}, {2}}},
		"children":         {"a child is created below its parent", []Manifest{manifestOf(tko.KindDeployment, "p"), manifestOf(tko.KindDeployment, "c", below("p")), manifestOf(tko.KindDeployment, "q"), manifestOf(tko.KindDeployment, "g", below("c"))}, [][]int{{0, 2}, {1}, {3}}},
		"parents there":    {"a parent that isn't among them is there", []Manifest{manifestOf(tko.KindDeployment, "a", below("x")), manifestOf(tko.KindDeployment, "b", below("x"))}, [][]int{{0, 1}}},
		"the same twice":   {"an earlier revision comes first", []Manifest{manifestOf(tko.KindTemplate, "t", consistsOf()), manifestOf(tko.KindTemplate, "u", consistsOf()), manifestOf(tko.KindTemplate, "t", consistsOf())}, [][]int{{0, 1}, {2}}},
		"definitions":      {"later templates are validated with them", []Manifest{manifestOf(tko.KindTemplate, "a", consistsOf("X")), manifestOf(tko.KindTemplate, "b", consistsOf(definition)), manifestOf(tko.KindTemplate, "c", consistsOf("X")), manifestOf(tko.KindTemplate, "d", consistsOf("X"))}, [][]int{{0}, {1}, {2, 3}}},
		"unknown packages": {"they may have definitions", []Manifest{manifestOf(tko.KindTemplate, "a"), manifestOf(tko.KindTemplate, "b")}, [][]int{{0}, {1}}},
		"plugins":          {"one may validate the others", []Manifest{manifestOf(tko.KindPlugin, "a"), manifestOf(tko.KindPlugin, "b"), manifestOf(tko.KindSite, "s")}, [][]int{{0}, {1}, {2}}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, orderOf(test.manifests)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, test.why, diff)
		}
	}
}

// createSites returns steps that create sites.
func createSites(n int) (steps []step) {
	for i := range n {
		steps = append(steps, step{Manifest: manifestOf(tko.KindSite, strconv.Itoa(i)), verb: "create"})
	}
	return steps
}

func quietSession() *session { return &session{app: newApp(Streams{Err: new(strings.Builder)}, nil)} }

func TestManyCallsAreInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		began := time.Now()
		done, err := applyAll(quietSession(), createSites(160), func(step) error {
			for n := now.Add(1); ; {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})
		if took := time.Since(began); done != 160 || err != nil || most.Load() != maxInFlight || took != 10*time.Second {
			t.Errorf("%d of 160 in %v, at most %d at a time: %v", done, took, most.Load(), err)
		}
	})
}

func TestNothingIsBegunAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mutex sync.Mutex
		begun := map[string]bool{}
		done, err := applyAll(quietSession(), createSites(100), func(one step) error {
			mutex.Lock()
			begun[one.Name] = true
			mutex.Unlock()
			switch one.Name {
			case "20": // fails later than 25
				time.Sleep(1500 * time.Millisecond)
				return tko.Errorf(tko.ErrInvalid, "first")
			case "25":
				time.Sleep(time.Second / 2)
				return tko.Errorf(tko.ErrConflict, "second")
			}
			time.Sleep(time.Second)
			return nil
		})
		want := fmt.Sprintf(`f.yaml: site "20": first (%d changes were made before it: the same command continues)`, len(begun)-2)
		if err == nil || err.Error() != want || !errors.Is(err, tko.ErrInvalid) || done != len(begun)-2 || len(begun) != 32 {
			t.Errorf("%d begun, %d done: %v, want %s", len(begun), done, err, want)
		}
	})
}

func TestALongApplyShowsTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown strings.Builder
		s := &session{app: newApp(Streams{Err: &shown}, nil)}
		s.app.progress = true
		if _, err := applyAll(s, createSites(320), func(step) error {
			time.Sleep(time.Second)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"made 161 of 320, 11s left\x1b[K", "made 305 of 320, 1s left\x1b[K", "\r\x1b[K"} {
			if !strings.Contains(shown.String(), want) {
				t.Errorf("%q lacks %q", shown.String(), want)
			}
		}
		if !strings.HasSuffix(shown.String(), "\r\x1b[K") {
			t.Errorf("%q stays", shown.String())
		}
	})
}
