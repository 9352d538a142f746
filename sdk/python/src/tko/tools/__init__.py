"""Programs that schedule plugins use: kind, kubectl and helm."""

from . import helm, kind, kubectl

__all__ = ["helm", "kind", "kubectl"]
