package catalog

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// CheckKey returns ErrNotFound if no record can have the key. It accepts IDs
// that can no longer be created, because old records may have them.
func CheckKey(key record.Key) error {
	ok := key.ID != "" && len(key.ID) <= maxStoredID && record.Storable(key.ID)
	if key.Kind == tko.KindDeployment {
		ok = isDeploymentID(key.ID)
	}
	if !ok {
		return tko.NotFound(key.Kind, key.ID)
	}
	return nil
}

// maxStoredID is the maximum length of a stored ID, in bytes: a plugin's type
// and name.
const maxStoredID = 2*tko.MaxIDLength + 1

// checkNewID checks the ID of a record that is to be written through any API.
func checkNewID(key record.Key) error {
	switch key.Kind {
	case tko.KindTemplate:
		return tko.CheckID("template ID", key.ID)
	case tko.KindSite:
		return tko.CheckID("site ID", key.ID)
	case tko.KindRollout:
		return tko.CheckID("rollout ID", key.ID)
	case tko.KindSource, tko.KindSubscription: // is no record
	case tko.KindDeployment, tko.KindPlugin: // TKO makes the IDs of deployments, [tko.Plugin.Check] checks those of plugins
	}
	return nil
}

// missing returns the error of a record that doesn't exist: the reason if no
// record can have its ID, otherwise ErrNotFound.
func missing(key record.Key) error {
	if err := checkNewID(key); err != nil {
		return err
	}
	return tko.NotFound(key.Kind, key.ID)
}
