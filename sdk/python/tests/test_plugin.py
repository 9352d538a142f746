"""Plugins as functions of requests."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tko
from tko._encoding import load_yaml
from tko._json import dump_json


def double(request: tko.PrepareRequest) -> bool:
    if request.target["spec"]["n"] > 100:
        raise tko.Error("spec.n is too large: use at most 100")
    request.target["spec"]["doubled"] = 2 * request.target["spec"]["n"]
    tko.set_prepared(request.target)
    return True


def test_prepare_returns_the_prepared_package(request_document: dict[str, Any]) -> None:
    plugin = tko.Plugin(prepare=double)
    answer = plugin.answer(request_document)
    assert answer["prepared"] is True
    assert answer["package"][0]["spec"]["doubled"] == 2
    assert answer["package"][1] == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


def test_prepare_may_return_another_package(request_document: dict[str, Any]) -> None:
    plugin = tko.Plugin(prepare=lambda request: tko.Package())
    assert plugin.answer(request_document) == {"prepared": True, "package": []}


def test_request_has_target_host_and_package(request_document: dict[str, Any]) -> None:
    seen: list[tko.Request] = []
    package = request_document.pop("deploymentPackage")
    plugin = tko.Plugin(validate=seen.append, schedule=seen.append)
    assert plugin.answer({**request_document, "package": package, "complete": True}) == {}
    assert plugin.answer({**request_document, "sitePackage": package, "siteId": "s", "deployments": {"d": []}}) == {}
    checked, scheduled = seen
    assert isinstance(checked, tko.ValidateRequest) and isinstance(scheduled, tko.ScheduleRequest)
    assert checked.complete and checked.grpc_host == "[::1]:50050"
    assert checked.target is package[0]
    assert (scheduled.site_id, scheduled.deployments) == ("s", {"d": tko.Package()})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d["deploymentPackage"][0]["spec"].update(n=101), "spec.n is too large: use at most 100"),
        (lambda d: d["deploymentPackage"][0].pop("spec"), "KeyError: 'spec'"),
        (lambda d: d["deploymentPackage"].clear(), 'x.plugin.nephio.org/v1 X "x" is not in the package'),
        (lambda d: d.update(deploymentPackage="x"), "deploymentPackage is not a list of resources"),
        (lambda d: d.update(deploymentPackage=[1]), "deploymentPackage is not a list of resources"),
        (
            lambda d: d.pop("deploymentPackage"),
            "this plugin can't validate: register it with the type of its functions",
        ),
        (
            lambda d: d.update(grpc={"port": "x"}, deploymentPackage=None),
            "deploymentPackage is not a list of resources",
        ),
    ],
)
def test_errors_name_the_cause(request_document: dict[str, Any], change: Any, error: str) -> None:
    change(request_document)
    assert tko.Plugin(prepare=double).answer(request_document) == {"error": error}


def test_log_lines_over_tcp_have_the_token(request_document: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        request_document["logAddressPort"] = f"127.0.0.1:{server.getsockname()[1]}"
        request_document["logToken"] = "abc"

        def prepare(request: tko.PrepareRequest) -> bool:
            request.log("one\ntwo")
            return False

        assert tko.Plugin(prepare=prepare).answer(request_document) == {"prepared": False}
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            assert lines.read() == "tko-log abc\none\ntwo\n"


def test_traceback_of_unexpected_errors_is_logged(request_document: dict[str, Any], tmp_path: Path) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    request_document["deploymentPackage"][0].pop("spec")
    request_document["logFile"] = str(fifo)
    tko.Plugin(prepare=double).answer(request_document)
    assert b"test_plugin.py" in os.read(reader, 10000)
    os.close(reader)


@pytest.mark.parametrize(
    "text", ["plain", "yes", "Grüße", "\x7f\x85\u2028\u2029\ufeff", "😀", "\ud800", "a\nb\r\n\t\"\\'", "{{ x }}", "#"]
)
def test_json_is_read_as_yaml(text: str) -> None:
    written = dump_json({"text": text, text: 1.0})
    assert json.loads(written) == {"text": text, text: 1.0}
    if text != "\ud800":  # which UTF-8 can't encode
        assert load_yaml(written) == {"text": text, text: 1.0}


def test_response_that_cant_be_encoded_is_an_error(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import tko\n"
        "def prepare(request):\n"
        "    request.package.append({'apiVersion': 'v1', 'kind': 'X', 'x': {1, 2}})\n"
        "    return True\n"
        "tko.run(prepare=prepare)\n"
    )
    done = subprocess.run(
        [sys.executable, str(plugin)], input="deploymentPackage: []", capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "error": "the answer can't be written: Object of type set is not JSON serializable"
    }


def test_programs_that_a_plugin_runs_cant_disturb_it(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import os, tko\n"
        "def validate(request):\n"
        "    os.system('echo noise; cat')\n"
        "    print('more noise')\n"
        "tko.run(validate=validate)\n"
    )
    document = '{"package": [], "complete": true}'
    done = subprocess.run(
        [sys.executable, str(plugin)],
        input=2 * f"tko-request 1 {len(document)}\n{document}",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TKO_PERSISTENT": "1"},
    )
    assert done.stdout == 2 * "tko-response 1 2\n{}"
    assert done.stderr.count("noise") == 4


def test_start_loads_few_modules() -> None:
    """A plugin starts for each request, so modules that only some need are loaded on use."""
    code = (
        "import sys, tko; print([m for m in sys.modules if m.split('.')[0] in ('grpc', 'google', 'cbor2', 'ruamel')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_golden_case_compares_with_want(tmp_path: Path, request_document: dict[str, Any]) -> None:
    case = tmp_path / "case"
    case.mkdir()
    with pytest.raises(tko.testing.GoldenError, match="no cases"):
        tko.testing.cases(tmp_path)
    (case / "in.yaml").write_text(json.dumps(request_document))
    plugin = tko.Plugin(prepare=double)
    tko.testing.check(plugin, case, update=True)
    assert list(tko.testing.cases(tmp_path)) == [case]
    tko.testing.check(plugin, case)
    want = case / "want.yaml"
    assert "doubled: 2" in want.read_text()
    want.write_text(want.read_text().replace("doubled: 2", "doubled: 3"))
    with pytest.raises(tko.testing.GoldenError, match="(?s)differs.*doubled: 3.*doubled: 2"):
        tko.testing.check(plugin, case)


def test_golden_case_runs_twice(tmp_path: Path, request_document: dict[str, Any]) -> None:
    def count(request: tko.PrepareRequest) -> bool:
        request.target["spec"]["n"] += 1
        return True

    (tmp_path / "in.yaml").write_text(json.dumps(request_document))
    with pytest.raises(tko.testing.GoldenError, match="the second run"):
        tko.testing.check(tko.Plugin(prepare=count), tmp_path, update=True)
