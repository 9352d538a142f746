"""A client of TKO's data controller, over gRPC."""

from __future__ import annotations

import datetime
import ipaddress
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from . import access_pb2 as access
from . import admin_pb2 as admin
from . import tko_pb2 as pb
from ._details import Details, WrittenDetails
from ._encoding import decode_package, encode_package, yaml
from ._error import Error
from ._package import GVK, Package, PackageList, Resource
from ._plugin import _current

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_MAX_COUNT = 100
"""The default maximum number of results of a list. A list warns if there are more."""
MAX_MAX_COUNT = (1 << 31) - 1
"""The largest maximum number of results of a list."""
DEFAULT_PACKAGE_FORMAT = "yaml"
"""The format in which packages are sent by default."""

FORMAT = "cbor"
DEFAULT_HOST = "localhost:50050"
MAX_MESSAGE = 1 << 30
_WARNING = "tko-warning-bin"
_HERE = Path(__file__).parent
_SERVICE = pb.DESCRIPTOR.services_by_name["Data"]
_ACCESS = access.DESCRIPTOR.services_by_name["Access"]
_ADMIN = admin.DESCRIPTOR.services_by_name["Admin"]

M = TypeVar("M", bound=Message)
R = TypeVar("R")


class RequestError(Error, grpc.RpcError):
    """The server, or a proxy in between, refused a request."""

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> None:
        super().__init__(message)
        self._code = code

    def code(self) -> grpc.StatusCode:
        """The status code: NOT_FOUND, INVALID_ARGUMENT, ABORTED (another client changes the object), UNAVAILABLE…"""
        return self._code

    def details(self) -> str:
        """The message."""
        return str(self)


@dataclass(frozen=True)
class About:
    """Facts about a server."""

    instance_name: str
    instance_description: str
    tko_version: str
    backend: str
    address_ports: tuple[str, ...]
    default_package_format: str


@dataclass(frozen=True)
class Deleted:
    """The result of a deletion."""

    count: int
    """The number of deleted objects, descendants of deployments included."""
    descendants: int


class Time(datetime.datetime):
    """A time in UTC with the methods of the protocol's timestamps."""

    def ToDatetime(self, tzinfo: datetime.tzinfo | None = None) -> datetime.datetime:
        """The time, in UTC if without a zone."""
        plain = datetime.datetime.fromtimestamp(self.timestamp(), tz=datetime.timezone.utc)
        return plain.replace(tzinfo=None) if tzinfo is None else plain.astimezone(tzinfo)

    def ToJsonString(self) -> str:
        """The time in RFC 3339."""
        return self.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Condition:
    """An observation about an object, such as whether it is prepared."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str
    message: str
    observed_revision: int
    last_transition_time: Time | None = None
    """When the status changed."""
    attempt: int = 0
    """The number of the failed attempt that the condition reports, from 1; 0 if it reports none."""
    next_try: Time | None = None
    """The latest start of the next attempt; None if only a change of the object starts one."""


@dataclass(frozen=True)
class _Packaged:
    metadata: dict[str, str]
    updated: Time | None
    revision: int
    package_format: str
    package: bytes
    who: str = field(default="", kw_only=True)
    """The author of the newest revision."""
    why: str = field(default="", kw_only=True)
    """The reason of the newest revision."""

    @property
    def packageFormat(self) -> str:
        """The format of the package."""
        return self.package_format

    def get_package(self) -> PackageList:
        """The resources of the package. Listed objects have none unless the call requested packages."""
        return decode_package(self.package, self.package_format or FORMAT)

    def _ard(self) -> dict[str, Any]:
        ard: dict[str, Any] = {"metadata": dict(self.metadata), "updated": _text(self.updated)}
        if self.package:
            ard["package"] = list(self.get_package())
        return ard


def _text(time: Time | None) -> str | None:
    return time.ToJsonString() if time else None


def _given(details: Details) -> dict[str, str]:
    texts = {field.name: getattr(details, field.name) for field in fields(Details)}
    return {name: text for name, text in texts.items() if text}


class _OfTemplate:
    template_id: str

    @property
    def templateId(self) -> str:
        """The template's ID."""
        return self.template_id


class _OfSite:
    site_id: str

    @property
    def siteId(self) -> str:
        """The site's ID."""
        return self.site_id


class _WithDeployments:
    deployment_ids: tuple[str, ...]

    @property
    def deploymentIds(self) -> list[str]:
        """The IDs of its deployments."""
        return list(self.deployment_ids)


@dataclass(frozen=True)
class Template(_Packaged, Details, _OfTemplate, _WithDeployments):
    """A template: a package from which deployments are created."""

    template_id: str
    deployment_ids: tuple[str, ...]
    deployment_count: int = 0
    """The number of deployments made from the template, in lists that count them."""
    created: Time | None = None
    conditions: tuple[Condition, ...] = ()

    def to_ard(self) -> dict[str, Any]:
        """The template as plain data."""
        return {"template_id": self.template_id, "deployment_ids": self.deploymentIds, **_given(self), **self._ard()}


@dataclass(frozen=True)
class Site(_Packaged, Details, _OfTemplate, _OfSite, _WithDeployments):
    """A site, at which deployments run."""

    site_id: str
    template_id: str
    deployment_ids: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    deployment_count: int = 0
    """The number of deployments at the site, in lists that count them."""
    created: Time | None = None
    awaited_template_id: str = ""
    """The template that the site names and that doesn't exist yet, or that its owner may not see."""

    def to_ard(self) -> dict[str, Any]:
        """The site as plain data."""
        return {
            "site_id": self.site_id,
            "template_id": self.template_id,
            "deployment_ids": self.deploymentIds,
            **_given(self),
            **self._ard(),
        }


@dataclass(frozen=True)
class Deployment(_Packaged, _OfTemplate, _OfSite):
    """A deployment: a package that runs, or is to run, at a site."""

    deployment_id: str
    parent_deployment_id: str
    template_id: str
    site_id: str
    created: Time | None
    prepared: bool
    approved: bool
    conditions: tuple[Condition, ...] = ()
    template_revision: int = 0
    """The revision of the template that the deployment was made from; 0 if it has none, or if it was not recorded."""
    awaited_template_id: str = ""
    """The template that the deployment names and that doesn't exist yet, or that its owner may not see."""
    awaited_site_id: str = ""
    """The site that the deployment names and that doesn't exist yet, or that its owner may not see."""
    replaces_deployment_ids: tuple[str, ...] = ()
    """Siblings that the deployment replaces when it is prepared and approved."""
    replaced_deployment_ids: tuple[str, ...] = ()
    """Siblings at the same site that the deployment has replaced, the newest first."""
    origin: str = ""
    """Of a child: its permanent name among the children of its parent."""

    @property
    def deploymentId(self) -> str:
        """The deployment's ID."""
        return self.deployment_id

    @property
    def parentDeploymentId(self) -> str:
        """The ID of the parent deployment, or empty."""
        return self.parent_deployment_id

    def to_ard(self) -> dict[str, Any]:
        """The deployment as plain data."""
        return {
            "deployment_id": self.deployment_id,
            "parent_deployment_id": self.parent_deployment_id,
            "template_id": self.template_id,
            "site_id": self.site_id,
            "created": _text(self.created),
            "prepared": self.prepared,
            "approved": self.approved,
            **self._ard(),
        }


class Modification(tuple[str, PackageList]):
    """A modification of a deployment, until it is ended, cancelled or expired: its token, and the package."""

    deployment_id: str

    def __new__(cls, token: str, package: PackageList, deployment_id: str = "") -> Modification:
        self = super().__new__(cls, (token, package))
        self.deployment_id = deployment_id
        return self

    @property
    def token(self) -> str:
        """The token that ends the modification."""
        return self[0]

    @property
    def package(self) -> PackageList:
        """The package to change."""
        return self[1]

    def get_package(self) -> PackageList:
        """The package to change."""
        return self[1]


@dataclass(frozen=True)
class RegisteredPlugin:
    """A registered plugin."""

    type: str
    name: str
    executor: str
    arguments: tuple[str, ...]
    properties: dict[str, str]
    triggers: tuple[GVK, ...]
    conditions: tuple[Condition, ...] = ()
    revision: int = 0
    created: Time | None = None
    updated: Time | None = None
    who: str = ""
    """The author of the newest revision."""
    why: str = ""
    """The reason of the newest revision."""


@dataclass(frozen=True)
class FailingWork:
    """Work that has failed since it was last done."""

    key: str
    """The ID of a deployment, site or rollout, or a source's name; site/ID of a site that waits for its template."""
    failures: int
    """Failures in a row."""
    error: str
    """The last error."""
    due: Time | None
    """The next attempt; while a controller works on it, the end of its lease."""


@dataclass(frozen=True)
class Queue:
    """A queue of the controllers' work."""

    name: str
    """prepare, schedule, compare, gitops, rollout or events."""
    ready: int
    """Items that are due, and that no controller works on."""
    running: int
    """Items that a controller works on."""
    retrying: int
    """Items that failed, and are due later."""
    waiting: int
    """Items that are due later."""
    oldest: int
    """Seconds since the first of the ready items became due."""
    failing: tuple[FailingWork, ...] = ()
    """What fails, with the most failures first: at most 100, and only what the caller may read."""


@dataclass(frozen=True)
class EnrollmentToken:
    """A token with which agents of sites get their certificates. It can't be shown again."""

    token: str
    """What tko-agent run --token-file reads."""
    expires: Time | None
    """The time from which it is not valid."""
    site_id: str = ""
    """The site of a token for one agent; of one for several, their pattern."""
    replaces: bool = False
    """Another agent of the site has a certificate, which ends when the token is used."""


@dataclass(frozen=True)
class WaitingAgent:
    """An agent that waits until a person approves it."""

    site_id: str
    """The site that it names."""
    key: str
    """SHA-256 of its public key, in hexadecimal digits, as its log has it."""
    address: str
    """The network address from which it asks."""
    pattern: str
    """The pattern of its token."""
    since: Time | None
    expires: Time | None
    """The time from which it waits no longer."""
    replaces: bool = False
    """The site has an agent, which ends when this one is approved."""


class ServerWarning(UserWarning):
    """What the server accepted, and its client should know, such as a property that no schema has."""


class TruncatedWarning(UserWarning):
    """A list has more results than the default maximum. The others are left out."""


Trigger = GVK | Mapping[str, str]
"""A trigger of a plugin: a GVK, or a dict of ``group``, ``version`` and ``kind``."""


class Client:
    """Talks to a TKO server. Use it in a ``with`` statement, or close it.

    ``host`` is ``address:port``. Without one it is the host of the plugin's request, or TKO_GRPC_HOST in the
    environment, or this machine.

    ``tls`` is True for the certificates that this machine trusts, or the path of a file of certificates to trust.
    ``certificate`` and ``key`` are paths of the client's own. ``server_name`` is the name in the server's certificate,
    if it isn't that of ``host``. ``token`` authenticates the client; it is sent over TLS or to this machine, else
    refused. What isn't given is taken from the environment, as by the ``tko`` command: TKO_TLS_CA, TKO_TLS (true for
    the certificates that this machine trusts), TKO_TLS_CERT, TKO_TLS_KEY, TKO_TLS_SERVER_NAME, TKO_TOKEN_FILE,
    TKO_TOKEN. In a plugin, the token is that of its request. ``context`` is the name of a context of the ``tko``
    command, with the host, the files and the token file. ``timeout`` bounds each call, in seconds; of lists, the time
    between two results. ``who`` and ``why`` are recorded with changes.

    The server refuses to delete very much (more than 100 entities that are more than half of their kind, unless it is
    configured otherwise) if ``confirm`` isn't the number of deleted entities, children included: ``dry_run`` counts
    them. With ``confirm``, it refuses any other number.

    ``filters`` of lists has further filters by the names of the fields of the message that selects, such as
    ``{"outdated": True}``, ``{"conditions": [{"type": "Healthy", "status": "False"}]}`` and
    ``{"updated_since": time}``. A time has a time zone, or is a timedelta before now.

    Calls raise RequestError. The documentation of ``tko`` describes IDs and patterns.
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        tls: bool | str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        token: str | None = None,
        timeout: float | None = 60.0,
        who: str | None = None,
        why: str | None = None,
        server_name: str | None = None,
        context: str | None = None,
    ) -> None:
        request = _current.get(None)
        settings = _context(context) if context else _environment()
        if not host:
            host = settings.get("address") or (request.grpc_host if request and not context else "")
        host = host or os.environ.get("TKO_GRPC_HOST") or DEFAULT_HOST
        of_request = request is not None and host == request.grpc_host
        if not of_request:  # the plugin's server is the one that runs it, with settings of its own
            tls = settings.get("tls-ca") or settings.get("tls") == "true" if tls is None else tls
            certificate = certificate or settings.get("tls-cert")
            key = key or settings.get("tls-key")
            server_name = server_name or settings.get("tls-server-name")
            token = token or settings.get("token") or _read_token(settings.get("token-file"))
        elif request is not None and not token and (tls or _is_local(host)):
            token = request.grpc_token
        tls = bool(tls) if tls is None else tls
        self.host = host
        self.timeout = timeout
        self._metadata: list[tuple[str, str | bytes]] = [("tko-confirm", "0")]  # this client can confirm numbers
        if token:
            if not tls and not _is_local(host):
                raise Error(f"a token for {host} needs TLS, or others could read it: use tls=True")
            self._metadata.append(("authorization", f"Bearer {token}"))
        if of_request and request is not None:
            trail = (("tko-request-id", request.request_id), ("traceparent", request.traceparent))
            self._metadata += [(name, value) for name, value in trail if value]
        for name, value in (("tko-who", who), ("tko-why", why)):
            if value:
                self._metadata.append((name, quote(value, safe=" !#$&'()*+,/:;<=>?@[]^`{|}~\"\\")))
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.enable_http_proxy", 0),
        ]
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        if tls or certificate:
            roots = None if isinstance(tls, bool) else Path(tls).read_bytes()
            credentials = grpc.ssl_channel_credentials(
                root_certificates=roots,
                private_key=Path(key).read_bytes() if key else None,
                certificate_chain=Path(certificate).read_bytes() if certificate else None,
            )
            self._channel = grpc.secure_channel(host, credentials, options=options)
        else:
            self._channel = grpc.insecure_channel(host, options=options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def about(self) -> About:
        """Facts about the server."""
        a = self._call("about", Empty(), pb.AboutResponse)
        return About(
            instance_name=a.instanceName,
            instance_description=a.instanceDescription,
            tko_version=a.tkoVersion,
            backend=a.backend,
            address_ports=tuple(a.addressPorts),
            default_package_format=a.defaultPackageFormat,
        )

    # Templates

    def register_template(
        self,
        template_id: str,
        metadata: Mapping[str, str] | None = None,
        package_format: str = DEFAULT_PACKAGE_FORMAT,
        package: Iterable[Resource] | bytes | str | None = None,
        **details: Unpack[WrittenDetails],
    ) -> int:
        """Creates or replaces a template. Returns its revision."""
        template = pb.Template(
            templateId=template_id,
            details=pb.Details(**details) if details else None,
            metadata=metadata,
            packageFormat=package_format,
            package=_encode(package, package_format),
        )
        return self._register("registerTemplate", template)

    def get_template(self, template_id: str, revision: int = 0) -> Template:
        """A template, or one of its earlier revisions."""
        request = pb.GetTemplate(templateId=template_id, preferredPackageFormat=FORMAT, revision=revision)
        return _template(self._call("getTemplate", request, pb.Template))

    def delete_template(self, template_id: str) -> Deleted:
        """Deletes a template. Its deployments stay."""
        return self._delete("deleteTemplate", pb.TemplateID(templateId=template_id))

    def list_templates(
        self,
        template_id_patterns: Iterable[str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        offset: int = 0,
        max_count: int = DEFAULT_MAX_COUNT,
        *,
        after: str = "",
        with_packages: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> Iterator[Template]:
        """The templates that match, sorted by ID, as they arrive.

        filters has further ones: see Client.
        """
        select = _filtered(_select_templates(template_id_patterns, metadata_patterns), filters)
        request = pb.ListTemplates(
            window=_window(offset, _asked(max_count), after),
            select=select,
            withPackages=with_packages,
            preferredPackageFormat=FORMAT,
        )
        return _counted(max_count, map(_template, self._stream("listTemplates", request, pb.ListedTemplate)))

    def purge_templates(
        self,
        template_id_patterns: Iterable[str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        confirm: int = 0,
    ) -> Deleted:
        """Deletes the templates that match: all, without patterns. confirm is the expected number: see Client."""
        select = _select_templates(template_id_patterns, metadata_patterns, dry_run)
        return self._delete("purgeTemplates", select, confirm)

    # Sites

    def register_site(
        self,
        site_id: str,
        template_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        package_format: str = DEFAULT_PACKAGE_FORMAT,
        package: Iterable[Resource] | bytes | str | None = None,
        **details: Unpack[WrittenDetails],
    ) -> int:
        """Creates or replaces a site. Returns its revision."""
        site = pb.Site(
            siteId=site_id,
            details=pb.Details(**details) if details else None,
            templateId=template_id,
            metadata=metadata,
            packageFormat=package_format,
            package=_encode(package, package_format),
        )
        return self._register("registerSite", site)

    def get_site(self, site_id: str, revision: int = 0) -> Site:
        """A site, or one of its earlier revisions."""
        request = pb.GetSite(siteId=site_id, preferredPackageFormat=FORMAT, revision=revision)
        return _site(self._call("getSite", request, pb.Site))

    def delete_site(self, site_id: str) -> Deleted:
        """Deletes a site. Its deployments stay."""
        return self._delete("deleteSite", pb.SiteID(siteId=site_id))

    def list_sites(
        self,
        site_id_patterns: Iterable[str] | None = None,
        template_id_patterns: Iterable[str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        offset: int = 0,
        max_count: int = DEFAULT_MAX_COUNT,
        *,
        after: str = "",
        with_packages: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> Iterator[Site]:
        """The sites that match, sorted by ID, as they arrive.

        filters has further ones: see Client.
        """
        request = pb.ListSites(
            window=_window(offset, _asked(max_count), after),
            select=_filtered(_select_sites(site_id_patterns, template_id_patterns, metadata_patterns), filters),
            withPackages=with_packages,
            preferredPackageFormat=FORMAT,
        )
        return _counted(max_count, map(_site, self._stream("listSites", request, pb.ListedSite)))

    def purge_sites(
        self,
        site_id_patterns: Iterable[str] | None = None,
        template_id_patterns: Iterable[str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        confirm: int = 0,
    ) -> Deleted:
        """Deletes the sites that match: all, without patterns. confirm is the expected number: see Client."""
        select = _select_sites(site_id_patterns, template_id_patterns, metadata_patterns, dry_run)
        return self._delete("purgeSites", select, confirm)

    # Deployments

    def create_deployment(
        self,
        template_id: str | None = None,
        parent_deployment_id: str | None = None,
        site_id: str | None = None,
        merge_metadata: Mapping[str, str] | None = None,
        prepared: bool = False,
        approved: bool = False,
        merge_package_format: str = DEFAULT_PACKAGE_FORMAT,
        merge_package: Iterable[Resource] | bytes | str | None = None,
    ) -> str:
        """Creates a deployment. Returns its ID."""
        request = pb.CreateDeployment(
            parentDeploymentId=parent_deployment_id,
            templateId=template_id,
            siteId=site_id,
            mergeMetadata=merge_metadata,
            prepared=prepared,
            approved=approved,
            mergePackageFormat=merge_package_format,
            mergePackage=_encode(merge_package, merge_package_format),
        )
        response = self._call("createDeployment", request, pb.CreateDeploymentResponse)
        if not response.created:
            raise RequestError(response.notCreatedReason or "not created")
        return response.deploymentId

    def get_deployment(self, deployment_id: str, revision: int = 0) -> Deployment:
        """A deployment, or one of its earlier revisions."""
        request = pb.GetDeployment(deploymentId=deployment_id, preferredPackageFormat=FORMAT, revision=revision)
        return _deployment(self._call("getDeployment", request, pb.Deployment))

    def delete_deployment(self, deployment_id: str, *, confirm: int = 0) -> Deleted:
        """Deletes a deployment, and its children. confirm is the expected number, itself included: see Client."""
        return self._delete("deleteDeployment", pb.DeploymentID(deploymentId=deployment_id), confirm)

    def list_deployments(
        self,
        parent_deployment_id: str | None = None,
        template_id_patterns: Iterable[str] | None = None,
        template_metadata_patterns: Mapping[str, str] | None = None,
        site_id_patterns: Iterable[str] | None = None,
        site_metadata_patterns: Mapping[str, str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        prepared: bool | None = None,
        approved: bool | None = None,
        offset: int = 0,
        max_count: int = DEFAULT_MAX_COUNT,
        *,
        after: str = "",
        with_packages: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> Iterator[Deployment]:
        """The deployments that match, sorted by ID, as they arrive.

        filters has further ones, such as outdated and conditions: see Client.
        """
        select = pb.SelectDeployments(
            parentDeploymentId=parent_deployment_id,
            metadataPatterns=metadata_patterns,
            templateIdPatterns=template_id_patterns,
            templateMetadataPatterns=template_metadata_patterns,
            siteIdPatterns=site_id_patterns,
            siteMetadataPatterns=site_metadata_patterns,
            prepared=prepared,
            approved=approved,
        )
        request = pb.ListDeployments(
            window=_window(offset, _asked(max_count), after),
            select=_filtered(select, filters),
            withPackages=with_packages,
            preferredPackageFormat=FORMAT,
        )
        return _counted(max_count, map(_deployment, self._stream("listDeployments", request, pb.ListedDeployment)))

    def purge_deployments(
        self,
        parent_deployment_id: str | None = None,
        template_id_patterns: Iterable[str] | None = None,
        template_metadata_patterns: Mapping[str, str] | None = None,
        site_id_patterns: Iterable[str] | None = None,
        site_metadata_patterns: Mapping[str, str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        prepared: bool | None = None,
        approved: bool | None = None,
        *,
        dry_run: bool = False,
        confirm: int = 0,
    ) -> Deleted:
        """Deletes the deployments that match, and their children: all, without patterns.

        confirm is the expected number, children included: see Client.
        """
        select = pb.SelectDeployments(
            parentDeploymentId=parent_deployment_id,
            metadataPatterns=metadata_patterns,
            templateIdPatterns=template_id_patterns,
            templateMetadataPatterns=template_metadata_patterns,
            siteIdPatterns=site_id_patterns,
            siteMetadataPatterns=site_metadata_patterns,
            prepared=prepared,
            approved=approved,
            dryRun=dry_run,
        )
        return self._delete("purgeDeployments", select, confirm)

    def approve_deployment(self, deployment_id: str) -> int:
        """Approves a prepared deployment. Returns 0 if it is approved already, otherwise 1."""
        request = pb.ApproveDeployments(deploymentId=deployment_id)
        return self._call("approveDeployments", request, pb.ApproveDeploymentsResponse).approved

    def approve_deployments(
        self,
        parent_deployment_id: str | None = None,
        template_id_patterns: Iterable[str] | None = None,
        template_metadata_patterns: Mapping[str, str] | None = None,
        site_id_patterns: Iterable[str] | None = None,
        site_metadata_patterns: Mapping[str, str] | None = None,
        metadata_patterns: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        confirm: int = 0,
    ) -> int:
        """Approves the prepared deployments that match: all, without patterns. Returns the number of new approvals.

        confirm is the expected number: see Client.
        """
        select = pb.SelectDeployments(
            parentDeploymentId=parent_deployment_id,
            metadataPatterns=metadata_patterns,
            templateIdPatterns=template_id_patterns,
            templateMetadataPatterns=template_metadata_patterns,
            siteIdPatterns=site_id_patterns,
            siteMetadataPatterns=site_metadata_patterns,
            dryRun=dry_run,
        )
        request = pb.ApproveDeployments(select=select, confirm=confirm)
        return self._call("approveDeployments", request, pb.ApproveDeploymentsResponse).approved

    def start_deployment_modification(self, deployment_id: str) -> Modification:
        """Starts a modification of a deployment. ABORTED if another client has one."""
        request = pb.StartDeploymentModification(deploymentId=deployment_id, preferredPackageFormat=FORMAT)
        response = self._call("startDeploymentModification", request, pb.StartDeploymentModificationResponse)
        if not response.started:
            raise RequestError(response.notStartedReason or "not started")
        package = decode_package(response.package, response.packageFormat or FORMAT)
        return Modification(response.modificationToken, package, deployment_id)

    def end_deployment_modification(
        self,
        modification_token: Modification | str,
        package_format: str = DEFAULT_PACKAGE_FORMAT,
        package: Iterable[Resource] | bytes | str | None = None,
    ) -> str:
        """Replaces the package of a deployment. Returns the deployment's ID. If refused, the token stays valid."""
        if package is None:
            raise Error("end_deployment_modification needs a package: without one, the deployment would lose its own")
        request = pb.EndDeploymentModification(
            modificationToken=_token(modification_token),
            packageFormat=package_format,
            package=_encode(package, package_format),
        )
        response = self._call("endDeploymentModification", request, pb.EndDeploymentModificationResponse)
        if not response.modified:
            raise RequestError(response.notModifiedReason or "not modified")
        return response.deploymentId

    def cancel_deployment_modification(self, modification_token: Modification | str) -> None:
        """Cancels a modification."""
        request = pb.CancelDeploymentModification(modificationToken=_token(modification_token))
        response = self._call("cancelDeploymentModification", request, pb.CancelDeploymentModificationResponse)
        if not response.cancelled:
            raise RequestError(response.notCancelledReason or "not cancelled")

    @contextmanager
    def modify_deployment(self, deployment_id: str) -> Iterator[Package]:
        """Changes a deployment's package in a ``with`` statement, which stores it unless it raises."""
        modification = self.start_deployment_modification(deployment_id)
        package = Package(modification.package)
        try:
            yield package
            self.end_deployment_modification(modification, FORMAT, package)
        except BaseException:
            with suppress(RequestError):  # the token expires; the first error is more helpful
                self.cancel_deployment_modification(modification)
            raise

    # Plugins

    def register_plugin(
        self,
        type: str,
        name: str,
        executor: str = "command",
        arguments: Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        triggers: Iterable[Trigger] | None = None,
    ) -> int:
        """Creates or replaces a plugin. Returns its revision."""
        plugin = pb.Plugin(
            type=type,
            name=name,
            executor=executor,
            arguments=arguments,
            properties=properties,
            triggers=[_gvk(t) for t in triggers or ()],
        )
        return self._register("registerPlugin", plugin)

    def get_plugin(self, type: str, name: str) -> RegisteredPlugin:
        """A plugin."""
        return _plugin(self._call("getPlugin", pb.PluginID(type=type, name=name), pb.Plugin))

    def delete_plugin(self, type: str, name: str) -> Deleted:
        """Deletes a plugin."""
        return self._delete("deletePlugin", pb.PluginID(type=type, name=name))

    def list_plugins(
        self,
        type: str | None = None,
        name_patterns: Iterable[str] | None = None,
        executor: str | None = None,
        trigger: Trigger | None = None,
        offset: int = 0,
        max_count: int = DEFAULT_MAX_COUNT,
        *,
        after: str = "",
    ) -> Iterator[RegisteredPlugin]:
        """The plugins that match, sorted by type and name, as they arrive."""
        select = _select_plugins(type, name_patterns, executor, trigger)
        request = pb.ListPlugins(window=_window(offset, _asked(max_count), after), select=select)
        return _counted(max_count, map(_plugin, self._stream("listPlugins", request, pb.Plugin)))

    def purge_plugins(
        self,
        type: str | None = None,
        name_patterns: Iterable[str] | None = None,
        executor: str | None = None,
        trigger: Trigger | None = None,
        *,
        dry_run: bool = False,
        confirm: int = 0,
    ) -> Deleted:
        """Deletes the plugins that match: all, without patterns."""
        select = _select_plugins(type, name_patterns, executor, trigger, dry_run)
        return self._delete("purgePlugins", select, confirm)

    # Queues

    def list_queues(self) -> Iterator[Queue]:
        """The queues of the controllers' work: how much waits, and what fails. It needs the right to inspect."""
        return map(_queue, self._stream("listQueues", Empty(), admin.QueueState, _ADMIN))

    # Agents of sites

    def enroll_site(self, site_id: str, *, valid_seconds: int = 0) -> EnrollmentToken:
        """Makes a one-time token for the agent of a site, valid for an hour by default. A token of the site that was
        not used ends. An agent of the site that has a certificate keeps it until the token is used."""
        request = access.EnrollSite(siteId=site_id, validSeconds=valid_seconds)
        return _enrollment(self._call("enrollSite", request, access.EnrollmentToken, _ACCESS))

    def enroll_sites(self, pattern: str, *, valid_seconds: int = 0, confirm: int = 0) -> EnrollmentToken:
        """Makes a token for the agents of all sites that match a pattern. Each of them waits until it is approved.
        A pattern that begins with a wildcard needs ``confirm``, the number of sites that match."""
        request = access.EnrollSites(pattern=pattern, validSeconds=valid_seconds, confirm=confirm)
        return _enrollment(self._call("enrollSites", request, access.EnrollmentToken, _ACCESS))

    def end_enrollment(self, pattern: str) -> None:
        """Ends the token for all sites that match a pattern; agents that have a certificate keep it."""
        self._call("enrollSites", access.EnrollSites(pattern=pattern, end=True), access.EnrollmentToken, _ACCESS)

    def list_waiting_agents(self) -> Iterator[WaitingAgent]:
        """The agents that wait for an approval, at sites that the caller may update."""
        return map(_waiting_agent, self._stream("listWaitingAgents", Empty(), access.WaitingAgent, _ACCESS))

    def approve_agent(self, site_id: str, key: str = "", *, replace: bool = False) -> None:
        """Approves the agent that waits for a site. ``key`` is the beginning of its key, at least 16 digits; it is
        needed if several wait for the site. ``replace`` permits that it replaces the agent that the site has."""
        self._call("approveAgent", access.ApproveAgent(siteId=site_id, key=key, replace=replace), Empty, _ACCESS)

    def refuse_agent(self, site_id: str, key: str = "") -> None:
        """Refuses the agent that waits for a site; ``key`` is as in approve_agent."""
        self._call("approveAgent", access.ApproveAgent(siteId=site_id, key=key, refuse=True), Empty, _ACCESS)

    def revoke_site(self, site_id: str) -> None:
        """Revokes the certificate of the agent of a site, and cuts its connection. What the site has stays there."""
        self._call("revokeSite", access.RevokeSite(siteId=site_id), Empty, _ACCESS)

    # Calls

    def _call(self, method: str, request: Message, response: type[M], service: Any = _SERVICE) -> M:
        call = self._channel.unary_unary(
            f"/{service.full_name}/{method}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=response.FromString,
        )
        try:
            result, ended = call.with_call(request, timeout=self.timeout, metadata=tuple(self._metadata))
        except grpc.RpcError as e:
            _warn(e)
            raise self._error(e) from None
        _warn(ended)
        assert isinstance(result, response)
        return result

    def _stream(self, method: str, request: Message, response: type[M], service: Any = _SERVICE) -> Iterator[M]:
        call = self._channel.unary_stream(
            f"/{service.full_name}/{method}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=response.FromString,
        )
        stream = call(request, metadata=tuple(self._metadata))
        return self._results(stream)

    def _results(self, stream: Any) -> Iterator[Any]:
        try:
            while True:
                late = threading.Event()
                timer = None
                if self.timeout is not None:

                    def stop(late: threading.Event = late) -> None:
                        late.set()
                        stream.cancel()

                    timer = threading.Timer(self.timeout, stop)
                    timer.daemon = True
                    timer.start()
                try:
                    result = next(stream)
                except StopIteration:
                    return
                except grpc.RpcError as e:
                    if late.is_set():
                        message = f"{self.host} sent nothing for {self.timeout} s"
                        raise RequestError(message, grpc.StatusCode.DEADLINE_EXCEEDED) from None
                    raise self._error(e) from None
                finally:
                    if timer is not None:
                        timer.cancel()
                yield result
        finally:
            stream.cancel()  # the caller doesn't read the rest

    def _error(self, e: grpc.RpcError) -> RequestError:
        code, details = e.code(), e.details() or ""
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            details = f"{self.host}: {details}"
        return RequestError(details or code.name, code)

    def _register(self, method: str, request: Message) -> int:
        response = self._call(method, request, pb.RegisterResponse)
        if not response.registered:
            raise RequestError(response.notRegisteredReason or "not registered")
        return response.revision

    def _delete(self, method: str, request: Message, confirm: int = 0) -> Deleted:
        if confirm:
            request.confirm = confirm  # type: ignore[attr-defined]  # every request of a deletion has it
        response = self._call(method, request, pb.DeleteResponse)
        if not response.deleted:
            raise RequestError(response.notDeletedReason or "not deleted")
        return Deleted(response.count, response.descendants)


def _warn(call: Any) -> None:
    """Shows the warnings that a response has in its trailer, at the line that called the client."""
    texts = [value for key, value in call.trailing_metadata() or () if key == _WARNING]
    if not texts:
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _HERE in Path(frame.f_code.co_filename).parents:
        level, frame = level + 1, frame.f_back
    for text in texts:
        message = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        warnings.warn(message, ServerWarning, stacklevel=level)


def _environment() -> dict[str, str]:
    names = ("tls-ca", "tls", "tls-cert", "tls-key", "tls-server-name", "token-file", "token")
    return {name: os.environ.get("TKO_" + name.upper().replace("-", "_"), "") for name in names}


def _context(name: str) -> dict[str, str]:
    """Reads a context of the ``tko`` command."""
    configured = os.environ.get("TKO_CONFIG")
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(configured) if configured else Path(home) / "tko" / "config.yaml"
    try:
        contexts = (yaml.load(path.read_text("utf-8")) or {}).get("contexts") or {}
    except FileNotFoundError:
        contexts = {}
    if name not in contexts:
        raise Error(f"there is no context {name!r} in {path}: make one with tko context set {name}")
    return {key: ("true" if value is True else str(value)) for key, value in (contexts[name] or {}).items() if value}


def _read_token(path: str | None) -> str:
    if not path:
        return ""
    token = Path(path).read_text("utf-8").strip()
    if not token or len(token.split()) != 1:
        raise Error(f"the token file {path} must have one token, and nothing else")
    return token


def _is_local(host: str) -> bool:
    address = host.rpartition(":")[0].strip("[]") if ":" in host else host
    if host.startswith("unix:") or address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _encode(package: Iterable[Resource] | bytes | str | None, format: str) -> bytes:
    return b"" if package is None else encode_package(package, format)


def _asked(max_count: int) -> int:
    """The maximum for the server: one more than the default shows whether the default leaves some out."""
    return max_count + 1 if max_count == DEFAULT_MAX_COUNT else max_count


def _counted(max_count: int, results: Iterator[R]) -> Iterator[R]:
    if max_count != DEFAULT_MAX_COUNT:
        return results
    return _default_count(results)


def _default_count(results: Iterator[R]) -> Iterator[R]:
    for i, result in enumerate(results):
        if i == DEFAULT_MAX_COUNT:
            warnings.warn(
                f"there are more than {DEFAULT_MAX_COUNT} results, and the rest is left out: "
                "set max_count, tko.client.MAX_MAX_COUNT for all",
                TruncatedWarning,
                stacklevel=3,
            )
            return
        yield result


def _token(modification: Modification | str) -> str:
    return modification if isinstance(modification, str) else modification.token


def _window(offset: int, max_count: int, after: str) -> pb.Window:
    return pb.Window(offset=offset, maxCount=max_count, after=after)


def _filtered(select: M, filters: Mapping[str, Any] | None) -> M:
    """Adds filters to the message that selects: names are those of its fields, in snake case."""
    fields = {
        "".join("_" + c.lower() if c.isupper() else c for c in f.name): f
        for f in select.DESCRIPTOR.fields
        if f.name not in ("dryRun", "confirm")
    }
    for name, value in (filters or {}).items():
        field = fields.get(name)
        if field is None:
            raise ValueError(f"{name} is no filter: use {', '.join(sorted(fields))}")
        if value is None:
            continue
        if isinstance(value, datetime.timedelta):
            value = datetime.datetime.now(datetime.timezone.utc) - value
        if isinstance(value, datetime.datetime):
            if value.tzinfo is None:
                raise ValueError(f"{name}={value} has no time zone: give it one, such as datetime.timezone.utc")
            getattr(select, field.name).FromDatetime(value)
        else:
            select.MergeFrom(type(select)(**{field.name: value}))
    return select


def _gvk(gvk: Trigger) -> pb.GVK:
    if isinstance(gvk, GVK):
        return pb.GVK(group=gvk.group, version=gvk.version, kind=gvk.kind)
    unknown = set(gvk) - {"group", "version", "kind"}
    if unknown:
        raise Error(f"a trigger has {sorted(unknown)[0]!r}: use group, version and kind")
    return pb.GVK(**gvk)


def _select_templates(
    ids: Iterable[str] | None, metadata: Mapping[str, str] | None, dry_run: bool = False
) -> pb.SelectTemplates:
    return pb.SelectTemplates(templateIdPatterns=ids, metadataPatterns=metadata, dryRun=dry_run)


def _select_sites(
    ids: Iterable[str] | None,
    templates: Iterable[str] | None,
    metadata: Mapping[str, str] | None,
    dry_run: bool = False,
) -> pb.SelectSites:
    return pb.SelectSites(siteIdPatterns=ids, templateIdPatterns=templates, metadataPatterns=metadata, dryRun=dry_run)


def _select_plugins(
    type: str | None,
    names: Iterable[str] | None,
    executor: str | None,
    trigger: Trigger | None,
    dry_run: bool = False,
) -> pb.SelectPlugins:
    return pb.SelectPlugins(
        type=type,
        namePatterns=names,
        executor=executor,
        trigger=_gvk(trigger) if trigger else None,
        dryRun=dry_run,
    )


def _time(message: Any, name: str) -> Time | None:
    if not message.HasField(name):
        return None
    time: datetime.datetime = getattr(message, name).ToDatetime(tzinfo=datetime.timezone.utc)
    return Time(
        time.year, time.month, time.day, time.hour, time.minute, time.second, time.microsecond, datetime.timezone.utc
    )


def _packaged(message: Any) -> dict[str, Any]:
    return {
        "metadata": dict(message.metadata),
        "updated": _time(message, "updated"),
        "revision": message.stamp.revision,
        "package_format": message.packageFormat,
        "package": message.package,
        "who": message.stamp.who,
        "why": message.stamp.why,
    }


def _template(message: pb.Template | pb.ListedTemplate) -> Template:
    return Template(
        **_packaged(message),
        **_details(message),
        template_id=message.templateId,
        deployment_ids=tuple(message.deploymentIds),
        deployment_count=_count(message),
        created=_time(message.stamp, "created"),
        conditions=_conditions(message),
    )


def _details(message: Any) -> dict[str, Any]:
    return {field.name: getattr(message.details, field.name) for field in pb.Details.DESCRIPTOR.fields}


def _count(message: Any) -> int:
    return max(len(message.deploymentIds), getattr(message, "deploymentCount", 0))


def _conditions(message: Any) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            c.type,
            c.status,
            c.reason,
            c.message,
            c.observedRevision,
            _time(c, "lastTransitionTime"),
            c.attempt,
            _time(c, "nextTry"),
        )
        for c in message.stamp.conditions
    )


def _site(message: pb.Site | pb.ListedSite) -> Site:
    return Site(
        **_packaged(message),
        **_details(message),
        site_id=message.siteId,
        template_id=message.templateId,
        awaited_template_id=message.awaitedTemplateId,
        deployment_ids=tuple(message.deploymentIds),
        conditions=_conditions(message),
        deployment_count=_count(message),
        created=_time(message.stamp, "created"),
    )


def _deployment(message: pb.Deployment | pb.ListedDeployment) -> Deployment:
    return Deployment(
        **_packaged(message),
        deployment_id=message.deploymentId,
        parent_deployment_id=message.parentDeploymentId,
        template_id=message.templateId,
        site_id=message.siteId,
        created=_time(message.stamp, "created") or _time(message, "created"),
        prepared=message.prepared,
        approved=message.approved,
        conditions=_conditions(message),
        template_revision=message.templateRevision,
        awaited_template_id=message.awaitedTemplateId,
        awaited_site_id=message.awaitedSiteId,
        replaces_deployment_ids=tuple(message.replacesDeploymentIds),
        replaced_deployment_ids=tuple(message.replacedDeploymentIds),
        origin=message.origin,
    )


def _plugin(message: pb.Plugin) -> RegisteredPlugin:
    return RegisteredPlugin(
        type=message.type,
        name=message.name,
        executor=message.executor,
        arguments=tuple(message.arguments),
        properties=dict(message.properties),
        triggers=tuple(GVK(t.group, t.version, t.kind) for t in message.triggers),
        conditions=_conditions(message),
        revision=message.stamp.revision,
        created=_time(message.stamp, "created"),
        updated=_time(message.stamp, "updated"),
        who=message.stamp.who,
        why=message.stamp.why,
    )


def _queue(message: admin.QueueState) -> Queue:
    return Queue(
        name=message.queue,
        ready=message.ready,
        running=message.running,
        retrying=message.retrying,
        waiting=message.waiting,
        oldest=message.oldest,
        failing=tuple(FailingWork(f.key, f.failures, f.error, _time(f, "due")) for f in message.failing),
    )


def _enrollment(message: access.EnrollmentToken) -> EnrollmentToken:
    return EnrollmentToken(message.token, _time(message, "expires"), message.siteId, message.replaces)


def _waiting_agent(message: access.WaitingAgent) -> WaitingAgent:
    return WaitingAgent(
        site_id=message.siteId,
        key=message.key,
        address=getattr(message, "from"),
        pattern=message.pattern,
        since=_time(message, "since"),
        expires=_time(message, "expires"),
        replaces=message.replaces,
    )
