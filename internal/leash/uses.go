package leash

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// ManagementTarget is the annotation, with the value management, of objects that are
// applied to the management cluster.
const ManagementTarget = "tko.nephio.org/target"

// OfPackage returns how the package of a site or template uses credentials, each use once.
func OfPackage(by By, pkg krm.Package) []Use {
	var all []Use
	for _, r := range pkg {
		if k, ok := place.Of(r.GVK()); ok {
			all = append(all, ofPlace(k, r)...)
		}
		if r.Annotation(ManagementTarget) == Management {
			all = append(all, Use{Credential: Name(KindServer, Management)})
		}
		if items, err := r.Items(); err == nil && len(items) > 0 {
			all = append(all, OfPackage(by, items)...)
		}
	}
	for i := range all {
		all[i].By = by
	}
	slices.SortFunc(all, func(a, b Use) int {
		return cmp.Or(strings.Compare(a.Credential, b.Credential), strings.Compare(a.Host, b.Host))
	})
	return slices.Compact(all)
}

// texts returns the values of a field of a resource: of each spelling of the field's path,
// because the targets decode JSON, which ignores the case of names.
func texts(v any, path ...string) (all []string) {
	if len(path) == 0 {
		if text, ok := v.(string); ok && text != "" {
			all = append(all, text)
		}
		return all
	}
	for _, value := range spellings(v, path[0]) {
		all = append(all, texts(value, path[1:]...)...) //nolint:gosec // it isn't empty
	}
	return all
}

// spellings returns the values of a field of a map: of each spelling of its name.
func spellings(v any, field string) (all []any) {
	there, _ := v.(map[string]any)
	for name, value := range there {
		if strings.EqualFold(name, field) {
			all = append(all, value)
		}
	}
	return all
}

// of returns the uses of the credentials that fields of a resource name, at its URL.
func of(kind string, r krm.Resource, fields []string) (all []Use) {
	urls := texts(r["spec"], "url")
	if len(urls) == 0 {
		urls = []string{""}
	}
	for _, field := range fields {
		for _, name := range texts(r["spec"], "credentials", field) {
			for _, url := range urls {
				all = append(all, Use{Credential: Reference(kind, name), Host: HostOf(url)})
			}
		}
	}
	return all
}

// ofPlace returns the uses of credentials of a resource that names a place, and of the
// kubeconfigs with which the tools are read that pull what is written there.
func ofPlace(k place.Kind, r krm.Resource) []Use {
	all := of(k.Secrets, r, k.Credentials)
	if k.Kubeconfig {
		all = append(all, ofKubeconfig(r["spec"])...)
	}
	if !k.Pulled {
		return all
	}
	for _, status := range spellings(r["spec"], "status") {
		for _, tool := range place.Tools {
			for _, spec := range spellings(status, tool) {
				all = append(all, ofKubeconfig(spec)...)
			}
		}
	}
	return all
}

// ofKubeconfig returns the uses of kubeconfigs in the fields kubeconfig and inCluster of a map.
func ofKubeconfig(of any) (all []Use) {
	add := func(name string) { all = append(all, Use{Credential: name}) }
	at := func(path ...string) []string { return texts(of, path...) }
	for _, name := range at("kubeconfig", "file") {
		add(Name(KindKubeconfig, name))
	}
	for _, in := range []struct{ object, suffix string }{{"secret", ""}, {"clusterAPI", "-kubeconfig"}} {
		namespaces := at("kubeconfig", in.object, "namespace")
		if len(namespaces) == 0 {
			namespaces = []string{defaultNamespace}
		}
		for _, name := range at("kubeconfig", in.object, "name") {
			for _, namespace := range namespaces {
				add(SecretName(namespace, name+in.suffix))
			}
		}
	}
	for _, value := range spellings(of, "inCluster") {
		if value == true {
			add(Name(KindServer, InCluster))
		}
	}
	return all
}

const defaultNamespace = "default"

// SecretName returns the name of the credential in a Secret of the management cluster.
func SecretName(namespace, name string) string { return KindSecret + ":" + namespace + "/" + name }

// OfRollout returns the uses of credentials of the metrics in the package of a rollout.
func OfRollout(id string, pkg krm.Package) (all []Use) {
	by := By{tko.KindRollout, id}
	for _, r := range pkg {
		for _, health := range spellings(r["spec"], "health") {
			for _, metrics := range spellings(health, "metrics") {
				list, _ := metrics.([]any)
				for _, metric := range list {
					all = append(all, ofPrometheus(by, metric)...)
				}
			}
		}
	}
	return all
}

// ofPrometheus returns the uses of credentials of a metric.
func ofPrometheus(by By, metric any) (all []Use) {
	for _, field := range []string{"token", "password"} {
		for _, name := range texts(metric, "prometheus", field) {
			for _, url := range texts(metric, "prometheus", "url") {
				all = append(all, Use{Credential: Reference("", name), Host: HostOf(url), By: by})
			}
		}
	}
	return all
}

// PluginProperties are the properties of plugins that may refer to credentials.
var PluginProperties = []string{tko.PropertyAWXUsername, tko.PropertyAWXPassword, tko.PropertyAWXToken, tko.PropertyAWXCA}

// PluginReference returns the name of the credential that a plugin's property refers to; ""
// if it refers to none.
func PluginReference(value string) string {
	if file, ok := strings.CutPrefix(value, "file:"); ok {
		return Name(KindAWX, file)
	}
	if name := Reference("", value); name == value {
		return name
	}
	return ""
}

// OfPlugin returns how a plugin uses credentials.
func OfPlugin(p tko.Plugin) (all []Use) {
	for _, property := range PluginProperties {
		if name := PluginReference(p.Properties[property]); name != "" {
			all = append(all, Use{Credential: name, Host: HostOf(p.Properties[tko.PropertyAWXHost]), By: byPlugin(p)})
		}
	}
	return all
}
