#!/usr/bin/env bash
# Prints a folder with the programs prometheus and alertmanager that tests run. They are those of this machine, or those of the
# distribution's packages, unpacked into the user's cache folder: nothing is installed, and no service starts.
set -euo pipefail

need() { # why
	echo "make test: install Prometheus and its Alertmanager, so that prometheus and alertmanager (or prometheus-alertmanager) are on the PATH ($1)" >&2
	exit 1
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/tko
dir=$cache/monitoring
if [ ! -d "$dir" ]; then
	mkdir -p "$cache"
	new=$(mktemp -d "$dir.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new/bin"
	alertmanager=$(command -v alertmanager || command -v prometheus-alertmanager || :)
	if prometheus=$(command -v prometheus) && [ -n "$alertmanager" ]; then
		ln -s "$prometheus" "$new/bin/prometheus"
		ln -s "$alertmanager" "$new/bin/alertmanager"
	else
		command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || need 'rollouts and subscriptions are tested with them'
		echo 'make test: fetching Prometheus and its Alertmanager' >&2
		(
			cd "$new"
			fetch() { apt-get download prometheus prometheus-alertmanager; }
			fetch || { apt-get update && fetch; }
			for package in ./*.deb; do dpkg-deb -x "$package" .; done
			rm ./*.deb
		) >/dev/null 2>"$new.log" || need "the packages can't be fetched: $(tail -n 1 "$new.log")"
		rm -f "$new.log"
		ln -s ../usr/bin/prometheus "$new/bin/prometheus"
		cat >"$new/bin/alertmanager" <<-'PROGRAM'
			#!/bin/sh
			# This Alertmanager reads its templates in /usr/share/prometheus: they are shown there to it alone.
			dir=$(cd "$(dirname "$0")/.." && pwd)
			exec unshare --map-root-user --mount sh -c \
				'mount -t tmpfs tmpfs /usr/share && mkdir /usr/share/prometheus && mount --bind "$0" /usr/share/prometheus && exec "$@"' \
				"$dir/usr/share/prometheus" "$dir/usr/bin/prometheus-alertmanager" "$@"
		PROGRAM
		chmod 755 "$new/bin/alertmanager"
	fi
	chmod 755 "$new"
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ] # another process may have been faster
fi
echo "$dir"
