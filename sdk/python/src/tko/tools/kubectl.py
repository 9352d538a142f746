"""The program ``kubectl``."""

from __future__ import annotations

from collections.abc import Iterable

from .._execute import execute as _execute
from .._package import Package, Resource


def execute(*args: object, input: str | None = None, kube_context: str | None = None) -> str:
    """Runs kubectl, and returns its stdout. ``input`` is its stdin."""
    context = [f"--context={kube_context}"] if kube_context else []
    return _execute("kubectl", *context, *args, input=input)


def apply(package: Iterable[Resource], kube_context: str | None = None) -> str:
    """Applies the resources of a package, on the server's side. Returns kubectl's stdout."""
    manifest = str(Package(list(package)))
    if not manifest:
        return ""
    arguments = ["apply", "--server-side", "--field-manager=tko", "--force-conflicts", "--filename=-"]
    return execute(*arguments, input=manifest, kube_context=kube_context)


def delete(package: Iterable[Resource], kube_context: str | None = None) -> str:
    """Deletes the resources of a package that exist."""
    manifest = str(Package(list(package)))
    if not manifest:
        return ""
    return execute("delete", "--ignore-not-found", "--filename=-", input=manifest, kube_context=kube_context)
