"""Kubernetes clusters in containers, by the program ``kind``."""

from __future__ import annotations

from .._encoding import dump_yaml
from .._error import Error
from .._execute import execute
from .._package import GVK, Package, Resource

CLUSTER = GVK("kind.x-k8s.io", "v1alpha4", "Cluster")


def get_cluster(package: Package) -> Resource | None:
    """The first configuration of a cluster in a package, or None."""
    return package.get_first(CLUSTER)


def list_clusters() -> list[str]:
    """The names of the clusters that there are."""
    return [name for name in execute("kind", "get", "clusters").split("\n") if name]


def create_cluster(cluster: Resource | str) -> bool:
    """Creates a cluster of a name or configuration, if it isn't there. Answers whether it is new."""
    name, config = _name(cluster), None
    if not isinstance(cluster, str):  # kind refuses fields that aren't its own
        config = dump_yaml({field: value for field, value in cluster.items() if field not in ("metadata", "status")})
    if name in list_clusters():
        return False
    if config is None:
        execute("kind", "create", "cluster", "--name", name)
    else:
        execute("kind", "create", "cluster", "--name", name, "--config", "-", input=config)
    return True


def delete_cluster(cluster: Resource | str) -> None:
    """Deletes a cluster. It needn't be there."""
    execute("kind", "delete", "cluster", "--name", _name(cluster))


def get_kube_context(cluster: Resource | str) -> str:
    """The context of a cluster in the Kubernetes configuration."""
    return f"kind-{_name(cluster)}"


def _name(cluster: Resource | str) -> str:
    if isinstance(cluster, str):
        return cluster
    name = cluster.get("name") or (cluster.get("metadata") or {}).get("name") or "kind"
    if not isinstance(name, str):
        raise Error("the name of the kind cluster is not a string")
    return name
