// Package supervise runs programs that nobody trusts to clean up after
// themselves: when one has ended, or is to end, nothing that it started is
// left, however hard it tried to be forgotten (by leaving its process group or
// session, by forking twice, by forking without end).
//
// On Linux a supervisor stands between us and the program: this very program,
// started again under another name, which becomes the parent of all of the
// program's descendants that lose theirs. As long as it has children, there are
// descendants; it kills until there are none. It watches how many they are and
// how much memory they use, and ends them when its starter is gone. Elsewhere a
// program is in a process group, which is all that is killed.
//
// It is no sandbox: a program may do what the user may that it runs as, and
// that includes killing its supervisor. Start reading at [Start].
package supervise
