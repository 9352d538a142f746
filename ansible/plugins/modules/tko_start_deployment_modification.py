#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: tko_start_deployment_modification
short_description: Start a modification of a deployment
description:
  - This is the former name of M(tko.tko.deployment_modification), with the same arguments and results as ever. New playbooks use that.
options:
  deployment_id:
    description: ID of the deployment.
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
    description: In check mode, the module changes nothing.
    support: full
  diff_mode:
    description: The module has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Start a modification
  tko.tko.tko_start_deployment_modification:
    deployment_id: "{{ id }}"
  register: modification
"""

RETURN = r"""
modification_token:
  description: Token of the modification; in check mode, empty.
  returned: success
  type: str
  sample: 2bXd
package:
  description: Package of the deployment.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run


def act(module, client):
    name = module.params["deployment_id"]
    if module.check_mode:
        token, package = "", client.get_deployment(name).get_package()
    else:
        token, package = client.start_deployment_modification(name)
    return {"changed": False, "modification_token": token, "package": list(package)}


def main():
    run(
        act,
        dict(
            deployment_id=dict(type="str", required=True),
        ),
        writes=True,
    )


if __name__ == "__main__":
    main()
