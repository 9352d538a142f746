//go:build !race

package krmfn

// headroom is what the program itself needs beside the function.
const headroom = 128 << 20
