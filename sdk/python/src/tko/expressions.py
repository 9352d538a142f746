"""Expressions, as in the parameters of HelmCharts."""

from __future__ import annotations

from ._expression import ExpressionError, evaluate_expression

__all__ = ["ExpressionError", "evaluate_expression"]
