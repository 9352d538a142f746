#!/usr/bin/env bash
# Runs a command with Spanner's emulator, which ends with the command and has kept nothing then.
#
#   emulator.sh COMMAND ARGUMENT...    its address is in the command's SPANNER_EMULATOR_HOST
set -euo pipefail

program=${TKO_TEST_SPANNER_EMULATOR:-$(command -v emulator_main || compgen -G '/usr/*/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main' || true)}
if [ ! -x "$program" ]; then
	echo "Spanner's emulator is not installed: install google-cloud-cli-spanner-emulator, or set TKO_TEST_SPANNER_EMULATOR to its emulator_main" >&2
	exit 1
fi
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
port=$((16000 + RANDOM % 16000)) # no outgoing connection has one of these
while listens "$port"; do port=$((16000 + RANDOM % 16000)); done
log=$(mktemp)
"$program" --host_port="127.0.0.1:$port" >"$log" 2>&1 &
emulator=$!
trap 'kill -9 "$emulator" 2>/dev/null || true; wait "$emulator" 2>/dev/null || true; rm -f "$log"' EXIT
until listens "$port"; do
	if ! kill -0 "$emulator" 2>/dev/null; then
		cat "$log" >&2
		exit 1
	fi
	sleep 0.1
done
SPANNER_EMULATOR_HOST=127.0.0.1:$port "$@"
