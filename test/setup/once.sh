# Sourced by the scripts that build programs for tests from the modules below tools/.

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tools" && pwd)

need() { # what to install, and why
	echo "make test: install $1 ($2)" >&2
	exit 1
}

build() { # the folder of a tools module, the output, ldflags, packages...
	(cd "$tools/$1" && GOWORK=off CGO_ENABLED=0 GOFLAGS= nice go build -trimpath -o "$2" -ldflags "-s -w $3" "${@:4}")
}

# once NAME WHAT MODULE... prints a folder in the user's cache that `recipe FOLDER`, a function of the script, has filled with
# programs: once for each change of the modules and of the recipe. WHAT is what is built, for people.
once() {
	local name=$1 what=$2 module sum dir new log
	shift 2
	sum=$({ for module in "$@"; do cat "$tools/$module"/go.{mod,sum}; done && declare -f build recipe; } | cksum | tr ' ' -)
	dir=${XDG_CACHE_HOME:-$HOME/.cache}/tko/$name-$sum
	if [ ! -d "$dir" ]; then
		command -v go >/dev/null || need 'Go 1.26 or later' "$what is built with it"
		mkdir -p "$(dirname "$dir")"
		exec 9>"$dir.lock"
		! command -v flock >/dev/null || flock 9 # one builds, the others wait
	fi
	if [ ! -d "$dir" ]; then
		new=$(mktemp -d "$dir.XXXXXX")
		log=$new.log
		trap "rm -rf '$new' '$log'" EXIT
		echo "make test: building $what, once: this takes some minutes" >&2
		recipe "$new" 2>"$log" ||
			need "what $(printf 'tools/%s ' "$@")name, with access to a Go module proxy and 2 GB of free disk" "$(tail -n 1 "$log")"
		chmod 755 "$new"
		mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ] # another process may have been faster
		rm -f "$dir.lock"
	fi
	echo "$dir"
}
