"""Each field of the protocol's entities is in the results of the client, or there is a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tko import access_pb2 as access
from tko import client
from tko import tko_pb2 as pb

NOT_READ = {
    "stamp.uid": "it only tells an entity from another one that had its ID",
    "stamp.position": "the changes of the server have it",
    "stamp.steps": "only reads of one revision have them",
    "stamp.leftOut": "the client asks for whole rows",
    "stamp.updated": "the message has it, too, except that of a plugin",
    "created": "the stamp has it, too, except that of servers of earlier versions",
    "keepPackage": "of requests only",
}
"""The fields that results lack. The list may only become shorter."""

MOST_NOT_READ = 7


def fill(message: Message, depth: int = 0) -> None:
    """Sets each field to a value of its own."""
    for field in message.DESCRIPTOR.fields:
        number = field.number + 1000 * depth
        if field.message_type is None:
            value: Any = True if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else number
            if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                value = b"x" if field.type == FieldDescriptor.TYPE_BYTES else f"text{number}"
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        elif field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["key"] = "value"
        elif field.message_type.name == "Timestamp":
            getattr(message, field.name).FromSeconds(number)
        elif field.is_repeated:
            fill(getattr(message, field.name).add(), depth + 1)
        else:
            fill(getattr(message, field.name), depth + 1)


def fields_of(message: Message, path: str = "") -> list[tuple[str, Message, str]]:
    """The fields that have no fields themselves: path, message and name."""
    found: list[tuple[str, Message, str]] = []
    for field in message.DESCRIPTOR.fields:
        name = f"{path}{field.name}"
        part = field.message_type
        if part is None or part.GetOptions().map_entry or part.name == "Timestamp" or name in NOT_READ:
            found.append((name, message, field.name))
        else:
            value = getattr(message, field.name)
            found += fields_of(value[0] if field.is_repeated else value, f"{name}.")
    return found


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (pb.Template, client._template),
        (pb.ListedTemplate, client._template),
        (pb.Site, client._site),
        (pb.ListedSite, client._site),
        (pb.Deployment, client._deployment),
        (pb.ListedDeployment, client._deployment),
        (pb.Plugin, client._plugin),
        (access.EnrollmentToken, client._enrollment),
        (access.WaitingAgent, client._waiting_agent),
    ],
)
def test_results_have_each_field(make: Callable[[], Message], read: Callable[[Any], Any]) -> None:
    assert len(NOT_READ) <= MOST_NOT_READ, "the list of exceptions may only become shorter"
    full = make()
    fill(full)
    for i, (name, _, _) in enumerate(fields_of(full)):
        without = make()
        fill(without)
        _, message, field = fields_of(without)[i]
        message.ClearField(field)
        has = read(without) != read(full)
        excepted = name in NOT_READ and not (name == "stamp.updated" and make is pb.Plugin)
        assert has != excepted, f"{make.__name__}.{name}: {'remove the exception' if has else 'the result lacks it'}"
