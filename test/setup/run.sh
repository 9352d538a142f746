#!/usr/bin/env bash
# Runs Go's tests with the race detector, if there is a C compiler for it.
#
#   run.sh "PACKAGE..." FLAG...    the packages start in the given order; the flags are those of go test
#
# Failed tests run again, at most twice, after all others have ended. A test that then passes is flaky: the run passes, and its last
# lines list the test, with the output of the failure above them. Data races and panics are never repeated.
set -euo pipefail
packages=$1
shift
# SQLite is C translated to Go: under the race detector it triples the time of all tests, so it is left out, as C code would be. Our
# own code is not left out.
race=(-race '-gcflags=modernc.org/...=-race=false')
if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
	echo 'make test: no C compiler, so without the race detector' >&2
	race=()
fi
tools=$(cd "$(dirname "$0")/../../tools/test" && pwd)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
# The same flags as for the tests: otherwise the standard library is compiled once more.
GOFLAGS='' GOWORK=off go -C "$tools" build "${race[@]}" -o "$temporary/" gotest.tools/gotestsum
# Linking a server takes long: link the programs once, not in each package that starts one.
if [ -z "${TKO_TEST_PROGRAMS:-}" ]; then
	export TKO_TEST_PROGRAMS=$temporary/programs
	go build "${race[@]}" -ldflags=-w -o "$TKO_TEST_PROGRAMS/" ./cmd/...
fi
# Programs with the race detector sleep for a second before they exit, unless told otherwise; tests start them thousands of times.
export GORACE="atexit_sleep_ms=20 ${GORACE:-}"
# Half of the work is to link some 80 programs of tests: they have no debug information (stack traces don't need it), and `make lint`
# has vetted the code. Many tests wait most of the time (for processes, leases and databases), so more of them run at once than there are processors.
status=0
times=()
[ -z "${TKO_TEST_TIMES:-}" ] || times=("--jsonfile-timing-events=$TKO_TEST_TIMES")
"$temporary/gotestsum" --format pkgname-and-test-fails --hide-summary=skipped \
	--rerun-fails=2 --rerun-fails-max-failures=20 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	--rerun-fails-report="$temporary/flaky" "${times[@]}" --packages="$packages" -- \
	"${race[@]}" -vet=off -ldflags=-w -shuffle=on -p "$(($(getconf _NPROCESSORS_ONLN) + 1))" -parallel "$(($(getconf _NPROCESSORS_ONLN) * 2))" "$@" || status=$?
if [ -s "$temporary/flaky" ]; then
	echo
	echo 'Tests that failed at least once (a test with fewer failures than runs is flaky, and a defect to mend):'
	cat "$temporary/flaky"
fi
exit "$status"
