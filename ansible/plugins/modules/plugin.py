#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: plugin
short_description: Register or delete a plugin of TKO
description: Registers a plugin, replaces its settings, or deletes it.
options:
  type:
    description: Type of the plugin.
    type: str
    required: true
    choices: [validate, prepare, schedule]
  name:
    description: Name of the plugin.
    type: str
    required: true
  state:
    description: Whether the plugin exists.
    type: str
    choices: [present, absent]
    default: present
  executor:
    description: Executor of the plugin.
    type: str
    choices: [command, kpt, ansible]
    default: command
  arguments:
    description: Arguments of the plugin, as its executor needs them. Required if O(state=present).
    type: list
    elements: str
  properties:
    description:
      - Properties of the plugin. Those that start with C(_) configure the executor.
      - Results do not show properties that are named like credentials, except references to secrets (C(env:), C(vault:), C(file:)).
    type: dict
    default: {}
  triggers:
    description: Kinds of resources that trigger the plugin.
    type: list
    elements: dict
    default: []
    suboptions:
      group:
        description: Group of the kind.
        type: str
        default: ""
      version:
        description: Version of the kind.
        type: str
        required: true
      kind:
        description: Name of the kind.
        type: str
        required: true
  why:
    description: Reason of the change, which TKO records with it.
    type: str
extends_documentation_fragment:
  - tko.tko.client
author: TKO contributors (!UNKNOWN)
attributes:
  check_mode:
    description: The module predicts the result, and changes nothing.
    support: full
  diff_mode:
    description: The module returns the state before and after. Credentials among the properties are replaced by digests.
    support: full
"""

EXAMPLES = r"""
- name: Register a plugin that prepares network functions
  tko.tko.plugin:
    type: prepare
    name: addresses
    arguments: [/opt/plugins/addresses.py]
    triggers:
      - {group: addresses.plugin.nephio.org, version: v1, kind: Addresses}
"""

RETURN = r"""
plugin:
  description: The plugin after the change; in check mode, as predicted. Not returned with O(state=absent).
  returned: success
  type: dict
  sample: {type: prepare, name: addresses, executor: command, arguments: [/opt/plugins/addresses.py], properties: {}, triggers: []}
"""

from ansible_collections.tko.tko.plugins.module_utils.client import credentials, diff_of, found, run, texts
from ansible_collections.tko.tko.plugins.module_utils.rows import plugin_row


def act(module, client):
    params = module.params
    current = found(client.get_plugin, params["type"], params["name"])
    before = plugin_row(current) if current else None
    for properties in (params["properties"], before and before["properties"]):
        module.no_log_values.update(str(v) for v in credentials(properties).values())
    title = f"plugin {params['type']}|{params['name']}"
    if params["state"] == "absent":
        if current is not None and not module.check_mode:
            found(client.delete_plugin, params["type"], params["name"])
        return {"changed": current is not None, "diff": diff_of(title, before, None)}
    after = {
        "type": params["type"],
        "name": params["name"],
        "executor": params["executor"],
        "arguments": params["arguments"],
        "properties": texts("properties", params["properties"]),
        "triggers": params["triggers"],
    }
    changed = before != after
    if changed and not module.check_mode:
        client.register_plugin(**after)
        after = plugin_row(client.get_plugin(params["type"], params["name"]))
    return {"changed": changed, "plugin": after, "diff": diff_of(title, before, after)}


def main():
    run(
        act,
        dict(
            type=dict(type="str", required=True, choices=["validate", "prepare", "schedule"]),
            name=dict(type="str", required=True),
            state=dict(type="str", choices=["present", "absent"], default="present"),
            executor=dict(type="str", choices=["command", "kpt", "ansible"], default="command"),
            arguments=dict(type="list", elements="str"),
            properties=dict(type="dict", default={}),
            triggers=dict(
                type="list",
                elements="dict",
                default=[],
                options=dict(
                    group=dict(type="str", default=""),
                    version=dict(type="str", required=True),
                    kind=dict(type="str", required=True),
                ),
            ),
        ),
        required_if=[("state", "present", ["arguments"])],
    )


if __name__ == "__main__":
    main()
