#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: plugin_info
short_description: List plugins of TKO
description: Lists the plugins that match, sorted by type and name. Without options, all.
options:
  type:
    description: Type of the plugins.
    type: str
    choices: [validate, prepare, schedule]
  names:
    description: Patterns of the name.
    type: list
    elements: str
  executor:
    description: Executor of the plugins.
    type: str
    choices: [command, kpt, ansible]
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
- name: List schedule plugins
  tko.tko.plugin_info:
    type: schedule
  register: result
"""

RETURN = r"""
plugins:
  description: The plugins.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run
from ansible_collections.tko.tko.plugins.module_utils.rows import plugin_row


def act(module, client):
    params = module.params
    plugins = client.list_plugins(params["type"], params["names"], params["executor"], max_count=-1)
    return {"changed": False, "plugins": [plugin_row(p) for p in plugins]}


def main():
    run(
        act,
        dict(
            type=dict(type="str", choices=["validate", "prepare", "schedule"]),
            names=dict(type="list", elements="str"),
            executor=dict(type="str", choices=["command", "kpt", "ansible"]),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
