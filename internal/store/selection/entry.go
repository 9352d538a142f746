package selection

import (
	"crypto/sha256"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
)

// The metadata index has an entry for each key and value that records of a kind have.

// A PairKey identifies a metadata entry in the index: the value by its hash.
type PairKey struct {
	Kind tko.Kind
	Key  string
	Hash [16]byte
}

// LabelsOf returns the kind under which the index holds the labels of a kind's
// records.
func LabelsOf(kind tko.Kind) tko.Kind { return kind + " label" }

// PairOf returns the entry of a value of a key of records of a kind.
func PairOf(kind tko.Kind, key, value string) PairKey {
	sum := sha256.Sum256([]byte(value))
	return PairKey{kind, key, [16]byte(sum[:16])}
}

// maxStart is the number of bytes of a value by which the index is ordered.
const maxStart = 256

// StartOf cuts a value to the part that the index is ordered by.
func StartOf(value string) string {
	if len(value) <= maxStart {
		return value
	}
	end := maxStart
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

// entries returns the conditions that an entry p of the metadata dictionary has a
// key and a value that matches.
func entries(kind tko.Kind, key string, pattern tko.Pattern) []Condition {
	conditions := []Condition{equals("p.kind", string(kind)), equals("p.key", key)}
	if pattern.Exact() {
		hash := PairOf(kind, key, pattern.Prefix()).Hash
		return append(conditions, equals("p.hash", hash[:]))
	}
	conditions = append(conditions, startsWith("p.start", StartOf(pattern.Prefix()))...)
	if !prefixOnly(pattern) || len(pattern.Prefix()) > maxStart {
		conditions = append(conditions, func(b *Builder) string { return b.Dialect.Regexp("p.value", b.Arg(pattern.Regexp())) })
	}
	return conditions
}
