// Package wire tests that tko-server still provides the interface that existing
// clients were written against. It calls tko.Data with a client that is generated
// only from contract/contract.proto, a copy of the interface of those clients. The
// server is a process of its own, because one process can't register both sets of
// messages, which have the same names.
package wire
