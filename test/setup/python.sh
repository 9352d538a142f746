#!/usr/bin/env bash
# Makes the Python environment for the tests of the SDK, and prints its folder. The SDK itself is
# not installed there: PYTHONPATH names it. The environment is made once for each list of
# requirements, and cached in the user's cache folder. With the argument "ansible" it is the one for
# the tests of the Ansible collection, with "clients" the one for generated clients of the HTTP API.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
case "${1:-}" in
'') requirements=$root/sdk/python/requirements-test.txt minor=10 what='the Python SDK is tested with it' ;;
ansible) requirements=$root/ansible/tests/requirements.txt minor=11 what='the Ansible collection is tested with it' ;;
clients) requirements=$root/test/dashboard/testdata/clients/requirements.txt minor=11 what='a generated client of the HTTP API is tested with it' ;;
*)
	echo "usage: $0 [ansible|clients]" >&2
	exit 2
	;;
esac

need() {
	echo "make test: install $1 ($2)" >&2
	exit 1
}
command -v python3 >/dev/null || need "Python 3.$minor or later" "$what"
python3 -c "import sys; sys.exit(sys.version_info < (3, $minor))" || need "Python 3.$minor or later" "$(python3 --version) is too old: $what"

sum=$({ python3 --version; cat "$requirements"; } | cksum | tr ' ' -)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/tko/python-$sum
if [ ! -d "$dir" ]; then
	mkdir -p "$(dirname "$dir")"
	new=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	if ! out=$(python3 -m venv "$new" 2>&1); then
		[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y --no-install-recommends python3-venv >/dev/null 2>&1 &&
			out=$(python3 -m venv --clear "$new" 2>&1) ||
			need "Python's venv (Debian: python3-venv)" "$(tail -n 1 <<<"$out")"
	fi
	out=$("$new/bin/python3" -m pip install --quiet --disable-pip-version-check -r "$requirements" 2>&1) ||
		need "what $requirements lists, from PyPI" "$(tail -n 1 <<<"$out")"
	grep -lIF "$new" "$new"/bin/* | xargs -r sed -i "s|$new|$dir|g" # programs name the folder of their interpreter
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ] # another process may have been faster
fi
echo "$dir"
