package record

import (
	"github.com/segmentio/ksuid"

	"github.com/tko-orchestrator/tko"
)

// CheckKey returns ErrNotFound if no record can have the key. It accepts IDs
// that can no longer be created, because old records may have them.
func CheckKey(key Key) error {
	ok := key.ID != "" && len(key.ID) <= maxStoredID && Storable(key.ID)
	if key.Kind == tko.KindDeployment {
		ok = IsDeploymentID(key.ID)
	}
	if !ok {
		return tko.NotFound(key.Kind, key.ID)
	}
	return nil
}

// maxStoredID is the maximum length of a stored ID, in bytes: a plugin's type
// and name.
const maxStoredID = 2*tko.MaxIDLength + 1

// CheckNewID checks the ID of a record that is to be written through any API.
func CheckNewID(key Key) error {
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

// Missing returns the error of a record that doesn't exist: the reason if no
// record can have its ID, otherwise ErrNotFound.
func Missing(key Key) error {
	if err := CheckNewID(key); err != nil {
		return err
	}
	return tko.NotFound(key.Kind, key.ID)
}

// IsDeploymentID reports whether a text has the form of a deployment's ID.
// Texts of another form are not looked up.
func IsDeploymentID[ID ~string](id ID) bool {
	_, err := ksuid.Parse(string(id))
	return err == nil
}
