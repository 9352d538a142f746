#!/bin/sh
# Stops the server before its removal, and not before an upgrade. dpkg passes "remove", rpm
# the number of versions that remain.
set -e
case "$1" in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	units='tko-server-unix.socket tko-server-grpc.socket tko-server-web.socket tko-server.service tko-data.service'
	# shellcheck disable=SC2086 # several words
	systemctl --no-reload disable --now $units || true
fi
