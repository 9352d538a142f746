"""Packages, and the identities of their resources."""

from __future__ import annotations

from ._package import GVK, Identifier, Package, PackageList, Resource, set_prepared

__all__ = ["GVK", "Identifier", "Package", "PackageList", "Resource", "set_prepared"]
