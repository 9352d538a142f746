"""Plugins as functions without parameters, and the functions that they call."""

from __future__ import annotations

from typing import Any

from . import _plugin
from ._execute import execute
from ._plugin import (
    get_deployments,
    get_grpc_host,
    get_output_package,
    get_target_resource,
    get_target_resource_identifier,
    log,
    prepare,
    schedule,
    split_ip_address_port,
    validate,
)

__all__ = [
    "execute",
    "get_deployments",
    "get_grpc_host",
    "get_output_package",
    "get_target_resource",
    "get_target_resource_identifier",
    "log",
    "prepare",
    "schedule",
    "split_ip_address_port",
    "validate",
]


def __getattr__(name: str) -> Any:
    """The documents while a plugin runs: ``input`` is the request, ``output`` the response."""
    if name in ("input", "output"):
        return _plugin.current_document(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
