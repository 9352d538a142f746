//go:build !race

package krmfn

// headroom is the memory that the program itself needs in addition to the
// function.
const headroom = 128 << 20
