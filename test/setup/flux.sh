#!/usr/bin/env bash
# Builds the controllers of Flux that tests run (source-controller and kustomize-controller), and prints their folder. It also has
# their custom resource definitions, in crds.yaml.
set -euo pipefail
. "$(dirname "$0")/once.sh"

recipe() { # the folder that the programs are written to
	local controller crds
	build flux "$1/" '' github.com/fluxcd/{source,kustomize}-controller &&
		for controller in source kustomize; do
			crds=$(GOWORK=off GOFLAGS= go -C "$tools/flux" list -m -f '{{.Dir}}' "github.com/fluxcd/$controller-controller") || return
			for crd in "$crds"/config/crd/bases/*.yaml; do echo --- && cat "$crd"; done >>"$1/crds.yaml" || return
		done
}

once flux 'the controllers of Flux' flux
