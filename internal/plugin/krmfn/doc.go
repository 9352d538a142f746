// Package krmfn runs KRM functions: what takes a ResourceList, changes its
// items, and answers it with results. It knows the protocol (list.go,
// result.go), where a function's inputs come from (config.go), and four ways
// to run one: in a container, as a program, as a WebAssembly module, and built
// in. None of them needs kpt.
//
// How programs are run, and when, is package plugin's business. Start reading
// at [Executor.Run].
package krmfn
