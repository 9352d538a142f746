#!/usr/bin/env bash
# Runs Go's tests.
#
#   run.sh "PACKAGE..." FLAG...    the packages start in the given order; the flags are those of go test
#
# Tests of packages below test/ that only start programs run without the race detector for themselves: the programs have it, if
# there is a C compiler for it, and TestMain does not call process.Plain. All other tests have it. Results are cached as go test caches them; where CI is set, tests run in a
# random order, which go test does not cache.
#
# Failed tests run again, at most twice, after all others have ended. A test that then passes is flaky: the run passes, and its last
# lines list the test, with the output of the failure above them. Data races and panics are never repeated.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
read -ra packages <<<"$1"
shift

# Packages below test/ that run parts of the product in their own process: they need the race detector for themselves.
inside='gitops|upgrade|eventually'

# Left out of the race detector: SQLite, which is C translated to Go and would triple the time of all tests. Other libraries can't be
# left out: a package that uses a generic type of the standard library (sync.Map, sync.OnceValue, atomic.Pointer) contains a copy of
# its code, and the linker retains one copy of all. If it takes that of a package without the detector, accesses in order are reported
# as data races everywhere (seen with all of k8s.io left out, and with k8s.io/api alone).
race=(-race '-gcflags=modernc.org/...=-race=false')
if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
	echo 'make test: no C compiler, so without the race detector' >&2
	race=()
fi
# Paths of the work tree are left out of what is built, so that all clones share the cache of builds.
export GOFLAGS=-trimpath
build() { CGO_ENABLED=$([ ${#race[@]} -gt 0 ] && echo 1 || echo 0) go build -buildvcs=false "${race[@]}" "$@"; }
GOWORK=off CGO_ENABLED=0 go -C "$root/tools/test" build -o "$root/bin/test/" gotest.tools/gotestsum

starts=() contains=() folders=()
while read -r package folder; do
	folders+=("$folder")
	if [[ $package == github.com/tko-orchestrator/tko/test/* && ! $package =~ ^github.com/tko-orchestrator/tko/test/($inside)$ ]]; then
		starts+=("$package")
	else
		contains+=("$package")
	fi
done < <(go list -e -f '{{.ImportPath}} {{.Dir}}' "${packages[@]}" | awk '!seen[$0]++')
needed() { # whether a test may start a program
	[ ${#starts[@]} -gt 0 ] || grep -qsE 'process\.(Build|Built|Folder|Programs|Start)' $(printf "%s/*_test.go " "${folders[@]}")
}

# Linking a server takes long: link the programs once, not in each package that starts one. Each is in a folder whose name depends on
# its content and on that of the programs that it finds next to it, so that cached results of tests stay valid as long as the
# programs that they start are the same.
if [ -z "${TKO_TEST_PROGRAM_tko_server:-}" ] && needed; then
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/tko
	mkdir -p "$cache"
	! [ -d "$cache" ] || find "$cache" -maxdepth 1 -name 'programs-*' -mtime +2 -exec rm -rf {} +
	all=()
	for folder in "$root"/cmd/tko*; do all+=("${folder##*/}"); done
	provide() { # a program in $from, and those that it finds next to it
		local sum folder name
		sum=$(cd "$from" && for name in "$@"; do echo "$name" && go tool buildid "$name"; done | cksum | tr ' ' -)
		folder=$cache/programs-$1-$sum
		if [ ! -d "$folder" ]; then
			local new
			new=$(mktemp -d "$folder.XXXXXX")
			(cd "$copies" && { cp -l "$@" "$new/" 2>/dev/null || cp -f "$@" "$new/"; })
			chmod 755 "$new"
			mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new" # another run may have been faster
		fi
		touch "$folder"
		provided=$folder
	}
	provideAll() { # the beginning of variables, for the programs in $from
		local servers=(tko-server tko-kubernetes tko-tosca) name # with what they start
		copies=$(mktemp -d "$cache/new-programs.XXXXXX") # go build writes into existing files
		cp "${all[@]/#/$from/}" "$copies/"
		provide "${servers[@]}"
		for name in "${servers[@]}"; do export "$1${name//-/_}=$provided/$name"; done
		for name in "${all[@]}"; do
			case $name in
			tko-server | tko-kubernetes | tko-tosca) continue ;;
			tko-demo | tko-bench) provide "$name" tko tko-agent "${servers[@]}" ;;
			tko-server-spanner) provide "$name" tko-kubernetes tko-tosca ;;
			*) provide "$name" ;;
			esac
			export "$1${name//-/_}=$provided/$name"
		done
		rm -rf "$copies"
	}
	from=$root/bin/test/programs
	(cd "$root" && build -ldflags=-w -o "$from/" ./cmd/...)
	provideAll TKO_TEST_PROGRAM_
	# Those without the race detector, for the packages whose TestMain calls process.Plain.
	if [ ${#race[@]} -gt 0 ]; then
		from=$root/bin/test/plain
		(cd "$root" && CGO_ENABLED=0 go build -buildvcs=false '-ldflags=-s -w' -o "$from/" ./cmd/...)
	fi
	provideAll TKO_TEST_PLAIN_PROGRAM_
fi
[ ${#race[@]} -eq 0 ] || export TKO_TEST_PROGRAMS_RACE=true
# Programs with the race detector sleep for a second before they exit, unless told otherwise; tests start them thousands of times.
export GORACE="atexit_sleep_ms=20 ${GORACE:-}"

# Results of go test -shuffle are never cached.
order=()
[ -z "${CI:-}" ] || order=(-shuffle=on)
processors=$(getconf _NPROCESSORS_ONLN)
status=0
part() { # a name for the file of times, packages, and after -- flags; a failure is kept in status
	local name=$1 times=() packages=()
	shift
	while [ "$1" != -- ]; do packages+=("$1") && shift; done
	shift
	[ ${#packages[@]} -gt 0 ] || return 0
	[ -z "${TKO_TEST_TIMES:-}" ] || times=("--jsonfile-timing-events=$TKO_TEST_TIMES.$name")
	rm -f "$flaky"
	# Programs of tests have no debug information (stack traces don't need it), and `make lint` has vetted the code. Many tests wait most
	# of the time (for processes, leases and databases), so more of them run at once than there are processors.
	"$root/bin/test/gotestsum" --format pkgname-and-test-fails --hide-summary=skipped \
		--rerun-fails=2 --rerun-fails-max-failures=20 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
		--rerun-fails-report="$flaky" "${times[@]}" --packages="${packages[*]}" -- \
		-vet=off "-ldflags=-s -w" "${order[@]}" -p "$((processors + 1))" -parallel "$((processors * 2))" "$@" || status=$?
	[ ! -s "$flaky" ] || cat "$flaky" >>"$flaky.all"
}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
flaky=$temporary/flaky
CGO_ENABLED=0 part starts "${starts[@]}" -- "$@"
[ ${#race[@]} -eq 0 ] || export CGO_ENABLED=1
# Collect garbage less often: with the race detector it is a fifth of the processor time of tests of stores. Not where
# programs are started, some of which have limits of memory.
export GOGC="${GOGC:-300}"
part contains "${contains[@]}" -- "${race[@]}" "$@"
if [ -s "$flaky.all" ]; then
	echo
	echo 'Tests that failed at least once (a test with fewer failures than runs is flaky, and a defect to mend):'
	cat "$flaky.all"
fi
case " ${starts[*]} ${contains[*]} " in *"/internal/store/spanner "* | *"/test/spanner "*) "$root/test/setup/spanner.sh" ;; esac # in the last lines, too
exit "$status"
