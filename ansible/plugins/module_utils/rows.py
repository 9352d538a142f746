# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""Plain data of what TKO returns."""

from __future__ import annotations


def plugin_row(plugin):
    """Returns a plugin as plain data."""
    return {
        "type": plugin.type,
        "name": plugin.name,
        "executor": plugin.executor,
        "arguments": list(plugin.arguments),
        "properties": dict(plugin.properties),
        "triggers": [{"group": t.group, "version": t.version, "kind": t.kind} for t in plugin.triggers],
    }


def entity_rows(entities, packages):
    """Returns listed entities as plain data, with their packages if they were requested."""
    rows = []
    for entity in entities:
        row = entity.to_ard()
        if packages:
            row["package"] = list(entity.get_package())
        rows.append(row)
    return rows
