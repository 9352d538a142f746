#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: about_info
short_description: Get facts about a TKO server
description: Returns the name, version and store of the server. It fails if the server can't be reached.
options: {}
extends_documentation_fragment:
  - tko.tko.client
author: TKO contributors (!UNKNOWN)
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: The module has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Check that TKO can be reached
  tko.tko.about_info:
"""

RETURN = r"""
about:
  description: Facts about the server.
  returned: success
  type: dict
  sample: {instance_name: TKO, tko_version: "1.0.0", backend: postgresql}
"""

import dataclasses

from ansible_collections.tko.tko.plugins.module_utils.client import run


def act(module, client):
    about = dataclasses.asdict(client.about())
    return {"changed": False, "about": dict(about, address_ports=list(about["address_ports"]))}


def main():
    run(act, writes=False)


if __name__ == "__main__":
    main()
