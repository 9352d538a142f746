"""YAML as Kubernetes reads it, and CBOR."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any

import ruamel.yaml
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.representer import SafeRepresenter

from ._error import Error
from ._package import PackageList, Resource, as_package


class _Constructor(SafeConstructor):
    """Reads dates as text, as kubectl does."""

    # Constructors registered here must not affect other users of the base class.
    yaml_constructors = SafeConstructor.yaml_constructors.copy()


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)

# Texts that readers of YAML 1.1 read as other types.
_AMBIGUOUS = re.compile(
    r"(?:[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|=|<<|~"
    r"|[-+]?0[0-7_]+|[-+]?0[bB][01_]+|[-+]?0[oO][0-7_]+|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[-+]?[0-9._]+(?:[eE][-+]?[0-9]+)?|[0-9]{4}-[0-9].*)"
)


class _Representer(SafeRepresenter):
    yaml_representers = SafeRepresenter.yaml_representers.copy()

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> Any:
        style = None
        if _AMBIGUOUS.fullmatch(text):
            style = '"'
        elif "\n" in text and not text.startswith((" ", "\n")):
            style = "|"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _Representer.represent_text)


def _new() -> ruamel.yaml.YAML:
    y = ruamel.yaml.YAML(typ="safe", pure=True)
    y.Constructor = _Constructor
    y.Representer = _Representer
    y.default_flow_style = False
    y.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # ruamel's type is None, False turns it off
    y.width = 1 << 20
    return y


yaml = _new()
"""Reads and writes YAML 1.2: ``tko.yaml.load(text)``, ``tko.yaml.dump(data, stream)``."""

FORMATS = ("yaml", "cbor")


def load_yaml(text: str | bytes) -> Any:
    """Reads one document."""
    return _new().load(text)


def dump_yaml(data: Any) -> str:
    """Writes one document."""
    stream = io.StringIO()
    _new().dump(data, stream)
    return stream.getvalue()


def encode_package(package: Iterable[Resource] | bytes | str, format: str) -> bytes:
    """Encodes resources as ``yaml`` (a document per resource) or ``cbor``. Bytes and text are returned as they are."""
    if format not in FORMATS:
        raise Error(f"there is no package format {format!r}: use yaml or cbor")
    if isinstance(package, str):
        return package.encode()
    if isinstance(package, bytes):
        return package
    if format == "yaml":
        return "---\n".join(dump_yaml(resource) for resource in package).encode()
    import cbor2

    return cbor2.dumps(list(package))


def decode_package(data: bytes, format: str) -> PackageList:
    """Decodes the output of ``encode_package``: a list of resources. YAML documents may also be lists of resources."""
    if format not in FORMATS:
        raise Error(f"there is no package format {format!r}: use yaml or cbor")
    if not data:
        return PackageList()
    if format == "cbor":
        import cbor2

        return PackageList(as_package(cbor2.loads(data), "the package"))
    package = PackageList()
    for document in _new().load_all(data):
        if document is None:
            continue
        for resource in document if isinstance(document, list) else [document]:
            if not isinstance(resource, dict):
                raise Error(f"a resource is a {type(resource).__name__}, not a map")
            package.append(resource)
    return package
