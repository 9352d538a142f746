from typing import Any

import cbor2
import pytest

import tko

WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
ONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
TWO = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}
CLUSTER = {"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "name": "edge"}


def test_gvk_is_read_and_written() -> None:
    gvk = tko.GVK("apps", "v1", "Deployment")
    assert gvk == tko.GVK(resource=WEB)
    assert (gvk.group, gvk.version, gvk.kind, gvk.api_version, str(gvk)) == (
        "apps",
        "v1",
        "Deployment",
        "apps/v1",
        "apps/v1 Deployment",
    )
    core = tko.GVK(resource=ONE)
    assert (core.group, core.api_version) == ("", "v1")
    assert {gvk: 1}[tko.GVK(resource=WEB)] == 1


def test_identifier_is_read_from_resources() -> None:
    identifier = tko.Identifier(resource=WEB)
    assert identifier == tko.Identifier(gvk=tko.GVK(resource=WEB), name="web")
    assert str(identifier) == 'apps/v1 Deployment "web"'
    assert tko.Identifier(resource=CLUSTER).name == "edge"
    assert tko.Identifier(resource={"apiVersion": "v1", "kind": "X"}).name == ""


def test_package_finds_resources_by_identity() -> None:
    resources = [WEB, ONE]
    package = tko.Package(resources)
    package.append(TWO)
    assert list(package) == [WEB, ONE, TWO] and len(package) == 3
    assert package[tko.Identifier(resource=TWO)] is TWO
    assert tko.Identifier(resource=TWO) in package
    core = tko.GVK("", "v1", "ConfigMap")
    assert list(package.iter_all(core)) == [ONE, TWO]
    assert package.get_first(core) is ONE
    assert package.get_first(tko.GVK("", "v1", "Secret")) is None
    missing = tko.Identifier(gvk=core, name="three")
    assert package.get(missing) is None
    assert package[missing] is None
    with pytest.raises(KeyError, match="three"):
        del package[missing]
    del package[tko.Identifier(resource=ONE)]
    assert package == tko.Package([WEB, TWO])
    assert tko.Package()


def test_set_prepared_sets_the_annotation() -> None:
    resource: dict[str, Any] = {"metadata": None}
    tko.set_prepared(resource)
    assert resource == {"metadata": {"annotations": {"nephio.org/prepared": "true"}}}
    tko.set_prepared(resource, False)
    assert resource == {"metadata": {"annotations": {"nephio.org/prepared": "false"}}}


STRANGE = [
    "yes", "No", "on", "y", "~", "null", "true", "1", "0777", "0o17", "0x1f", "1_000", "1.5", "1e3", ".5", ".inf", "12:30:45",
    "2020-01-01", "2020-01-01T00:00:00Z", "", " ", "a: b", "#", "- a", "a\nb", "a\nb\n", "\n", " a\nb", "a\n\n", "Grüße 😀",
    "=", "<<", "---", "{{ x }}", "|", "%", "@", "`", "\t", "\u2028", "\x7f", "a" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("format", ["yaml", "cbor"])
def test_packages_are_decoded_as_encoded(format: str) -> None:
    data: dict[str, Any] = {str(i): text for i, text in enumerate(STRANGE)}
    shared = {"a": [1, 1.0, True, None, -(1 << 63), {}, []]}
    package = tko.Package(
        [{**ONE, "data": data}, {**TWO, "spec": {"x": shared, "y": shared, **dict.fromkeys(STRANGE, 1)}}]
    )
    encoded = tko.encode_package(package, format)
    assert tko.decode_package(encoded, format) == package
    if format == "yaml":
        assert b"&id" not in encoded
        for text in ("yes", "0777", "12:30:45", "2020-01-01"):  # which other readers don't read as text
            assert f': "{text}"\n'.encode() in encoded
        assert str(package).encode() == encoded


def test_decoding_reads_lists_and_refuses_other_documents() -> None:
    assert tko.decode_package(b"", "yaml") == tko.decode_package(b"", "cbor") == tko.Package()
    text = b"---\n---\n[{apiVersion: v1, kind: A}, {apiVersion: v1, kind: B}]\n---\napiVersion: v1\nkind: C\nday: 2020-01-01\n"
    assert [r["kind"] for r in tko.decode_package(text, "yaml")] == ["A", "B", "C"]
    assert list(tko.decode_package(text, "yaml"))[2]["day"] == "2020-01-01"
    for data, format in ((b"hello", "yaml"), (b"- a", "yaml"), (cbor2.dumps({"a": 1}), "cbor"), (b"", "xml")):
        with pytest.raises(tko.Error):
            tko.decode_package(data, format)
    with pytest.raises(tko.Error, match="xml"):
        tko.encode_package(tko.Package(), "xml")


def test_meta_schedule_sorts_by_scope() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Zone"}},
    }
    zone = {"apiVersion": "example.com/v1", "kind": "Zone"}
    place = {"apiVersion": "example.com/v1", "kind": "Place"}
    intent = {"apiVersion": "workload.nephio.org/v1alpha1", "kind": "HelmChart"}
    cluster, namespaced = tko.meta_schedule(tko.Package([zone, WEB, intent, place, namespace, definition]))
    assert list(cluster) == [zone, namespace, definition]
    assert list(namespaced) == [WEB, place]


def test_meta_schedule_leaves_out_local_resources() -> None:
    def made(api_version: str, kind: str, **annotations: str) -> dict[str, Any]:
        names = {"local": "config.kubernetes.io/local-config", "deploy": "nephio.org/deploy"}
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": "x", "annotations": {names[k]: v for k, v in annotations.items()}},
        }

    function = made("workload.nephio.org/v1alpha1", "NFDeployment", deploy="true")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    inner = {"apiVersion": "v1", "kind": "List", "items": [WEB, made("v1", "Secret", local="true")]}
    strange = {"apiVersion": "v1", "kind": "List", "items": "x"}
    cluster, namespaced = tko.meta_schedule(
        tko.Package(
            [
                made("kpt.dev/v1", "Kptfile", local="true"),
                function,
                made("workload.nephio.org/v1alpha1", "NFDeployment"),
                made("workload.nephio.org/v1alpha1", "NFDeployment", deploy="true", local="true"),
                {"apiVersion": "v1", "kind": "List", "items": [inner, namespace]},
                strange,
            ]
        )
    )
    assert list(cluster) == [namespace]
    assert list(namespaced) == [function, WEB, strange]


@pytest.mark.parametrize(
    ("value", "validation", "error"),
    [
        ("a", str, None),
        ("a", "string", None),
        (1, str, "x is a int, not a str"),
        (1, (str, "int"), None),
        (1.5, ("string", int), "x is a float, not a string or int"),
        (True, int, "x is a bool, not a int"),
        (True, "bool", None),
        (1, float, None),
        (None, str, None),
        (None, {"type": str, "required": True}, "x is required"),
        ({"a": 1}, {"schema": {"a": int}}, None),
        ({"a": "1"}, {"schema": {"a": int}}, "x.a is a str, not a int"),
        ({"b": 1}, {"schema": {"a": int}}, "x has the unknown key 'b'"),
        ({}, {"schema": {"a": {"type": int, "required": True}}}, "x.a is required"),
        ([], {"schema": {}}, "x is a list, not a dict"),
        ({"a": {"b": 1}}, {"schema": {"a": {"schema": {"b": "str"}}}}, "x.a.b is a int, not a str"),
        (3, {"type": int, "function": lambda v: v % 2 == 0}, "x is refused"),
        (2, {"type": int, "function": lambda v: v % 2 == 0}, None),
        (1, "number of things", "there is no type 'number of things'"),
        (1, {"typ": int}, "the validation of x has 'typ'"),
    ],
)
def test_validate_value_reports_the_cause(value: Any, validation: Any, error: str | None) -> None:
    if error is None:
        tko.validate_value("x", value, True, validation)
        return
    with pytest.raises(tko.Error) as raised:
        tko.validate_value("x", value, True, validation)
    assert str(raised.value).startswith(error)


def test_validate_value_permits_missing_values_if_incomplete() -> None:
    tko.validate_value("x", {}, False, {"schema": {"a": {"type": int, "required": True}}})
