import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AboutResponse(_message.Message):
    __slots__ = ("instanceName", "instanceDescription", "tkoVersion", "backend", "addressPorts", "defaultPackageFormat", "position", "conditions", "isolation", "reach")
    INSTANCENAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCEDESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TKOVERSION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    ADDRESSPORTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULTPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    instanceName: str
    instanceDescription: str
    tkoVersion: str
    backend: str
    addressPorts: _containers.RepeatedScalarFieldContainer[str]
    defaultPackageFormat: str
    position: int
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    isolation: _containers.RepeatedCompositeFieldContainer[IsolationLayer]
    reach: SourceReach
    def __init__(self, instanceName: _Optional[str] = ..., instanceDescription: _Optional[str] = ..., tkoVersion: _Optional[str] = ..., backend: _Optional[str] = ..., addressPorts: _Optional[_Iterable[str]] = ..., defaultPackageFormat: _Optional[str] = ..., position: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., isolation: _Optional[_Iterable[_Union[IsolationLayer, _Mapping]]] = ..., reach: _Optional[_Union[SourceReach, _Mapping]] = ...) -> None: ...

class IsolationLayer(_message.Message):
    __slots__ = ("name", "state", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("registered", "notRegisteredReason", "revision")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    NOTREGISTEREDREASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    registered: bool
    notRegisteredReason: str
    revision: int
    def __init__(self, registered: _Optional[bool] = ..., notRegisteredReason: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("deleted", "notDeletedReason", "count", "descendants", "orphaned")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    NOTDELETEDREASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DESCENDANTS_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    notDeletedReason: str
    count: int
    descendants: int
    orphaned: int
    def __init__(self, deleted: _Optional[bool] = ..., notDeletedReason: _Optional[str] = ..., count: _Optional[int] = ..., descendants: _Optional[int] = ..., orphaned: _Optional[int] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("offset", "maxCount", "after")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAXCOUNT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    offset: int
    maxCount: int
    after: str
    def __init__(self, offset: _Optional[int] = ..., maxCount: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class TemplateID(_message.Message):
    __slots__ = ("templateId", "confirm")
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    templateId: str
    confirm: int
    def __init__(self, templateId: _Optional[str] = ..., confirm: _Optional[int] = ...) -> None: ...

class Details(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: str
    def __init__(self, description: _Optional[str] = ...) -> None: ...

class Template(_message.Message):
    __slots__ = ("templateId", "metadata", "updated", "packageFormat", "package", "deploymentIds", "stamp", "keepPackage", "details")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    KEEPPACKAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    updated: _timestamp_pb2.Timestamp
    packageFormat: str
    package: bytes
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    stamp: Stamp
    keepPackage: bool
    details: Details
    def __init__(self, templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., deploymentIds: _Optional[_Iterable[str]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., keepPackage: _Optional[bool] = ..., details: _Optional[_Union[Details, _Mapping]] = ...) -> None: ...

class ListedTemplate(_message.Message):
    __slots__ = ("templateId", "metadata", "updated", "deploymentIds", "stamp", "packageFormat", "package", "deploymentCount", "details")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTCOUNT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    updated: _timestamp_pb2.Timestamp
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    stamp: Stamp
    packageFormat: str
    package: bytes
    deploymentCount: int
    details: Details
    def __init__(self, templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deploymentIds: _Optional[_Iterable[str]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., deploymentCount: _Optional[int] = ..., details: _Optional[_Union[Details, _Mapping]] = ...) -> None: ...

class GetTemplate(_message.Message):
    __slots__ = ("templateId", "preferredPackageFormat", "revision", "asOf")
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    templateId: str
    preferredPackageFormat: str
    revision: int
    asOf: str
    def __init__(self, templateId: _Optional[str] = ..., preferredPackageFormat: _Optional[str] = ..., revision: _Optional[int] = ..., asOf: _Optional[str] = ...) -> None: ...

class SelectTemplates(_message.Message):
    __slots__ = ("templateIdPatterns", "metadataPatterns", "dryRun", "confirm", "updatedSince")
    class MetadataPatternsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TEMPLATEIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    METADATAPATTERNS_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    UPDATEDSINCE_FIELD_NUMBER: _ClassVar[int]
    templateIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    metadataPatterns: _containers.ScalarMap[str, str]
    dryRun: bool
    confirm: int
    updatedSince: _timestamp_pb2.Timestamp
    def __init__(self, templateIdPatterns: _Optional[_Iterable[str]] = ..., metadataPatterns: _Optional[_Mapping[str, str]] = ..., dryRun: _Optional[bool] = ..., confirm: _Optional[int] = ..., updatedSince: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListTemplates(_message.Message):
    __slots__ = ("window", "select", "withPackages", "preferredPackageFormat", "withoutDeploymentIds", "withDeploymentCounts", "asOf")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    WITHPACKAGES_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    WITHOUTDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    WITHDEPLOYMENTCOUNTS_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    window: Window
    select: SelectTemplates
    withPackages: bool
    preferredPackageFormat: str
    withoutDeploymentIds: bool
    withDeploymentCounts: bool
    asOf: str
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., select: _Optional[_Union[SelectTemplates, _Mapping]] = ..., withPackages: _Optional[bool] = ..., preferredPackageFormat: _Optional[str] = ..., withoutDeploymentIds: _Optional[bool] = ..., withDeploymentCounts: _Optional[bool] = ..., asOf: _Optional[str] = ...) -> None: ...

class SiteID(_message.Message):
    __slots__ = ("siteId", "confirm")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    confirm: int
    def __init__(self, siteId: _Optional[str] = ..., confirm: _Optional[int] = ...) -> None: ...

class Site(_message.Message):
    __slots__ = ("siteId", "templateId", "metadata", "updated", "packageFormat", "package", "deploymentIds", "stamp", "keepPackage", "awaitedTemplateId", "details")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SITEID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    KEEPPACKAGE_FIELD_NUMBER: _ClassVar[int]
    AWAITEDTEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    updated: _timestamp_pb2.Timestamp
    packageFormat: str
    package: bytes
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    stamp: Stamp
    keepPackage: bool
    awaitedTemplateId: str
    details: Details
    def __init__(self, siteId: _Optional[str] = ..., templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., deploymentIds: _Optional[_Iterable[str]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., keepPackage: _Optional[bool] = ..., awaitedTemplateId: _Optional[str] = ..., details: _Optional[_Union[Details, _Mapping]] = ...) -> None: ...

class ListedSite(_message.Message):
    __slots__ = ("siteId", "templateId", "metadata", "updated", "deploymentIds", "stamp", "packageFormat", "package", "deploymentCount", "awaitedTemplateId", "details")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SITEID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTCOUNT_FIELD_NUMBER: _ClassVar[int]
    AWAITEDTEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    updated: _timestamp_pb2.Timestamp
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    stamp: Stamp
    packageFormat: str
    package: bytes
    deploymentCount: int
    awaitedTemplateId: str
    details: Details
    def __init__(self, siteId: _Optional[str] = ..., templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deploymentIds: _Optional[_Iterable[str]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., deploymentCount: _Optional[int] = ..., awaitedTemplateId: _Optional[str] = ..., details: _Optional[_Union[Details, _Mapping]] = ...) -> None: ...

class GetSite(_message.Message):
    __slots__ = ("siteId", "preferredPackageFormat", "revision", "asOf")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    preferredPackageFormat: str
    revision: int
    asOf: str
    def __init__(self, siteId: _Optional[str] = ..., preferredPackageFormat: _Optional[str] = ..., revision: _Optional[int] = ..., asOf: _Optional[str] = ...) -> None: ...

class SelectSites(_message.Message):
    __slots__ = ("siteIdPatterns", "templateIdPatterns", "metadataPatterns", "dryRun", "confirm", "conditions", "updatedSince")
    class MetadataPatternsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SITEIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    METADATAPATTERNS_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    UPDATEDSINCE_FIELD_NUMBER: _ClassVar[int]
    siteIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    templateIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    metadataPatterns: _containers.ScalarMap[str, str]
    dryRun: bool
    confirm: int
    conditions: _containers.RepeatedCompositeFieldContainer[SelectCondition]
    updatedSince: _timestamp_pb2.Timestamp
    def __init__(self, siteIdPatterns: _Optional[_Iterable[str]] = ..., templateIdPatterns: _Optional[_Iterable[str]] = ..., metadataPatterns: _Optional[_Mapping[str, str]] = ..., dryRun: _Optional[bool] = ..., confirm: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[SelectCondition, _Mapping]]] = ..., updatedSince: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SelectCondition(_message.Message):
    __slots__ = ("type", "status", "reason", "negate")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    reason: str
    negate: bool
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., negate: _Optional[bool] = ...) -> None: ...

class ListSites(_message.Message):
    __slots__ = ("window", "select", "withPackages", "preferredPackageFormat", "withoutDeploymentIds", "withDeploymentCounts", "asOf")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    WITHPACKAGES_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    WITHOUTDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    WITHDEPLOYMENTCOUNTS_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    window: Window
    select: SelectSites
    withPackages: bool
    preferredPackageFormat: str
    withoutDeploymentIds: bool
    withDeploymentCounts: bool
    asOf: str
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., select: _Optional[_Union[SelectSites, _Mapping]] = ..., withPackages: _Optional[bool] = ..., preferredPackageFormat: _Optional[str] = ..., withoutDeploymentIds: _Optional[bool] = ..., withDeploymentCounts: _Optional[bool] = ..., asOf: _Optional[str] = ...) -> None: ...

class DeploymentID(_message.Message):
    __slots__ = ("deploymentId", "revision", "confirm")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    revision: int
    confirm: int
    def __init__(self, deploymentId: _Optional[str] = ..., revision: _Optional[int] = ..., confirm: _Optional[int] = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("deploymentId", "parentDeploymentId", "templateId", "siteId", "metadata", "created", "updated", "prepared", "approved", "packageFormat", "package", "stamp", "origin", "replacesDeploymentIds", "templateRevision", "awaitedTemplateId", "awaitedSiteId", "replacedDeploymentIds")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REPLACESDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEREVISION_FIELD_NUMBER: _ClassVar[int]
    AWAITEDTEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    AWAITEDSITEID_FIELD_NUMBER: _ClassVar[int]
    REPLACEDDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    parentDeploymentId: str
    templateId: str
    siteId: str
    metadata: _containers.ScalarMap[str, str]
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    prepared: bool
    approved: bool
    packageFormat: str
    package: bytes
    stamp: Stamp
    origin: str
    replacesDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    templateRevision: int
    awaitedTemplateId: str
    awaitedSiteId: str
    replacedDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, deploymentId: _Optional[str] = ..., parentDeploymentId: _Optional[str] = ..., templateId: _Optional[str] = ..., siteId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., prepared: _Optional[bool] = ..., approved: _Optional[bool] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., origin: _Optional[str] = ..., replacesDeploymentIds: _Optional[_Iterable[str]] = ..., templateRevision: _Optional[int] = ..., awaitedTemplateId: _Optional[str] = ..., awaitedSiteId: _Optional[str] = ..., replacedDeploymentIds: _Optional[_Iterable[str]] = ...) -> None: ...

class ListedDeployment(_message.Message):
    __slots__ = ("deploymentId", "parentDeploymentId", "templateId", "siteId", "metadata", "created", "updated", "prepared", "approved", "stamp", "packageFormat", "package", "origin", "replacesDeploymentIds", "templateRevision", "awaitedTemplateId", "awaitedSiteId", "replacedDeploymentIds")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REPLACESDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEREVISION_FIELD_NUMBER: _ClassVar[int]
    AWAITEDTEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    AWAITEDSITEID_FIELD_NUMBER: _ClassVar[int]
    REPLACEDDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    parentDeploymentId: str
    templateId: str
    siteId: str
    metadata: _containers.ScalarMap[str, str]
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    prepared: bool
    approved: bool
    stamp: Stamp
    packageFormat: str
    package: bytes
    origin: str
    replacesDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    templateRevision: int
    awaitedTemplateId: str
    awaitedSiteId: str
    replacedDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, deploymentId: _Optional[str] = ..., parentDeploymentId: _Optional[str] = ..., templateId: _Optional[str] = ..., siteId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., prepared: _Optional[bool] = ..., approved: _Optional[bool] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., origin: _Optional[str] = ..., replacesDeploymentIds: _Optional[_Iterable[str]] = ..., templateRevision: _Optional[int] = ..., awaitedTemplateId: _Optional[str] = ..., awaitedSiteId: _Optional[str] = ..., replacedDeploymentIds: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateDeployment(_message.Message):
    __slots__ = ("parentDeploymentId", "templateId", "siteId", "mergeMetadata", "prepared", "approved", "mergePackageFormat", "mergePackage")
    class MergeMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    MERGEMETADATA_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    MERGEPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    MERGEPACKAGE_FIELD_NUMBER: _ClassVar[int]
    parentDeploymentId: str
    templateId: str
    siteId: str
    mergeMetadata: _containers.ScalarMap[str, str]
    prepared: bool
    approved: bool
    mergePackageFormat: str
    mergePackage: bytes
    def __init__(self, parentDeploymentId: _Optional[str] = ..., templateId: _Optional[str] = ..., siteId: _Optional[str] = ..., mergeMetadata: _Optional[_Mapping[str, str]] = ..., prepared: _Optional[bool] = ..., approved: _Optional[bool] = ..., mergePackageFormat: _Optional[str] = ..., mergePackage: _Optional[bytes] = ...) -> None: ...

class CreateDeploymentResponse(_message.Message):
    __slots__ = ("created", "notCreatedReason", "deploymentId")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    NOTCREATEDREASON_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    created: bool
    notCreatedReason: str
    deploymentId: str
    def __init__(self, created: _Optional[bool] = ..., notCreatedReason: _Optional[str] = ..., deploymentId: _Optional[str] = ...) -> None: ...

class GetDeployment(_message.Message):
    __slots__ = ("deploymentId", "preferredPackageFormat", "revision", "asOf")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    preferredPackageFormat: str
    revision: int
    asOf: str
    def __init__(self, deploymentId: _Optional[str] = ..., preferredPackageFormat: _Optional[str] = ..., revision: _Optional[int] = ..., asOf: _Optional[str] = ...) -> None: ...

class SelectDeployments(_message.Message):
    __slots__ = ("parentDeploymentId", "metadataPatterns", "templateIdPatterns", "templateMetadataPatterns", "siteIdPatterns", "siteMetadataPatterns", "prepared", "approved", "dryRun", "outdated", "confirm", "conditions", "deploymentIdPatterns", "updatedSince")
    class MetadataPatternsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TemplateMetadataPatternsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SiteMetadataPatternsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    METADATAPATTERNS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEMETADATAPATTERNS_FIELD_NUMBER: _ClassVar[int]
    SITEIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    SITEMETADATAPATTERNS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTIDPATTERNS_FIELD_NUMBER: _ClassVar[int]
    UPDATEDSINCE_FIELD_NUMBER: _ClassVar[int]
    parentDeploymentId: str
    metadataPatterns: _containers.ScalarMap[str, str]
    templateIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    templateMetadataPatterns: _containers.ScalarMap[str, str]
    siteIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    siteMetadataPatterns: _containers.ScalarMap[str, str]
    prepared: bool
    approved: bool
    dryRun: bool
    outdated: bool
    confirm: int
    conditions: _containers.RepeatedCompositeFieldContainer[SelectCondition]
    deploymentIdPatterns: _containers.RepeatedScalarFieldContainer[str]
    updatedSince: _timestamp_pb2.Timestamp
    def __init__(self, parentDeploymentId: _Optional[str] = ..., metadataPatterns: _Optional[_Mapping[str, str]] = ..., templateIdPatterns: _Optional[_Iterable[str]] = ..., templateMetadataPatterns: _Optional[_Mapping[str, str]] = ..., siteIdPatterns: _Optional[_Iterable[str]] = ..., siteMetadataPatterns: _Optional[_Mapping[str, str]] = ..., prepared: _Optional[bool] = ..., approved: _Optional[bool] = ..., dryRun: _Optional[bool] = ..., outdated: _Optional[bool] = ..., confirm: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[SelectCondition, _Mapping]]] = ..., deploymentIdPatterns: _Optional[_Iterable[str]] = ..., updatedSince: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListDeployments(_message.Message):
    __slots__ = ("window", "select", "withPackages", "preferredPackageFormat", "asOf")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    WITHPACKAGES_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    window: Window
    select: SelectDeployments
    withPackages: bool
    preferredPackageFormat: str
    asOf: str
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., select: _Optional[_Union[SelectDeployments, _Mapping]] = ..., withPackages: _Optional[bool] = ..., preferredPackageFormat: _Optional[str] = ..., asOf: _Optional[str] = ...) -> None: ...

class StartDeploymentModification(_message.Message):
    __slots__ = ("deploymentId", "preferredPackageFormat", "validity")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    VALIDITY_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    preferredPackageFormat: str
    validity: _duration_pb2.Duration
    def __init__(self, deploymentId: _Optional[str] = ..., preferredPackageFormat: _Optional[str] = ..., validity: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StartDeploymentModificationResponse(_message.Message):
    __slots__ = ("started", "notStartedReason", "modificationToken", "packageFormat", "package", "expires")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    NOTSTARTEDREASON_FIELD_NUMBER: _ClassVar[int]
    MODIFICATIONTOKEN_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    started: bool
    notStartedReason: str
    modificationToken: str
    packageFormat: str
    package: bytes
    expires: _timestamp_pb2.Timestamp
    def __init__(self, started: _Optional[bool] = ..., notStartedReason: _Optional[str] = ..., modificationToken: _Optional[str] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EndDeploymentModification(_message.Message):
    __slots__ = ("modificationToken", "packageFormat", "package")
    MODIFICATIONTOKEN_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    modificationToken: str
    packageFormat: str
    package: bytes
    def __init__(self, modificationToken: _Optional[str] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ...) -> None: ...

class EndDeploymentModificationResponse(_message.Message):
    __slots__ = ("modified", "notModifiedReason", "deploymentId", "revision")
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    NOTMODIFIEDREASON_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    modified: bool
    notModifiedReason: str
    deploymentId: str
    revision: int
    def __init__(self, modified: _Optional[bool] = ..., notModifiedReason: _Optional[str] = ..., deploymentId: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class CancelDeploymentModification(_message.Message):
    __slots__ = ("modificationToken",)
    MODIFICATIONTOKEN_FIELD_NUMBER: _ClassVar[int]
    modificationToken: str
    def __init__(self, modificationToken: _Optional[str] = ...) -> None: ...

class CancelDeploymentModificationResponse(_message.Message):
    __slots__ = ("cancelled", "notCancelledReason")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    NOTCANCELLEDREASON_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    notCancelledReason: str
    def __init__(self, cancelled: _Optional[bool] = ..., notCancelledReason: _Optional[str] = ...) -> None: ...

class ListModifications(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Modification(_message.Message):
    __slots__ = ("deploymentId", "started", "expires", "who", "why")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    started: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    who: str
    why: str
    def __init__(self, deploymentId: _Optional[str] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class BreakModification(_message.Message):
    __slots__ = ("deploymentId",)
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    def __init__(self, deploymentId: _Optional[str] = ...) -> None: ...

class PluginID(_message.Message):
    __slots__ = ("type", "name", "confirm", "asOf")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    confirm: int
    asOf: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ..., confirm: _Optional[int] = ..., asOf: _Optional[str] = ...) -> None: ...

class GVK(_message.Message):
    __slots__ = ("group", "version", "kind")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    group: str
    version: str
    kind: str
    def __init__(self, group: _Optional[str] = ..., version: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Plugin(_message.Message):
    __slots__ = ("type", "name", "executor", "arguments", "properties", "triggers", "stamp")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    executor: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    triggers: _containers.RepeatedCompositeFieldContainer[GVK]
    stamp: Stamp
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ..., executor: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., triggers: _Optional[_Iterable[_Union[GVK, _Mapping]]] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ...) -> None: ...

class SelectPlugins(_message.Message):
    __slots__ = ("type", "namePatterns", "executor", "trigger", "dryRun", "confirm")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAMEPATTERNS_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    type: str
    namePatterns: _containers.RepeatedScalarFieldContainer[str]
    executor: str
    trigger: GVK
    dryRun: bool
    confirm: int
    def __init__(self, type: _Optional[str] = ..., namePatterns: _Optional[_Iterable[str]] = ..., executor: _Optional[str] = ..., trigger: _Optional[_Union[GVK, _Mapping]] = ..., dryRun: _Optional[bool] = ..., confirm: _Optional[int] = ...) -> None: ...

class ListPlugins(_message.Message):
    __slots__ = ("window", "select", "asOf")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    ASOF_FIELD_NUMBER: _ClassVar[int]
    window: Window
    select: SelectPlugins
    asOf: str
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., select: _Optional[_Union[SelectPlugins, _Mapping]] = ..., asOf: _Optional[str] = ...) -> None: ...

class Stamp(_message.Message):
    __slots__ = ("uid", "revision", "position", "created", "updated", "who", "why", "conditions", "leftOut", "steps")
    UID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    LEFTOUT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    uid: str
    revision: int
    position: int
    created: _timestamp_pb2.Timestamp
    updated: _timestamp_pb2.Timestamp
    who: str
    why: str
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    leftOut: _containers.RepeatedScalarFieldContainer[str]
    steps: _containers.RepeatedCompositeFieldContainer[PreparationStep]
    def __init__(self, uid: _Optional[str] = ..., revision: _Optional[int] = ..., position: _Optional[int] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., why: _Optional[str] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., leftOut: _Optional[_Iterable[str]] = ..., steps: _Optional[_Iterable[_Union[PreparationStep, _Mapping]]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("type", "status", "reason", "message", "lastTransitionTime", "observedRevision", "attempt", "nextTry")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LASTTRANSITIONTIME_FIELD_NUMBER: _ClassVar[int]
    OBSERVEDREVISION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXTTRY_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: _timestamp_pb2.Timestamp
    observedRevision: int
    attempt: int
    nextTry: _timestamp_pb2.Timestamp
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., lastTransitionTime: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., observedRevision: _Optional[int] = ..., attempt: _Optional[int] = ..., nextTry: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PreparationStep(_message.Message):
    __slots__ = ("resource", "plugin", "iteration", "took", "notes", "notesLeftOut")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TOOK_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    NOTESLEFTOUT_FIELD_NUMBER: _ClassVar[int]
    resource: str
    plugin: str
    iteration: int
    took: _duration_pb2.Duration
    notes: _containers.RepeatedScalarFieldContainer[str]
    notesLeftOut: int
    def __init__(self, resource: _Optional[str] = ..., plugin: _Optional[str] = ..., iteration: _Optional[int] = ..., took: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., notesLeftOut: _Optional[int] = ...) -> None: ...

class ApproveDeployments(_message.Message):
    __slots__ = ("deploymentId", "select", "confirm")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    select: SelectDeployments
    confirm: int
    def __init__(self, deploymentId: _Optional[str] = ..., select: _Optional[_Union[SelectDeployments, _Mapping]] = ..., confirm: _Optional[int] = ...) -> None: ...

class ApproveDeploymentsResponse(_message.Message):
    __slots__ = ("approved",)
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    approved: int
    def __init__(self, approved: _Optional[int] = ...) -> None: ...

class CommitDeployment(_message.Message):
    __slots__ = ("deploymentId", "revision", "packageFormat", "package", "conditions", "steps", "cause", "why")
    DEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    deploymentId: str
    revision: int
    packageFormat: str
    package: bytes
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    steps: _containers.RepeatedCompositeFieldContainer[PreparationStep]
    cause: str
    why: str
    def __init__(self, deploymentId: _Optional[str] = ..., revision: _Optional[int] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[PreparationStep, _Mapping]]] = ..., cause: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class CommitDeploymentResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class CommitDeployments(_message.Message):
    __slots__ = ("commits",)
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[CommitDeployment]
    def __init__(self, commits: _Optional[_Iterable[_Union[CommitDeployment, _Mapping]]] = ...) -> None: ...

class CommitDeploymentsResponse(_message.Message):
    __slots__ = ("revisions",)
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revisions: _Optional[_Iterable[int]] = ...) -> None: ...

class GetDeployments(_message.Message):
    __slots__ = ("deploymentIds", "preferredPackageFormat")
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    PREFERREDPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    preferredPackageFormat: str
    def __init__(self, deploymentIds: _Optional[_Iterable[str]] = ..., preferredPackageFormat: _Optional[str] = ...) -> None: ...

class GetDeploymentsResponse(_message.Message):
    __slots__ = ("deployments",)
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    def __init__(self, deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ...) -> None: ...

class CreateChildren(_message.Message):
    __slots__ = ("parentDeploymentId", "parentRevision", "mergePackageFormat", "mergePackage", "children", "create", "remove", "sites")
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    PARENTREVISION_FIELD_NUMBER: _ClassVar[int]
    MERGEPACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    MERGEPACKAGE_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    parentDeploymentId: str
    parentRevision: int
    mergePackageFormat: str
    mergePackage: bytes
    children: _containers.RepeatedCompositeFieldContainer[Child]
    create: int
    remove: int
    sites: int
    def __init__(self, parentDeploymentId: _Optional[str] = ..., parentRevision: _Optional[int] = ..., mergePackageFormat: _Optional[str] = ..., mergePackage: _Optional[bytes] = ..., children: _Optional[_Iterable[_Union[Child, _Mapping]]] = ..., create: _Optional[int] = ..., remove: _Optional[int] = ..., sites: _Optional[int] = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("origin", "templateId", "siteId", "replacesDeploymentIds")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    REPLACESDEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    origin: str
    templateId: str
    siteId: str
    replacesDeploymentIds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, origin: _Optional[str] = ..., templateId: _Optional[str] = ..., siteId: _Optional[str] = ..., replacesDeploymentIds: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateChildrenResponse(_message.Message):
    __slots__ = ("deploymentIds", "created")
    DEPLOYMENTIDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    deploymentIds: _containers.RepeatedScalarFieldContainer[str]
    created: int
    def __init__(self, deploymentIds: _Optional[_Iterable[str]] = ..., created: _Optional[int] = ...) -> None: ...

class ProvisionSite(_message.Message):
    __slots__ = ("origin", "templateId", "metadata", "packageFormat", "package", "details")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    origin: str
    templateId: str
    metadata: _containers.ScalarMap[str, str]
    packageFormat: str
    package: bytes
    details: Details
    def __init__(self, origin: _Optional[str] = ..., templateId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., details: _Optional[_Union[Details, _Mapping]] = ...) -> None: ...

class ProvisionSiteResponse(_message.Message):
    __slots__ = ("siteId", "created")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    created: bool
    def __init__(self, siteId: _Optional[str] = ..., created: _Optional[bool] = ...) -> None: ...

class ResolveSite(_message.Message):
    __slots__ = ("siteId",)
    SITEID_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    def __init__(self, siteId: _Optional[str] = ...) -> None: ...

class ResolveSiteResponse(_message.Message):
    __slots__ = ("waits",)
    WAITS_FIELD_NUMBER: _ClassVar[int]
    waits: bool
    def __init__(self, waits: _Optional[bool] = ...) -> None: ...

class SetConditions(_message.Message):
    __slots__ = ("kind", "id", "conditions")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ...) -> None: ...

class ClaimWork(_message.Message):
    __slots__ = ("queue", "worker", "maxItems", "lease", "wait")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MAXITEMS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    worker: str
    maxItems: int
    lease: _duration_pb2.Duration
    wait: _duration_pb2.Duration
    def __init__(self, queue: _Optional[str] = ..., worker: _Optional[str] = ..., maxItems: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ClaimWorkResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[WorkItem]
    def __init__(self, items: _Optional[_Iterable[_Union[WorkItem, _Mapping]]] = ...) -> None: ...

class WorkItem(_message.Message):
    __slots__ = ("queue", "key", "claim", "attempt", "lastError", "cause", "keep")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LASTERROR_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    claim: str
    attempt: int
    lastError: str
    cause: str
    keep: bool
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., claim: _Optional[str] = ..., attempt: _Optional[int] = ..., lastError: _Optional[str] = ..., cause: _Optional[str] = ..., keep: _Optional[bool] = ...) -> None: ...

class RenewWork(_message.Message):
    __slots__ = ("items", "lease")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[WorkItem]
    lease: _duration_pb2.Duration
    def __init__(self, items: _Optional[_Iterable[_Union[WorkItem, _Mapping]]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RenewWorkResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[WorkItem]
    def __init__(self, items: _Optional[_Iterable[_Union[WorkItem, _Mapping]]] = ...) -> None: ...

class FinishWork(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[FinishedWork]
    def __init__(self, items: _Optional[_Iterable[_Union[FinishedWork, _Mapping]]] = ...) -> None: ...

class FinishedWork(_message.Message):
    __slots__ = ("item", "outcome", "error", "retry", "gather")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DONE: _ClassVar[FinishedWork.Outcome]
        FAILED: _ClassVar[FinishedWork.Outcome]
        LATER: _ClassVar[FinishedWork.Outcome]
        RELEASED: _ClassVar[FinishedWork.Outcome]
    DONE: FinishedWork.Outcome
    FAILED: FinishedWork.Outcome
    LATER: FinishedWork.Outcome
    RELEASED: FinishedWork.Outcome
    ITEM_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    GATHER_FIELD_NUMBER: _ClassVar[int]
    item: WorkItem
    outcome: FinishedWork.Outcome
    error: str
    retry: _duration_pb2.Duration
    gather: bool
    def __init__(self, item: _Optional[_Union[WorkItem, _Mapping]] = ..., outcome: _Optional[_Union[FinishedWork.Outcome, str]] = ..., error: _Optional[str] = ..., retry: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., gather: _Optional[bool] = ...) -> None: ...

class WatchChanges(_message.Message):
    __slots__ = ("after", "kinds", "newest")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    after: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    newest: int
    def __init__(self, after: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., newest: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("position", "kind", "id", "op", "revision", "time", "who", "why")
    class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WRITTEN: _ClassVar[Change.Op]
        DELETED: _ClassVar[Change.Op]
        STATUS: _ClassVar[Change.Op]
    WRITTEN: Change.Op
    DELETED: Change.Op
    STATUS: Change.Op
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    position: int
    kind: str
    id: str
    op: Change.Op
    revision: int
    time: _timestamp_pb2.Timestamp
    who: str
    why: str
    def __init__(self, position: _Optional[int] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., op: _Optional[_Union[Change.Op, str]] = ..., revision: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class PutEntity(_message.Message):
    __slots__ = ("kind", "id", "parentDeploymentId", "templateId", "siteId", "metadata", "packageFormat", "package", "plugin", "origin", "dryRun", "claim", "fromTemplate", "name", "expectRevision", "manager", "removeMetadata", "whole", "madeFrom", "deferReferences", "details", "marks")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENTDEPLOYMENTID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATEID_FIELD_NUMBER: _ClassVar[int]
    SITEID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PACKAGEFORMAT_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    FROMTEMPLATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTREVISION_FIELD_NUMBER: _ClassVar[int]
    MANAGER_FIELD_NUMBER: _ClassVar[int]
    REMOVEMETADATA_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    MADEFROM_FIELD_NUMBER: _ClassVar[int]
    DEFERREFERENCES_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    parentDeploymentId: str
    templateId: str
    siteId: str
    metadata: _containers.ScalarMap[str, str]
    packageFormat: str
    package: bytes
    plugin: Plugin
    origin: str
    dryRun: bool
    claim: WorkItem
    fromTemplate: bool
    name: str
    expectRevision: int
    manager: str
    removeMetadata: _containers.RepeatedScalarFieldContainer[str]
    whole: bool
    madeFrom: str
    deferReferences: bool
    details: Details
    marks: Marks
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., parentDeploymentId: _Optional[str] = ..., templateId: _Optional[str] = ..., siteId: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., packageFormat: _Optional[str] = ..., package: _Optional[bytes] = ..., plugin: _Optional[_Union[Plugin, _Mapping]] = ..., origin: _Optional[str] = ..., dryRun: _Optional[bool] = ..., claim: _Optional[_Union[WorkItem, _Mapping]] = ..., fromTemplate: _Optional[bool] = ..., name: _Optional[str] = ..., expectRevision: _Optional[int] = ..., manager: _Optional[str] = ..., removeMetadata: _Optional[_Iterable[str]] = ..., whole: _Optional[bool] = ..., madeFrom: _Optional[str] = ..., deferReferences: _Optional[bool] = ..., details: _Optional[_Union[Details, _Mapping]] = ..., marks: _Optional[_Union[Marks, _Mapping]] = ...) -> None: ...

class Marks(_message.Message):
    __slots__ = ("labels", "annotations")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListMarks(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class EntityMarks(_message.Message):
    __slots__ = ("id", "marks", "ownerReferences")
    ID_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    OWNERREFERENCES_FIELD_NUMBER: _ClassVar[int]
    id: str
    marks: Marks
    ownerReferences: int
    def __init__(self, id: _Optional[str] = ..., marks: _Optional[_Union[Marks, _Mapping]] = ..., ownerReferences: _Optional[int] = ...) -> None: ...

class PutEntityResponse(_message.Message):
    __slots__ = ("id", "revision", "created", "changed", "managed", "changes", "changesTarget")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    MANAGED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHANGESTARGET_FIELD_NUMBER: _ClassVar[int]
    id: str
    revision: int
    created: bool
    changed: bool
    managed: bool
    changes: _containers.RepeatedScalarFieldContainer[str]
    changesTarget: bool
    def __init__(self, id: _Optional[str] = ..., revision: _Optional[int] = ..., created: _Optional[bool] = ..., changed: _Optional[bool] = ..., managed: _Optional[bool] = ..., changes: _Optional[_Iterable[str]] = ..., changesTarget: _Optional[bool] = ...) -> None: ...

class RemoveEntity(_message.Message):
    __slots__ = ("kind", "id", "dryRun", "claim", "confirm")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    dryRun: bool
    claim: WorkItem
    confirm: int
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., dryRun: _Optional[bool] = ..., claim: _Optional[_Union[WorkItem, _Mapping]] = ..., confirm: _Optional[int] = ...) -> None: ...

class CallSites(_message.Message):
    __slots__ = ("siteId",)
    SITEID_FIELD_NUMBER: _ClassVar[int]
    siteId: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, siteId: _Optional[_Iterable[str]] = ...) -> None: ...

class CallSources(_message.Message):
    __slots__ = ("names", "missing", "approve")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    APPROVE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    missing: bool
    approve: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., missing: _Optional[bool] = ..., approve: _Optional[str] = ...) -> None: ...

class GetSource(_message.Message):
    __slots__ = ("name", "knownVersion")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KNOWNVERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    knownVersion: int
    def __init__(self, name: _Optional[str] = ..., knownVersion: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("name", "version", "updated", "approved", "status", "state", "called", "due", "reach")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CALLED_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    updated: _timestamp_pb2.Timestamp
    approved: str
    status: SourceStatus
    state: bytes
    called: bool
    due: _timestamp_pb2.Timestamp
    reach: SourceReach
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., approved: _Optional[str] = ..., status: _Optional[_Union[SourceStatus, _Mapping]] = ..., state: _Optional[bytes] = ..., called: _Optional[bool] = ..., due: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reach: _Optional[_Union[SourceReach, _Mapping]] = ...) -> None: ...

class SourceReach(_message.Message):
    __slots__ = ("known", "sites", "created", "policy")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    known: bool
    sites: int
    created: int
    policy: str
    def __init__(self, known: _Optional[bool] = ..., sites: _Optional[int] = ..., created: _Optional[int] = ..., policy: _Optional[str] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("kind", "url", "ref", "path", "attemptedRevision", "appliedRevision", "asks", "holder", "messages", "items", "operations", "conditions", "origins", "registered")
    KIND_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTEDREVISION_FIELD_NUMBER: _ClassVar[int]
    APPLIEDREVISION_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    url: str
    ref: str
    path: str
    attemptedRevision: str
    appliedRevision: str
    asks: str
    holder: str
    messages: _containers.RepeatedScalarFieldContainer[str]
    items: _containers.RepeatedCompositeFieldContainer[SourceItem]
    operations: _containers.RepeatedCompositeFieldContainer[SourceOperation]
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    origins: _containers.RepeatedCompositeFieldContainer[SourceOrigins]
    registered: bool
    def __init__(self, kind: _Optional[str] = ..., url: _Optional[str] = ..., ref: _Optional[str] = ..., path: _Optional[str] = ..., attemptedRevision: _Optional[str] = ..., appliedRevision: _Optional[str] = ..., asks: _Optional[str] = ..., holder: _Optional[str] = ..., messages: _Optional[_Iterable[str]] = ..., items: _Optional[_Iterable[_Union[SourceItem, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[SourceOperation, _Mapping]]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., origins: _Optional[_Iterable[_Union[SourceOrigins, _Mapping]]] = ..., registered: _Optional[bool] = ...) -> None: ...

class SourceOrigins(_message.Message):
    __slots__ = ("parts",)
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.ScalarMap[str, str]
    def __init__(self, parts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SourceItem(_message.Message):
    __slots__ = ("kind", "name", "id", "digest", "revision", "pending", "status", "origins", "rolloutId")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    id: str
    digest: str
    revision: int
    pending: bool
    status: str
    origins: int
    rolloutId: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., id: _Optional[str] = ..., digest: _Optional[str] = ..., revision: _Optional[int] = ..., pending: _Optional[bool] = ..., status: _Optional[str] = ..., origins: _Optional[int] = ..., rolloutId: _Optional[str] = ...) -> None: ...

class SourceOperation(_message.Message):
    __slots__ = ("time", "revision", "verb", "kind", "name", "error")
    TIME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    revision: str
    verb: str
    kind: str
    name: str
    error: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revision: _Optional[str] = ..., verb: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class SaveSource(_message.Message):
    __slots__ = ("source", "claim")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    source: Source
    claim: WorkItem
    def __init__(self, source: _Optional[_Union[Source, _Mapping]] = ..., claim: _Optional[_Union[WorkItem, _Mapping]] = ...) -> None: ...

class SaveSourceResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ForgetSource(_message.Message):
    __slots__ = ("name", "claim")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    name: str
    claim: WorkItem
    def __init__(self, name: _Optional[str] = ..., claim: _Optional[_Union[WorkItem, _Mapping]] = ...) -> None: ...

class GetTargetState(_message.Message):
    __slots__ = ("siteId", "name")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    name: str
    def __init__(self, siteId: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class TargetState(_message.Message):
    __slots__ = ("siteId", "name", "state", "version", "updated")
    SITEID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    siteId: str
    name: str
    state: bytes
    version: int
    updated: _timestamp_pb2.Timestamp
    def __init__(self, siteId: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[bytes] = ..., version: _Optional[int] = ..., updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SaveTargetState(_message.Message):
    __slots__ = ("state", "claim")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    state: TargetState
    claim: WorkItem
    def __init__(self, state: _Optional[_Union[TargetState, _Mapping]] = ..., claim: _Optional[_Union[WorkItem, _Mapping]] = ...) -> None: ...

class SaveTargetStateResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GetFleet(_message.Message):
    __slots__ = ("sites", "siteMetadata")
    class SiteMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SITES_FIELD_NUMBER: _ClassVar[int]
    SITEMETADATA_FIELD_NUMBER: _ClassVar[int]
    sites: _containers.RepeatedScalarFieldContainer[str]
    siteMetadata: _containers.ScalarMap[str, str]
    def __init__(self, sites: _Optional[_Iterable[str]] = ..., siteMetadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Fleet(_message.Message):
    __slots__ = ("position", "exact", "time", "sites", "deployments", "failures", "failuresLeftOut", "waits")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILURESLEFTOUT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    position: int
    exact: bool
    time: _timestamp_pb2.Timestamp
    sites: FleetCounts
    deployments: FleetCounts
    failures: _containers.RepeatedCompositeFieldContainer[FleetFailure]
    failuresLeftOut: int
    waits: _containers.RepeatedCompositeFieldContainer[FleetWait]
    def __init__(self, position: _Optional[int] = ..., exact: _Optional[bool] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sites: _Optional[_Union[FleetCounts, _Mapping]] = ..., deployments: _Optional[_Union[FleetCounts, _Mapping]] = ..., failures: _Optional[_Iterable[_Union[FleetFailure, _Mapping]]] = ..., failuresLeftOut: _Optional[int] = ..., waits: _Optional[_Iterable[_Union[FleetWait, _Mapping]]] = ...) -> None: ...

class FleetCounts(_message.Message):
    __slots__ = ("total", "prepared", "approved", "scheduled", "notScheduled", "unhealthy", "failing", "waiting", "working", "unknown", "healthy")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    NOTSCHEDULED_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WORKING_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    total: int
    prepared: int
    approved: int
    scheduled: int
    notScheduled: int
    unhealthy: int
    failing: int
    waiting: int
    working: int
    unknown: int
    healthy: int
    def __init__(self, total: _Optional[int] = ..., prepared: _Optional[int] = ..., approved: _Optional[int] = ..., scheduled: _Optional[int] = ..., notScheduled: _Optional[int] = ..., unhealthy: _Optional[int] = ..., failing: _Optional[int] = ..., waiting: _Optional[int] = ..., working: _Optional[int] = ..., unknown: _Optional[int] = ..., healthy: _Optional[int] = ...) -> None: ...

class FleetFailure(_message.Message):
    __slots__ = ("kind", "type", "reason", "count", "since", "example", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    type: str
    reason: str
    count: int
    since: _timestamp_pb2.Timestamp
    example: str
    message: str
    def __init__(self, kind: _Optional[str] = ..., type: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., example: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class FleetWait(_message.Message):
    __slots__ = ("kind", "what", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    what: str
    count: int
    def __init__(self, kind: _Optional[str] = ..., what: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class WhoAmIResponse(_message.Message):
    __slots__ = ("subject", "groups", "authenticator", "displayName", "address", "expires")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATOR_FIELD_NUMBER: _ClassVar[int]
    DISPLAYNAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    subject: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    authenticator: str
    displayName: str
    address: str
    expires: _timestamp_pb2.Timestamp
    def __init__(self, subject: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., authenticator: _Optional[str] = ..., displayName: _Optional[str] = ..., address: _Optional[str] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
