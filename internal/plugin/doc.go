// Package plugin runs plugins: programs that validate, prepare or schedule
// resources for TKO. It knows the contract of each type of plugin (what goes
// in, what comes out) and how to run one as a command without trusting it:
// bounded in time, output and number, with nothing of the server's environment
// but what it needs, and with nothing left behind.
//
// It neither stores anything nor decides when a plugin runs: the validator,
// the preparer and the meta-scheduler do. Start reading at [Runner].
package plugin
