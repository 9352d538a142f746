import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tko

SOURCE = Path(tko.__file__).parents[1]
os.environ["PYTHONPATH"] = str(SOURCE)  # of the plugins that tests start


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Makes programs from shell scripts and puts them first on the PATH. $LOG is their log file."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))

    def make(name: str, script: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        return tmp_path / "log"

    return make


@pytest.fixture
def request_document() -> dict[str, Any]:
    """The request document of a prepare plugin."""
    return {
        "grpc": {"level2protocol": "tcp", "address": "::1", "port": 50050},
        "logFile": "",
        "logAddressPort": "",
        "targetResourceIdentifier": {"group": "x.plugin.nephio.org", "version": "v1", "kind": "X", "name": "x"},
        "deploymentId": "d1",
        "deploymentPackage": [
            {
                "apiVersion": "x.plugin.nephio.org/v1",
                "kind": "X",
                "metadata": {"name": "x"},
                "spec": {"n": 1, "y": "yes"},
            },
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        ],
    }


PYTHON = sys.executable
