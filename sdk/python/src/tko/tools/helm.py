"""The program ``helm``, for the HelmChart resources of packages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .._error import Error
from .._execute import execute
from .._expression import evaluate_expression
from .._package import GVK, Identifier, Package, Resource

HELM_CHART = GVK("workload.nephio.org", "v1alpha1", "HelmChart")


def iter_charts(package: Package) -> Iterator[Resource]:
    """The HelmChart resources of a package."""
    return package.iter_all(HELM_CHART)


def install(chart: Resource, package: Package, kube_context: str | None = None) -> str:
    """Installs the chart of a HelmChart resource, or upgrades it. Answers what helm says.

    The release has the resource's name and namespace. Parameters are as in ``helm --set``: dots lead to values
    within values. ``{{ … }}`` are evaluated with the package.
    """
    identifier = Identifier(resource=chart)
    spec = chart.get("spec") or {}
    name, location = identifier.name, spec.get("chart")
    if not location or not isinstance(location, str):
        raise Error(f"{identifier}: spec.chart is missing")
    arguments = ["upgrade", "--install"]
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
    return execute("helm", *arguments, "--", name, location)
