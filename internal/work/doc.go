// Package work is the work loop of all controllers: it claims work items from a
// queue of the data controller, processes them in a bounded number of goroutines,
// renews their leases meanwhile, and releases them when it must stop.
//
// It knows nothing about the work: [Loop.Do] reconciles an item and returns the
// result. Start reading at [Loop].
package work
