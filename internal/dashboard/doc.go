// Package dashboard is the terminal dashboard: lists of deployments, sites, templates
// and plugins, their details, and the newest changes, in full screen and live. It
// calls the server through the interfaces of [Server], and holds a window of a list
// only, so its cost doesn't grow with the fleet. Start reading at [Run]; the state is
// in model, which changes in Update only.
package dashboard
