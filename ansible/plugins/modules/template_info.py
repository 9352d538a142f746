#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: template_info
short_description: List templates of TKO
description: Lists the templates that match, sorted by ID. Without patterns, all.
options:
  template_id:
    description: ID of one template, which is returned with its package. Other options are ignored.
    type: str
  ids:
    description: Patterns of the ID.
    type: list
    elements: str
  metadata:
    description: Patterns of the metadata.
    type: dict
  packages:
    description: Whether rows have packages.
    type: bool
    default: false
  max_count:
    description: Largest number of rows. All, if not set.
    type: int
  offset:
    description: Number of rows to skip.
    type: int
    default: 0
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
- name: List templates of network functions
  tko.tko.template_info:
    ids: ["nf/**"]
  register: result
"""

RETURN = r"""
templates:
  description: The templates.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible_collections.tko.tko.plugins.module_utils.client import found, run, texts
from ansible_collections.tko.tko.plugins.module_utils.rows import entity_rows


def act(module, client):
    params = module.params
    count = -1 if params["max_count"] is None else params["max_count"]
    if params["template_id"]:
        one = found(client.get_template, params["template_id"])
        return {"changed": False, "templates": entity_rows([one] if one else [], True)}
    rows = client.list_templates(
        template_id_patterns=params["ids"],
        metadata_patterns=texts("metadata", params["metadata"]),
        offset=params["offset"],
        max_count=count,
        with_packages=params["packages"],
    )
    return {"changed": False, "templates": entity_rows(rows, params["packages"])}


def main():
    run(
        act,
        dict(
            template_id=dict(type="str"),
            ids=dict(type="list", elements="str"),
            metadata=dict(type="dict"),
            packages=dict(type="bool", default=False),
            max_count=dict(type="int"),
            offset=dict(type="int", default=0),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
