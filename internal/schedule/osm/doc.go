// Package osm is the scheduling target for Open Source MANO. A resource of
// [GVK] in a site's package says which OSM the site is:
//
//	apiVersion: osm.plugin.nephio.org/v1alpha1
//	kind: OSM
//	metadata: {name: main}
//	spec:
//	  url: https://nbi.example.com:9999
//	  project: admin                      # name or ID; the default
//	  vimAccount: lagos                   # of instances that name none
//	  credentials:                        # files in the meta-scheduler's folder of secrets
//	    username: tko
//	    passwordFile: osm/password
//	  caFile: osm/ca.pem                  # that the server's certificate is signed by
//
// The deployments at the site say what is to be there, with resources of the
// group osm.nephio.org/v1alpha1: NsInstance, VnfPackage and NsPackage.
//
// The target records what it made as a [tko.TargetState], as OSM has no place
// for that. The record is written with the claim of the site's work, so two
// meta-schedulers never make something twice.
//
// Everything that is done in OSM, package internal/osm does. Start reading at
// [Target.Schedule].
package osm
