#!/usr/bin/env bash
# Runs Go's tests with the race detector, where there is a C compiler for it.
set -euo pipefail
# SQLite is C made into Go, slow enough under the detector to triple the time of
# all tests: it is left out, as the C would be. What we do with it is not.
race=(-race '-gcflags=modernc.org/...=-race=false')
if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
	echo 'make test: no C compiler, so without the race detector' >&2
	race=()
fi
# Linking a server takes a while: it is done once, not in every package that starts one.
TKO_TEST_PROGRAMS=$(mktemp -d)
export TKO_TEST_PROGRAMS
trap 'rm -rf "$TKO_TEST_PROGRAMS"' EXIT
go build "${race[@]}" -o "$TKO_TEST_PROGRAMS/" ./cmd/...
# Many tests wait most of the time, for processes, leases and databases: more of
# them than processors may go on at once.
go test "${race[@]}" -shuffle=on -p "$(($(getconf _NPROCESSORS_ONLN) + 1))" -parallel "$(($(getconf _NPROCESSORS_ONLN) * 2))" "$@"
