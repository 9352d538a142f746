#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_approve
short_description: Approve prepared deployments of TKO
description:
  - Approves one deployment, or all prepared deployments that match a selection.
  - Deployments that are not prepared are not approved. One that is selected by its ID fails the module if it is not prepared.
options:
  deployment_id:
    description: ID of a deployment.
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
  all:
    description: Approves all prepared deployments. It is required if no other selection is set.
    type: bool
    default: false
  confirm:
    description: Number of deployments that are approved. TKO requires it for large approvals only, and refuses any other number.
    type: int
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
    description: The module has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Approve what is prepared in the west
  tko.tko.deployment_approve:
    site_metadata:
      region: west
"""

RETURN = r"""
approved:
  description: Number of newly approved deployments; in check mode, of those that would be approved.
  returned: success
  type: int
  sample: 3
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run, texts

SELECTION = ("template_ids", "template_metadata", "site_ids", "site_metadata", "metadata", "parent_deployment_id")


def one(module, client, name):
    deployment = client.get_deployment(name)
    if deployment.approved:
        return 0
    if not module.check_mode:
        return client.approve_deployment(name)
    if not deployment.prepared:
        raise ValueError(f"deployment {name!r} is not prepared: approve it after its preparation")
    return 1


def act(module, client):
    params = module.params
    chosen = [option for option in SELECTION if params[option]]
    if params["deployment_id"]:
        if chosen or params["all"]:
            raise ValueError("deployment_id excludes all and selections: set one of them")
        count = one(module, client, params["deployment_id"])
    elif not chosen and not params["all"]:
        raise ValueError(
            "nothing is selected: set deployment_id or a selection, or all=true for every prepared deployment"
        )
    else:
        count = client.approve_deployments(
            parent_deployment_id=params["parent_deployment_id"],
            template_id_patterns=params["template_ids"],
            template_metadata_patterns=texts("template_metadata", params["template_metadata"]),
            site_id_patterns=params["site_ids"],
            site_metadata_patterns=texts("site_metadata", params["site_metadata"]),
            metadata_patterns=texts("metadata", params["metadata"]),
            dry_run=module.check_mode,
            confirm=params["confirm"] or 0,
        )
    return {"changed": count > 0, "approved": count}


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
            all=dict(type="bool", default=False),
            confirm=dict(type="int"),
        ),
    )


if __name__ == "__main__":
    main()
