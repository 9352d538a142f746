"""Checks of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ._error import Error

Validation: TypeAlias = "type | str | Iterable[type | str] | Mapping[str, Any]"
"""A type, the name of one, several of either, or a dict with ``type``, ``required``, ``schema`` and ``function``."""

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
    if isinstance(value, bool):  # bool is a subclass of int
        types = types if isinstance(types, tuple) else (types,)
        return bool in types or object in types
    return isinstance(value, types)


def _name(wanted: type | str) -> str:
    return wanted if isinstance(wanted, str) else wanted.__name__


def _options(wanted: Any) -> list[type | str]:
    if isinstance(wanted, (type, str)):
        return [wanted]
    if isinstance(wanted, Iterable):
        return list(wanted)
    raise Error(f"a validation is a {type(wanted).__name__}: use a type, its name, several of either, or a dict")


def is_type(value: Any, validation: Validation) -> bool:
    """Whether a value has the type, or one of the types, of a validation. Without a type, every value has."""
    wanted = validation.get("type") if isinstance(validation, Mapping) else validation
    return wanted is None or any(_is(value, option) for option in _options(wanted))


def is_required(validation: Validation) -> bool:
    """Whether a validation requires a value."""
    return isinstance(validation, Mapping) and bool(validation.get("required"))


def validate_value(name: str, value: Any, complete: bool, validation: Validation) -> None:
    """Raises an error with the path and the cause if a value is invalid. None is a missing value.

    The keys of ``validation``, if it is a dict, are all optional:

    - ``type``: a type, the name of one, or several of either.
    - ``required``: a missing value is an error, if ``complete``.
    - ``schema``: of a map: the validation of each permitted key.
    - ``function``: called as ``function(value)``; the value is invalid if it returns None or False. The message of
      an exception is the cause.
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
    if wanted is not None and not is_type(value, wanted):
        raise Error(f"{name} is a {type(value).__name__}, not a {' or '.join(map(_name, _options(wanted)))}")
    if schema is not None:
        validate_schema(name, value, complete, schema)
    function: Callable[[Any], object] | None = rules.get("function")
    if function is not None and not function(value):
        raise Error(f"{name} is refused by its validation function")


def validate_schema(name: str, value: Any, complete: bool, schema: Mapping[str, Validation]) -> None:
    """Raises an error if a map is invalid: for a key that the schema hasn't, or for an invalid value."""
    if not isinstance(schema, Mapping):
        raise Error(f"the schema of {name} is a {type(schema).__name__}, not a map")
    if not isinstance(value, Mapping):
        raise Error(f"{name} is a {type(value).__name__}, not a dict")
    for key in value:
        if key not in schema:
            raise Error(f"{name} has the unknown key {key!r}")
    for key, rule in schema.items():
        validate_value(f"{name}.{key}", value.get(key), complete, rule)
