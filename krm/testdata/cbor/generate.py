"""Writes the *.cbor files here as Python's cbor2 encodes packages.

Run with cbor2 installed: python3 generate.py
"""

import datetime
import decimal
import io
import ipaddress
import pathlib
import uuid

import cbor2

HERE = pathlib.Path(__file__).parent
UTC = datetime.timezone.utc


def resource(**values):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "example"},
        "data": values,
    }


def write(name, value, **options):
    (HERE / f"{name}.cbor").write_bytes(cbor2.dumps(value, **options))


write("empty", [])
write("plain", [resource(text="größe", yes=True, no=False, none=None, list=[1, "two", []], map={})])
write(
    "numbers",
    [resource(zero=0, minus=-1, max=2**63 - 1, min=-(2**63), half=1.5, single=100000.5, double=0.1, whole=5.0)],
)
write("canonical", [resource(half=1.5, double=0.1, a=1, bb=2)], canonical=True)
write("too-large", [resource(number=2**63)])
write("too-small", [resource(number=-(2**63) - 1)])
write("bignum", [resource(number=2**70)])
write("nan", [resource(number=float("nan"))])
write("infinity", [resource(number=float("inf"))])
write(
    "dates",
    [
        resource(
            time=datetime.datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
            micro=datetime.datetime(2024, 2, 29, 12, 30, 15, 250000, tzinfo=UTC),
            date=datetime.date(2024, 2, 29),
        )
    ],
)
write(
    "timestamps",
    [
        resource(
            time=datetime.datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
            micro=datetime.datetime(2024, 2, 29, 12, 30, 15, 250000, tzinfo=UTC),
            date=datetime.date(2024, 2, 29),
            old=datetime.date(1969, 12, 31),
        )
    ],
    datetime_as_timestamp=True,
    date_as_datetime=False,
)
write("bytes", [resource(secret=b"\x00hunter2\xff", empty=b"")])
write("uuid", [resource(id=uuid.UUID("6f1b7a3e-2c55-4d8e-9a67-0d8b3f1f2a10"))])
write("decimal", [resource(number=decimal.Decimal("1.25"), cents=decimal.Decimal("0.1"))])
write("decimal-long", [resource(number=decimal.Decimal("0.12345678901234567890123"))])
write("undefined", [resource(nothing=cbor2.undefined)])
write("set", [resource(values={"one"})])
write("self-described", cbor2.CBORTag(55799, [resource(a=1)]))
write("unknown-tag", [cbor2.CBORTag(4711, resource(a=cbor2.CBORTag(4712, "text")))])
write("null-entries", [None, resource(a=1), None])
write("integer-key", [resource(ports={80: "http"})])
write("address", [resource(ip=ipaddress.ip_address("10.0.0.1"))])
write("indefinite", [resource(list=[1, 2], map={"a": "b"})], indefinite_containers=True)

labels = {"app": "web"}
write("shared", [resource(one=labels, two=labels, list=[labels])], value_sharing=True)
cyclic = {"name": "me"}
cyclic["self"] = cyclic
write("cyclic", [resource(cyclic=cyclic)], value_sharing=True)
write("string-references", [resource(a="same same", b="same same")], string_referencing=True)
many = {f"k{i}": f"v{i}x" for i in range(300)}
write("string-references-many", [resource(**many), resource(**many)], string_referencing=True)

# Chunked texts and bytes are read but never written by cbor2.
stream = io.BytesIO()
stream.write(b"\x9f\xbf")
for key, text in (("apiVersion", "v1"), ("kind", "ConfigMap")):
    stream.write(cbor2.dumps(key) + b"\x7f" + cbor2.dumps(text[:1]) + cbor2.dumps(text[1:]) + b"\xff")
stream.write(cbor2.dumps("data") + b"\xbf" + cbor2.dumps("b") + b"\x5f" + cbor2.dumps(b"a") + cbor2.dumps(b"b") + b"\xff\xff")
stream.write(b"\xff\xff")
(HERE / "chunked.cbor").write_bytes(stream.getvalue())

deep = "end"
for _ in range(150):
    deep = {"properties": deep}
write("deep", [resource(schema=deep)])
