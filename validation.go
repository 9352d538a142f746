package tko

import "github.com/tko-orchestrator/tko/krm"

// A Validation asks whether a package is valid. Partial validation wants what
// is there to be valid and lets things be missing; complete validation wants
// what is required, too.
type Validation struct {
	Package  krm.Package
	Complete bool
	CRDs     []krm.Resource // CRDs known beyond the package's own
	Plugins  []Plugin       // of type validate
	Key      string         // callers' cache key, "" = no cache
}
