// Package upgrade tests that a change of templates goes from one to the other at
// every site in one step, with a real data controller, preparers, meta-scheduler and
// git repositories. Every commit of every repository is looked at, and so is what
// the data controller says that each site should run, all the time.
package upgrade
