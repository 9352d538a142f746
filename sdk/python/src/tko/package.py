"""Packages, and how their resources are identified."""

from __future__ import annotations

from ._package import GVK, Identifier, Package, PackageList, Resource, set_prepared

__all__ = ["GVK", "Identifier", "Package", "PackageList", "Resource", "set_prepared"]
