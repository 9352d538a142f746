"""The resources of a package for a cluster."""

from __future__ import annotations

from ._package import is_namespaced, meta_schedule

__all__ = ["is_namespaced", "meta_schedule"]
