#!/usr/bin/env bash
# Builds the Kubernetes that tests run (etcd, the API server, the controller manager, the scheduler, kubectl, and kwok for
# nodes), and prints its folder. The programs are built from the modules that tools/kubernetes, tools/etcd and tools/kwok pin,
# once for each change of these, and cached in the user's cache folder. A build takes some minutes, and about 2 GB on disk.
set -euo pipefail
. "$(dirname "$0")/once.sh"

recipe() { # the folder that the programs are written to
	version=$(awk '$2 == "k8s.io/kubernetes" { print $3 } $1 == "k8s.io/kubernetes" { print $2 }' "$tools/kubernetes/go.mod")
	minor=${version#v1.}
	v=k8s.io/component-base/version # kubectl and the API server report these
	build kubernetes "$1/" "-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean" \
		k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl} &&
		build etcd "$1/etcd" '' go.etcd.io/etcd/server/v3 &&
		build kwok "$1/" '' sigs.k8s.io/kwok/cmd/kwok &&
		stages=$(GOWORK=off GOFLAGS= go -C "$tools/kwok" list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage &&
		for stage in "$stages"/{node/fast,node/heartbeat-with-lease,pod/fast}/[!k]*.yaml; do echo --- && cat "$stage"; done >"$1/kwok-stages.yaml"
}

once kubernetes 'the Kubernetes of the tests' kubernetes etcd kwok
