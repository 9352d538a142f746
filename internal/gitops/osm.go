package gitops

import (
	"context"
	"time"
)

// OSM is what a source may do in Open Source MANO.
type OSM struct{}

type osmKept struct{}

func (k *osmKept) busy() bool { return false }
func (k *osmKept) owns() bool { return false }

type osmWanted struct{}

func (l *look) readOSM() (*osmWanted, error) { return nil, nil }

func (l *look) applyOSM(ctx context.Context, w *osmWanted, revision string) (again time.Duration, pending string, err error) {
	return around(l.spec.Interval), "", nil
}
