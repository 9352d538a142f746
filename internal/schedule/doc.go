// Package schedule is the meta-scheduler. It reconciles sites: it hands a site's
// prepared and approved deployments to the schedule plugins and built-in targets
// that the resources of the site's package trigger, and reports the results in
// conditions of the site and of the deployments.
//
// A reconciliation observes (reads a site), decides (makes a plan, and conditions
// from the results of its steps; pure functions) and acts. It is always safe to
// repeat. The package reads and writes records only through the API of the data
// controller. Start reading at [Scheduler].
package schedule
