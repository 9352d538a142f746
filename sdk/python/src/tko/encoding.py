"""Packages as YAML and CBOR."""

from __future__ import annotations

from ._encoding import decode_package, encode_package, yaml

__all__ = ["decode_package", "encode_package", "yaml"]
