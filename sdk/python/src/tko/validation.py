"""Checks of values."""

from __future__ import annotations

from ._validation import Validation, is_required, is_type, validate_schema, validate_value

__all__ = ["Validation", "is_required", "is_type", "validate_schema", "validate_value"]
