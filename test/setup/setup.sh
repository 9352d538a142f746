#!/usr/bin/env bash
# Installs the dependencies of the tests, or prints one line with what to install.
set -euo pipefail

need() { # what to install, and why
	echo "make test: install $1 ($2)" >&2
	exit 1
}

install() { # Debian packages
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	echo "make test: installing $*" >&2
	{ apt-get install -y --no-install-recommends "$@" || { apt-get update && apt-get install -y --no-install-recommends "$@"; }; } >/dev/null 2>&1
}

postgres() { command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }

command -v go >/dev/null || need 'Go 1.26 or later' 'TKO is written in it'
command -v git >/dev/null || install git || need git 'the sites'"'"' repositories are tested with it'
postgres || [ -n "${TKO_TEST_POSTGRES:-}" ] || { install postgresql && postgres; } ||
	need 'PostgreSQL 15 or later, or set TKO_TEST_POSTGRES to the DSN of a server where databases may be created' 'the store is tested on it'
go -C "$(dirname "$0")/../../tools/portable" mod download ||
	need 'what tools/portable/go.mod names, with access to a Go module proxy' 'the SQL is checked against the grammar of CockroachDB'
system() {
	local program
	for program in bwrap ip man curl dpkg systemd-analyze; do
		command -v "$program" >/dev/null || return 1
	done
}
system || { install bubblewrap iproute2 man-db curl dpkg systemd && system; } ||
	need 'bubblewrap, iproute2, man-db, curl, dpkg and systemd' 'isolation, networks and packages are tested with them'
yaml() { python3 -c 'import yaml' 2>/dev/null; }
yaml || { install python3 python3-yaml && yaml; } ||
	need 'Python 3 with PyYAML (Debian: python3-yaml)' 'an example plugin is written in it'
"$(dirname "$0")/python.sh" >/dev/null
"$(dirname "$0")/kube.sh" >/dev/null
"$(dirname "$0")/flux.sh" >/dev/null
"$(dirname "$0")/monitoring.sh" >/dev/null
"$(dirname "$0")/web.sh" >/dev/null
"$(dirname "$0")/spanner.sh"
command -v tmux >/dev/null || { install tmux && command -v tmux >/dev/null; } || need tmux 'the terminal dashboard is tested in it'
containers() { command -v podman >/dev/null && command -v runc >/dev/null; }
containers || { install podman runc && containers; } ||
	need 'podman and runc, and let this user run containers' 'functions are tested in containers'
