#!/bin/sh
# Makes the user and the folders. A new installation starts nothing; an upgrade restarts
# what runs, while its sockets stay open. dpkg passes "configure", rpm the number of versions.
set -e
case "$1" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers /usr/lib/sysusers.d/tko.conf
elif ! getent passwd tko >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/tko --no-create-home --shell /usr/sbin/nologin --comment 'TKO server' tko
fi
if command -v systemd-tmpfiles >/dev/null; then
	systemd-tmpfiles --create /usr/lib/tmpfiles.d/tko.conf || true # some folders can't be made while an image is built
fi
install -d -m 0750 -o tko -g tko /var/lib/tko /var/cache/tko
chown root:tko /etc/tko
chmod 0750 /etc/tko
for file in server.yaml data.yaml; do
	[ ! -f "/etc/tko/$file" ] || chown root:tko "/etc/tko/$file"
done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart tko-server.service tko-data.service || true # a server that can't start reports that itself
fi
