"""Golden tests of plugins: files with requests and the wanted responses."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ._encoding import dump_yaml, load_yaml
from ._plugin import Plugin


class GoldenError(AssertionError):
    """A plugin's response differs from the wanted one."""


def cases(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """The cases of a folder: every folder in it that has an ``in.yaml``. Raises an error if there are none."""
    found = sorted(p.parent for p in Path(folder).glob("*/in.yaml"))
    if not found:
        raise GoldenError(f"there are no cases (CASE/in.yaml) in {folder}")
    return iter(found)


def check(plugin: Plugin | Sequence[str], case: str | os.PathLike[str], update: bool | None = None) -> None:
    """Gives a plugin the request in ``in.yaml`` of a case, and compares its response with ``want.yaml``.

    The plugin is a ``Plugin`` or a command. It runs twice, the second time with the package of the first response,
    and must return an equal response, because a server may repeat requests. With ``update``, or TKO_UPDATE=1 in the
    environment, want.yaml is written instead of compared.
    """
    case = Path(case)
    request = load_yaml((case / "in.yaml").read_text())
    got = _answer(plugin, request)
    golden = case / "want.yaml"
    if update if update is not None else os.environ.get("TKO_UPDATE"):
        golden.write_text(dump_yaml(got))
    else:
        _compare(load_yaml(golden.read_text()) or {}, got, f"the answer differs from {golden}; TKO_UPDATE=1 writes it")
    if "package" in got:
        request["deploymentPackage"] = got["package"]
        again = _answer(plugin, request)
        if again != {"prepared": False}:  # nothing left to do is also right
            _compare(got, again, "the second run, on the output of the first, changes it")


def _answer(plugin: Plugin | Sequence[str], request: dict[str, Any]) -> dict[str, Any]:
    if isinstance(plugin, Plugin):
        return plugin.answer(copy.deepcopy(request))
    command = [sys.executable, *plugin] if plugin[0].endswith(".py") else list(plugin)
    environment = {k: v for k, v in os.environ.items() if k != "TKO_PERSISTENT"}
    done = subprocess.run(
        command, input=dump_yaml(request), capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise GoldenError(f"the plugin ended with {done.returncode}: {done.stderr.strip()}")
    answer = load_yaml(done.stdout)
    if not isinstance(answer, dict):
        raise GoldenError(f"the plugin's response is not a map: {done.stdout[:1000]!r}")
    return answer


def _exact(value: Any) -> str:
    """Makes 1, 1.0 and true differ, which are equal in Python."""
    return json.dumps(value, sort_keys=True, default=repr)


def _compare(want: dict[str, Any], got: dict[str, Any], message: str) -> None:
    if _exact(want) == _exact(got):
        return
    import difflib

    a, b = dump_yaml(want).splitlines(), dump_yaml(got).splitlines()
    diff = "\n".join(difflib.unified_diff(a, b, "want", "got", lineterm=""))
    raise GoldenError(f"{message}:\n{diff}")
