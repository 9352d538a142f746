#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: tko_end_deployment_modification
short_description: End a modification of a deployment
description:
  - This is the former name of M(tko.tko.deployment_modification), with the same arguments and results as ever. New playbooks use that.
options:
  modification_token:
    description: Token of the modification.
    type: str
    required: true
  package:
    description: Package, as a list of resources or as YAML.
    type: raw
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
- name: End a modification
  tko.tko.tko_end_deployment_modification:
    modification_token: "{{ modification.modification_token }}"
    package: "{{ modification.package }}"
"""

RETURN = r"""
deployment_id:
  description: ID of the deployment.
  returned: success, outside of check mode
  type: str
  sample: 2bXc
"""

from ansible_collections.tko.tko.plugins.module_utils.client import as_package, run


def act(module, client):
    package = as_package("package", module.params["package"])
    if module.check_mode:
        return {"changed": True}
    name = client.end_deployment_modification(module.params["modification_token"], package=package)
    return {"changed": True, "deployment_id": name}


def main():
    run(
        act,
        dict(
            modification_token=dict(type="str", required=True, no_log=False),
            package=dict(type="raw", required=True),
        ),
        writes=True,
    )


if __name__ == "__main__":
    main()
