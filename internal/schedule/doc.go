// Package schedule is the meta-scheduler: for every site that needs a look, it
// hands the site's deployments that are prepared and approved to whatever the
// resources of the site's package ask for, schedule plugins and built-in
// targets, and says on the site and on the deployments how that went.
//
// It observes (reads a site), decides (what is to be done by whom, and which
// conditions follow from what came of it; pure functions) and acts. Looking
// again is always safe. It reads and writes records only through the API of
// the data controller. Start reading at [Scheduler].
package schedule
