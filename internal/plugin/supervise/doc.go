// Package supervise runs untrusted programs and removes all their descendants:
// when a program has ended, or is to end, no process that it started remains,
// even if the process left its process group or session, forked twice, or forks
// without end.
//
// On Linux a supervisor runs between this program and the supervised one. The
// supervisor is this executable, started again under another name; it becomes
// the parent of all descendants of the program that lose their own parent. It
// kills its children until there are none left. It limits the number of
// processes and their memory, and ends them when the process that started it
// ends. On other systems the program runs in a process group, and only that
// group is killed.
//
// It is no sandbox: a program has all permissions of the user that it runs as,
// and can even kill its supervisor. Start reading at [Start].
package supervise
