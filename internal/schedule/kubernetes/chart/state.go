package chart

import (
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
)

// A State is the recorded state of a release. The zero value is that of a chart that was
// never deployed.
type State struct {
	Revision int    `json:"revision,omitempty"` // Helm's revision that was deployed last; 0 if none
	Previous int    `json:"previous,omitempty"` // revision for a rollback; 0 if none
	Since    int64  `json:"since,omitempty"`    // Unix time of the deployment, in seconds
	Healthy  bool   `json:"good,omitempty"`     // it was healthy after the deployment
	Keep     bool   `json:"keep,omitempty"`     // it stays when it is no longer wanted
	Failed   string `json:"failed,omitempty"`   // why the upgrade was rolled back, or is about to be
	Tested   int    `json:"tested,omitempty"`   // revision whose tests have run; 0 if none
	Fault    string `json:"fault,omitempty"`    // why a test failed
}

// deployed returns the state after Helm deployed a revision.
func (s State) deployed(by *helm.State) State {
	s.Revision, s.Previous, s.Since = by.Revision, by.Previous, time.Now().Unix()
	s.Healthy, s.Tested, s.Fault = false, 0, ""
	return s
}

// rolledBack returns the state after Helm rolled an upgrade back. Nothing is assessed or
// tested then: tests are for upgrades that stay.
func (s State) rolledBack(why string) State {
	s.Healthy, s.Failed, s.Tested = true, why, s.Revision
	return s
}

// RolledBack describes a failed upgrade that was rolled back.
func (s State) RolledBack() string {
	return fmt.Sprintf("was rolled back after a failed upgrade: %s. Change its chart, version or parameters; another value of the annotation %s retries the same upgrade", s.Failed, AnnotationRetry)
}

// IsAssessed returns whether the health after the deployment is known, or nothing was
// deployed.
func (s State) IsAssessed() bool { return s.Healthy || s.Revision == 0 }

// Assess returns the state of a release that is not assessed, after its objects were found
// healthy, failing or neither, and whether its upgrade has to be rolled back: it fails, or
// takes longer than limit.
func (c *Chart) Assess(s State, healthy, failing bool, why string, limit time.Duration) (after State, rollBack bool) {
	late := time.Since(time.Unix(s.Since, 0)) > limit
	switch {
	case s.Failed != "": // its rollback was interrupted
		return s, true
	case healthy:
		s.Healthy = true
	case s.Previous == 0: // there is no revision to roll back to
	case failing, late:
		s.Failed = c.secrets.Show(why)
		return s, true
	}
	return s, false
}

// NeedsTest returns whether the tests of a release are about to run: once after each
// deployment, when it is healthy.
func (c *Chart) NeedsTest(s State) bool {
	return c.test && s.Revision != 0 && s.Healthy && s.Tested != s.Revision
}

// Untested returns why the tests have not succeeded; empty if they have, or don't run.
// failed is false if they are about to run. A nil Chart has none.
func (c *Chart) Untested(s State) (why string, failed bool) {
	switch {
	case c == nil || !c.test:
		return "", false
	case s.Tested != s.Revision:
		return "waits for its tests, which run when its objects are healthy", false
	case s.Fault != "":
		return "failed its test: " + s.Fault, true
	default:
		return "", false
	}
}
