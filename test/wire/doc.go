// Package wire judges whether tko-server keeps the interface that existing
// clients were written against. It speaks tko.Data with a client generated
// from contract/contract.proto, a transcript of what those clients know, and
// from nothing else of TKO's: the server is a process of its own (both know
// the same message names, which one process can't).
package wire
