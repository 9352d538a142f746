package planner

import "github.com/tko-orchestrator/tko/krm"

// A memo holds results by the digests of what they depend on. When it is full, it is
// emptied.
type memo struct {
	most, size int
	results    map[string]changed
}

func newMemo(bytes int) *memo { return &memo{most: bytes, results: map[string]changed{}} }

func (m *memo) get(key string) (changed, bool) {
	c, ok := m.results[key]
	return c, ok
}

func (m *memo) put(key string, c changed) {
	size := len(key) + sizeOf(c.pkg)
	for _, list := range [][]string{c.conflicts, c.problems, c.unknown} {
		for _, s := range list {
			size += len(s) + 16
		}
	}
	m.size += size
	if m.size > m.most {
		clear(m.results)
		m.size = size
	}
	if size <= m.most {
		m.results[key] = c
	}
}

// sizeOf estimates the memory of a package, as if nothing of it were shared.
func sizeOf(pkg krm.Package) int {
	n := 0
	for _, r := range pkg {
		n += sizeOfValue(map[string]any(r))
	}
	return n
}

func sizeOfValue(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := 48
		for key, inner := range v {
			n += len(key) + 32 + sizeOfValue(inner)
		}
		return n
	case []any:
		n := 24
		for _, inner := range v {
			n += 16 + sizeOfValue(inner)
		}
		return n
	case string:
		return 16 + len(v)
	}
	return 16
}
