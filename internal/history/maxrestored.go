package history

// MaxRestored is the maximum number of entities of one restore: their IDs are in
// memory.
const MaxRestored = 100_000
