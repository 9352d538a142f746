"""Inventories for Ansible."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Inventory:
    """A dynamic inventory: groups of hosts, with variables.

    ::

        inventory = tko.ansible.Inventory()
        inventory.add_group("edge", sites="all")
        inventory.add_host("lagos-1", groups=["edge"], ansible_host="10.0.0.1")
        inventory.main()  # answers ansible's --list and --host
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self.hosts: dict[str, dict[str, Any]] = {}

    def add_group(self, name: str, children: Iterable[str] = (), **variables: Any) -> None:
        """Adds a group, or adds to it."""
        group = self.groups.setdefault(name, {"hosts": [], "children": [], "vars": {}})
        group["children"] += [c for c in children if c not in group["children"]]
        group["vars"].update(variables)

    def add_host(self, name: str, groups: Iterable[str] = ("ungrouped",), **variables: Any) -> None:
        """Adds a host, or adds to it. Groups that aren't there are made."""
        self.hosts.setdefault(name, {}).update(variables)
        for group in groups:
            self.add_group(group)
            if name not in self.groups[group]["hosts"]:
                self.groups[group]["hosts"].append(name)

    def to_ard(self) -> dict[str, Any]:
        """The inventory as plain data, as Ansible reads it."""
        groups = {name: {k: v for k, v in group.items() if v} for name, group in self.groups.items()}
        return {"_meta": {"hostvars": self.hosts}, "all": {"children": list(self.groups)}, **groups}

    def __str__(self) -> str:
        return json.dumps(self.to_ard(), indent=2, sort_keys=True)

    def main(self, arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> None:
        """Is an inventory program: ``--list`` writes everything, ``--host NAME`` the host's variables."""
        match list(sys.argv[1:] if arguments is None else arguments):
            case [] | ["--list"]:
                write(f"{self}\n")
            case ["--host", name]:
                write(json.dumps(self.hosts.get(name, {}), indent=2, sort_keys=True) + "\n")
            case _:
                raise SystemExit("use --list or --host NAME")
