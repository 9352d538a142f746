package relational

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/record"
)

// News are the queues in which a transaction made items due. Stores notify each
// other of them, so that only the workers of these queues read the database.
type News struct {
	everything bool            // all queues may have due items
	now        map[string]bool // due at once
	soon       map[string]bool // due within [record.WakeDelay]
}

// newsPrefix distinguishes the text of news from those of earlier versions,
// which may stand for anything.
const newsPrefix = "due:"

// Everything returns the news that anything may have changed.
func Everything() News { return News{everything: true} }

func (n *News) add(queue string) {
	if n.now == nil {
		n.now = map[string]bool{}
	}
	n.now[queue] = true
}

func (n *News) addSoon(queue string) {
	if n.soon == nil {
		n.soon = map[string]bool{}
	}
	n.soon[queue] = true
}

// text returns news as text for [ParseNews].
func (n News) text() string {
	queues := slices.Sorted(maps.Keys(n.now))
	for _, queue := range slices.Sorted(maps.Keys(n.soon)) {
		if !n.now[queue] {
			queues = append(queues, queue+"~")
		}
	}
	text := newsPrefix + strings.Join(queues, ",")
	if n.everything || len(text) > maxNews {
		return ""
	}
	return text
}

// maxNews is the maximum length of the text of news. PostgreSQL refuses
// notifications of 8000 bytes.
const maxNews = 4000

// ParseNews reads the text of a notification. Any other text means [Everything].
func ParseNews(text string) News {
	list, ok := strings.CutPrefix(text, newsPrefix)
	if !ok {
		return Everything()
	}
	var n News
	for queue := range strings.SplitSeq(list, ",") {
		switch soon, isSoon := strings.CutSuffix(queue, "~"); {
		case queue == "":
		case isSoon:
			n.addSoon(soon)
		default:
			n.add(queue)
		}
	}
	return n
}

// notify returns the statements that notify other stores.
func (s *Store) notify(n News) []Statement {
	if s.dialect.Notify == "" {
		return nil
	}
	return []Statement{{SQL: s.dialect.Notify, Args: []any{n.text()}}}
}

// Signal returns a channel that is closed at the next change.
func (s *Store) Signal() <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.signal
}

// WorkSignal returns a channel that is closed when an item of the queue may have
// become due earlier.
func (s *Store) WorkSignal(queue string) <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	signal, ok := s.workSignals[queue]
	if !ok {
		signal = make(chan struct{})
		s.workSignals[queue] = signal
	}
	return signal
}

// Wake closes the channels that [Store.Signal] returned, and those of
// [Store.WorkSignal] that the news concern. Databases call it when they are
// notified of a commit by another store.
func (s *Store) Wake(n News) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	close(s.signal)
	s.signal = make(chan struct{})
	for queue := range s.workSignals {
		switch {
		case n.everything || n.now[queue]:
			s.wakeWorkers(queue)
		case n.soon[queue] && !s.wakeSoon[queue]:
			s.wakeSoon[queue] = true
			time.AfterFunc(wakePause, func() {
				s.mutex.Lock()
				defer s.mutex.Unlock()
				s.wakeSoon[queue] = false
				s.wakeWorkers(queue)
			})
		}
	}
}

// wakePause combines successive changes that make waiting work due. It is shorter
// than the time after which that work is due.
const wakePause = record.WakeDelay / 4

// wakeWorkers closes the channel of a queue. The caller holds the mutex.
func (s *Store) wakeWorkers(queue string) {
	if signal, ok := s.workSignals[queue]; ok {
		close(signal)
		delete(s.workSignals, queue)
	}
}
