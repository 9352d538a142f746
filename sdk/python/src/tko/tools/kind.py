"""Kubernetes clusters in containers, by the program ``kind``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .._encoding import dump_yaml
from .._error import Error
from .._execute import execute as _execute
from .._package import GVK, Package, Resource

cluster_gvk = GVK("kind.x-k8s.io", "v1alpha4", "Cluster")
CLUSTER = cluster_gvk


def execute(*args: object) -> str:
    """Runs kind, and returns its stdout."""
    return _execute("kind", *args)


def get_cluster(package: Package) -> Resource | None:
    """The first configuration of a cluster in a package, or None."""
    return package.get_first(cluster_gvk)


def get_cluster_name(cluster: Resource | str) -> str:
    """The name of the cluster of a configuration."""
    return _name(cluster)


def get_cluster_path(name: Resource | str) -> str:
    """The file that ``write_cluster_manifest`` writes for a cluster."""
    name = _name(name)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise Error(f"{name!r} is no name of a kind cluster: use a-z, 0-9, - and .")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(cache) / "tko" / "kind" / f"{name}.yaml")


def get_current_cluster_names() -> list[str]:
    """The names of the existing clusters."""
    return [name for name in execute("get", "clusters").split("\n") if name]


list_clusters = get_current_cluster_names


def write_cluster_manifest(cluster: Resource) -> None:
    """Writes the configuration of a cluster into its file, which ``create_cluster`` reads."""
    path = Path(get_cluster_path(cluster))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(_manifest(cluster))


def create_cluster(name: Resource | str) -> bool:
    """Creates a cluster unless it exists. Returns whether it is new.

    The argument is its configuration, or its name: then the configuration is the file of
    ``write_cluster_manifest``.
    """
    cluster, name = name, _name(name)
    if name in get_current_cluster_names():
        return False
    if not isinstance(cluster, str):
        _create_with(name, _manifest(cluster))
    elif Path(get_cluster_path(name)).exists():
        execute("create", "cluster", "--name", name, "--config", get_cluster_path(name))
    else:
        execute("create", "cluster", "--name", name)
    return True


def delete_cluster(name: Resource | str) -> None:
    """Deletes a cluster, if it exists."""
    execute("delete", "cluster", "--name", _name(name))


def get_kube_context(name: Resource | str) -> str:
    """The context of a cluster in the Kubernetes configuration."""
    return f"kind-{_name(name)}"


def _create_with(name: str, config: str) -> None:
    """Creates a cluster with a configuration."""
    _execute("kind", "create", "cluster", "--name", name, "--config", "-", input=config)


def _manifest(cluster: Resource) -> str:
    """The configuration for kind, which refuses unknown fields."""
    return dump_yaml({field: value for field, value in cluster.items() if field not in ("metadata", "status")})


def _name(cluster: Resource | str) -> str:
    if isinstance(cluster, str):
        return cluster
    name = cluster.get("name") or (cluster.get("metadata") or {}).get("name") or "kind"
    if not isinstance(name, str):
        raise Error("the name of the kind cluster is not a string")
    return name
