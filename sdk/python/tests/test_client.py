"""The client, with a real server: its address is in TKO_TEST_HOST. Go's tests start it."""

import datetime
import os
import subprocess
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import tko
from tko import admin_pb2 as admin
from tko import tko_pb2 as pb
from tko.client import MAX_MAX_COUNT, ServerWarning, TruncatedWarning, _queue

HOST = os.environ.get("TKO_TEST_HOST", "")
NRF = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nrf"}, "data": {"answer": "yes"}}


@pytest.fixture
def client() -> Iterator[tko.Client]:
    assert HOST, "TKO_TEST_HOST is not set: run this by `go test ./test/python`"
    with tko.Client(HOST, who="tester", why="100% Grüße") as c:
        yield c
        for purge in (c.purge_deployments, c.purge_sites, c.purge_templates, c.purge_plugins):
            purge(confirm=purge(dry_run=True).count)


def test_about_has_facts_of_the_server(client: tko.Client) -> None:
    about = client.about()
    assert about.backend and about.default_package_format == "cbor"


def test_templates_are_written_read_listed_and_deleted(client: tko.Client) -> None:
    assert client.register_template("nf/nrf:v1", {"type": "core"}, package=tko.Package([NRF])) == 1
    assert client.register_template("nf/upf:v1") == 1
    template = client.get_template("nf/nrf:v1")
    assert template.get_package() == tko.Package([NRF])
    assert (template.metadata, template.deployment_ids, template.revision) == ({"type": "core"}, (), 1)
    assert template.updated is not None and abs(template.updated.timestamp() - time.time()) < 600
    assert template.to_ard()["package"] == [NRF]
    assert [t.template_id for t in client.list_templates()] == ["nf/nrf:v1", "nf/upf:v1"]
    assert [t.template_id for t in client.list_templates(["*/upf:*"])] == ["nf/upf:v1"]
    assert [t.template_id for t in client.list_templates(metadata_patterns={"type": "c*"})] == ["nf/nrf:v1"]
    assert [t.template_id for t in client.list_templates(offset=1, max_count=5)] == ["nf/upf:v1"]
    assert [t.get_package() for t in client.list_templates(["**nrf**"], with_packages=True)] == [tko.Package([NRF])]
    assert client.purge_templates(["**"], dry_run=True).count == 2
    assert client.delete_template("nf/upf:v1").count == 1
    assert client.purge_templates(["nf/**"]).count == 1


def test_sites_are_written_read_listed_and_deleted(client: tko.Client) -> None:
    client.register_template("zone", package=tko.Package([NRF]))
    client.register_site("lagos/1", "zone", metadata={"region": "lagos"}, description="Roof of the post office")
    assert client.get_site("lagos/1").to_ard()["description"] == "Roof of the post office"
    client.register_site("lagos/1", "zone", metadata={"region": "lagos"})
    assert next(client.list_sites(["lagos/1"])).description == "Roof of the post office"  # it stays if none is given
    client.register_site("lagos/1", "zone", metadata={"region": "lagos"}, description="")
    site = client.get_site("lagos/1")
    assert site.description == "" and "description" not in site.to_ard()
    assert (site.template_id, site.metadata) == ("zone", {"region": "lagos"})
    assert site.to_ard()["site_id"] == "lagos/1" and site.to_ard()["package"] == [NRF]
    assert [s.site_id for s in client.list_sites(["lagos/*"], ["z*"], {"region": "l*"})] == ["lagos/1"]
    assert list(client.list_sites(["accra/*"])) == []
    site = next(client.list_sites(["lagos/1"]))
    assert site.updated is not None
    assert [s.site_id for s in client.list_sites(["lagos/1"], filters={"updated_since": site.updated})] == ["lagos/1"]
    hour = datetime.timedelta(hours=1)
    assert [s.site_id for s in client.list_sites(["lagos/1"], filters={"updated_since": hour})] == ["lagos/1"]
    later = site.updated + datetime.timedelta(seconds=1)
    assert list(client.list_sites(["lagos/1"], filters={"updated_since": later})) == []
    with pytest.raises(ValueError, match="has no time zone"):
        client.list_sites(filters={"updated_since": datetime.datetime(2026, 11, 22)})
    with pytest.raises(ValueError, match="site_id is no filter: use conditions, metadata_patterns"):
        client.list_sites(filters={"site_id": "lagos/1"})
    assert client.delete_site("lagos/1").count == 1
    assert client.purge_sites().count == 0
    for i in range(101):
        client.register_site(f"many/{i}")
    for confirm in (0, 100):
        with pytest.raises(tko.RequestError, match="101"):
            client.purge_sites(["many/*"], confirm=confirm)
    assert len(list(client.list_sites(max_count=tko.client.MAX_MAX_COUNT))) == 101
    assert client.purge_sites(["many/*"], confirm=client.purge_sites(["many/*"], dry_run=True).count).count == 101


def test_deployments_are_created_modified_listed_and_deleted(client: tko.Client) -> None:
    client.register_template("nrf", package=tko.Package([NRF]))
    client.register_site("lagos")
    parent = client.create_deployment("nrf", site_id="lagos", merge_metadata={"a": "b"})
    child = client.create_deployment(
        parent_deployment_id=parent, merge_package=tko.Package([{**NRF, "data": {"answer": "no"}}])
    )
    deployment = client.get_deployment(parent)
    assert (deployment.template_id, deployment.site_id, deployment.metadata["a"]) == ("nrf", "lagos", "b")
    assert deployment.to_ard()["deployment_id"] == parent
    assert [d.deployment_id for d in client.list_deployments()] == [parent, child]
    assert [d.deployment_id for d in client.list_deployments(parent_deployment_id=parent)] == [child]
    assert [d.deployment_id for d in client.list_deployments(site_id_patterns=["l*"], approved=False)] == [parent]
    assert [d.deployment_id for d in client.list_deployments(filters={"outdated": False})] == [parent, child]
    failed = {"conditions": [{"type": "Prepared", "status": "False"}]}
    assert list(client.list_deployments(approved=False, filters=failed)) == []

    modification = client.start_deployment_modification(parent)
    with pytest.raises(tko.RequestError) as raised:
        client.start_deployment_modification(parent)
    assert raised.value.code() == grpc.StatusCode.ABORTED
    package = modification.get_package()
    nrf = package[tko.Identifier(resource=NRF)]
    nrf["data"]["answer"] = "on"
    assert client.end_deployment_modification(modification, package=package) == parent
    assert client.get_deployment(parent).get_package()[tko.Identifier(resource=NRF)]["data"] == {"answer": "on"}
    client.cancel_deployment_modification(client.start_deployment_modification(parent).token)

    with client.modify_deployment(parent) as package:
        package[tko.Identifier(resource=NRF)]["data"]["answer"] = "off"
    assert client.get_deployment(parent).get_package()[tko.Identifier(resource=NRF)]["data"] == {"answer": "off"}
    with pytest.raises(ZeroDivisionError), client.modify_deployment(parent):
        raise ZeroDivisionError
    client.cancel_deployment_modification(client.start_deployment_modification(parent))  # cancelled
    deleted = client.delete_deployment(parent)
    assert (deleted.count, deleted.descendants) == (2, 1)
    assert client.purge_deployments(prepared=False).count == 0


def test_plugins_are_written_read_listed_and_deleted(client: tko.Client) -> None:
    gvk = tko.GVK("x.plugin.nephio.org", "v1", "X")
    client.register_plugin("prepare", "x", arguments=["/bin/x"], properties={"_persistent": "true"}, triggers=[gvk])
    plugin = client.get_plugin("prepare", "x")
    assert (plugin.executor, plugin.arguments, plugin.triggers) == ("command", ("/bin/x",), (gvk,))
    assert plugin.properties == {"_persistent": "true"}
    assert list(client.list_plugins(type="prepare", trigger=gvk)) == [plugin]
    assert list(client.list_plugins(type="schedule")) == []
    assert client.purge_plugins(name_patterns=["x"], dry_run=True).count == 1
    assert client.delete_plugin("prepare", "x").count == 1
    with pytest.raises(tko.RequestError, match="use true or false") as raised:
        client.register_plugin("prepare", "x", arguments=["/bin/x"], properties={"_persistent": "maybe"})
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_queues_are_listed_with_the_work_that_waits(client: tko.Client) -> None:
    before = {queue.name: queue for queue in client.list_queues()}
    assert {"prepare", "schedule", "compare", "gitops", "rollout", "events"} <= set(before)
    client.register_template("queued", package=[NRF])
    client.create_deployment("queued")
    after = {queue.name: queue for queue in client.list_queues()}
    assert after["prepare"].ready == before["prepare"].ready + 1  # no preparer runs here
    assert (after["prepare"].running, after["prepare"].failing) == (0, ())


def test_failing_work_has_its_error_and_next_attempt() -> None:
    due = Timestamp(seconds=1_700_000_000)
    failing = admin.FailingWork(key="lagos/1", failures=3, error="no route", due=due)
    queue = _queue(
        admin.QueueState(queue="schedule", ready=1, running=2, retrying=3, waiting=4, oldest=5, failing=[failing])
    )
    assert (queue.name, queue.ready, queue.running) == ("schedule", 1, 2)
    assert (queue.retrying, queue.waiting, queue.oldest) == (3, 4, 5)
    (work,) = queue.failing
    assert (work.key, work.failures, work.error) == ("lagos/1", 3, "no route")
    assert work.due is not None and work.due.ToJsonString() == "2023-11-14T22:13:20Z"


def test_agents_of_sites_are_enrolled_and_revoked(client: tko.Client) -> None:
    client.register_site("lagos/1")
    client.register_site("lagos/2")
    one = client.enroll_site("lagos/1", valid_seconds=600)
    assert (one.site_id, one.replaces) == ("lagos/1", False) and len(one.token) > 20
    assert one.expires is not None and 0 < one.expires.timestamp() - time.time() <= 601
    assert client.enroll_site("lagos/1").token != one.token
    with pytest.raises(tko.RequestError, match="nowhere") as raised:
        client.enroll_site("nowhere")
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    several = client.enroll_sites("lagos/*")
    assert several.site_id == "lagos/*" and several.token.startswith(one.token[:4])
    with pytest.raises(tko.RequestError, match="begins with a wildcard"):
        client.enroll_sites("*/1")
    client.end_enrollment("lagos/*")
    client.enroll_sites("*/1", confirm=1)
    client.enroll_sites("lagos/*")
    assert list(client.list_waiting_agents()) == []
    for decide in (client.approve_agent, client.refuse_agent):
        with pytest.raises(tko.RequestError, match="lagos/1"):
            decide("lagos/1")
    client.end_enrollment("lagos/*")
    with pytest.raises(tko.RequestError):
        client.end_enrollment("lagos/*")
    client.revoke_site("lagos/1")


def test_who_and_why_are_sent_as_metadata(client: tko.Client) -> None:
    client.register_template("t")
    stamp = client._call("getTemplate", pb.GetTemplate(templateId="t"), pb.Template).stamp
    assert (stamp.who, stamp.why) == ("tester", "100% Grüße")


def test_errors_have_the_status_code(client: tko.Client) -> None:
    with pytest.raises(tko.RequestError, match="nowhere") as raised:
        client.get_site("nowhere")
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    assert isinstance(raised.value, grpc.RpcError) and isinstance(raised.value, tko.Error)
    with pytest.raises(tko.RequestError) as raised:
        client.register_template("not an ID")
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(tko.RequestError) as raised:
        list(client.list_sites(["\\"]))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_lists_are_streamed(client: tko.Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: client.register_site(f"s/{i:04}"), range(300)))
    sites = client.list_sites()
    assert next(sites).site_id == "s/0000"
    del sites  # the rest is not wanted
    assert sum(1 for _ in client.list_sites(max_count=MAX_MAX_COUNT)) == 300
    with pytest.warns(TruncatedWarning, match="more than 100 results"):
        assert sum(1 for _ in client.list_sites()) == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in client.list_sites(["s/00*"])) == 100
        assert sum(1 for _ in client.list_sites(max_count=7)) == 7
    for pattern in ("s/00*", "s/01*", "s/02*"):
        client.purge_sites([pattern], confirm=100)


def test_warnings_of_the_server_are_shown_at_the_line_that_caused_them(client: tko.Client) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": {"known": {"type": "string"}}}},
                        }
                    },
                }
            ],
        },
    }
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"odd": "x"}}
    client.register_template("definitions", package=[crd])
    try:
        with pytest.warns(ServerWarning, match="odd") as shown:
            client.register_site("warned", package=[thing])
        assert {w.filename for w in shown} == {__file__}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            thing["spec"] = {"known": "x"}
            client.register_site("warned", package=[thing])
            thing["spec"] = {"odd": "x"}
            with pytest.raises(ServerWarning, match="odd"):
                client.register_site("warned", package=[thing])
    finally:
        client.purge_sites(["warned"])
        client.delete_template("definitions")


def test_unreachable_server_is_unavailable() -> None:
    with tko.Client("localhost:1", timeout=5) as client, pytest.raises(tko.RequestError, match="localhost:1") as raised:
        client.about()
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_client_uses_the_host_of_the_request(request_document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []

    def prepare(request: tko.PrepareRequest) -> bool:
        with request.client() as client:
            hosts.append(client.host)
        return False

    assert tko.Plugin(prepare=prepare).answer(request_document) == {"prepared": False}
    monkeypatch.setenv("TKO_GRPC_HOST", "elsewhere:1")
    with tko.Client() as client:
        hosts.append(client.host)
    monkeypatch.delenv("TKO_GRPC_HOST")
    with tko.Client() as client:
        hosts.append(client.host)
    assert hosts == ["[::1]:50050", "elsewhere:1", "localhost:50050"]


class Service(grpc.GenericRpcHandler):
    """A server whose about returns the request's metadata, and that lists sites slowly."""

    def service(self, details: Any) -> Any:
        if details.method == "/tko.Data/about":

            def about(_: bytes, context: Any) -> bytes:
                metadata = dict(context.invocation_metadata())
                return pb.AboutResponse(instanceName=metadata.get("authorization", "nobody")).SerializeToString()

            return grpc.unary_unary_rpc_method_handler(about)
        if details.method == "/tko.Data/getSite":

            def hang(_: bytes, context: Any) -> bytes:
                time.sleep(2)
                return b""

            return grpc.unary_unary_rpc_method_handler(hang)

        def sites(_: bytes, context: Any) -> Iterator[bytes]:
            yield pb.ListedSite(siteId="one").SerializeToString()
            time.sleep(10)

        return grpc.unary_stream_rpc_method_handler(sites)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "crt",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def stand_in(certificate: Path) -> Iterator[tuple[int, int]]:
    """A server with TLS that requires client certificates, and one without TLS."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=(Service(),))
    key, chain = (certificate / "key").read_bytes(), (certificate / "crt").read_bytes()
    credentials = grpc.ssl_server_credentials([(key, chain)], root_certificates=chain, require_client_auth=True)
    ports = server.add_secure_port("localhost:0", credentials), server.add_insecure_port("localhost:0")
    server.start()
    yield ports
    server.stop(None).wait()


def test_tokens_are_sent_over_tls_only(stand_in: tuple[int, int], certificate: Path) -> None:
    host = f"localhost:{stand_in[0]}"
    mine = {"certificate": certificate / "crt", "key": certificate / "key"}
    with tko.Client(host, tls=certificate / "crt", **mine, token="secret") as client:
        assert client.about().instance_name == "Bearer secret"
    with tko.Client(host, tls=certificate / "crt", timeout=10) as client, pytest.raises(tko.RequestError):
        client.about()  # without a certificate of its own
    with tko.Client(host, tls=True, **mine, timeout=10) as client, pytest.raises(tko.RequestError):
        client.about()  # its certificate isn't trusted
    with tko.Client(f"localhost:{stand_in[1]}", token="secret") as client:
        assert client.about().instance_name == "Bearer secret"
    for elsewhere in ("tko.example:50050", "10.0.0.1:50050", "[2001:db8::1]:50050", "localhost.example:50050"):
        with pytest.raises(tko.Error, match="needs TLS"):
            tko.Client(elsewhere, token="secret")
    for here in ("localhost:50050", "127.0.0.1:50050", "[::1]:50050"):
        tko.Client(here, token="secret").close()


def test_calls_end_after_the_timeout(stand_in: tuple[int, int]) -> None:
    with tko.Client(f"localhost:{stand_in[1]}", timeout=0.3) as client:
        with pytest.raises(tko.RequestError) as raised:
            client.get_site("s")
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    with tko.Client(f"localhost:{stand_in[1]}", timeout=4) as client:  # the first row may be slow on a busy machine
        sites = client.list_sites()
        assert next(sites).site_id == "one"
        with pytest.raises(tko.RequestError, match="sent nothing for 4 s") as raised:
            next(sites)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
