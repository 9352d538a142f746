// Package web holds the built web dashboard, whose sources are in web/src. The
// bundle is committed, so building the Go programs needs no Node; "make web"
// builds it again.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var bundle embed.FS

// Files returns the files of the dashboard: index.html and assets/.
func Files() (fs.FS, error) { return fs.Sub(bundle, "dist") }
