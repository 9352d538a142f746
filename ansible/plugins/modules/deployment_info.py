#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_info
short_description: List deployments of TKO
description: Lists the deployments that match, sorted by ID. Without patterns, all.
options:
  deployment_id:
    description: ID of one deployment, which is returned with its package. Other options are ignored.
    type: str
  template_ids:
    description: Patterns of the template's ID.
    type: list
    elements: str
  template_metadata:
    description: Patterns of the template's metadata.
    type: dict
  site_ids:
    description: Patterns of the site's ID.
    type: list
    elements: str
  site_metadata:
    description: Patterns of the site's metadata.
    type: dict
  metadata:
    description: Patterns of the metadata.
    type: dict
  parent_deployment_id:
    description: ID of the parent deployment.
    type: str
  prepared:
    description: Selects prepared, or unprepared, deployments.
    type: bool
  approved:
    description: Selects approved, or unapproved, deployments.
    type: bool
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
- name: List prepared deployments that wait for approval
  tko.tko.deployment_info:
    prepared: true
    approved: false
  register: result
"""

RETURN = r"""
deployments:
  description: The deployments.
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
    if params["deployment_id"]:
        one = found(client.get_deployment, params["deployment_id"])
        return {"changed": False, "deployments": entity_rows([one] if one else [], True)}
    rows = client.list_deployments(
        parent_deployment_id=params["parent_deployment_id"],
        template_id_patterns=params["template_ids"],
        template_metadata_patterns=texts("template_metadata", params["template_metadata"]),
        site_id_patterns=params["site_ids"],
        site_metadata_patterns=texts("site_metadata", params["site_metadata"]),
        metadata_patterns=texts("metadata", params["metadata"]),
        prepared=params["prepared"],
        approved=params["approved"],
        offset=params["offset"],
        max_count=count,
        with_packages=params["packages"],
    )
    return {"changed": False, "deployments": entity_rows(rows, params["packages"])}


def main():
    run(
        act,
        dict(
            deployment_id=dict(type="str"),
            template_ids=dict(type="list", elements="str"),
            template_metadata=dict(type="dict"),
            site_ids=dict(type="list", elements="str"),
            site_metadata=dict(type="dict"),
            metadata=dict(type="dict"),
            parent_deployment_id=dict(type="str"),
            prepared=dict(type="bool"),
            approved=dict(type="bool"),
            packages=dict(type="bool", default=False),
            max_count=dict(type="int"),
            offset=dict(type="int", default=0),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
