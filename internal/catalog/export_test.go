package catalog

// What tests of other packages' forms read records as.
var (
	SharedTemplate   = sharedTemplate
	SharedSite       = sharedSite
	SharedDeployment = sharedDeployment
	SharedRollout    = sharedRollout
)
