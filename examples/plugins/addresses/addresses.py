#!/usr/bin/env python3
"""An example of a prepare plugin in Python, without any SDK.

For a resource network.plugin.nephio.org/v1alpha1 Addresses it gives every
interface of its spec a static IPv6 address, in the NetworkAttachmentDefinition
of the same name. The address depends on the deployment's site, the interface
and the spec's prefix only, so that preparing again changes nothing.
"""

import hashlib
import ipaddress
import json
import sys

import yaml

PREFIX = "fd00:5c::/32" # default of the spec's prefix


def address(prefix: str, site: str, interface: str) -> str:
    """An address of the prefix: 64 bits of a hash make the host."""
    digest = hashlib.sha256(f"{site} {interface}".encode()).digest()
    offset = int.from_bytes(digest[:8], "big")
    return f"{ipaddress.ip_network(prefix).network_address + offset}/64"


def find(package: list, api_version: str, kind: str, name: str | None = None) -> dict | None:
    for resource in package:
        if resource["apiVersion"] == api_version and resource["kind"] == kind:
            if name is None or resource.get("metadata", {}).get("name") == name:
                return resource
    return None


def prepare(request: dict) -> dict:
    package = request["deploymentPackage"]
    target = request["targetResourceIdentifier"]
    resource = find(package, f"{target['group']}/{target['version']}", target["kind"], target["name"])
    if resource is None:
        return {"error": f"{target['kind']} {target['name']!r} is not in the package"}
    deployment = find(package, "deployment.nephio.org/v1alpha1", "Deployment")
    site = ((deployment or {}).get("spec") or {}).get("siteId", "")
    spec = resource.get("spec") or {}
    given = {}
    for interface in spec.get("interfaces", []):
        attachment = find(package, "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", interface)
        if attachment is None:
            return {"error": f"spec.interfaces names {interface!r}, but the package has no NetworkAttachmentDefinition of that name"}
        config = json.loads(attachment["spec"]["config"])
        given[interface] = address(spec.get("prefix", PREFIX), site, interface)
        config["ipam"] = {"type": "static", "addresses": [{"address": given[interface]}]}
        attachment["spec"]["config"] = json.dumps(config)
    resource["status"] = {"addresses": given}
    resource.setdefault("metadata", {}).setdefault("annotations", {})["nephio.org/prepared"] = "true"
    return {"prepared": True, "package": package}


if __name__ == "__main__":
    yaml.safe_dump(prepare(yaml.safe_load(sys.stdin)), sys.stdout, sort_keys=False)
