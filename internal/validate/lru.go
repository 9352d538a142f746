package validate

import (
	"container/list"
	"sync"
)

// An lru is a cache that evicts the least recently used value. It is safe for
// concurrent use.
type lru[K comparable, V any] struct {
	mu      sync.Mutex
	size    int
	order   *list.List // of entry, the newest first
	entries map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](size int) *lru[K, V] {
	return &lru[K, V]{size: size, order: list.New(), entries: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	found, ok := e.Value.(entry[K, V])
	return found.value, ok
}

func (l *lru[K, V]) put(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[key]; ok {
		e.Value = entry[K, V]{key, value}
		l.order.MoveToFront(e)
		return
	}
	l.entries[key] = l.order.PushFront(entry[K, V]{key, value})
	if l.order.Len() <= l.size {
		return
	}
	if oldest, ok := l.order.Remove(l.order.Back()).(entry[K, V]); ok {
		delete(l.entries, oldest.key)
	}
}
