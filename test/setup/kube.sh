#!/usr/bin/env bash
# Builds the Kubernetes that tests run (etcd, the API server, the controller manager, the scheduler, kubectl, and kwok for
# nodes), and prints its folder. The programs are built from the modules that tools/kubernetes, tools/etcd and tools/kwok pin,
# once for each change of these, and cached in the user's cache folder. A build takes some minutes, and about 2 GB on disk.
set -euo pipefail
tools=$(cd "$(dirname "$0")/../../tools" && pwd)

need() { # what to install, and why
	echo "make test: install $1 ($2)" >&2
	exit 1
}

build() { # the folder of a tools module, the output, ldflags, packages...
	(cd "$tools/$1" && GOWORK=off CGO_ENABLED=0 GOFLAGS= nice go build -trimpath -o "$2" -ldflags "-s -w $3" "${@:4}")
}

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

sum=$({ cat "$tools"/{kubernetes,etcd,kwok}/go.{mod,sum} && declare -f build recipe; } | cksum | tr ' ' -)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/tko/kubernetes-$sum
if [ ! -d "$dir" ]; then
	command -v go >/dev/null || need 'Go 1.26 or later' 'the Kubernetes of the tests is built with it'
	mkdir -p "$(dirname "$dir")"
	exec 9>"$dir.lock"
	! command -v flock >/dev/null || flock 9 # one builds, the others wait
fi
if [ ! -d "$dir" ]; then
	new=$(mktemp -d "$dir.XXXXXX")
	log=$new.log
	trap 'rm -rf "$new" "$log"' EXIT
	echo 'make test: building the Kubernetes of the tests, once: this takes some minutes' >&2
	recipe "$new" 2>"$log" ||
		need 'what tools/kubernetes, tools/etcd and tools/kwok name, with access to a Go module proxy and 2 GB of free disk' "$(tail -n 1 "$log")"
	chmod 755 "$new"
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ] # another process may have been faster
	rm -f "$dir.lock"
fi
echo "$dir"
