// Package git is the scheduling target that commits the deployments of a site to a
// git repository, from which Flux, Argo CD, Config Sync or the site itself pulls
// them. A resource of [GVK] in a site's package triggers it:
//
//	apiVersion: git.plugin.nephio.org/v1alpha1
//	kind: Repository
//	metadata: {name: main}
//	spec:
//	  url: https://git.example.com/sites.git  # or ssh://…, git@host:path, a local path, file://…
//	  branch: main                            # the default
//	  path: lagos                             # the site's ID is the default
//	  credentials:                            # files in the meta-scheduler's folder of secrets
//	    username: tko
//	    passwordFile: lagos/password          # or
//	    tokenFile: lagos/token                # or, for ssh,
//	    sshKeyFile: lagos/id_ed25519
//	    knownHostsFile: known_hosts
//	  author: {name: TKO, email: tko@example.com}
//	  status:                                 # read by package puller
//	    flux: {kubeconfig: {file: hub.yaml}}  # or argocd, or none
//
// # Layout
//
// Below path, every deployment has a folder, and every resource a file:
//
//	<path>/.tko                                          inventory of these folders
//	<path>/<deployment>/00-cluster/<kind>_<name>.yaml
//	<path>/<deployment>/10-namespaced/<namespace>/<kind>_<name>.yaml
//
// Package layout has the names of these files, and what is in them.
//
// Nothing outside path is changed, and inside it only the folders of deployments
// that .tko lists. If nothing changed, nothing is committed.
//
// # How it works
//
// Commits are built from objects, without a working tree, on the current tip of
// the branch. A remote repository has a bare clone in the cache, which may be lost
// at any time. A writer that loses the race for the branch reads it and tries
// again. Concurrent requests of sites that share a branch share a commit.
//
// Start reading at [Target].
package git
