package catalog

import (
	"github.com/tko-orchestrator/tko"
)

// keysOf returns the key of each entry of a list.
func keysOf[T any](list []T, key func(T) Key) []Key {
	keys := make([]Key, len(list))
	for i, entry := range list {
		keys[i] = key(entry)
	}
	return keys
}

func deploymentKey(id tko.DeploymentID) Key { return Key{Kind: tko.KindDeployment, ID: string(id)} }

func pluginKey(typ, name string) Key { return Key{Kind: tko.KindPlugin, ID: tko.PluginID(typ, name)} }

// references returns the keys of a template and a site, without empty IDs.
func references(template, site string) []Key {
	var keys []Key
	if template != "" {
		keys = append(keys, Key{Kind: tko.KindTemplate, ID: template})
	}
	if site != "" {
		keys = append(keys, Key{Kind: tko.KindSite, ID: site})
	}
	return keys
}

func rolloutKey(id tko.RolloutID) Key { return Key{Kind: tko.KindRollout, ID: string(id)} }

// CheckKey returns ErrNotFound if no record can have the key. It accepts IDs
// that can no longer be created, because old records may have them.
func CheckKey(key Key) error {
	ok := key.ID != "" && len(key.ID) <= maxStoredID && storable(key.ID)
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
func checkNewID(key Key) error {
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
func missing(key Key) error {
	if err := checkNewID(key); err != nil {
		return err
	}
	return tko.NotFound(key.Kind, key.ID)
}
