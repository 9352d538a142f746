#!/usr/bin/env bash
# Builds the image of TKO, for the Linux processor architecture in GOARCH, by default this
# machine's:
#   deploy/images/build.sh [NAME:TAG]      # localhost/tko-server:latest
#
# ENGINE is podman or docker; by default the first that is installed. Nothing is pulled. Plugins in
# Python or shell need programs that are not in this image: build an image with them, and copy /bin
# of this one into it.
set -euo pipefail
name=${1:-localhost/tko-server:latest}
repository=$(cd "$(dirname "$0")/../.." && pwd)
engine=${ENGINE:-$(command -v podman || command -v docker)} || { echo 'build.sh: install podman or docker' >&2 && exit 1; }
arch=${GOARCH:-$(go env GOHOSTARCH)}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context"/{bin,etc/ssl/certs,tmp}
chmod 755 "$context"
chmod 1777 "$context/tmp"
version=$(git -C "$repository" describe --tags --always --dirty 2>/dev/null || echo unknown)
GOOS=linux GOARCH=$arch CGO_ENABLED=0 go -C "$repository" build -trimpath \
	-ldflags "-s -w -X github.com/tko-orchestrator/tko/internal/version.Version=$version -X 'github.com/tko-orchestrator/tko/internal/version.Commit=$(git -C "$repository" rev-parse HEAD 2>/dev/null)'" -o "$context/bin/" ./cmd/tko ./cmd/tko-server ./cmd/tko-kubernetes ./cmd/tko-tosca ./cmd/tko-agent
for roots in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do # this machine's CA certificates
	[ ! -f "$roots" ] || { cp "$roots" "$context/etc/ssl/certs/ca-certificates.crt" && break; }
done
[ -f "$context/etc/ssl/certs/ca-certificates.crt" ] || { echo 'build.sh: install the certificates of authorities (Debian: ca-certificates)' >&2 && exit 1; }
echo 'tko:x:65532:65532:tko:/tmp:/none' >"$context/etc/passwd"
echo 'tko:x:65532:' >"$context/etc/group"
"$engine" build --quiet --platform "linux/$arch" --label "org.opencontainers.image.version=$version" --label org.opencontainers.image.title=tko-server \
	--file "$repository/deploy/images/Containerfile" --tag "$name" "$context" >/dev/null
echo "$name"
