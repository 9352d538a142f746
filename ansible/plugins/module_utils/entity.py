# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""Templates and sites: entities that are registered under IDs that users choose."""

from __future__ import annotations

from ansible_collections.tko.tko.plugins.module_utils.client import diff_of, found, package_of, texts
from ansible_collections.tko.tko.plugins.module_utils.state import merged, own_metadata, predicted_metadata


def spec(**more):
    """Returns the argument specification of a module for templates or sites."""
    kind = "site" if more else "template"
    return dict(
        name=dict(type="str", required=True, aliases=["id", kind + "_id"]),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        metadata=dict(type="dict"),
        package=dict(type="raw"),
        src=dict(type="path"),
        **more,
    )


def shown(ard):
    """Returns the part of an entity's data that a user declares."""
    if ard is None:
        return None
    return {k: v for k, v in sorted(ard.items()) if k not in ("created", "updated", "deployment_ids")}


def template_of(module, client, name):
    """Returns the package and the metadata of a template, for a prediction.

    A missing template is treated as an empty one, with a warning: an earlier task may register it.
    """
    template = found(client.get_template, name) if name else None
    if template is not None:
        return list(template.get_package()), template.metadata
    if name:
        module.warn(f"the template {name!r} does not exist yet: the prediction is without its package and metadata")
    return [], {}


class Registered:
    """Registers and deletes entities of one kind."""

    def __init__(self, kind):
        self.kind = kind

    def act(self, module, client):
        """Brings the entity into its desired state, and returns the results of the module."""
        self.client = client
        self.get = getattr(client, "get_" + self.kind)
        params, name = module.params, module.params["name"]
        current = found(self.get, name)
        if params["state"] == "absent":
            return self.delete(module, name, current)
        if current is not None and all(params.get(o) is None for o in ("template_id", "metadata", "package", "src")):
            return {"changed": False, self.kind: self.ard(current)}
        desired = self.desired(params, current)
        if module.check_mode:
            after = self.predicted(module, name, current, desired)
            changed = shown(after) != shown(self.ard(current))
        else:
            before = current.revision if current else 0
            changed = self.register(name, desired) != before
            after = self.ard(self.get(name)) if changed else self.ard(current)
        return {
            "changed": changed,
            self.kind: after,
            "diff": diff_of(f"{self.kind} {name}", shown(self.ard(current)), shown(after)),
        }

    def delete(self, module, name, current):
        """Deletes the entity if it exists."""
        if current is not None and not module.check_mode:
            found(getattr(self.client, "delete_" + self.kind), name)
        return {
            "changed": current is not None,
            "diff": diff_of(f"{self.kind} {name}", shown(self.ard(current)), None),
        }

    def ard(self, entity):
        """Returns an entity's data, with its package."""
        return None if entity is None else dict(entity.to_ard(), package=list(entity.get_package()))

    def desired(self, params, current):
        """Returns what is registered: options that are not set keep what is there."""
        desired = {"template": "", "metadata": texts("metadata", params["metadata"]), "package": package_of(params)}
        if self.kind == "site":
            desired["template"] = params["template_id"]
            if desired["template"] is None:
                desired["template"] = current.template_id if current else ""
        if desired["metadata"] is None:
            inherited = {}
            if current and self.kind == "site" and current.template_id:
                inherited = self.client.get_template(current.template_id).metadata
            desired["metadata"] = own_metadata(current, inherited) if current else {}
        if desired["package"] is None:
            desired["package"] = list(current.get_package()) if current else []
        return desired

    def register(self, name, desired):
        """Registers the entity, and returns its revision."""
        if self.kind == "site":
            return self.client.register_site(name, desired["template"], desired["metadata"], package=desired["package"])
        return self.client.register_template(name, desired["metadata"], package=desired["package"])

    def predicted(self, module, name, current, desired):
        """Returns the data of the entity as the server would register it."""
        base, inherited = template_of(module, self.client, desired["template"])
        package = merged(base, desired["package"]) if desired["template"] else desired["package"]
        before = self.ard(current) or {}
        after = dict(before)
        after[self.kind + "_id"] = name
        if self.kind == "site":
            after["template_id"] = desired["template"]
        after["package"] = package
        after["metadata"] = predicted_metadata(before.get("metadata") or {}, desired["metadata"], inherited, package)
        return after
