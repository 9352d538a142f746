#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: template
short_description: Register or delete a template of TKO
description:
  - Registers a template, replaces its package or metadata, or deletes it.
  - The server decides whether a registration changes anything. Deployments of a template stay when it changes or is deleted.
options:
  name:
    description: ID of the template.
    type: str
    required: true
    aliases: [id, template_id]
  state:
    description: Whether the template exists.
    type: str
    choices: [present, absent]
    default: present
  metadata:
    description:
      - Metadata, in addition to those of the template and of the package. Numbers and booleans become texts.
      - If not set, an existing template keeps its metadata.
    type: dict
  package:
    description:
      - Package, as a list of resources, or as YAML.
      - If neither this nor O(src) is set, an existing template keeps its package.
    type: raw
  src:
    description: YAML file with the package, or folder whose C(.yaml) and C(.yml) files make up the package, on the host that runs the module.
    type: path
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
- name: Register a template from a folder
  tko.tko.template:
    name: nf/upf:v1
    metadata:
      type: upf
    src: templates/upf

- name: Delete a template
  tko.tko.template:
    name: nf/upf:v0
    state: absent
"""

RETURN = r"""
template:
  description: The template after the change; in check mode, as predicted. Not returned with O(state=absent).
  returned: success
  type: dict
  sample: {template_id: "nf/upf:v1", metadata: {type: upf}, package: []}
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run
from ansible_collections.tko.tko.plugins.module_utils.entity import Registered, spec


def main():
    run(
        Registered("template").act,
        spec(),
        mutually_exclusive=[("package", "src")],
    )


if __name__ == "__main__":
    main()
