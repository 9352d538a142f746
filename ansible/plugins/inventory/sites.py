# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
name: sites
short_description: Sites of TKO as hosts
author: TKO contributors (!UNKNOWN)
description:
  - Each site that matches is a host, with the site's ID as its name.
  - The variables of a host are C(template_id), C(metadata), C(updated), C(deployment_ids), and C(package) if O(packages=true).
  - Hosts are in groups of their metadata, such as C(region_west), and of their template, such as C(template_site_edge_v1).
  - The name of the configuration file ends with C(tko.yaml) or C(tko.yml).
extends_documentation_fragment:
  - constructed
  - inventory_cache
requirements:
  - The Python package C(tko-orchestrator), in the Python environment of Ansible.
options:
  plugin:
    description: Name of this plugin.
    required: true
    choices: [tko.tko.sites]
  host:
    description: Address and port of the TKO server.
    type: str
    default: tko-data:50050
    env:
      - name: TKO_DATA_HOST
      - name: TKO_GRPC_HOST
  tls:
    description: Use TLS, and trust the certificates that this machine trusts.
    type: bool
    default: false
  ca_path:
    description: File with the certificates to trust. Implies O(tls=true).
    type: path
  client_cert:
    description: File with the client's own certificate. Implies O(tls=true).
    type: path
  client_key:
    description: File with the key of O(client_cert).
    type: path
  token:
    description: Token of the client. A Jinja2 template, such as a lookup, is evaluated.
    type: str
  token_file:
    description: File with the token.
    type: path
  timeout:
    description: Time limit between two sites, in seconds.
    type: float
    default: 60
  site_ids:
    description: Patterns of the ID.
    type: list
    elements: str
  template_ids:
    description: Patterns of the template's ID.
    type: list
    elements: str
  metadata_patterns:
    description: Patterns of metadata, by key. In the environment variable, as YAML.
    type: raw
    env:
      - name: TKO_METADATA_PATTERNS
  max_count:
    description:
      - Largest number of sites. All, if not set.
      - The plugin warns if there are more.
    type: int
    env:
      - name: TKO_MAX_COUNT
  packages:
    description: Whether hosts have the variable C(package).
    type: bool
    default: false
  group_by:
    description:
      - Keys of the metadata that make groups, such as C(region_west) of C(region=west).
      - If not set, all keys with at most O(max_groups) values. An empty list makes no groups.
    type: list
    elements: str
  max_groups:
    description: Largest number of groups of one key, if O(group_by) is not set.
    type: int
    default: 100
"""

EXAMPLES = r"""
# sites.tko.yaml
plugin: tko.tko.sites
host: tko.example.com:50050
ca_path: /etc/tko/ca.crt
token: "{{ lookup('ansible.builtin.env', 'TKO_TOKEN') }}"
metadata_patterns:
  type: edge
group_by: [region]
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /tmp/tko-inventory
compose:
  ansible_host: metadata.address
"""

import hashlib
import json

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.tko.tko.plugins.module_utils.client import connect, tko

FILTERS = ("host", "site_ids", "template_ids", "metadata_patterns", "max_count", "packages")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Reads sites from TKO, or from the cache."""

    NAME = "tko.tko.sites"

    def verify_file(self, path):
        """Reports whether the file may be a configuration of this plugin."""
        return super().verify_file(path) and path.endswith(("tko.yaml", "tko.yml"))

    def parse(self, inventory, loader, path, cache=True):
        """Adds the sites to the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        if tko is None:
            raise AnsibleParserError("the inventory of TKO needs the Python package tko-orchestrator: install it")
        self.set_own_patterns()
        self.add(self.cached(path, cache))

    def set_own_patterns(self):
        """Reads patterns that are YAML, as those from the environment are."""
        patterns = self.get_option("metadata_patterns")
        if isinstance(patterns, str):
            patterns = tko.yaml.load(patterns) if patterns else None
        if patterns is not None and not isinstance(patterns, dict):
            raise AnsibleParserError("metadata_patterns (TKO_METADATA_PATTERNS) is not a map: write key: pattern")
        self.patterns = {str(k): str(v) for k, v in patterns.items()} if patterns else None

    def cached(self, path, cache):
        """Returns the sites: from the cache if it is enabled and has them."""
        used = cache and self.get_option("cache")
        options = [str(self.get_option(name)) for name in FILTERS]
        digest = hashlib.sha256(json.dumps([*options, self.patterns], sort_keys=True).encode()).hexdigest()[:16]
        key = f"{self.get_cache_key(path)}_{digest}"
        if used:
            try:
                return self._cache[key]
            except KeyError:
                pass
        sites = self.read()
        if self.get_option("cache"):
            self._cache[key] = sites
        return sites

    def option(self, name):
        """Returns an option of the connection; a token that is a template is evaluated."""
        value = self.get_option(name)
        if name == "token" and value and self.templar.is_template(value):
            return self.templar.template(value)
        return value

    def read(self):
        """Reads the sites from TKO."""
        count = self.get_option("max_count")
        packages = self.get_option("packages")
        sites = []
        try:
            with connect(self.option) as client:
                for site in client.list_sites(
                    site_id_patterns=self.get_option("site_ids"),
                    template_id_patterns=self.get_option("template_ids"),
                    metadata_patterns=self.patterns,
                    max_count=-1 if count is None else count + 1,
                    with_packages=packages,
                ):
                    row = site.to_ard()
                    if packages:
                        row["package"] = list(site.get_package())
                    sites.append(row)
        except (tko.Error, OSError) as e:
            raise AnsibleParserError(f"the sites of TKO at {self.get_option('host')} can't be read: {e}") from e
        if count is not None and len(sites) > count:
            self.display.warning(
                f"TKO has more than {count} sites that match: max_count (TKO_MAX_COUNT) leaves the rest out"
            )
            sites = sites[:count]
        return sites

    def add(self, sites):
        """Adds hosts, groups and variables."""
        strict = self.get_option("strict")
        keys = self.keys(sites)
        constructed = any(self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        groups = {}
        for site in sites:
            # Expressions in metadata are data: those who write it must not run code here.
            variables = wrap_var({k: v for k, v in site.items() if k != "site_id"})
            host = self.inventory.add_host(site["site_id"])
            for name, value in variables.items():
                self.inventory.set_variable(host, name, value)
            names = [f"{key}_{site['metadata'][key]}" for key in keys if key in site["metadata"]]
            if site["template_id"] and self.get_option("group_by") is None:
                names.append(f"template_{site['template_id']}")
            for name in names:
                if name not in groups:
                    groups[name] = self.inventory.add_group(self._sanitize_group_name(name))
                self.inventory.add_child(groups[name], host)
            if constructed:
                self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
                self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict=strict)
                self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict=strict)

    def keys(self, sites):
        """Returns the keys of the metadata that make groups."""
        wanted = self.get_option("group_by")
        if wanted is not None:
            return wanted
        values = {}
        for site in sites:
            for key, value in site["metadata"].items():
                values.setdefault(key, set()).add(value)
        return sorted(key for key, found in values.items() if len(found) <= self.get_option("max_groups"))
