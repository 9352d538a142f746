"""Expressions, as in the parameters of HelmCharts: a small, bounded part of Python.

The server evaluates the same expressions with the same results (internal/schedule/kubernetes/expression). Both pass
the same test cases: change both together.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ._error import Error
from ._package import GVK, Identifier, Package, Resource

MAX_TEXT = 4 << 10  # bytes of an expression
MAX_DEPTH = 50  # of nested nodes
MAX_BRACKETS = 50  # of brackets in brackets
MAX_STRING = 64 << 10  # bytes of any intermediate string
MAX_ITEMS = 10_000  # of any intermediate list or map
MAX_RESULT = 1 << 20  # bytes of the result, roughly
_SYNTAX = "it is not an expression: its syntax is wrong"
_UNSUPPORTED = "it is not an expression: it has something that is not supported"
_QUOTED = re.compile(r"""'(?:[^'\\]|\\[\\'"ntr]|\\u[0-9a-fA-F]{4})*'|"(?:[^"\\]|\\[\\'"ntr]|\\u[0-9a-fA-F]{4})*\"""")
_STRANGE = re.compile("[0-9A-Za-z_]\0|\0[ \t]*\0|[^\0\t -~]|[#\\\\'\"]")
_NUMBER = re.compile(r"\b[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?", re.ASCII)
_INTEGER_LITERAL = re.compile(r"0|[1-9][0-9]*")
_FLOAT_LITERAL = re.compile(r"([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?")
_NAMED = {  # the functions whose parameters can be named
    "get": ("group", "version", "kind", "name"),
    "GVK": ("group", "version", "kind", "resource"),
    "Identifier": ("gvk", "name", "resource"),
}
_KEYWORDS = ("load",)  # keywords of Starlark that are names in Python: allowed as an index
_MAX_INT = (1 << 63) - 1
_SPACE = " \t\n\r\v\f"
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_UPPER = {i: i - 32 for i in range(ord("a"), ord("z") + 1)}
_LOWER = {i: i + 32 for i in range(ord("A"), ord("Z") + 1)}


class ExpressionError(Error):
    """An expression can't be evaluated."""


def evaluate_expression(expression: Any, package: Iterable[Resource]) -> Any:
    """Evaluates ``{{ … }}``; other values are returned as they are.

    An expression is literals, ``get(group, version, kind[, name])`` for a resource of the package, attributes and
    indexes of the resource, comparison, arithmetic, ``and``, ``or``, ``not``, ``a if b else c``, the functions
    ``str``, ``int``, ``float``, ``bool`` and ``len``, and methods of strings. Nothing else is evaluated. Length,
    nesting, and the size of all values are bounded.
    """
    if not isinstance(expression, str):
        return expression
    text = expression.strip(_SPACE)
    if not (len(text) >= 4 and text.startswith("{{") and text.endswith("}}")):
        return expression
    text = text[2:-2].strip(_SPACE)
    try:
        if len(text.encode()) > MAX_TEXT:
            raise ExpressionError(f"it is longer than {MAX_TEXT} bytes")
        if not isinstance(package, Package):
            package = Package(package if isinstance(package, list) else list(package))
        result = _Evaluation(package).value(_parse(text), 1)
        _measure(result, MAX_RESULT)
    except ExpressionError as e:
        short = text if len(text) <= 100 else text[:100] + "…"
        raise ExpressionError(f"expression {short!r}: {e}") from None
    except (RecursionError, UnicodeError) as e:
        raise ExpressionError(f"the expression can't be evaluated: {type(e).__name__}") from None
    return result


def _parse(text: str) -> ast.expr:
    """Parses the syntax that Python and Starlark, the server's parser, have in common."""
    if re.search(r"[\0\n\r\v\f]", text):
        raise ExpressionError(_SYNTAX)
    bare = _QUOTED.sub("\0", text)
    if _STRANGE.search(bare) or re.search("\1[A-Za-z_]", _NUMBER.sub("\1", bare)):
        raise ExpressionError(_SYNTAX)
    brackets = 0
    for c in bare:
        brackets += (c in "([{") - (c in ")]}")
        if brackets > MAX_BRACKETS:
            raise ExpressionError(f"it is nested deeper than {MAX_BRACKETS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning):
        raise ExpressionError(_SYNTAX) from None
    raw = text.encode()
    for node in ast.walk(parsed):
        if not _supported(node, raw):
            raise ExpressionError(_UNSUPPORTED)
    return parsed


def _supported(node: ast.AST, text: bytes) -> bool:
    """Whether a node is part of expressions, evaluated or not."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            raw = text[node.col_offset : node.end_col_offset].decode()
            return value <= _MAX_INT and _INTEGER_LITERAL.fullmatch(raw) is not None
        case ast.Constant(value=float(value)):
            raw = text[node.col_offset : node.end_col_offset].decode()
            return math.isfinite(value) and _FLOAT_LITERAL.fullmatch(raw) is not None
        case ast.Constant(value=value):
            return value is None or type(value) in (bool, str)
        case ast.Dict(keys=keys):
            return None not in keys
        case ast.Attribute(attr=name):
            return name not in _KEYWORDS
        case ast.Subscript(slice=index):
            return not isinstance(index, ast.Tuple)
        case ast.Slice(step=step):
            return step is None
        case ast.Call(func=ast.Name(id=name), keywords=keywords):
            return not keywords or name in _NAMED
        case ast.Call(func=function, keywords=keywords):
            return isinstance(function, ast.Attribute) and not keywords
        case ast.keyword(arg=name):
            return name is not None
        case ast.Name(id=name):
            return name not in _KEYWORDS
        case ast.UnaryOp(op=op):
            return isinstance(op, (ast.Not, ast.UAdd, ast.USub))
        case ast.BinOp(op=op):
            return type(op) in _ARITHMETIC
        case ast.Compare(ops=[op]):
            return isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) or type(op) in _ORDER
        case ast.Compare() | ast.Starred():
            return False
    return isinstance(
        node, (ast.List, ast.BoolOp, ast.IfExp, ast.expr_context, ast.operator, ast.boolop, ast.cmpop, ast.unaryop)
    )


def _type(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (GVK, Identifier, Package)):
        return type(value).__name__
    return {bool: "bool", int: "int", float: "float", str: "string", list: "list"}.get(type(value), "map")


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _equal(a: Any, b: Any) -> bool:
    if _number(a) and _number(b):
        return a == b if type(a) is type(b) else float(a) == float(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    return _type(a) == _type(b) and bool(a == b)


def _measure(value: Any, left: int) -> int:
    """The rest of a budget after a value."""
    left -= 8
    if isinstance(value, str):
        left -= len(value.encode())
    if left < 0:
        raise ExpressionError("its result is too large")
    if isinstance(value, list):
        for item in value:
            left = _measure(item, left)
    elif isinstance(value, dict):
        for key, item in value.items():
            left = _measure(item, left - len(str(key).encode()))
    return left


def _checked(value: Any) -> Any:
    """Refuses values that are too large, and floats that aren't finite."""
    if isinstance(value, str):
        _check_string(len(value.encode()))
    elif isinstance(value, (list, dict)):
        if len(value) > MAX_ITEMS:
            raise ExpressionError(f"a list or map would have more than {MAX_ITEMS} items")
    elif type(value) is int:
        if not -_MAX_INT - 1 <= value <= _MAX_INT:
            raise ExpressionError("an integer would have more than 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ExpressionError("a number would be too large")
    return value


def _check_string(size: int) -> None:
    if size > MAX_STRING:
        raise ExpressionError(f"a string would be longer than {MAX_STRING} bytes")


_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}

_ORDER: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class _Evaluation:
    def __init__(self, package: Package) -> None:
        self.package = package

    def value(self, node: ast.expr, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"it is nested deeper than {MAX_DEPTH}")
        depth += 1
        match node:
            case ast.Constant(value=value):
                return _checked(value)
            case ast.List(elts=items):
                return _checked([self.value(i, depth) for i in items])
            case ast.Dict(keys=keys, values=values):
                return self.map(keys, values, depth)
            case ast.Attribute(value=of, attr=name):
                return self.attribute(self.value(of, depth), name)
            case ast.Subscript(value=of, slice=ast.Slice(lower=lower, upper=upper)):
                whole = self.value(of, depth)
                low = None if lower is None else self.value(lower, depth)
                high = None if upper is None else self.value(upper, depth)
                return self.slice(whole, low, high)
            case ast.Subscript(value=of, slice=index):
                return self.index(self.value(of, depth), self.value(index, depth))
            case ast.Call(func=function, args=args, keywords=keywords):
                return self.call(function, args, keywords, depth)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand, depth))
            case ast.BinOp(left=left, op=op, right=right):
                a = self.value(left, depth)
                return self.binary(type(op), a, self.value(right, depth))
            case ast.BoolOp(op=op, values=values):
                return self.logic(op, values, depth)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                a = self.value(left, depth)
                return self.compare(op, a, self.value(right, depth))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, depth) else orelse, depth)
            case ast.Name(id="package"):
                return self.package
            case ast.Name(id=name):
                raise ExpressionError(f"the name {name!r} is not defined")
        raise ExpressionError(_UNSUPPORTED)

    def map(self, keys: list[ast.expr | None], values: list[ast.expr], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in zip(keys, values, strict=True):
            assert key_node is not None
            key = self.value(key_node, depth)
            if not isinstance(key, str):
                raise ExpressionError(f"the key of a map is a {_type(key)}, not a string")
            if key in result:
                raise ExpressionError(f"a map has the key {key!r} twice")
            result[key] = self.value(value_node, depth)
        return result

    def attribute(self, of: Any, name: str) -> Any:
        if isinstance(of, (GVK, Identifier)) and name in ("group", "version", "kind", "api_version", "gvk", "name"):
            if not hasattr(of, name):
                raise ExpressionError(f"{_type(of)} has no attribute {name!r}")
            return getattr(of, name)
        if not isinstance(of, dict):
            raise ExpressionError(f"{_type(of)} has no attribute {name!r}")
        if name not in of:
            raise ExpressionError(f"there is no {name!r} in the map")
        return of[name]

    def index(self, of: Any, index: Any) -> Any:
        if of is self.package:
            if not isinstance(index, Identifier):
                raise ExpressionError(f"the index of the package is a {_type(index)}, not an Identifier")
            return self.package.get(index)
        if isinstance(of, dict):
            if not isinstance(index, str):
                raise ExpressionError(f"the index of a map is a {_type(index)}, not a string")
            return self.attribute(of, index)
        if not isinstance(of, (str, list)):
            raise ExpressionError(f"{_type(of)} has no index")
        if type(index) is not int:
            raise ExpressionError(f"the index of a {_type(of)} is a {_type(index)}, not an int")
        if not -len(of) <= index < len(of):
            raise ExpressionError(f"the index {index} is out of range")
        return of[index]

    def slice(self, of: Any, low: Any, high: Any) -> Any:
        if not isinstance(of, (str, list)):
            raise ExpressionError(f"{_type(of)} has no index")
        for index in (low, high):
            if index is not None and type(index) is not int:
                raise ExpressionError(f"the index of a {_type(of)} is a {_type(index)}, not an int")
        return of[low:high]

    def unary(self, op: ast.unaryop, value: Any) -> Any:
        if isinstance(op, ast.Not):
            return not value
        sign = "-" if isinstance(op, ast.USub) else "+"
        if not _number(value):
            raise ExpressionError(f"{sign} can't be applied to {_type(value)}")
        return _checked(-value if sign == "-" else value)

    def binary(self, op: type[ast.operator], a: Any, b: Any) -> Any:
        name, function = _ARITHMETIC[op]
        if _number(a) and _number(b):
            if name in ("/", "//", "%") and b == 0:
                raise ExpressionError("division by zero")
            if name == "/" or type(a) is not type(b):
                a, b = float(a), float(b)
            try:
                return _checked(function(a, b))
            except OverflowError:
                raise ExpressionError("a number would be too large") from None
        if name == "+" and isinstance(a, str) and isinstance(b, str):
            _check_string(len(a.encode()) + len(b.encode()))
            return a + b
        if name == "+" and isinstance(a, list) and isinstance(b, list):
            return _checked(a + b)
        if name == "*" and type(a) is int and isinstance(b, str):
            a, b = b, a
        if name == "*" and isinstance(a, str) and type(b) is int:
            _check_string(len(a.encode()) * b)
            return a * b
        raise ExpressionError(f"{name} can't be applied to {_type(a)} and {_type(b)}")

    def logic(self, op: ast.boolop, values: list[ast.expr], depth: int) -> Any:
        stop = isinstance(op, ast.Or)
        value: Any = None
        for node in values:
            value = self.value(node, depth)
            if bool(value) is stop:
                break
        return value

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> bool:
        match op:
            case ast.Eq():
                return _equal(a, b)
            case ast.NotEq():
                return not _equal(a, b)
            case ast.In() | ast.NotIn():
                return self.contains(b, a) is isinstance(op, ast.In)
        name, function = _ORDER[type(op)]
        if _number(a) and _number(b):
            return function(a, b) if type(a) is type(b) else function(float(a), float(b))
        if isinstance(a, str) and isinstance(b, str):
            return function(a, b)
        raise ExpressionError(f"{name} can't be applied to {_type(a)} and {_type(b)}")

    def contains(self, whole: Any, part: Any) -> bool:
        if isinstance(whole, list):
            return any(_equal(part, item) for item in whole)
        if isinstance(whole, (str, dict)) and isinstance(part, str):
            return part in whole
        raise ExpressionError(f"in can't be applied to {_type(part)} and {_type(whole)}")

    def call(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword], depth: int) -> Any:
        if isinstance(function, ast.Name):
            args = [self.value(a, depth) for a in arguments]
            if function.id not in _NAMED:
                return _function(function.id, args)
            args = _named(function.id, args, {str(k.arg): self.value(k.value, depth) for k in keywords})
            if function.id == "GVK":
                return _gvk(args)
            return self.get(args) if function.id == "get" else _identifier(args)
        assert isinstance(function, ast.Attribute)
        of = self.value(function.value, depth)
        if of is self.package:
            return self.find(function.attr, [self.value(a, depth) for a in arguments])
        return _method(of, function.attr, [self.value(a, depth) for a in arguments])

    def get(self, args: list[Any]) -> Any:
        if len(args) == 4 and args[3] is None:
            args = args[:3]
        if not 3 <= len(args) <= 4 or not all(isinstance(a, str) for a in args):
            raise ExpressionError("get takes the group, version and kind of a resource, and its name if there are more")
        gvk = GVK(*args[:3])
        return self.package.get_first(gvk) if len(args) == 3 else self.package.get(Identifier(gvk, args[3]))

    def find(self, method: str, args: list[Any]) -> Any:
        if method not in ("get_first", "iter_all"):
            raise ExpressionError(f"package has no method {method!r}")
        if len(args) != 1 or not isinstance(args[0], GVK):
            raise ExpressionError(f"the method {method} takes a GVK")
        return self.package.get_first(args[0]) if method == "get_first" else list(self.package.iter_all(args[0]))


def _named(function: str, args: list[Any], keywords: dict[str, Any]) -> list[Any]:
    """The arguments of a function in the order of its parameters."""
    parameters = _NAMED[function]
    for name, value in keywords.items():
        if name not in parameters or parameters.index(name) < len(args):
            raise ExpressionError(f"{function} has no parameter {name!r}, or it is given twice")
        keywords[name] = value
    named = [keywords.get(name) for name in parameters[len(args) :]] if keywords else []
    while named and named[-1] is None:
        named.pop()
    return args + named


def _gvk(args: list[Any]) -> GVK:
    if len(args) == 4 and args[:3] == [None, None, None] and isinstance(args[3], dict):
        return GVK(resource=args[3])
    if len(args) != 3 or not all(isinstance(a, str) for a in args):
        raise ExpressionError("GVK takes a group, version and kind, or a resource")
    return GVK(*args)


def _identifier(args: list[Any]) -> Identifier:
    if len(args) == 3 and args[:2] == [None, None] and isinstance(args[2], dict):
        return Identifier(resource=args[2])
    if len(args) != 2 or not isinstance(args[0], GVK) or not isinstance(args[1], str):
        raise ExpressionError("Identifier takes a GVK and a name, or a resource")
    return Identifier(*args)


def _function(name: str, args: list[Any]) -> Any:
    if name not in ("str", "int", "float", "bool", "len"):
        raise ExpressionError(f"there is no function {name!r}")
    if len(args) != 1:
        raise ExpressionError(f"{name} takes 1 argument, not {len(args)}")
    value = args[0]
    wrong = ExpressionError(f"{name} can't be applied to {_type(value)}")
    match name:
        case "bool":
            return bool(value)
        case "len":
            if not isinstance(value, (str, list, dict)):
                raise wrong
            return len(value)
        case "str":
            if isinstance(value, (list, dict)):
                raise wrong
            return str(value)
        case "int":
            if isinstance(value, str):
                text = value.strip(_SPACE)
                if not _DECIMAL.fullmatch(text) or len(text) > 1000:
                    raise ExpressionError("int is applied to a string that is no integer")
                return _checked(int(text))
            if type(value) not in (int, float, bool):
                raise wrong
            return _checked(int(value))
        case _:
            if isinstance(value, str):
                text = value.strip(_SPACE)
                if not _FLOAT.fullmatch(text) or len(text) > 1000:
                    raise ExpressionError("float is applied to a string that is no number")
                return _checked(float(text))
            if not _number(value):
                raise wrong
            return float(value)


def _strip(s: str, chars: str = _SPACE) -> str:
    return s.strip(chars)


def _lstrip(s: str, chars: str = _SPACE) -> str:
    return s.lstrip(chars)


def _rstrip(s: str, chars: str = _SPACE) -> str:
    return s.rstrip(chars)


def _split(s: str, separator: str | None = None) -> list[str]:
    if separator is None:
        return [part for part in re.split(f"[{_SPACE}]+", s) if part]
    if separator == "":
        raise ExpressionError("split takes a separator that is not empty")
    return s.split(separator)


def _replace(s: str, old: str, new: str) -> str:
    _check_string(len(s.encode()) + s.count(old) * (len(new.encode()) - len(old.encode())))
    return s.replace(old, new)


_METHODS: dict[str, tuple[int, int, Callable[..., Any]]] = {  # least and most arguments: strings
    "upper": (0, 0, lambda s: s.translate(_UPPER)),
    "lower": (0, 0, lambda s: s.translate(_LOWER)),
    "strip": (0, 1, _strip),
    "lstrip": (0, 1, _lstrip),
    "rstrip": (0, 1, _rstrip),
    "split": (0, 1, _split),
    "replace": (2, 2, _replace),
    "startswith": (1, 1, str.startswith),
    "endswith": (1, 1, str.endswith),
    "removeprefix": (1, 1, str.removeprefix),
    "removesuffix": (1, 1, str.removesuffix),
    "find": (1, 1, str.find),
    "count": (1, 1, str.count),
}


def _method(of: Any, name: str, args: list[Any]) -> Any:
    if isinstance(of, dict) and name == "get":
        if not 1 <= len(args) <= 2 or not isinstance(args[0], str):
            raise ExpressionError("the method get takes a key, and what to answer without it")
        return of.get(args[0], args[1] if len(args) == 2 else None)
    if isinstance(of, dict) and name == "keys":
        if args:
            raise ExpressionError("the method keys takes no arguments")
        return _checked(sorted(of))
    if isinstance(of, str) and name == "join":
        if len(args) != 1 or not isinstance(args[0], list) or not all(isinstance(a, str) for a in args[0]):
            raise ExpressionError("the method join takes a list of strings")
        _check_string(sum(len(a.encode()) for a in args[0]) + len(of.encode()) * max(0, len(args[0]) - 1))
        return of.join(args[0])
    if not isinstance(of, str) or name not in _METHODS:
        raise ExpressionError(f"{_type(of)} has no method {name!r}")
    least, most, function = _METHODS[name]
    if not least <= len(args) <= most or not all(isinstance(a, str) for a in args):
        raise ExpressionError(f"the method {name} has the wrong arguments")
    return _checked(function(of, *args))
