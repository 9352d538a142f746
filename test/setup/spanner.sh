#!/usr/bin/env bash
# Says in one line that the tests of the store on Spanner are skipped, if its emulator is not installed.
set -euo pipefail

[ -x "${TKO_TEST_SPANNER_EMULATOR:-}" ] || command -v emulator_main >/dev/null ||
	compgen -G '/usr/*/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main' >/dev/null ||
	echo "make test: the tests of the store on Spanner are skipped: install google-cloud-cli-spanner-emulator, or set TKO_TEST_SPANNER_EMULATOR" >&2
