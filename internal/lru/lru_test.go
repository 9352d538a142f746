package lru_test

import (
	"testing"

	"github.com/tko-orchestrator/tko/internal/lru"
)

// holds fails the test unless a cache holds some keys, and not others.
func holds(t *testing.T, c *lru.Cache[string, int], want map[string]int, missing ...string) {
	t.Helper()
	for key, value := range want {
		if got, ok := c.Get(key); !ok || got != value {
			t.Errorf("%s: got %d, %t", key, got, ok)
		}
	}
	for _, key := range missing {
		if _, ok := c.Get(key); ok {
			t.Errorf("%s was not removed", key)
		}
	}
}

func TestLRUEvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](2)
	c.Put("a", 1, 1)
	c.Put("b", 2, 1)
	c.Get("a")
	c.Put("c", 3, 1) // b was used least recently
	holds(t, c, map[string]int{"a": 1, "c": 3}, "b")
	c.Put("a", 4, 1)
	holds(t, c, map[string]int{"a": 4, "c": 3}, "b")
}

func TestLRUCountsTheSizesOfItsEntries(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](100)
	for i, key := range []string{"a", "b", "c", "d"} {
		c.Put(key, i, 25)
	}
	c.Put("large", 0, 26) // more than a quarter
	holds(t, c, map[string]int{"a": 0, "b": 1, "c": 2, "d": 3}, "large")
	c.Drop("b")
	c.Drop("other")
	c.Put("a", 5, 10) // 15 less
	c.Put("e", 6, 25)
	c.Put("f", 7, 15)
	holds(t, c, map[string]int{"a": 5, "c": 2, "d": 3, "e": 6, "f": 7}, "b")
	c.Put("a", 8, 99) // an outdated value doesn't stay
	holds(t, c, map[string]int{"f": 7}, "a")
	c.Clear()
	holds(t, c, nil, "c", "d", "e", "f")
	c.Put("g", 9, 25)
	holds(t, c, map[string]int{"g": 9})
}
