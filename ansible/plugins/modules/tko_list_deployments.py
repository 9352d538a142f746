#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: tko_list_deployments
short_description: List deployments of TKO
description:
  - This is the former name of M(tko.tko.deployment_info), with the same arguments and results as ever. New playbooks use that.
options:
  site_id:
    description: Pattern of the site's ID.
    type: str
  offset:
    description: Number of deployments to skip.
    type: int
    default: 0
  max_count:
    description: Largest number of deployments.
    type: int
    default: 1000
extends_documentation_fragment:
  - tko.tko.client
author: TKO contributors (!UNKNOWN)
attributes:
  check_mode:
    description: In check mode, the module changes nothing.
    support: full
  diff_mode:
    description: The module has no diff.
    support: none
"""

EXAMPLES = r"""
- name: List the deployments at a site
  tko.tko.tko_list_deployments:
    site_id: lagos/1
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

from ansible_collections.tko.tko.plugins.module_utils.client import run


def act(module, client):
    params = module.params
    rows = client.list_deployments(
        site_id_patterns=[params["site_id"]] if params["site_id"] else None,
        offset=params["offset"],
        max_count=params["max_count"],
    )
    return {"changed": False, "deployments": [row.to_ard() for row in rows]}


def main():
    run(
        act,
        dict(
            site_id=dict(type="str"),
            offset=dict(type="int", default=0),
            max_count=dict(type="int", default=1000),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
