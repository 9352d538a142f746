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
from ._package import GVK, Identifier, Package, Resource, meta_schedule, set_prepared
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
    validate,
)
from ._validation import Validation, validate_value

if TYPE_CHECKING:
    from . import ansible, testing, tools
    from ._encoding import decode_package, encode_package, yaml
    from .client import Client, RequestError

__all__ = [
    "GVK",
    "Client",
    "Error",
    "ExecuteError",
    "ExpressionError",
    "Identifier",
    "Package",
    "Plugin",
    "PrepareRequest",
    "Request",
    "RequestError",
    "Resource",
    "ScheduleRequest",
    "ValidateRequest",
    "Validation",
    "ansible",
    "decode_package",
    "encode_package",
    "evaluate_expression",
    "execute",
    "get_deployments",
    "get_grpc_host",
    "get_output_package",
    "get_target_resource",
    "get_target_resource_identifier",
    "log",
    "meta_schedule",
    "prepare",
    "run",
    "schedule",
    "set_prepared",
    "testing",
    "tools",
    "validate",
    "validate_value",
    "yaml",
]

# What takes long to load is loaded when it is used first: a plugin starts for every request.
_LAZY = {
    "Client": "client",
    "RequestError": "client",
    "decode_package": "_encoding",
    "encode_package": "_encoding",
    "yaml": "_encoding",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in ("ansible", "testing", "tools"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
