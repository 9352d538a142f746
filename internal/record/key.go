package record

import (
	"github.com/tko-orchestrator/tko"
)

// Keys returns the key of each entry of a list.
func Keys[T any](list []T, key func(T) Key) []Key {
	keys := make([]Key, len(list))
	for i, entry := range list {
		keys[i] = key(entry)
	}
	return keys
}

// DeploymentKey returns the key of a deployment.
func DeploymentKey(id tko.DeploymentID) Key { return Key{Kind: tko.KindDeployment, ID: string(id)} }

// PluginKey returns the key of a plugin.
func PluginKey(typ, name string) Key { return Key{Kind: tko.KindPlugin, ID: tko.PluginID(typ, name)} }

// References returns the keys of a template and a site, without empty IDs.
func References(template, site string) []Key {
	var keys []Key
	if template != "" {
		keys = append(keys, Key{Kind: tko.KindTemplate, ID: template})
	}
	if site != "" {
		keys = append(keys, Key{Kind: tko.KindSite, ID: site})
	}
	return keys
}

// RolloutKey returns the key of a rollout.
func RolloutKey(id tko.RolloutID) Key { return Key{Kind: tko.KindRollout, ID: string(id)} }
