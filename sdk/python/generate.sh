#!/usr/bin/env bash
# Regenerates tko_pb2.py, access_pb2.py and admin_pb2.py, and their types, from proto/tko. PYTHON has grpcio-tools; it is the tests' Python unless set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/src}
python=${PYTHON:-$("$here/../../test/setup/python.sh")/bin/python3}
"$python" -m grpc_tools.protoc -I "$here/../../proto" --python_out="$out" --pyi_out="$out" tko/tko.proto tko/access.proto tko/admin.proto
