// Package isolate decides which programs a plugin may run, and restricts what
// they reach: files, network, processes and system calls.
//
// A program must be below one of the folders that the operator names:
// [Programs]. It runs under several layers, each of which is tried at the start
// by running a program under it: [Isolation]. What a layer forbids is enforced
// by the kernel; package supervise applies it between fork and exec.
//
// Start reading at [Isolation.Launch].
package isolate
