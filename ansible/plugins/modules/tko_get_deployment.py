#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: tko_get_deployment
short_description: Get a deployment of TKO
description:
  - This is the former name of M(tko.tko.deployment_info), with the same arguments and results as ever. New playbooks use that.
options:
  deployment_id:
    description: ID of the deployment.
    type: str
    required: true
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
- name: Get a deployment
  tko.tko.tko_get_deployment:
    deployment_id: "{{ id }}"
  register: result
"""

RETURN = r"""
deployment:
  description: The deployment, with its package.
  returned: success
  type: dict
  sample: {deployment_id: 2bXc, package: []}
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run


def act(module, client):
    deployment = client.get_deployment(module.params["deployment_id"])
    return {"changed": False, "deployment": deployment.to_ard()}


def main():
    run(
        act,
        dict(
            deployment_id=dict(type="str", required=True),
        ),
        writes=False,
    )


if __name__ == "__main__":
    main()
