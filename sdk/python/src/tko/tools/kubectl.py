"""The program ``kubectl``."""

from __future__ import annotations

from .._execute import execute
from .._package import Package


def apply(package: Package, kube_context: str | None = None) -> str:
    """Applies the resources of a package, on the server's side. Answers what kubectl says."""
    if not len(package):
        return ""
    arguments = ["apply", "--server-side", "--field-manager=tko", "--force-conflicts", "--filename=-"]
    return _kubectl(kube_context, *arguments, input=str(package))


def delete(package: Package, kube_context: str | None = None) -> str:
    """Deletes the resources of a package. They needn't be there."""
    if not len(package):
        return ""
    return _kubectl(kube_context, "delete", "--ignore-not-found", "--filename=-", input=str(package))


def _kubectl(kube_context: str | None, *arguments: str, input: str) -> str:
    context = [f"--context={kube_context}"] if kube_context else []
    return execute("kubectl", *context, *arguments, input=input)
