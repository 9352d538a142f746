#!/usr/bin/env bash
# Writes the bills of materials and checksums of the programs in a folder, and checks that building
# them in another folder, with empty caches of their packages, gives the same bytes.
#
#   tools/security/release.sh BIN PROGRAM...
set -euo pipefail
bin=$1
shift
(cd "$bin" && ./sbom "$@" && sha256sum "$@" "${@/%/.cdx.json}" >SHA256SUMS && cat SHA256SUMS)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone --quiet --shared . "$copy/source"
if [ -n "$(git status --porcelain)" ]; then
	echo 'release.sh: the work tree has changes: the programs are not compared with another build' >&2
	exit 0
fi
make -s -C "$copy/source" build-programs VERSION="$(git describe --tags --always)" PROGRAMS="$*"
for program in "$@"; do
	cmp "$bin/$program" "$copy/source/bin/$program" || {
		echo "release.sh: $program differs when built elsewhere: compare 'go version -m' of both" >&2
		exit 1
	}
done
echo "the same bytes when built elsewhere: $*"
