// Package webapi serves the catalog as JSON over HTTP, for dashboards and
// scripts: what there is, read only. It translates, and has no rules of its own.
// Start reading at [New].
package webapi
