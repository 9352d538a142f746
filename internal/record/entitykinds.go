package record

import "github.com/tko-orchestrator/tko"

// EntityKinds are all kinds of entities.
var EntityKinds = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout}
