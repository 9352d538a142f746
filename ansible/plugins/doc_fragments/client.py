# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""Documentation of the options of the connection to TKO."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  host:
    description:
      - Address and port of the TKO server.
      - If not set, the value of the environment variable E(TKO_DATA_HOST) or E(TKO_GRPC_HOST).
    type: str
    default: tko-data:50050
  tls:
    description: Use TLS, and trust the certificates that this machine trusts.
    type: bool
    default: false
  ca_path:
    description: File with the certificates to trust. Implies O(tls=true).
    type: path
  client_cert:
    description: File with the client's own certificate. Implies O(tls=true).
    type: path
  client_key:
    description: File with the key of O(client_cert).
    type: path
  token:
    description:
      - Token of the client. It is sent over TLS or to this machine only.
      - Use a vault or a lookup, not plain text in a playbook.
    type: str
  token_file:
    description: File with the token, on the host that runs the module.
    type: path
  timeout:
    description: Time limit of each call, in seconds.
    type: float
    default: 60
requirements:
  - The Python package C(tko-orchestrator), in the Python environment of the module.
notes:
  - Modules run on the managed host. Use C(connection=local) or C(delegate_to=localhost) to call TKO from the control node.
  - The action group C(tko.tko.tko) sets the options of all modules by C(module_defaults).
"""
