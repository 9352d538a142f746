// Package plugin runs plugins: programs that validate, prepare or schedule
// resources for TKO. It implements the contract of each plugin type (its input
// and output documents) and runs untrusted programs with limits on time,
// output, memory and number. A program gets only the environment variables it
// needs, and none of its processes or files remain afterwards.
//
// The package stores nothing and does not decide when a plugin runs: the
// validator, the preparer and the meta-scheduler do. Start reading at [Runner].
package plugin
