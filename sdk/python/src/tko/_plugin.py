"""Plugins as functions of requests, and the transport of requests and responses."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from ._error import Error
from ._package import GVK, Identifier, Package, Resource, as_package

if TYPE_CHECKING:
    from .client import Client


@dataclass(frozen=True)
class Request:
    """The common fields of requests."""

    target_identifier: Identifier
    """The resource that triggered the plugin."""
    grpc_host: str
    """The address of TKO, in the form of ``tko.Client``. Empty if the request has none."""
    package: Package
    """The package with the resource: the one to check, the deployment's, or the site's."""
    log_file: str = ""
    log_address: str = ""
    log_token: str = ""
    grpc_token: str = field(default="", repr=False)
    """The token of the plugin's client, as long as the plugin runs. Clients send it by themselves."""
    request_id: str = ""
    """The ID of the request that caused the run, or empty. Clients send it by themselves, as they do the trace."""
    traceparent: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    """The document of the request."""

    @cached_property
    def target(self) -> Resource:
        """The resource that triggered the plugin."""
        resource = self.package.get(self.target_identifier)
        if resource is None:
            raise Error(f"{self.target_identifier} is not in the package")
        return resource

    def log(self, message: object) -> None:
        """Writes to the server's log."""
        _log(self.log_file, self.log_address, self.log_token, str(message))

    def client(self, **options: Any) -> Client:
        """A client of the TKO that sent the request."""
        from .client import Client

        return Client(self.grpc_host, **options)


@dataclass(frozen=True)
class ValidateRequest(Request):
    """A request to validate the target: raise an error with the cause if it is invalid."""

    complete: bool = False
    """If false, required values may be missing."""


@dataclass(frozen=True)
class PrepareRequest(Request):
    """A request to prepare the target: change the package, and mark the target with ``set_prepared``."""

    deployment_id: str = ""


@dataclass(frozen=True)
class ScheduleRequest(Request):
    """A request to make the site run these deployments, and no others."""

    site_id: str = ""
    deployments: dict[str, Package] = field(default_factory=dict)
    """The package of each deployment by its ID."""


Validate: TypeAlias = Callable[[ValidateRequest], None]
Prepare: TypeAlias = Callable[[PrepareRequest], "bool | Package"]
Schedule: TypeAlias = Callable[[ScheduleRequest], None]


@dataclass(frozen=True)
class Plugin:
    """The functions of a plugin: one for each type that it is registered as."""

    validate: Validate | None = None
    """Raises what is wrong."""
    prepare: Prepare | None = None
    """Returns True to store the request's package, or the package to store, or False to be called again later."""
    schedule: Schedule | None = None
    """Raises what is wrong."""

    def answer(self, document: Any) -> dict[str, Any]:
        """Returns the response document for a request document. Exceptions become its ``error``."""
        try:
            return self._answer(document)
        except Exception as e:
            if isinstance(e, (Error, ValueError)) and str(e):
                return {"error": str(e)}
            text = "".join(traceback.format_exception(e))
            if isinstance(document, dict):
                with contextlib.suppress(Exception):
                    file, address, token = (
                        str(document.get(k) or "") for k in ("logFile", "logAddressPort", "logToken")
                    )
                    _log(file, address, token, text)
            return {"error": f"{type(e).__name__}: {e}" if str(e) else type(e).__name__}

    def _answer(self, document: Any) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise Error("the request is not a map")
        if "deploymentPackage" in document:
            if self.prepare is None:
                raise Error("this plugin can't prepare: register it with the type of its functions")
            request = PrepareRequest(
                **_common(document, "deploymentPackage"), deployment_id=str(document.get("deploymentId") or "")
            )
            prepared = self.prepare(request)
            if isinstance(prepared, Package):
                return {"prepared": True, "package": prepared.package}
            return {"prepared": True, "package": request.package.package} if prepared else {"prepared": False}
        if "sitePackage" in document:
            if self.schedule is None:
                raise Error("this plugin can't schedule: register it with the type of its functions")
            packages = document.get("deployments") or {}
            self.schedule(
                ScheduleRequest(
                    **_common(document, "sitePackage"),
                    site_id=str(document.get("siteId") or ""),
                    deployments={str(i): as_package(p, f"deployments[{i!r}]") for i, p in packages.items()},
                )
            )
            return {}
        if self.validate is None:
            raise Error("this plugin can't validate: register it with the type of its functions")
        self.validate(ValidateRequest(**_common(document, "package"), complete=bool(document.get("complete"))))
        return {}


def _common(document: dict[str, Any], package: str) -> dict[str, Any]:
    target = document.get("targetResourceIdentifier") or {}
    grpc = document.get("grpc") or {}
    address, port = str(grpc.get("address") or ""), grpc.get("port")
    if ":" in address and not address.startswith("["):
        address = f"[{address}]"
    group, version, kind = (str(target.get(key) or "") for key in ("group", "version", "kind"))
    gvk = GVK(group, version, kind)
    return {
        "target_identifier": Identifier(gvk, str(target.get("name") or "")),
        "grpc_host": f"{address}:{port}" if address and port else "",
        "log_file": str(document.get("logFile") or ""),
        "log_address": str(document.get("logAddressPort") or ""),
        "log_token": str(document.get("logToken") or ""),
        "grpc_token": str(document.get("grpcToken") or ""),
        "request_id": str(document.get("requestId") or ""),
        "traceparent": str(document.get("traceparent") or ""),
        "package": as_package(document.get(package), package),
        "document": document,
    }


def run(*, validate: Validate | None = None, prepare: Prepare | None = None, schedule: Schedule | None = None) -> None:
    """Runs a plugin: reads requests from stdin and writes responses to stdout.

    It serves one request, or, if the server sets TKO_PERSISTENT, requests until stdin ends. Output of print goes to
    stderr.
    """
    plugin = Plugin(validate=validate, prepare=prepare, schedule=schedule)
    with _streams() as (requests, responses):
        if os.environ.get("TKO_PERSISTENT"):
            _serve(plugin, requests, responses)
            return
        from ._encoding import dump_yaml, load_yaml

        answer = plugin.answer(load_yaml(requests.read()))
        responses.write(dump_yaml(answer).encode() if responses.isatty() else _encode(answer) + b"\n")


@contextlib.contextmanager
def _streams() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Reserves stdin and stdout: a print, or a program that a plugin runs, can't disturb them."""
    sys.stdout.flush()
    # Child processes don't inherit the descriptors. Meanwhile, stdin is empty and stdout is stderr.
    with open(os.dup(0), "rb") as requests, open(os.dup(1), "wb") as responses, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        try:
            yield requests, responses
        finally:
            sys.stdout.flush()
            responses.flush()
            os.dup2(requests.fileno(), 0)
            os.dup2(responses.fileno(), 1)


def _serve(plugin: Plugin, requests: IO[bytes], responses: IO[bytes]) -> None:
    """Serves requests until stdin ends. See docs/plugins.md for the frames."""
    while header := requests.readline(100):
        word, number, size = (header.split() + [b"", b"", b""])[:3]
        if word != b"tko-request" or not number.isdigit() or not size.isdigit():
            raise SystemExit(f"this is no request: {header!r}")
        data = requests.read(int(size))
        if len(data) < int(size):
            return
        text = _encode(_answer(plugin, data))
        sys.stdout.flush()
        responses.write(b"tko-response %s %d\n" % (number, len(text)))
        responses.write(text)
        responses.flush()


def _answer(plugin: Plugin, data: bytes) -> dict[str, Any]:
    """Serves one request: the server writes JSON, other callers may write YAML."""
    import json

    try:
        document = json.loads(data)
    except ValueError:
        from ._encoding import load_yaml

        try:
            document = load_yaml(data)
        except Exception as e:  # parsers don't document all their exceptions
            return {"error": f"the request is neither JSON nor YAML: {e}"}
    return plugin.answer(document)


def _encode(answer: dict[str, Any]) -> bytes:
    from ._json import dump_json

    try:
        return dump_json(answer).encode()
    except (TypeError, ValueError, RecursionError) as e:
        return dump_json({"error": f"the answer can't be written: {e}"}).encode()


def _log(file: str, address: str, token: str, message: str) -> None:
    lines = "".join(line + "\n" for line in message.splitlines() if line)
    if not lines:
        return
    if file:
        with contextlib.suppress(OSError):
            fd = os.open(file, os.O_WRONLY | os.O_NONBLOCK)  # without this it would wait for a reader
            with open(fd, "wb") as log:
                if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                    log.seek(0, os.SEEK_END)
                os.set_blocking(fd, True)
                log.write(lines.encode(errors="replace"))
            return
    if address:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            named = f"tko-log {token}\n{lines}" if token else lines  # so the server knows the plugin of the lines
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as connection:
                connection.sendall(named.encode(errors="replace"))
            return
    sys.stderr.write(lines)


# The earlier form of plugins: functions without parameters.

_current: ContextVar[Request] = ContextVar("tko_request")
_output: ContextVar[dict[str, Any]] = ContextVar("tko_output")


def _request() -> Request:
    try:
        return _current.get()
    except LookupError:
        raise Error("there is no request: this works in functions given to tko.validate, prepare or schedule") from None


@contextlib.contextmanager
def _as_current(request: Request, **output: Any) -> Iterator[dict[str, Any]]:
    """Makes a request the current one for functions without parameters. Yields the response, which they can change."""
    response = {"error": "", **output}
    token, output_token = _current.set(request), _output.set(response)
    try:
        yield response
        if response.get("error"):
            raise Error(str(response["error"]))
    finally:
        _output.reset(output_token)
        _current.reset(token)


def current_document(name: str) -> Any:
    """The document of the request, or of the response; None while no plugin runs."""
    if name == "output":
        return _output.get(None)
    request = _current.get(None)
    return request.document if request else None


def validate(f: Callable[[bool], object]) -> None:
    """Runs a validate plugin. ``f(complete)`` raises or returns the cause, as a string, if the target is invalid."""

    def call(request: ValidateRequest) -> None:
        with _as_current(request, package=request.package.package):
            wrong = f(request.complete)
        if isinstance(wrong, str) and wrong:
            raise Error(wrong)

    run(validate=call)


def prepare(f: Callable[[], object]) -> None:
    """Runs a prepare plugin. ``f()`` changes the output package and returns whether to store it."""

    def call(request: PrepareRequest) -> bool | Package:
        with _as_current(request, prepared=False, package=request.package.package) as output:
            prepared = bool(f()) or bool(output.get("prepared"))
        return as_package(output.get("package"), "output['package']") if prepared else False

    run(prepare=call)


def schedule(f: Callable[[], object]) -> None:
    """Runs a schedule plugin. ``f()`` raises an error if it fails."""

    def call(request: ScheduleRequest) -> None:
        with _as_current(request, package=request.package.package):
            f()

    run(schedule=call)


def get_target_resource() -> Any:
    """The resource that triggered the plugin; None if the package doesn't have it."""
    return get_output_package()[_request().target_identifier]


def get_target_resource_identifier() -> Identifier:
    """The identity of the resource that triggered the plugin."""
    return _request().target_identifier


def get_output_package() -> Package:
    """The package with the target. Prepare plugins change it."""
    package = _request().package
    output = _output.get(None)
    if output is None or output.get("package") is package.package:
        return package
    return as_package(output.get("package"), "output['package']")


def get_deployments() -> Iterator[Package]:
    """The packages of the deployments to schedule."""
    request = _request()
    if not isinstance(request, ScheduleRequest):
        raise Error("only schedule plugins are given deployments")
    return iter(request.deployments.values())


def get_grpc_host() -> str:
    """The address of TKO, in the form of ``tko.Client``."""
    return _request().grpc_host


def split_ip_address_port(text: str) -> tuple[str | None, int | None]:
    """The address, without brackets, and the port of ``host:port``; (None, None) for other texts."""
    address, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        return None, None
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    return address, int(port)


def log(message: object) -> None:
    """Writes to the server's log; to stderr outside of a request."""
    request = _current.get(None)
    if request is None:
        sys.stderr.write(f"{message}\n")
    else:
        request.log(message)
