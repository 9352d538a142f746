// Package osm is the scheduling target for Open Source MANO. A resource of
// [GVK] in a site's package names the OSM of the site:
//
//	apiVersion: osm.plugin.nephio.org/v1alpha1
//	kind: OSM
//	metadata: {name: main}
//	spec:
//	  url: https://nbi.example.com:9999
//	  project: admin                      # name or ID; the default
//	  vimAccount: lagos                   # of instances that specify none
//	  credentials:                        # files in the meta-scheduler's folder of secrets
//	    username: tko
//	    passwordFile: osm/password
//	  caFile: osm/ca.pem                  # of the CA of the server's certificate
//
// The target applies the resources of the group osm.nephio.org/v1alpha1 in the
// packages of the site's deployments: NsInstance, VnfPackage and NsPackage.
//
// The target records what it made as a [tko.TargetState], as OSM has no place
// for that. The record is written with the claim of the site's work, so two
// meta-schedulers never make something twice.
//
// Package internal/osm makes all requests of OSM. Start reading at
// [Target.Schedule].
package osm
