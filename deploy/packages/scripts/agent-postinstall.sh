#!/bin/sh
# Keeps other users from the settings. A new installation starts nothing; an upgrade restarts
# what runs: the site stays as it is meanwhile. dpkg passes "configure", rpm the number of versions.
set -e
case "$1" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
chmod 0700 /etc/tko-agent
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart tko-agent.service || true # an agent that can't start reports that itself
fi
