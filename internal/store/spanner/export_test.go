package spanner

// MaxMutations is Spanner's limit.
const MaxMutations = maxMutations

// FixSlot makes all commits of a store begin at one slot.
func FixSlot(s *Store, slot int64) { s.random = func(int64) int64 { return slot } }
