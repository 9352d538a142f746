// Package webapi serves the catalog as JSON over HTTP, read only, for dashboards
// and scripts. It converts, and has no rules of its own. Start reading at [New].
package webapi
