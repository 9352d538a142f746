"""Write plugins for TKO, and talk to it.

A plugin is a function of a request::

    import tko

    def prepare(request: tko.PrepareRequest) -> bool:
        request.target["spec"]["ready"] = True
        tko.set_prepared(request.target)
        return True

    if __name__ == "__main__":
        tko.run(prepare=prepare)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._error import Error
from ._execute import ExecuteError, execute
from ._expression import ExpressionError, evaluate_expression
from ._package import GVK, Identifier, Package, PackageList, Resource, is_namespaced, meta_schedule, set_prepared
from ._plugin import (
    Plugin,
    PrepareRequest,
    Request,
    ScheduleRequest,
    ValidateRequest,
    get_deployments,
    get_grpc_host,
    get_output_package,
    get_target_resource,
    get_target_resource_identifier,
    log,
    prepare,
    run,
    schedule,
    split_ip_address_port,
    validate,
)
from ._validation import Validation, is_required, is_type, validate_schema, validate_value

if TYPE_CHECKING:
    from . import ansible, client, encoding, expressions, package, plugin, scheduling, testing, tools, validation
    from ._encoding import decode_package, encode_package, yaml
    from .ansible import DATA_HOST, MAX_COUNT, METADATA_PATTERNS, Inventory
    from .client import DEFAULT_MAX_COUNT, DEFAULT_PACKAGE_FORMAT, MAX_MAX_COUNT, Client, RequestError
    from .tools.helm import chart_gvk, get_current_deployments, install, iter_charts
    from .tools.kind import (
        cluster_gvk,
        create_cluster,
        get_cluster_name,
        get_cluster_path,
        get_current_cluster_names,
        get_kube_context,
        write_cluster_manifest,
    )
    from .tools.kubectl import apply

__all__ = [
    "Client",
    "DATA_HOST",
    "DEFAULT_MAX_COUNT",
    "DEFAULT_PACKAGE_FORMAT",
    "Error",
    "ExecuteError",
    "ExpressionError",
    "GVK",
    "Identifier",
    "Inventory",
    "MAX_COUNT",
    "MAX_MAX_COUNT",
    "METADATA_PATTERNS",
    "Package",
    "PackageList",
    "Plugin",
    "PrepareRequest",
    "Request",
    "RequestError",
    "Resource",
    "ScheduleRequest",
    "ValidateRequest",
    "Validation",
    "ansible",
    "apply",
    "chart_gvk",
    "client",
    "cluster_gvk",
    "create_cluster",
    "decode_package",
    "encode_package",
    "encoding",
    "evaluate_expression",
    "execute",
    "expressions",
    "get_cluster_name",
    "get_cluster_path",
    "get_current_cluster_names",
    "get_current_deployments",
    "get_deployments",
    "get_grpc_host",
    "get_kube_context",
    "get_output_package",
    "get_target_resource",
    "get_target_resource_identifier",
    "install",
    "is_namespaced",
    "is_required",
    "is_type",
    "iter_charts",
    "log",
    "meta_schedule",
    "package",
    "plugin",
    "prepare",
    "run",
    "schedule",
    "scheduling",
    "set_prepared",
    "split_ip_address_port",
    "testing",
    "tools",
    "validate",
    "validate_schema",
    "validate_value",
    "validation",
    "write_cluster_manifest",
    "yaml",
]

# Modules that load slowly are loaded on first use, because a plugin starts for each request.
_LAZY = {
    "client": ("Client", "RequestError", "DEFAULT_MAX_COUNT", "DEFAULT_PACKAGE_FORMAT", "MAX_MAX_COUNT"),
    "_encoding": ("decode_package", "encode_package", "yaml"),
    "ansible": ("DATA_HOST", "MAX_COUNT", "METADATA_PATTERNS", "Inventory"),
    "tools.helm": ("chart_gvk", "get_current_deployments", "install", "iter_charts"),
    "tools.kind": (
        "cluster_gvk",
        "create_cluster",
        "get_cluster_name",
        "get_cluster_path",
        "get_current_cluster_names",
        "get_kube_context",
        "write_cluster_manifest",
    ),
    "tools.kubectl": ("apply",),
    "plugin": ("input", "output"),
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}
_MODULES = (
    "ansible",
    "client",
    "encoding",
    "expressions",
    "package",
    "plugin",
    "scheduling",
    "testing",
    "tools",
    "validation",
)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULE_OF:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
