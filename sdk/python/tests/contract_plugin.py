#!/usr/bin/env python3
"""A plugin in the earlier form: functions of the module without requests."""

import sys

import tko

GVK = tko.GVK("x.plugin.nephio.org", "v1", "X")


def prepare():
    package = tko.get_output_package()
    identifier = tko.get_target_resource_identifier()
    resource = tko.get_target_resource()
    assert resource is package[identifier] is package.get_first(GVK)
    tko.validate_value("spec", resource.get("spec"), True, {"type": "dict", "required": True})
    if resource["spec"].get("fail"):
        raise Exception("told to fail")
    if resource["spec"].get("later"):
        return False
    print("prints go nowhere near the answer")
    text = tko.execute("tr", "a-z", "A-Z", input="made by x")
    package.append(
        tko.yaml.load(f"""
apiVersion: v1
kind: ConfigMap
metadata:
  name: made
data:
  text: {text}
  host: "{tko.get_grpc_host()}"
""")
    )
    tko.log(f"prepared {identifier.name}")
    tko.set_prepared(resource)
    return True


def validate(complete):
    spec = tko.get_target_resource().get("spec")
    tko.validate_value("spec", spec, complete, {"type": dict, "schema": {"n": {"type": "int", "required": True}}})


def schedule():
    kinds = [resource["kind"] for package in tko.get_deployments() for resource in package]
    tko.log(f"{tko.get_target_resource()['kind']} gets {' '.join(kinds)}")


{"prepare": tko.prepare, "validate": tko.validate, "schedule": tko.schedule}[sys.argv[1]](globals()[sys.argv[1]])
