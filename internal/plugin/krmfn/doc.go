// Package krmfn runs KRM functions. A function reads a ResourceList, changes
// its items, and writes the list with results. The package implements the
// protocol (list.go, result.go), the function's inputs (config.go), and four
// runtimes: a container, a program, a WebAssembly module, and built-in
// functions. None of them needs kpt.
//
// Package plugin runs the programs and decides when. Start reading at
// [Executor.Run].
package krmfn
