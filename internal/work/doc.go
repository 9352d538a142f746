// Package work is the one loop of all controllers: it claims work from a
// queue of the data controller, has it done by a bounded number of goroutines,
// keeps the claims while it is being done, and gives it back when it must stop.
//
// It knows nothing of what the work is, and decides nothing about it: what to
// do, and how a look at an item ends, is said by [Loop.Do]. Start reading at
// [Loop].
package work
