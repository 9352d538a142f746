//go:build race

package krmfn

// headroom is the memory that the program itself needs in addition to the
// function. The race detector shadows all memory.
const headroom = 2 << 30
