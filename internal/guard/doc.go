// Package guard restricts the hosts that the server connects to, and the
// directories that it uses, on behalf of users: URLs and paths in packages of
// sites and templates, in plugins, in charts and in service templates. All code
// that fetches or pushes asks it. The operator's own settings are not
// restricted.
//
// Start reading at [Guard].
package guard
