"""Checks of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ._error import Error

Validation: TypeAlias = "type | str | tuple[type | str, ...] | Mapping[str, Any]"
"""A type, the name of one, a tuple of either, or a dict with ``type``, ``required``, ``schema`` and ``function``."""

_NAMES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "string": str,
    "int": int,
    "integer": int,
    "float": (float, int),
    "number": (float, int),
    "bool": bool,
    "boolean": bool,
    "list": list,
    "array": list,
    "dict": dict,
    "map": dict,
    "object": dict,
    "none": type(None),
    "null": type(None),
    "NoneType": type(None),
}


def _is(value: Any, wanted: type | str) -> bool:
    types = _NAMES.get(wanted) if isinstance(wanted, str) else (float, int) if wanted is float else wanted
    if types is None:
        raise Error(f"there is no type {wanted!r}: use one of {', '.join(sorted(_NAMES))}")
    if isinstance(value, bool):  # Python takes it for an int
        types = types if isinstance(types, tuple) else (types,)
        return bool in types or object in types
    return isinstance(value, types)


def _name(wanted: type | str) -> str:
    return wanted if isinstance(wanted, str) else wanted.__name__


def validate_value(name: str, value: Any, complete: bool, validation: Validation) -> None:
    """Raises an error that names what is wrong with a value. None is a value that is missing.

    The keys of ``validation``, if it is a dict, are all optional:

    - ``type``: a type, the name of one, or a tuple of either.
    - ``required``: a missing value is an error, if ``complete``.
    - ``schema``: of a map, which keys it may have and the validation of each.
    - ``function``: called as ``function(name, value, complete)``; it raises, or returns what is wrong.
    """
    rules: Mapping[str, Any] = validation if isinstance(validation, Mapping) else {"type": validation}
    unknown = set(rules) - {"type", "required", "schema", "function"}
    if unknown:
        raise Error(f"the validation of {name} has {sorted(unknown)[0]!r}: use type, required, schema and function")
    if value is None:
        if complete and rules.get("required"):
            raise Error(f"{name} is required")
        return
    wanted = rules.get("type")
    schema: Mapping[str, Validation] | None = rules.get("schema")
    if wanted is None and schema is not None:
        wanted = dict
    if wanted is not None:
        options = wanted if isinstance(wanted, tuple) else (wanted,)
        if not any(_is(value, option) for option in options):
            raise Error(f"{name} is a {type(value).__name__}, not a {' or '.join(map(_name, options))}")
    if schema is not None and isinstance(value, dict):
        for key in value:
            if key not in schema:
                raise Error(f"{name} has the unknown key {key!r}")
        for key, rule in schema.items():
            validate_value(f"{name}.{key}", value.get(key), complete, rule)
    function: Callable[[str, Any, bool], str | None] | None = rules.get("function")
    if function is not None:
        wrong = function(name, value, complete)
        if isinstance(wrong, str) and wrong:
            raise Error(wrong)
