// Package kinds has the schemas of the kinds that TKO reads, and what their fields mean.
// Package validate checks packages with the schemas, and tko explain shows them.
package kinds

import (
	_ "embed"
)

// Schemas are the schemas of the specs of TKO's own kinds, in YAML: a map by "GROUP/VERSION
// KIND".
//
//go:embed own.yaml
var Schemas []byte

// Entities are the schemas of the manifests of TKO's entities, as kubectl, tko apply and
// GitOps sources use them. The Kubernetes API, which has types for them, checks them.
//
//go:embed entities.yaml
var Entities []byte

// Sources are the schemas of the manifests of GitOps sources, generated from the settings
// of package gitops.
//
//go:embed sources.yaml
var Sources []byte

// Subscriptions is the schema of the manifests of subscriptions.
//
//go:embed subscriptions.yaml
var Subscriptions []byte

// Views is the schema of the manifests of saved views of the dashboards.
//
//go:embed views.yaml
var Views []byte

// Descriptions say what the kinds and their fields mean, in YAML: by "GROUP/VERSION KIND",
// and then by the path of the field; the kind itself has the path "".
//
//go:embed descriptions.yaml
var Descriptions []byte
