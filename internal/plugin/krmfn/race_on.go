//go:build race

package krmfn

// headroom is what the program itself needs beside the function: the race
// detector keeps a shadow of all memory.
const headroom = 2 << 30
