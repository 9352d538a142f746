#!/bin/sh
# Never removes data: /var/lib/tko stays, and the user tko, who owns it.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/cache/tko /run/tko
	[ ! -d /var/lib/tko ] || echo 'tko-server: the state in /var/lib/tko is kept: remove it yourself, if you no longer need it'
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
