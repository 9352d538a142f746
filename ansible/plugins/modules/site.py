#!/usr/bin/python
# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: site
short_description: Register or delete a site of TKO
description:
  - Registers a site, replaces its package or metadata, or deletes it.
  - A site with a template has the template's package and metadata, with the given ones merged in.
  - The server decides whether a registration changes anything. Deployments at a site stay when it changes or is deleted.
options:
  name:
    description: ID of the site.
    type: str
    required: true
    aliases: [id, site_id]
  template_id:
    description:
      - ID of the template of the site. An empty text is no template.
      - If not set, an existing site keeps its template.
    type: str
  state:
    description: Whether the site exists.
    type: str
    choices: [present, absent]
    default: present
  metadata:
    description:
      - Metadata, in addition to those of the template and of the package. Numbers and booleans become texts.
      - If not set, an existing site keeps its metadata.
    type: dict
  package:
    description:
      - Package, as a list of resources, or as YAML.
      - If neither this nor O(src) is set, an existing site keeps its package.
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
- name: Register a site
  tko.tko.site:
    name: lagos/1
    template_id: site/edge:v1
    metadata:
      region: west
    package:
      - apiVersion: infra.nephio.org/v1alpha1
        kind: Cluster
        metadata:
          name: cluster
"""

RETURN = r"""
site:
  description: The site after the change; in check mode, as predicted. Not returned with O(state=absent).
  returned: success
  type: dict
  sample: {site_id: "lagos/1", template_id: "site/edge:v1", metadata: {region: west}, package: []}
"""

from ansible_collections.tko.tko.plugins.module_utils.client import run
from ansible_collections.tko.tko.plugins.module_utils.entity import Registered, spec


def main():
    run(
        Registered("site").act,
        spec(template_id=dict(type="str")),
        mutually_exclusive=[("package", "src")],
    )


if __name__ == "__main__":
    main()
