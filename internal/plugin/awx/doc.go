// Package awx runs plugins of the executor ansible as jobs of AWX or Automation
// Controller, by version 2 of its REST API.
//
// A job is launched once for each desired state. AWX is the only record of that: the
// job has a label with the plugin's resource and a digest of its input, and AWX has at
// most one label of a name. So a process that is killed between any two requests
// launches nothing twice. The package never waits for a job: the caller calls again.
// Start reading at [Executor.Run].
package awx
