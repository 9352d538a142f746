#!/usr/bin/env bash
# Makes the packages of a release in a folder, and makes them again from a clone in another folder: both
# must have the same bytes.
#
#   tools/release/release.sh BIN OUT [ARCHITECTURE,...]
#
# BIN has the programs release and sbom. In a work tree with changes there is no second time, because the
# changes are in no clone: what it makes is no release.
set -euo pipefail
bin=$(realpath "$1") out=$2 platforms=${3:-amd64,arm64}
version=$(git describe --tags --always --dirty)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
make_release() { # SOURCE OUT
	"$bin/release" -source "$1" -out "$2" -sbom "$bin/sbom" -version "$version" -epoch "$epoch" -platforms "$platforms"
}
make_release . "$out"
cat "$out/SHA256SUMS"
case $version in
*-dirty)
	echo 'release.sh: the work tree has changes: these packages are for trials, and are not compared with those of a clone' >&2
	exit 0
	;;
esac
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone --quiet --no-hardlinks . "$copy/elsewhere"
git -C "$copy/elsewhere" checkout --quiet --detach "$(git rev-parse HEAD)"
make_release "$copy/elsewhere" "$copy/again"
diff "$out/SHA256SUMS" "$copy/again/SHA256SUMS" || {
	echo 'release.sh: building again in another folder gives other bytes: compare the files that differ, with diffoscope' >&2
	exit 1
}
echo "the same bytes when made elsewhere: $(grep -c . "$out/SHA256SUMS") files in $out"
