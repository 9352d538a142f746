package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Candidate is a row that waves are assigned to.
type Candidate struct {
	// Key is stable when the rollout is planned again: the ID of a deployment, and the
	// origin of one that is to be created.
	Key  string
	Site map[string]string // metadata of the site; nil without a site
}

// A Place is the wave of a candidate, and its order among all candidates.
type Place struct{ Wave, Rank int }

// Assign returns the place of each candidate: it is in the first wave that takes it. A
// wave with a percentage takes that part of all candidates, rounded down, and at least
// one. A wave that is spread takes one candidate of each value of the metadata in turn,
// values in order, sites without the metadata last. Otherwise, and within a value, the
// order is that of a hash of the keys, so that planning again keeps the order. The last
// wave must take the rest. The result doesn't depend on the order of candidates.
func Assign(waves []spec.Wave, candidates []Candidate) []Place {
	places := make([]Place, len(candidates))
	hashes := make([][sha256.Size]byte, len(candidates))
	for i, c := range candidates {
		hashes[i] = sha256.Sum256([]byte(c.Key))
	}
	left := make([]int, len(candidates))
	for i := range left {
		left[i] = i
	}
	slices.SortFunc(left, func(a, b int) int {
		return cmp.Or(bytes.Compare(hashes[a][:], hashes[b][:]), cmp.Compare(candidates[a].Key, candidates[b].Key))
	})
	rank := 0
	for n, wave := range waves {
		size := len(left)
		switch {
		case wave.Count > 0:
			size = min(size, wave.Count)
		case wave.Percent > 0:
			size = min(size, max(1, spec.Share(wave.Percent, len(candidates))))
		}
		order := left
		if wave.Spread != "" {
			order = spread(left, candidates, wave.Spread)
		}
		taken := make(map[int]bool, size)
		for _, i := range order[:size] {
			places[i] = Place{Wave: n, Rank: rank}
			taken[i] = true
			rank++
		}
		left = slices.DeleteFunc(slices.Clone(left), func(i int) bool { return taken[i] })
	}
	return places
}

// spread returns candidates in turns over the values of a key of metadata.
func spread(list []int, candidates []Candidate, key string) []int {
	byValue := map[string][]int{}
	var without []int
	for _, i := range list {
		if value, ok := candidates[i].Site[key]; ok {
			byValue[value] = append(byValue[value], i)
		} else {
			without = append(without, i)
		}
	}
	queues := make([][]int, 0, len(byValue)+1)
	for _, value := range slices.Sorted(maps.Keys(byValue)) {
		queues = append(queues, byValue[value])
	}
	queues = append(queues, without)
	out := make([]int, 0, len(list))
	for len(out) < len(list) {
		for q := range queues {
			if len(queues[q]) > 0 {
				out = append(out, queues[q][0])
				queues[q] = queues[q][1:]
			}
		}
	}
	return out
}
