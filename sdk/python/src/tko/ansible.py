"""Inventories for Ansible."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

DATA_HOST = os.environ.get("TKO_DATA_HOST", "tko-data:50050")
"""The address of TKO for inventories, in the form of ``tko.Client``."""

MAX_COUNT = int(os.environ.get("TKO_MAX_COUNT", "100"))
"""The maximum number of sites of an inventory."""


def _metadata_patterns() -> Any:
    text = os.environ.get("TKO_METADATA_PATTERNS")
    if not text:
        return None
    from ._encoding import load_yaml

    return load_yaml(text)


METADATA_PATTERNS = _metadata_patterns()
"""The metadata of the sites of an inventory: patterns by key, or None for all sites."""


_STDOUT = sys.stdout  # sys.stdout may be replaced before the inventory is written


class Inventory:
    """A dynamic inventory: groups of hosts, with variables.

    ::

        inventory = tko.ansible.Inventory()
        inventory.add("accra-1", {"ansible_host": "10.0.0.2"})
        inventory.dump()

    and with groups::

        inventory.add_group("edge", sites="all")
        inventory.add_host("lagos-1", groups=["edge"], ansible_host="10.0.0.1")
        inventory.main()  # handles ansible's --list and --host
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self.hosts: dict[str, dict[str, Any]] = {}

    def add(self, name: str, host_vars: dict[str, Any]) -> None:
        """Adds a host that is in no group, or replaces its variables."""
        self.hosts[name] = host_vars

    def dump(self, out: TextIO = sys.stdout) -> None:
        """Writes the inventory as JSON for Ansible."""
        ard = self.to_ard()
        ard["all"] = {"hosts": list(self.hosts), **({"children": list(self.groups)} if self.groups else {})}
        json.dump(ard, sys.stdout if out is _STDOUT else out, separators=(",", ":"))

    def add_group(self, name: str, children: Iterable[str] = (), **variables: Any) -> None:
        """Adds a group, or adds to an existing one."""
        group = self.groups.setdefault(name, {"hosts": [], "children": [], "vars": {}})
        group["children"] += [c for c in children if c not in group["children"]]
        group["vars"].update(variables)

    def add_host(self, name: str, groups: Iterable[str] = ("ungrouped",), **variables: Any) -> None:
        """Adds a host, or adds to an existing one. Creates missing groups."""
        self.hosts.setdefault(name, {}).update(variables)
        for group in groups:
            self.add_group(group)
            if name not in self.groups[group]["hosts"]:
                self.groups[group]["hosts"].append(name)

    def to_ard(self) -> dict[str, Any]:
        """The inventory as plain data, in Ansible's form."""
        groups = {name: {k: v for k, v in group.items() if v} for name, group in self.groups.items()}
        return {"_meta": {"hostvars": self.hosts}, "all": {"children": list(self.groups)}, **groups}

    def __str__(self) -> str:
        return json.dumps(self.to_ard(), indent=2, sort_keys=True)

    def main(self, arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> None:
        """Runs an inventory program: ``--list`` writes the inventory, ``--host NAME`` the host's variables."""
        match list(sys.argv[1:] if arguments is None else arguments):
            case [] | ["--list"]:
                write(f"{self}\n")
            case ["--host", name]:
                write(json.dumps(self.hosts.get(name, {}), indent=2, sort_keys=True) + "\n")
            case _:
                raise SystemExit("use --list or --host NAME")
