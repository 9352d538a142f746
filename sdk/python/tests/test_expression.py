"""The test cases of the server's evaluator."""

import json
import time
from pathlib import Path

import pytest

import tko

CASES = json.loads(
    (Path(__file__).parents[3] / "internal/schedule/kubernetes/expression/testdata/cases.json").read_text()
)
PACKAGE = tko.Package(CASES["package"])


def same(a: object, b: object) -> bool:
    """Equality by which 1, 1.0 and True differ."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return repr(a) == repr(b)


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda c: str(c.get("expression", c["why"]))[:40])
def test_expression_has_the_wanted_result(case: dict) -> None:
    expression = case.get("expression")
    if "repeat" in case:
        expression = case["before"] + case["repeat"] * case["times"] + case["after"]
    if "error" in case:
        with pytest.raises(tko.ExpressionError, match=case["error"]):
            tko.evaluate_expression(expression, PACKAGE)
        return
    got = tko.evaluate_expression(expression, PACKAGE)
    assert same(got, case["want"]), f"{case['why']}: got {got!r}"


def test_long_results_are_quick() -> None:
    began = time.monotonic()
    for expression in (
        "{{ ('a' * 65000 + 'b').find('ab' * 30000) }}",
        "{{ [" + ",".join(["'a' * 65536 == 'a' * 65536"] * 140) + "] }}",
    ):
        tko.evaluate_expression(expression, PACKAGE)
    assert time.monotonic() - began < 5
