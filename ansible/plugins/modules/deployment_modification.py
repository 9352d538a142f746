#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_modification
short_description: Start, end or cancel a modification of a deployment
description:
  - A modification gives one client at a time the right to replace a deployment's package. It expires unless it is ended
    in time, 10 seconds by default (the setting C(--modification-time) of the server).
  - The role P(tko.tko.modification#role) runs tasks between start and end, and cancels the modification if they fail.
options:
  state:
    description:
      - V(started) starts a modification, and returns its token and the package.
      - V(ended) replaces the package. If the server refuses the package, the token stays valid.
      - V(cancelled) gives the token up.
    type: str
    required: true
    choices: [started, ended, cancelled]
  deployment_id:
    description:
      - ID of the deployment. Required if O(state=started).
      - With O(state=ended), a package that has not changed is not written, and the modification is cancelled.
    type: str
  modification_token:
    description: Token of the modification. Required if it is ended or cancelled. Check mode has an empty one.
    type: str
  package:
    description: Package, as a list of resources or as YAML. Required if O(state=ended).
    type: raw
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
    description: The module returns the state before and after. Values of Secrets are replaced by digests.
    support: full
"""

EXAMPLES = r"""
- name: Start a modification
  tko.tko.deployment_modification:
    state: started
    deployment_id: "{{ id }}"
  register: modification

- name: End it
  tko.tko.deployment_modification:
    state: ended
    deployment_id: "{{ id }}"
    modification_token: "{{ modification.modification_token }}"
    package: "{{ modification.package + more }}"
"""

RETURN = r"""
modification_token:
  description: Token of the modification.
  returned: O(state=started)
  type: str
  sample: 2bXd
package:
  description: Package of the deployment.
  returned: O(state=started)
  type: list
  elements: dict
  sample: []
deployment_id:
  description: ID of the deployment.
  returned: O(state=started), and O(state=ended) outside of check mode
  type: str
  sample: 2bXc
"""

from ansible_collections.tko.tko.plugins.module_utils.client import as_package, diff_of, found, run


def start(module, client, params):
    name = params["deployment_id"]
    if module.check_mode:
        package = list(client.get_deployment(name).get_package())
        return {"changed": False, "modification_token": "", "package": package, "deployment_id": name}
    token, package = client.start_deployment_modification(name)
    return {"changed": False, "modification_token": token, "package": list(package), "deployment_id": name}


def end(module, client, params):
    name, token = params["deployment_id"], params["modification_token"]
    package = as_package("package", params["package"])
    result = {"changed": True}
    if name:
        current = list(client.get_deployment(name).get_package())
        result["changed"] = current != package
        result["diff"] = diff_of(f"deployment {name}", {"package": current}, {"package": package})
    if module.check_mode:
        return result
    if not result["changed"]:
        client.cancel_deployment_modification(token)
        return dict(result, deployment_id=name)
    return dict(result, deployment_id=client.end_deployment_modification(token, package=package))


def cancel(module, client, params):
    if not module.check_mode and params["modification_token"]:
        found(client.cancel_deployment_modification, params["modification_token"])
    return {"changed": False}


def act(module, client):
    params = module.params
    if params["state"] == "ended" and not module.check_mode and not params["modification_token"]:
        raise ValueError("modification_token is empty: start a modification first")
    return {"started": start, "ended": end, "cancelled": cancel}[params["state"]](module, client, params)


def main():
    run(
        act,
        dict(
            state=dict(type="str", required=True, choices=["started", "ended", "cancelled"]),
            deployment_id=dict(type="str"),
            modification_token=dict(type="str", no_log=False),
            package=dict(type="raw"),
        ),
        required_if=[
            ("state", "started", ["deployment_id"]),
            ("state", "ended", ["modification_token", "package"]),
            ("state", "cancelled", ["modification_token"]),
        ],
    )


if __name__ == "__main__":
    main()
