import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BackupChunk(_message.Message):
    __slots__ = ("data", "end")
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    end: bool
    def __init__(self, data: _Optional[bytes] = ..., end: _Optional[bool] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("queue", "key", "mode")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    key: str
    mode: str
    def __init__(self, queue: _Optional[str] = ..., key: _Optional[str] = ..., mode: _Optional[str] = ...) -> None: ...

class ReleaseHolds(_message.Message):
    __slots__ = ("sites", "queues", "remove", "dryRun")
    SITES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    DRYRUN_FIELD_NUMBER: _ClassVar[int]
    sites: _containers.RepeatedScalarFieldContainer[str]
    queues: bool
    remove: bool
    dryRun: bool
    def __init__(self, sites: _Optional[_Iterable[str]] = ..., queues: _Optional[bool] = ..., remove: _Optional[bool] = ..., dryRun: _Optional[bool] = ...) -> None: ...

class ReleaseHoldsResponse(_message.Message):
    __slots__ = ("sites", "queues")
    SITES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    sites: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sites: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("queue", "ready", "running", "retrying", "waiting", "oldest", "failing")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ready: int
    running: int
    retrying: int
    waiting: int
    oldest: int
    failing: _containers.RepeatedCompositeFieldContainer[FailingWork]
    def __init__(self, queue: _Optional[str] = ..., ready: _Optional[int] = ..., running: _Optional[int] = ..., retrying: _Optional[int] = ..., waiting: _Optional[int] = ..., oldest: _Optional[int] = ..., failing: _Optional[_Iterable[_Union[FailingWork, _Mapping]]] = ...) -> None: ...

class FailingWork(_message.Message):
    __slots__ = ("key", "failures", "error", "due")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    failures: int
    error: str
    due: _timestamp_pb2.Timestamp
    def __init__(self, key: _Optional[str] = ..., failures: _Optional[int] = ..., error: _Optional[str] = ..., due: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
