import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tko import tko_pb2 as _tko_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CanI(_message.Message):
    __slots__ = ("verb", "kind", "id")
    VERB_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    verb: str
    kind: str
    id: str
    def __init__(self, verb: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class CanIResponse(_message.Message):
    __slots__ = ("allowed", "access")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    access: str
    def __init__(self, allowed: _Optional[bool] = ..., access: _Optional[str] = ...) -> None: ...

class Scope(_message.Message):
    __slots__ = ("kinds", "siteId", "templateId", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    siteId: str
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., siteId: _Optional[str] = ..., templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("id", "subject", "group", "role", "scope", "expires", "reason", "boundBy", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BOUNDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    subject: str
    group: str
    role: str
    scope: Scope
    expires: _timestamp_pb2.Timestamp
    reason: str
    boundBy: str
    created: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., subject: _Optional[str] = ..., group: _Optional[str] = ..., role: _Optional[str] = ..., scope: _Optional[_Union[Scope, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ..., boundBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EnrollSite(_message.Message):
    __slots__ = ("siteId", "validSeconds")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    VALIDSECONDS_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    validSeconds: int
    def __init__(self, siteId: _Optional[str] = ..., validSeconds: _Optional[int] = ...) -> None: ...

class EnrollmentToken(_message.Message):
    __slots__ = ("siteId", "token", "expires", "replaces")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    token: str
    expires: _timestamp_pb2.Timestamp
    replaces: bool
    def __init__(self, siteId: _Optional[str] = ..., token: _Optional[str] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replaces: _Optional[bool] = ...) -> None: ...

class RevokeSite(_message.Message):
    __slots__ = ("siteId",)
    SITEID_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    def __init__(self, siteId: _Optional[str] = ...) -> None: ...

class EnrollSites(_message.Message):
    __slots__ = ("pattern", "validSeconds", "confirm", "end")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    VALIDSECONDS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    validSeconds: int
    confirm: int
    end: bool
    def __init__(self, pattern: _Optional[str] = ..., validSeconds: _Optional[int] = ..., confirm: _Optional[int] = ..., end: _Optional[bool] = ...) -> None: ...

class WaitingAgent(_message.Message):
    __slots__ = ("siteId", "key", "pattern", "since", "expires", "replaces")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    key: str
    pattern: str
    since: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    replaces: bool
    def __init__(self, siteId: _Optional[str] = ..., key: _Optional[str] = ..., pattern: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replaces: _Optional[bool] = ..., **kwargs) -> None: ...

class ApproveAgent(_message.Message):
    __slots__ = ("siteId", "key", "refuse", "replace")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    key: str
    refuse: bool
    replace: bool
    def __init__(self, siteId: _Optional[str] = ..., key: _Optional[str] = ..., refuse: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class Unbind(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetOwner(_message.Message):
    __slots__ = ("kind", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("subject", "groups")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subject: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class Owned(_message.Message):
    __slots__ = ("deployments", "rollouts", "sources", "sites")
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    deployments: int
    rollouts: int
    sources: int
    sites: int
    def __init__(self, deployments: _Optional[int] = ..., rollouts: _Optional[int] = ..., sources: _Optional[int] = ..., sites: _Optional[int] = ...) -> None: ...

class SetOwner(_message.Message):
    __slots__ = ("kind", "id", "subject", "group")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    subject: str
    group: str
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., subject: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("id", "scope", "approvers", "groups", "reason", "addedBy", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    APPROVERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADDEDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    scope: Scope
    approvers: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    addedBy: str
    created: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., scope: _Optional[_Union[Scope, _Mapping]] = ..., approvers: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., addedBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BreakGlass(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...

class ListAudit(_message.Message):
    __slots__ = ("request", "subject", "kind", "id", "siteId", "decision", "action", "since", "until", "after", "max")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    request: str
    subject: str
    kind: str
    id: str
    siteId: str
    decision: str
    action: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    after: int
    max: int
    def __init__(self, request: _Optional[str] = ..., subject: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., siteId: _Optional[str] = ..., decision: _Optional[str] = ..., action: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., after: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("seq", "text", "hash")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    seq: int
    text: bytes
    hash: bytes
    def __init__(self, seq: _Optional[int] = ..., text: _Optional[bytes] = ..., hash: _Optional[bytes] = ...) -> None: ...

class AuditHead(_message.Message):
    __slots__ = ("seq", "hash")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    seq: int
    hash: bytes
    def __init__(self, seq: _Optional[int] = ..., hash: _Optional[bytes] = ...) -> None: ...

class VerifyAudit(_message.Message):
    __slots__ = ("checkpoints",)
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[AuditHead]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[AuditHead, _Mapping]]] = ...) -> None: ...

class VerifyAuditResponse(_message.Message):
    __slots__ = ("base", "head")
    BASE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    base: AuditHead
    head: AuditHead
    def __init__(self, base: _Optional[_Union[AuditHead, _Mapping]] = ..., head: _Optional[_Union[AuditHead, _Mapping]] = ...) -> None: ...

class Freeze(_message.Message):
    __slots__ = ("id", "siteMetadata", "until", "reason", "frozenBy", "created", "confirm")
    class SiteMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SITEMETADATA_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FROZENBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    id: str
    siteMetadata: _containers.ScalarMap[str, str]
    until: _timestamp_pb2.Timestamp
    reason: str
    frozenBy: str
    created: _timestamp_pb2.Timestamp
    confirm: int
    def __init__(self, id: _Optional[str] = ..., siteMetadata: _Optional[_Mapping[str, str]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ..., frozenBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., confirm: _Optional[int] = ...) -> None: ...

class Unfreeze(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("id", "all", "topologyDeploymentId", "siteIds", "siteMetadata", "onlyUndo", "reason", "stoppedBy", "created", "releasing", "wave", "released", "waiting")
    class SiteMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGYDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    SITEIDS_FIELD_NUMBER: _ClassVar[int]
    SITEMETADATA_FIELD_NUMBER: _ClassVar[int]
    ONLYUNDO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STOPPEDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    RELEASING_FIELD_NUMBER: _ClassVar[int]
    WAVE_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    id: str
    all: bool
    topologyDeploymentId: str
    siteIds: _containers.RepeatedScalarFieldContainer[str]
    siteMetadata: _containers.ScalarMap[str, str]
    onlyUndo: bool
    reason: str
    stoppedBy: str
    created: _timestamp_pb2.Timestamp
    releasing: bool
    wave: int
    released: int
    waiting: int
    def __init__(self, id: _Optional[str] = ..., all: _Optional[bool] = ..., topologyDeploymentId: _Optional[str] = ..., siteIds: _Optional[_Iterable[str]] = ..., siteMetadata: _Optional[_Mapping[str, str]] = ..., onlyUndo: _Optional[bool] = ..., reason: _Optional[str] = ..., stoppedBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., releasing: _Optional[bool] = ..., wave: _Optional[int] = ..., released: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class InFlight(_message.Message):
    __slots__ = ("queue", "key", "since", "until")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StopStatus(_message.Message):
    __slots__ = ("stop", "siteCount", "deploymentCount", "inFlight", "inFlightCount", "waitingSites", "waitingDeployments", "rolloutIds")
    STOP_FIELD_NUMBER: _ClassVar[int]
    SITECOUNT_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTCOUNT_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    INFLIGHTCOUNT_FIELD_NUMBER: _ClassVar[int]
    WAITINGSITES_FIELD_NUMBER: _ClassVar[int]
    WAITINGDEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTIDS_FIELD_NUMBER: _ClassVar[int]
    stop: Stop
    siteCount: int
    deploymentCount: int
    inFlight: _containers.RepeatedCompositeFieldContainer[InFlight]
    inFlightCount: int
    waitingSites: int
    waitingDeployments: int
    rolloutIds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stop: _Optional[_Union[Stop, _Mapping]] = ..., siteCount: _Optional[int] = ..., deploymentCount: _Optional[int] = ..., inFlight: _Optional[_Iterable[_Union[InFlight, _Mapping]]] = ..., inFlightCount: _Optional[int] = ..., waitingSites: _Optional[int] = ..., waitingDeployments: _Optional[int] = ..., rolloutIds: _Optional[_Iterable[str]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("id", "onlyUndo", "dryRun")
    ID_FIELD_NUMBER: _ClassVar[int]
    ONLYUNDO_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    id: str
    onlyUndo: bool
    dryRun: bool
    def __init__(self, id: _Optional[str] = ..., onlyUndo: _Optional[bool] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class GetSiteStop(_message.Message):
    __slots__ = ("siteId",)
    SITEID_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    def __init__(self, siteId: _Optional[str] = ...) -> None: ...

class SiteStop(_message.Message):
    __slots__ = ("whole", "heldDeploymentIds", "reason")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    HELDDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    whole: bool
    heldDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, whole: _Optional[bool] = ..., heldDeploymentIds: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class SourceDefinition(_message.Message):
    __slots__ = ("kind", "name", "spec", "takeOver", "registeredBy", "created", "updated", "ending", "declaredBy", "undeclared")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    REGISTEREDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    DECLAREDBY_FIELD_NUMBER: _ClassVar[int]
    UNDECLARED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    spec: bytes
    takeOver: bool
    registeredBy: str
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    ending: SourceEnding
    declaredBy: str
    undeclared: bool
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., spec: _Optional[bytes] = ..., takeOver: _Optional[bool] = ..., registeredBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ending: _Optional[_Union[SourceEnding, _Mapping]] = ..., declaredBy: _Optional[str] = ..., undeclared: _Optional[bool] = ...) -> None: ...

class SourceEnding(_message.Message):
    __slots__ = ("keep", "confirmed")
    KEEP_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    keep: bool
    confirmed: int
    def __init__(self, keep: _Optional[bool] = ..., confirmed: _Optional[int] = ...) -> None: ...

class RegisterSources(_message.Message):
    __slots__ = ("sources", "dryRun")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[SourceDefinition]
    dryRun: bool
    def __init__(self, sources: _Optional[_Iterable[_Union[SourceDefinition, _Mapping]]] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class RegisterSourcesResponse(_message.Message):
    __slots__ = ("sources",)
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[RegisteredSource]
    def __init__(self, sources: _Optional[_Iterable[_Union[RegisteredSource, _Mapping]]] = ...) -> None: ...

class RegisteredSource(_message.Message):
    __slots__ = ("name", "created", "changed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    created: bool
    changed: bool
    def __init__(self, name: _Optional[str] = ..., created: _Optional[bool] = ..., changed: _Optional[bool] = ...) -> None: ...

class GetSourceDefinitions(_message.Message):
    __slots__ = ("knownVersion",)
    KNOWNVERSION_FIELD_NUMBER: _ClassVar[int]
    knownVersion: int
    def __init__(self, knownVersion: _Optional[int] = ...) -> None: ...

class SourceDefinitions(_message.Message):
    __slots__ = ("version", "sources")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    version: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceDefinition]
    def __init__(self, version: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceDefinition, _Mapping]]] = ...) -> None: ...

class DeclareSources(_message.Message):
    __slots__ = ("parent", "sources", "prune", "dryRun", "claim")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    parent: str
    sources: _containers.RepeatedCompositeFieldContainer[SourceDefinition]
    prune: bool
    dryRun: bool
    claim: str
    def __init__(self, parent: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourceDefinition, _Mapping]]] = ..., prune: _Optional[bool] = ..., dryRun: _Optional[bool] = ..., claim: _Optional[str] = ...) -> None: ...

class DeclareSourcesResponse(_message.Message):
    __slots__ = ("changed", "removed", "kept", "owned")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    changed: _containers.RepeatedScalarFieldContainer[str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    kept: _containers.RepeatedScalarFieldContainer[str]
    owned: int
    def __init__(self, changed: _Optional[_Iterable[str]] = ..., removed: _Optional[_Iterable[str]] = ..., kept: _Optional[_Iterable[str]] = ..., owned: _Optional[int] = ...) -> None: ...

class DeleteSource(_message.Message):
    __slots__ = ("name", "keep", "confirm")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    name: str
    keep: bool
    confirm: int
    def __init__(self, name: _Optional[str] = ..., keep: _Optional[bool] = ..., confirm: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("name", "spec", "uid", "declaredBy", "registeredBy", "created", "updated", "ownerSubject", "ownerGroups", "status", "begin", "beginAudit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    DECLAREDBY_FIELD_NUMBER: _ClassVar[int]
    REGISTEREDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    OWNERSUBJECT_FIELD_NUMBER: _ClassVar[int]
    OWNERGROUPS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    BEGINAUDIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: bytes
    uid: str
    declaredBy: str
    registeredBy: str
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    ownerSubject: str
    ownerGroups: _containers.RepeatedScalarFieldContainer[str]
    status: SubscriptionStatus
    begin: int
    beginAudit: int
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[bytes] = ..., uid: _Optional[str] = ..., declaredBy: _Optional[str] = ..., registeredBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ownerSubject: _Optional[str] = ..., ownerGroups: _Optional[_Iterable[str]] = ..., status: _Optional[_Union[SubscriptionStatus, _Mapping]] = ..., begin: _Optional[int] = ..., beginAudit: _Optional[int] = ...) -> None: ...

class SubscriptionStatus(_message.Message):
    __slots__ = ("sent", "lastSent", "lastMessageId", "position", "lag", "attempts", "nextTry", "conditions")
    SENT_FIELD_NUMBER: _ClassVar[int]
    LASTSENT_FIELD_NUMBER: _ClassVar[int]
    LASTMESSAGEID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXTTRY_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    sent: int
    lastSent: _timestamp_pb2.Timestamp
    lastMessageId: str
    position: int
    lag: int
    attempts: int
    nextTry: _timestamp_pb2.Timestamp
    conditions: _containers.RepeatedCompositeFieldContainer[_tko_pb2.Condition]
    def __init__(self, sent: _Optional[int] = ..., lastSent: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lastMessageId: _Optional[str] = ..., position: _Optional[int] = ..., lag: _Optional[int] = ..., attempts: _Optional[int] = ..., nextTry: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., conditions: _Optional[_Iterable[_Union[_tko_pb2.Condition, _Mapping]]] = ...) -> None: ...

class RegisterSubscriptions(_message.Message):
    __slots__ = ("subscriptions", "dryRun")
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    dryRun: bool
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class RegisterSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[RegisteredSubscription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[RegisteredSubscription, _Mapping]]] = ...) -> None: ...

class RegisteredSubscription(_message.Message):
    __slots__ = ("name", "created", "changed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    created: bool
    changed: bool
    def __init__(self, name: _Optional[str] = ..., created: _Optional[bool] = ..., changed: _Optional[bool] = ...) -> None: ...

class DeleteSubscription(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TestSubscription(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TestSubscriptionResponse(_message.Message):
    __slots__ = ("messageId",)
    MESSAGEID_FIELD_NUMBER: _ClassVar[int]
    messageId: str
    def __init__(self, messageId: _Optional[str] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("name", "path", "query", "description", "declaredBy", "registeredBy", "created", "updated", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DECLAREDBY_FIELD_NUMBER: _ClassVar[int]
    REGISTEREDBY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    query: str
    description: str
    declaredBy: str
    registeredBy: str
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    problem: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., query: _Optional[str] = ..., description: _Optional[str] = ..., declaredBy: _Optional[str] = ..., registeredBy: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class RegisterViews(_message.Message):
    __slots__ = ("views", "dryRun")
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[View]
    dryRun: bool
    def __init__(self, views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class RegisterViewsResponse(_message.Message):
    __slots__ = ("views",)
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[RegisteredView]
    def __init__(self, views: _Optional[_Iterable[_Union[RegisteredView, _Mapping]]] = ...) -> None: ...

class RegisteredView(_message.Message):
    __slots__ = ("name", "created", "changed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    created: bool
    changed: bool
    def __init__(self, name: _Optional[str] = ..., created: _Optional[bool] = ..., changed: _Optional[bool] = ...) -> None: ...

class DeleteView(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListCredentials(_message.Message):
    __slots__ = ("undeclared",)
    UNDECLARED_FIELD_NUMBER: _ClassVar[int]
    undeclared: bool
    def __init__(self, undeclared: _Optional[bool] = ...) -> None: ...

class ListCredentialsResponse(_message.Message):
    __slots__ = ("uses", "more")
    USES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    uses: _containers.RepeatedCompositeFieldContainer[CredentialUse]
    more: bool
    def __init__(self, uses: _Optional[_Iterable[_Union[CredentialUse, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class CredentialUse(_message.Message):
    __slots__ = ("credential", "host", "kind", "example", "count", "declared")
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    credential: str
    host: str
    kind: str
    example: str
    count: int
    declared: bool
    def __init__(self, credential: _Optional[str] = ..., host: _Optional[str] = ..., kind: _Optional[str] = ..., example: _Optional[str] = ..., count: _Optional[int] = ..., declared: _Optional[bool] = ...) -> None: ...
