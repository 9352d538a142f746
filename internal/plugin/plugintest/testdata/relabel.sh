#!/bin/sh
# A prepare plugin that always writes the same output.
cat >/dev/null
cat <<'END'
prepared: true
package:
- apiVersion: v1
  kind: Namespace
  metadata:
    name: core
    annotations:
      nephio.org/prepared: "true"
END
