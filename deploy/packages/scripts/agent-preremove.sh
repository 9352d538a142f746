#!/bin/sh
# Stops the agent before its removal, and not before an upgrade. What runs at the site stays, and
# so does /var/lib/tko-agent. dpkg passes "remove", rpm the number of versions that remain.
set -e
case "$1" in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now tko-agent.service || true
fi
