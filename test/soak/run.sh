#!/usr/bin/env bash
# Runs the long form of all searches of a list (default: the file searches): each line is a package and a test.
# Further arguments are flags of go test. Fails if a test fails, or has no long form.
#
#   run.sh FLAG...
#   SEARCHES=FILE run.sh FLAG...
set -euo pipefail
cd "$(dirname "$0")/../.."
list=${SEARCHES:-test/soak/searches}
taken=$(mktemp)
trap 'rm -f "$taken"' EXIT
status=0
for package in $(grep -v '^#' "$list" | cut -d' ' -f1 | sort -u); do
	tests=$(awk -v package="$package" '$1 == package {print $2}' "$list")
	: >"$taken"
	TKO_SOAK=$taken "${GO:-go}" test -count=1 -timeout 120m -run "^($(paste -sd'|' <<<"$tests"))\$" "$@" "$package" || status=1
	for test in $tests; do
		grep -qE "^$test(/|\$)" "$taken" || { echo "$package: $test did not take its long form: does it call soak.Rounds?" >&2; status=1; }
	done
done
exit "$status"
