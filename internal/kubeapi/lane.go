package kubeapi

import (
	"context"
	"sync"
)

// lanes let the writers of an object through one after another. Without them, each of n writers
// that change one object at once would repeat its work for each of the others, until their time is
// over. Writers of other servers are not in the lane: these races are repeated.
type lanes struct {
	mu    sync.Mutex
	lanes map[string]*lane // by name, while there are writers
}

// A lane is the queue of an object's writers.
type lane struct {
	turn    chan struct{} // holds one element if there is no writer
	writers int           // that are in the lane or wait for it
}

// enter waits until no earlier writer of the object writes. The caller must call leave.
func (l *lanes) enter(ctx context.Context, name string) (leave func(), err error) {
	own := l.join(name)
	select {
	case <-own.turn:
	case <-ctx.Done():
		l.forget(name, own)
		return nil, ctx.Err()
	}
	return func() {
		own.turn <- struct{}{}
		l.forget(name, own)
	}, nil
}

func (l *lanes) join(name string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.lanes[name]
	if own == nil {
		if l.lanes == nil {
			l.lanes = map[string]*lane{}
		}
		own = &lane{turn: make(chan struct{}, 1)}
		own.turn <- struct{}{}
		l.lanes[name] = own
	}
	own.writers++
	return own
}

func (l *lanes) forget(name string, own *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own.writers--
	if own.writers == 0 {
		delete(l.lanes, name)
	}
}
