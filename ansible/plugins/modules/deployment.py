#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment
short_description: Create, change or delete a deployment of TKO
description:
  - Creates a deployment, merges resources into its package, approves it, or deletes it together with its children.
  - TKO generates the IDs of deployments. Without O(deployment_id), the module finds a deployment by O(template_id),
    O(site_id), O(parent_deployment_id) and O(identity), and creates one if there is none. If several match, it fails.
options:
  deployment_id:
    description: ID of an existing deployment.
    type: str
  template_id:
    description: ID of the template.
    type: str
  site_id:
    description: ID of the site.
    type: str
  parent_deployment_id:
    description: ID of the parent deployment.
    type: str
  identity:
    description:
      - Metadata that distinguish this deployment from others of the same template at the same site.
      - The module creates the deployment with them, and finds it by them.
    type: dict
    default: {}
  metadata:
    description:
      - Metadata with which the deployment is created. They can't change later; the module fails if an existing
        deployment has other values.
    type: dict
    default: {}
  package:
    description:
      - Resources to merge into the package, as a list or as YAML.
      - In an existing deployment, fields that these resources do not have stay, since preparation may have added them.
    type: raw
  src:
    description: YAML file with these resources, or folder with C(.yaml) and C(.yml) files, on the host that runs the module.
    type: path
  prepare_again:
    description: Whether TKO prepares changed resources of an existing deployment again.
    type: bool
    default: true
  prepared:
    description: Whether a new deployment is created as prepared.
    type: bool
    default: false
  approved:
    description:
      - V(true) creates the deployment as approved, or approves an existing one, which must be prepared.
      - An approval can't be withdrawn by V(false).
    type: bool
    default: false
  wait:
    description:
      - State that the module waits for, at most O(wait_timeout) seconds. V(scheduled) is that of a deployment at its site.
      - The module fails if the deployment does not reach it, with the message of the condition. In check mode, it does not wait.
    type: str
    choices: [prepared, approved, scheduled]
  wait_timeout:
    description: Time limit of O(wait), in seconds.
    type: float
    default: 300
  state:
    description: Whether the deployment exists.
    type: str
    choices: [present, absent]
    default: present
  confirm:
    description:
      - With O(state=absent), the number of deployments that are deleted, children included.
      - TKO requires it for large deletions only. If it is set, TKO refuses to delete any other number.
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
    description: The module returns the state before and after. Values of Secrets are replaced by digests.
    support: full
"""

EXAMPLES = r"""
- name: Deploy a user plane function at a site
  tko.tko.deployment:
    template_id: nf/upf:v1
    site_id: lagos/1
    identity:
      slice: gold
    package:
      - apiVersion: v1
        kind: ConfigMap
        metadata:
          name: settings
        data:
          size: large
  register: upf

- name: Delete it
  tko.tko.deployment:
    deployment_id: "{{ upf.deployment.deployment_id }}"
    state: absent
"""

RETURN = r"""
deployment:
  description:
    - The deployment after the change; in check mode, as predicted. Not returned with O(state=absent).
    - A deployment that check mode would create has no C(deployment_id).
  returned: success
  type: dict
  sample: {deployment_id: 2bXc, template_id: "nf/upf:v1", site_id: "lagos/1", prepared: true, approved: true, package: []}
"""

import time

from ansible_collections.tko.tko.plugins.module_utils.client import (
    diff_of,
    exact,
    exactly,
    found,
    package_of,
    run,
    texts,
)
from ansible_collections.tko.tko.plugins.module_utils.entity import shown, template_of
from ansible_collections.tko.tko.plugins.module_utils.state import changed_package, merged

MAX_NAMED = 5  # IDs in a message


def ard(deployment):
    return dict(deployment.to_ard(), package=list(deployment.get_package()))


def find(client, params, identity):
    """Returns the deployment that the options describe, or None."""
    if params["deployment_id"]:
        return found(client.get_deployment, params["deployment_id"])
    if not params["template_id"]:
        raise ValueError("set deployment_id or template_id: without them, no deployment is described")
    ids = []
    for row in client.list_deployments(
        parent_deployment_id=params["parent_deployment_id"] or None,
        template_id_patterns=[exact(params["template_id"])],
        site_id_patterns=[exact(params["site_id"])] if params["site_id"] else None,
        metadata_patterns=exactly(identity) or None,
        max_count=-1,
    ):
        same_site = row.site_id == (params["site_id"] or "")
        same_parent = row.parent_deployment_id == (params["parent_deployment_id"] or "")
        if same_site and same_parent:
            ids.append(row.deployment_id)
        if len(ids) > MAX_NAMED:
            break
    if len(ids) > 1:
        some = ", ".join(ids[:MAX_NAMED]) + (", ..." if len(ids) > MAX_NAMED else "")
        raise ValueError(f"several deployments match ({some}): set deployment_id, or an identity that only one has")
    return found(client.get_deployment, ids[0]) if ids else None


def absent(module, client, current):
    if current is None:
        return {"changed": False}
    if not module.check_mode:
        found(lambda i: client.delete_deployment(i, confirm=module.params["confirm"] or 0), current.deployment_id)
    return {"changed": True, "diff": diff_of(f"deployment {current.deployment_id}", shown(ard(current)), None)}


def create(module, client, params, metadata, package):
    after = None
    if module.check_mode:
        base, inherited = template_of(module, client, params["template_id"])
        after = {
            "deployment_id": "",
            "template_id": params["template_id"],
            "site_id": params["site_id"] or "",
            "parent_deployment_id": params["parent_deployment_id"] or "",
            "metadata": dict(inherited, **metadata),
            "prepared": params["prepared"],
            "approved": params["approved"],
            "package": merged(base, package or []),
        }
    else:
        after = ard(
            client.get_deployment(
                client.create_deployment(
                    params["template_id"],
                    params["parent_deployment_id"],
                    params["site_id"],
                    metadata,
                    params["prepared"],
                    params["approved"],
                    merge_package=package or [],
                )
            )
        )
    return {"changed": True, "deployment": after, "diff": diff_of("deployment", None, shown(after))}


def update(module, client, params, metadata, package, current):
    name = current.deployment_id
    for option in ("template_id", "site_id", "parent_deployment_id"):
        if params[option] is not None and params[option] != getattr(current, option):
            raise ValueError(
                f"deployment {name} has {option} {getattr(current, option)!r}, not {params[option]!r}: "
                "use another deployment, or change it in a modification"
            )
    for key, value in metadata.items():
        if current.metadata.get(key) != value:
            raise ValueError(
                f"deployment {name} has the metadata {key}={current.metadata.get(key)!r}, not {value!r}: "
                "metadata of an existing deployment can't change"
            )
    before = ard(current)
    after = dict(before)
    changed = False
    new = changed_package(before["package"], package, params["prepare_again"]) if package is not None else None
    if new is not None:
        changed = True
        after["package"] = new
        if params["prepare_again"]:
            after["prepared"] = False
        if not module.check_mode:
            modify(client, name, package, params["prepare_again"])
    if params["approved"] and not current.approved:
        changed = True
        after["approved"] = True
        if not module.check_mode:
            client.approve_deployment(name)
    if changed and not module.check_mode:
        after = ard(client.get_deployment(name))
    return {"changed": changed, "deployment": after, "diff": diff_of(f"deployment {name}", shown(before), shown(after))}


def modify(client, name, package, prepare):
    """Merges resources into a deployment's package, in a modification."""
    with client.modify_deployment(name) as stored:
        new = changed_package(stored.package, package, prepare)
        if new is not None:
            stored.package[:] = new


def waited(module, client, result):
    """Waits until the deployment of a result has the state of the option wait, and returns the result."""
    wanted, limit = module.params["wait"], module.params["wait_timeout"]
    if not wanted or module.check_mode or "deployment" not in result:
        return result
    name = result["deployment"]["deployment_id"]
    end = time.monotonic() + limit
    pause = 0.2
    while True:
        current = client.get_deployment(name)
        condition = next((c for c in current.conditions if c.type == wanted.capitalize()), None)
        if wanted == "scheduled":
            done = (
                condition is not None and condition.status == "True" and condition.observed_revision == current.revision
            )
        else:
            done = getattr(current, wanted)
        if done:
            return dict(result, deployment=ard(current))
        left = end - time.monotonic()
        if left <= 0:
            reason = f": {condition.reason}: {condition.message}" if condition is not None else ""
            module.fail_json(
                msg=f"deployment {name} is not {wanted} after {limit:g} s{reason}",
                changed=result["changed"],
                # Failures are always printed, and packages may have Secrets.
                deployment={key: value for key, value in ard(current).items() if key != "package"},
            )
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 3)


def act(module, client):
    return waited(module, client, acted(module, client))


def acted(module, client):
    params = module.params
    identity = texts("identity", params["identity"])
    metadata = dict(texts("metadata", params["metadata"]), **identity)
    package = package_of(params)
    current = find(client, params, identity)
    if params["state"] == "absent":
        return absent(module, client, current)
    if current is not None:
        return update(module, client, params, metadata, package, current)
    if params["deployment_id"]:
        raise ValueError(f"there is no deployment {params['deployment_id']!r}: without deployment_id, one is created")
    return create(module, client, params, metadata, package)


def main():
    run(
        act,
        dict(
            deployment_id=dict(type="str"),
            template_id=dict(type="str"),
            site_id=dict(type="str"),
            parent_deployment_id=dict(type="str"),
            identity=dict(type="dict", default={}),
            metadata=dict(type="dict", default={}),
            package=dict(type="raw"),
            src=dict(type="path"),
            prepare_again=dict(type="bool", default=True),
            prepared=dict(type="bool", default=False),
            approved=dict(type="bool", default=False),
            state=dict(type="str", choices=["present", "absent"], default="present"),
            confirm=dict(type="int"),
            wait=dict(type="str", choices=["prepared", "approved", "scheduled"]),
            wait_timeout=dict(type="float", default=300),
        ),
        mutually_exclusive=[("package", "src")],
        required_one_of=[("deployment_id", "template_id")],
    )


if __name__ == "__main__":
    main()
