// Package guard decides what the server may connect to, and which folders it
// may use, because of what users wrote: URLs and paths in packages of sites and
// templates, in plugins, in charts and in service templates. It is asked by all
// that fetch or push. Settings of the server's operator are not its concern.
//
// Start reading at [Guard].
package guard
