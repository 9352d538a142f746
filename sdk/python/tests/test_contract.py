"""A plugin in the earlier form, run as the server runs it."""

import copy
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tko
from tko._encoding import dump_yaml, load_yaml

PLUGIN = Path(__file__).with_name("contract_plugin.py")


def run(kind: str, document: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PLUGIN), kind], input=dump_yaml(document), capture_output=True, text=True, check=True
    )
    answer = load_yaml(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_prepare_returns_the_prepared_package(request_document: dict[str, Any]) -> None:
    answer = run("prepare", request_document)
    assert answer["prepared"] is True
    x, c, made = answer["package"]
    assert x["metadata"]["annotations"] == {"nephio.org/prepared": "true"}
    assert x["spec"] == {"n": 1, "y": "yes"}
    assert c == request_document["deploymentPackage"][1]
    assert made["data"] == {"text": "MADE BY X", "host": "[::1]:50050"}


def test_prepare_may_return_not_prepared(request_document: dict[str, Any]) -> None:
    request_document["deploymentPackage"][0]["spec"]["later"] = True
    assert run("prepare", request_document) == {"prepared": False}


def test_an_exception_becomes_the_error(request_document: dict[str, Any]) -> None:
    request_document["deploymentPackage"][0]["spec"]["fail"] = True
    assert run("prepare", request_document) == {"error": "Exception: told to fail"}


@pytest.mark.parametrize(
    ("spec", "complete", "error"),
    [
        ({"n": 1}, True, None),
        ({}, False, None),
        ({}, True, "spec.n is required"),
        ({"n": "1"}, False, "spec.n is a str, not a int"),
        ({"m": 1}, False, "spec has the unknown key 'm'"),
    ],
)
def test_validate_returns_the_cause(
    request_document: dict[str, Any], spec: Any, complete: bool, error: str | None
) -> None:
    package = request_document.pop("deploymentPackage")
    package[0]["spec"] = spec
    answer = run("validate", {**request_document, "package": package, "complete": complete})
    assert answer.get("error") == error


def schedule_document(request_document: dict[str, Any]) -> dict[str, Any]:
    package = request_document.pop("deploymentPackage")
    return {**request_document, "siteId": "s", "sitePackage": package, "deployments": {"d1": package[1:]}}


def test_schedule_logs_to_a_fifo(request_document: dict[str, Any], tmp_path: Path) -> None:
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert run("schedule", {**schedule_document(request_document), "logFile": str(fifo)}) == {}
    assert os.read(reader, 1000) == b"X gets ConfigMap\n"
    os.close(reader)
    # without a reader it doesn't wait
    assert (
        run(
            "schedule",
            {
                **schedule_document(
                    {
                        **request_document,
                        "deploymentPackage": [
                            {"apiVersion": "x.plugin.nephio.org/v1", "kind": "X", "metadata": {"name": "x"}}
                        ],
                    }
                ),
                "logFile": str(fifo),
            },
        )
        == {}
    )


def test_schedule_logs_over_tcp(request_document: dict[str, Any]) -> None:
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                got.append(connection.makefile("rb").read())

        accepting = threading.Thread(target=accept)
        accepting.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert run("schedule", {**schedule_document(request_document), "logAddressPort": address}) == {}
        accepting.join(20)
    assert got == [b"X gets ConfigMap\n"]


def test_log_without_a_reader_is_no_error(request_document: dict[str, Any]) -> None:
    document = {**schedule_document(request_document), "logAddressPort": "127.0.0.1:1"}
    assert run("schedule", document) == {}


def frame(number: int, document: Any) -> bytes:
    data = json.dumps(document).encode()
    return b"tko-request %d %d\n%s" % (number, len(data), data)


def test_persistent_plugin_serves_many_requests(request_document: dict[str, Any]) -> None:
    """The same plugin, unchanged, serves many independent requests."""
    failing = copy.deepcopy(request_document)
    failing["deploymentPackage"][0]["spec"]["fail"] = True
    yaml = dump_yaml(request_document).encode()
    requests = (
        frame(1, request_document)
        + frame(2, failing)
        + b"tko-request 3 %d\n%s" % (len(yaml), yaml)
        + frame(4, "no map")
        + b"tko-request 5 3\n{]\n"
        + frame(6, request_document)
    )
    done = subprocess.run(
        [sys.executable, str(PLUGIN), "prepare"],
        input=requests,
        capture_output=True,
        check=True,
        env={**os.environ, "TKO_PERSISTENT": "1"},
    )
    rest, answers = done.stdout, []
    for number in range(1, 7):
        header, _, rest = rest.partition(b"\n")
        word, got, size = header.split()
        assert (word, int(got)) == (b"tko-response", number)
        answers.append(load_yaml(rest[: int(size)]))
        rest = rest[int(size) :]
    assert rest == b""
    assert done.stderr.count(b"prints go nowhere") == 3
    assert answers[1] == {"error": "Exception: told to fail"}
    assert answers[3] == {"error": "the request is not a map"}
    assert answers[4]["error"].startswith("the request is neither JSON nor YAML: ")
    assert answers[0] == answers[2] == answers[5]
    assert answers[0]["prepared"] is True


@pytest.mark.parametrize("frames", [b"hello\n", b"tko-request x 5\nabcde", b"tko-request 1 -1\n"])
def test_persistent_refuses_malformed_frames(frames: bytes) -> None:
    done = subprocess.run(
        [sys.executable, str(PLUGIN), "prepare"],
        input=frames,
        capture_output=True,
        check=False,
        env={**os.environ, "TKO_PERSISTENT": "1"},
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"this is no request" in done.stderr


def test_module_has_the_names_of_the_contract() -> None:
    for name in (
        "validate prepare schedule get_target_resource get_target_resource_identifier get_output_package "
        "get_deployments get_grpc_host log execute Package GVK Identifier set_prepared validate_value "
        "evaluate_expression meta_schedule Client encode_package decode_package yaml"
    ).split():
        assert hasattr(tko, name), name
    for name in "kind kubectl helm".split():
        assert hasattr(tko.tools, name), name
    assert tko.tools.kubectl.apply and tko.tools.helm.iter_charts and tko.tools.helm.install
    assert tko.ansible.Inventory
    for one, many in (("template", "templates"), ("site", "sites"), ("plugin", "plugins")):
        for name in (f"register_{one}", f"get_{one}", f"delete_{one}", f"list_{many}", f"purge_{many}"):
            assert hasattr(tko.Client, name), name
    for name in (
        "create_deployment get_deployment delete_deployment list_deployments purge_deployments "
        "start_deployment_modification end_deployment_modification cancel_deployment_modification"
    ).split():
        assert hasattr(tko.Client, name), name


def test_functions_outside_of_a_request_raise() -> None:
    with pytest.raises(tko.Error, match="there is no request"):
        tko.get_target_resource()
