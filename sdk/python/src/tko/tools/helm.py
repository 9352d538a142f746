"""The program ``helm``, for the HelmChart resources of packages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .._error import Error
from .._execute import execute as _execute
from .._expression import evaluate_expression
from .._package import GVK, Identifier, Package, Resource

chart_gvk = GVK("workload.nephio.org", "v1alpha1", "HelmChart")
HELM_CHART = chart_gvk


def execute(*args: object, kube_context: str | None = None) -> str:
    """Runs helm, and returns its stdout."""
    context = [f"--kube-context={kube_context}"] if kube_context else []
    return _execute("helm", *args[:1], *context, *args[1:])


def iter_charts(package: Package) -> Iterator[Resource]:
    """The HelmChart resources of a package."""
    return package.iter_all(chart_gvk)


def get_current_deployments(kube_context: str | None = None) -> list[str]:
    """The names of the releases that are deployed, in all namespaces."""
    listed = execute("list", "--all-namespaces", "--deployed", "--short", kube_context=kube_context)
    return [name for name in listed.split("\n") if name]


def install(chart: Resource, package: Package, kube_context: str | None = None) -> str:
    """Installs the chart of a HelmChart resource, or upgrades it. Returns helm's stdout.

    The release has the resource's name and namespace. Parameters are as in ``helm --set``: dots separate the keys
    of nested values. ``{{ … }}`` are evaluated with the package.
    """
    identifier = Identifier(resource=chart)
    spec = chart.get("spec") or {}
    name, location = identifier.name, spec.get("chart")
    if not location or not isinstance(location, str):
        raise Error(f"{identifier}: spec.chart is missing")
    arguments = ["--install"]
    if kube_context:
        arguments.append(f"--kube-context={kube_context}")
    if spec.get("repository"):
        arguments.append(f"--repo={spec['repository']}")
    if spec.get("version"):
        arguments.append(f"--version={spec['version']}")
    namespace = (chart.get("metadata") or {}).get("namespace")
    if namespace:
        arguments += [f"--namespace={namespace}", "--create-namespace"]
    for key, value in (spec.get("parameters") or {}).items():
        try:
            value = evaluate_expression(value, package)
        except Error as e:
            raise Error(f"{identifier}: spec.parameters.{key}: {e}") from None
        arguments.append(f"--set-json={key}={json.dumps(value)}")
    return execute("upgrade", *arguments, "--", name, location)
