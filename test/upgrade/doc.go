// Package upgrade tests that a change of templates replaces the children at each site
// in one step, with a real data controller, preparers, a meta-scheduler and git
// repositories. It checks each commit of each repository, and continuously what the
// data controller assigns to each site.
package upgrade
