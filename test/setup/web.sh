#!/usr/bin/env bash
# Brings what the tests of the web dashboard need: Node with the packages of web/package-lock.json, and
# Chromium. Prints the program of the browser.
set -euo pipefail
web=$(cd "$(dirname "$0")/../../web" && pwd)

need() {
	echo "make test: install $1 ($2)" >&2
	exit 1
}
install() { # Debian packages
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	{ apt-get install -y --no-install-recommends "$@" || { apt-get update && apt-get install -y --no-install-recommends "$@"; }; } >/dev/null 2>&1
}
browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

command -v npm >/dev/null || { install nodejs npm && command -v npm >/dev/null; } || need 'Node 20 or later with npm' 'the web dashboard is tested with it'
browser >/dev/null || { install chromium && browser >/dev/null; } || need 'chromium' 'the web dashboard is tested in it'
sum=$(cksum <"$web/package-lock.json" | tr ' ' -)
if [ ! -e "$web/node_modules/.lock-$sum" ]; then
	(
		exec 9>"$web/.install.lock"
		flock 9
		[ -e "$web/node_modules/.lock-$sum" ] || { npm --prefix "$web" ci --no-audit --no-fund >/dev/null && touch "$web/node_modules/.lock-$sum"; }
	) || need 'the packages of web/package-lock.json, from npm' 'the web dashboard is tested with them'
fi
browser
