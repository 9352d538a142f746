#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: site_info
short_description: List sites of TKO
description: Lists the sites that match, sorted by ID. Without patterns, all.
options:
  site_id:
    description: ID of one site, which is returned with its package. Other options are ignored.
    type: str
  ids:
    description: Patterns of the ID.
    type: list
    elements: str
  template_ids:
    description: Patterns of the template's ID.
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
- name: List sites in the west, with their packages
  tko.tko.site_info:
    metadata: {region: west}
    packages: true
  register: result
"""

RETURN = r"""
sites:
  description: The sites.
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
    if params["site_id"]:
        one = found(client.get_site, params["site_id"])
        return {"changed": False, "sites": entity_rows([one] if one else [], True)}
    rows = client.list_sites(
        site_id_patterns=params["ids"],
        template_id_patterns=params["template_ids"],
        metadata_patterns=texts("metadata", params["metadata"]),
        offset=params["offset"],
        max_count=count,
        with_packages=params["packages"],
    )
    return {"changed": False, "sites": entity_rows(rows, params["packages"])}


def main():
    run(
        act,
        dict(
            site_id=dict(type="str"),
            ids=dict(type="list", elements="str"),
            template_ids=dict(type="list", elements="str"),
            metadata=dict(type="dict"),
            packages=dict(type="bool", default=False),
            max_count=dict(type="int"),
            offset=dict(type="int", default=0),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
