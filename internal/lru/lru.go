// Package lru has a cache that removes the least recently used entries.
package lru

import (
	"container/list"
	"sync"
)

// A Cache holds the most recently used entries, up to a total size. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	limit   int
	size    int
	entries map[K]*list.Element
	order   *list.List // of *entry, newest first
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int
}

// New returns a cache. Its limit is the sum of the sizes of its entries: the number of
// entries, if each has the size 1.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, entries: map[K]*list.Element{}, order: list.New()}
}

// Get returns the value of a key. It counts as a use.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(element)
	return of[K, V](element.Value).value, true
}

// Put adds or replaces an entry. One that is larger than 1 and than a quarter of the
// limit is not kept.
func (c *Cache[K, V]) Put(key K, value V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	if size > max(c.limit/4, 1) {
		return
	}
	c.entries[key] = c.order.PushFront(&entry[K, V]{key, value, size})
	for c.size += size; c.size > c.limit; {
		c.remove(of[K, V](c.order.Back().Value).key)
	}
}

// Drop removes an entry that is no longer valid.
func (c *Cache[K, V]) Drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
}

// Clear removes all entries.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.order.Init()
	c.size = 0
}

func (c *Cache[K, V]) remove(key K) {
	if element, ok := c.entries[key]; ok {
		c.size -= of[K, V](c.order.Remove(element)).size
		delete(c.entries, key)
	}
}

func of[K comparable, V any](value any) *entry[K, V] {
	return value.(*entry[K, V]) //nolint:forcetypeassert,errcheck // the list holds nothing else
}
