"""Packages: lists of resources, and the identities of resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ._error import Error

Resource: TypeAlias = dict[str, Any]
"""A Kubernetes resource as plain data."""

PREPARED = "nephio.org/prepared"


class _GVK(NamedTuple):
    group: str
    version: str
    kind: str


class GVK(_GVK):
    """A group, a version and a kind: ``GVK("apps", "v1", "Deployment")`` or ``GVK(resource=r)``."""

    __slots__ = ()

    def __new__(
        cls,
        group: str | None = None,
        version: str | None = None,
        kind: str | None = None,
        resource: Mapping[str, Any] | None = None,
    ) -> GVK:
        if resource is not None:
            api_version = resource.get("apiVersion")
            group, _, version = str(api_version or "").rpartition("/")
            kind = str(resource.get("kind") or "")
        return super().__new__(cls, group or "", version or "", kind or "")

    @property
    def api_version(self) -> str:
        """As in resources: the group, a slash and the version, or the version alone."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


class _Identifier(NamedTuple):
    gvk: GVK
    name: str


class Identifier(_Identifier):
    """Identifies a resource of a package: ``Identifier(gvk=g, name="n")`` or ``Identifier(resource=r)``."""

    __slots__ = ()

    def __new__(
        cls,
        gvk: GVK | None = None,
        name: str | None = None,
        resource: Mapping[str, Any] | None = None,
    ) -> Identifier:
        if resource is not None:
            gvk = GVK(resource=resource)
            metadata = resource.get("metadata")
            found = metadata.get("name") if isinstance(metadata, Mapping) else resource.get("name")
            name = found if isinstance(found, str) else ""
        return super().__new__(cls, gvk or GVK(), name or "")

    def __str__(self) -> str:
        return f'{self.gvk} "{self.name}"'


class Package:
    """A list of resources. They are plain dicts, not copies: changes of them change the package."""

    package: list[Resource]
    """The resources."""

    def __init__(self, package: Iterable[Resource] | None = None) -> None:
        resources = package if isinstance(package, list) else list(package or ())
        for resource in resources:
            _check_resource(resource)
        self.package = resources

    @property
    def resources(self) -> list[Resource]:
        """The resources: an alias of ``package``."""
        return self.package

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.package)

    def __len__(self) -> int:
        return len(self.package)

    def __bool__(self) -> bool:
        return True  # also without resources

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return self.package == other
        return self.package == other.package if isinstance(other, Package) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # mutable

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, Identifier) and self.get(identifier) is not None

    def __getitem__(self, identifier: Identifier) -> Any:
        """The resource of this identity, or None. Its type is Any, so that indexing needs no type check."""
        return self.get(identifier)

    def __delitem__(self, identifier: Identifier) -> None:
        for i, resource in enumerate(self.package):
            if Identifier(resource=resource) == identifier:
                del self.package[i]
                return
        raise KeyError(f"{identifier} is not in the package")

    def get(self, identifier: Identifier) -> Resource | None:
        """The resource of this identity, or None."""
        return _find(self.package, identifier)

    def append(self, resource: Resource) -> None:
        """Adds a resource at the end."""
        _check_resource(resource)
        self.package.append(resource)

    def iter_all(self, gvk: GVK) -> Iterator[Resource]:
        """All resources of a kind, in their order."""
        return (r for r in self.package if GVK(resource=r) == gvk)

    def get_first(self, gvk: GVK) -> Resource | None:
        """The first resource of a kind, or None."""
        return next(self.iter_all(gvk), None)

    def __str__(self) -> str:
        from ._encoding import encode_package

        return encode_package(self, "yaml").decode()

    def __repr__(self) -> str:
        return f"Package({self.package!r})"


class PackageList(list[Resource]):
    """A list of resources that also finds them by identity, like a Package."""

    @property
    def package(self) -> list[Resource]:
        """The resources: the list itself."""
        return self

    resources = package

    def get_package(self) -> PackageList:
        """The list itself."""
        return self

    def __getitem__(self, index: Any) -> Any:
        """The resource of an identity, or None; or the element at an index."""
        return self.get(index) if isinstance(index, Identifier) else super().__getitem__(index)

    def __delitem__(self, index: Any) -> None:
        if isinstance(index, Identifier):
            del Package(self)[index]
        else:
            super().__delitem__(index)

    def __contains__(self, value: object) -> bool:
        return self.get(value) is not None if isinstance(value, Identifier) else super().__contains__(value)

    def get(self, identifier: Identifier) -> Resource | None:
        """The resource of this identity, or None."""
        return _find(self, identifier)

    def iter_all(self, gvk: GVK) -> Iterator[Resource]:
        """All resources of a kind, in their order."""
        return (r for r in self if GVK(resource=r) == gvk)

    def get_first(self, gvk: GVK) -> Resource | None:
        """The first resource of a kind, or None."""
        return next(self.iter_all(gvk), None)

    def __str__(self) -> str:
        return str(Package(self))


def _find(resources: Iterable[Resource], identifier: Identifier) -> Resource | None:
    return next((r for r in resources if Identifier(resource=r) == identifier), None)


def _check_resource(resource: object) -> None:
    if not isinstance(resource, Mapping):
        raise Error(f"a resource is a {type(resource).__name__}, not a map")


def set_prepared(resource: Resource, prepared: bool = True) -> None:
    """Marks a resource as prepared, or as not."""
    metadata: dict[str, Any] | None = resource.get("metadata")
    if metadata is None:
        metadata = resource["metadata"] = {}
    annotations: dict[str, str] | None = metadata.get("annotations")
    if annotations is None:
        annotations = metadata["annotations"] = {}
    annotations[PREPARED] = "true" if prepared else "false"


_CLUSTER_SCOPED = {
    "": {"ComponentStatus", "Namespace", "Node", "PersistentVolume"},
    "admissionregistration.k8s.io": {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    },
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "apiregistration.k8s.io": {"APIService"},
    "certificates.k8s.io": {"CertificateSigningRequest", "ClusterTrustBundle"},
    "flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
    "internal.apiserver.k8s.io": {"StorageVersion"},
    "networking.k8s.io": {"IngressClass", "IPAddress", "ServiceCIDR"},
    "node.k8s.io": {"RuntimeClass"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding"},
    "resource.k8s.io": {"DeviceClass", "ResourceSlice", "DeviceTaintRule"},
    "scheduling.k8s.io": {"PriorityClass"},
    "storage.k8s.io": {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
    "storagemigration.k8s.io": {"StorageVersionMigration"},
}


def is_namespaced(resource: Mapping[str, Any]) -> bool:
    """Whether resources of this kind have a namespace. Kinds that Kubernetes does not define count as namespaced."""
    gvk = GVK(resource=resource)
    return gvk.kind not in _CLUSTER_SCOPED.get(gvk.group, ())


def meta_schedule(package: Iterable[Resource]) -> tuple[Package, Package]:
    """The resources of a package for a cluster: the cluster-scoped ones, applied first, and the namespaced ones.

    It leaves out resources of nephio.org groups without the annotation nephio.org/deploy: "true", and resources
    annotated config.kubernetes.io/local-config: "true". It replaces v1 Lists by their items. Custom resources have
    the scope of their definition in the package, and are namespaced without one.
    """
    package = _leaving(package)
    cluster_scoped = {(group, kind) for group, kinds in _CLUSTER_SCOPED.items() for kind in kinds}
    for resource in package:
        gvk = GVK(resource=resource)
        if gvk.group == "apiextensions.k8s.io" and gvk.kind == "CustomResourceDefinition":
            spec = resource.get("spec") or {}
            if spec.get("scope") == "Cluster":
                cluster_scoped.add((spec.get("group", ""), (spec.get("names") or {}).get("kind", "")))
    result = Package(), Package()
    for resource in package:
        gvk = GVK(resource=resource)
        if gvk.group.endswith("nephio.org") and _annotation(resource, "nephio.org/deploy") != "true":
            continue
        result[0 if (gvk.group, gvk.kind) in cluster_scoped else 1].append(resource)
    return result


def _annotation(resource: Mapping[str, Any], name: str) -> Any:
    metadata = resource.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations.get(name) if isinstance(annotations, dict) else None


def _leaving(package: Iterable[dict[str, Any]], depth: int = 8) -> Package:
    """The package without resources for local tools, with Lists replaced by their items; malformed Lists stay."""
    result: list[Resource] = []
    for resource in package:
        if _annotation(resource, "config.kubernetes.io/local-config") == "true":
            continue
        items = resource.get("items") or []
        is_list = resource.get("apiVersion") == "v1" and resource.get("kind") == "List"
        if (
            is_list
            and depth
            and isinstance(items, list)
            and all(isinstance(i, dict) and i.get("apiVersion") and i.get("kind") for i in items)
        ):
            result.extend(_leaving(items, depth - 1))
        else:
            result.append(resource)
    return Package(result)


def as_package(value: Any, what: str) -> Package:
    """The package in a document."""
    if not isinstance(value, list) or not all(isinstance(r, dict) for r in value):
        raise Error(f"{what} is not a list of resources")
    return Package(value)
