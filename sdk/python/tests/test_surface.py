"""The surface that plugins, inventories and scripts rely on: names, order and defaults of parameters, shapes of results."""

import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tko
from tko._encoding import dump_yaml, load_yaml

HOST = os.environ.get("TKO_TEST_HOST", "")
ONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}}
TWO = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space", "labels": {"tier": "edge"}}}

NAMES = {
    "plugin": "validate prepare schedule get_output_package get_target_resource_identifier get_target_resource "
    "get_deployments get_grpc_host execute log split_ip_address_port",
    "package": "Package GVK Identifier set_prepared",
    "encoding": "encode_package decode_package yaml",
    "validation": "validate_value validate_schema is_type is_required",
    "expressions": "evaluate_expression",
    "scheduling": "meta_schedule is_namespaced",
    "ansible": "DATA_HOST MAX_COUNT METADATA_PATTERNS Inventory",
    "tools.helm": "chart_gvk iter_charts get_current_deployments install",
    "tools.kind": "cluster_gvk get_cluster_name get_cluster_path get_kube_context get_current_cluster_names "
    "create_cluster write_cluster_manifest",
    "tools.kubectl": "apply",
    "client": "Client DEFAULT_MAX_COUNT MAX_MAX_COUNT DEFAULT_PACKAGE_FORMAT",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_in_their_submodule_and_in_tko(module: str) -> None:
    imported = importlib.import_module(f"tko.{module}")
    for name in NAMES[module].split():
        assert getattr(imported, name) is getattr(tko, name), name
        assert name in tko.__all__
    of_tko = tko
    for part in module.split("."):
        of_tko = getattr(of_tko, part)
    assert of_tko is imported


EXECUTES = {"helm": "*args, kube_context=None", "kind": "*args", "kubectl": "*args, input=None, kube_context=None"}
PATTERNS = "parent_deployment_id=None, template_id_patterns=None, template_metadata_patterns=None, site_id_patterns=None, site_metadata_patterns=None, metadata_patterns=None, prepared=None, approved=None"
SIGNATURES = {
    "plugin.validate": "f",
    "plugin.prepare": "f",
    "plugin.schedule": "f",
    "plugin.get_output_package": "",
    "plugin.get_target_resource_identifier": "",
    "plugin.get_target_resource": "",
    "plugin.get_deployments": "",
    "plugin.get_grpc_host": "",
    "plugin.execute": "*args, env=None, input=None",
    "plugin.log": "message",
    "plugin.split_ip_address_port": "text",
    "package.Package": "package=None",
    "package.Package.append": "self, resource",
    "package.Package.iter_all": "self, gvk",
    "package.Package.get_first": "self, gvk",
    "package.GVK": "group=None, version=None, kind=None, resource=None",
    "package.Identifier": "gvk=None, name=None, resource=None",
    "package.set_prepared": "resource, prepared=True",
    "encoding.encode_package": "package, format",
    "validation.validate_value": "name, value, complete, validation",
    "validation.validate_schema": "name, value, complete, schema",
    "validation.is_type": "value, validation",
    "validation.is_required": "validation",
    "expressions.evaluate_expression": "expression, package",
    "scheduling.meta_schedule": "package",
    "scheduling.is_namespaced": "resource",
    "ansible.Inventory": "",
    "ansible.Inventory.add": "self, name, host_vars",
    "tools.helm.iter_charts": "package",
    "tools.helm.get_current_deployments": "kube_context=None",
    "tools.helm.install": "chart, package, kube_context=None",
    "tools.kind.get_cluster_name": "cluster",
    "tools.kind.get_cluster_path": "name",
    "tools.kind.get_kube_context": "name",
    "tools.kind.get_current_cluster_names": "",
    "tools.kind.create_cluster": "name",
    "tools.kind.write_cluster_manifest": "cluster",
    "tools.kubectl.apply": "package, kube_context=None",
    **{f"tools.{tool}.execute": signature for tool, signature in EXECUTES.items()},
    "client.Client.register_template": "self, template_id, metadata=None, package_format='yaml', package=None",
    "client.Client.get_template": "self, template_id",
    "client.Client.delete_template": "self, template_id",
    "client.Client.list_templates": "self, template_id_patterns=None, metadata_patterns=None, offset=0, max_count=100",
    "client.Client.purge_templates": "self, template_id_patterns=None, metadata_patterns=None",
    "client.Client.register_site": "self, site_id, template_id=None, metadata=None, package_format='yaml', package=None",
    "client.Client.get_site": "self, site_id",
    "client.Client.delete_site": "self, site_id",
    "client.Client.list_sites": "self, site_id_patterns=None, template_id_patterns=None, metadata_patterns=None, offset=0, max_count=100",
    "client.Client.purge_sites": "self, site_id_patterns=None, template_id_patterns=None, metadata_patterns=None",
    "client.Client.create_deployment": "self, template_id, parent_deployment_id=None, site_id=None, merge_metadata=None, prepared=False, approved=False, merge_package_format='yaml', merge_package=None",
    "client.Client.get_deployment": "self, deployment_id",
    "client.Client.delete_deployment": "self, deployment_id",
    "client.Client.list_deployments": f"self, {PATTERNS}, offset=0, max_count=100",
    "client.Client.purge_deployments": f"self, {PATTERNS}",
    "client.Client.start_deployment_modification": "self, deployment_id",
    "client.Client.end_deployment_modification": "self, modification_token, package_format='yaml', package=None",
    "client.Client.cancel_deployment_modification": "self, modification_token",
    "client.Client.register_plugin": "self, type, name, executor, arguments=None, properties=None, triggers=None",
    "client.Client.get_plugin": "self, type, name",
    "client.Client.delete_plugin": "self, type, name",
    "client.Client.list_plugins": "self, type=None, name_patterns=None, executor=None, trigger=None, offset=0, max_count=100",
    "client.Client.purge_plugins": "self, type=None, name_patterns=None, executor=None, trigger=None",
    "client.Client": "host=None",
}


@pytest.mark.parametrize("path", SIGNATURES)
def test_signatures_keep_order_names_and_defaults(path: str) -> None:
    """Parameters have the order, names and defaults that calls rely on; new ones follow them."""
    module, _, rest = path.partition(".")
    if module == "tools":
        tool, _, rest = rest.partition(".")
        module = f"tools.{tool}"
    function: Any = importlib.import_module(f"tko.{module}")
    for part in rest.split("."):
        function = getattr(function, part)
    got = list(inspect.signature(function).parameters.values())
    want = [p for p in SIGNATURES[path].split(", ") if p]
    assert len(got) >= len(want)
    for parameter, text in zip(got, want, strict=False):
        name, has_default, default = text.partition("=")
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        assert stars + parameter.name == name
        if has_default:
            assert repr(parameter.default) == default, name
    for parameter in got[len(want) :]:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        assert parameter.default is not parameter.empty, f"{parameter.name} is required, and calls don't give it"


def test_dump_writes_to_stdout() -> None:
    assert inspect.signature(tko.Inventory.dump).parameters["out"].name == "out"
    code = "import tko; i = tko.Inventory(); i.add('a', {'x': 1}); i.add('b', {}); i.dump()"
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert json.loads(out) == {"_meta": {"hostvars": {"a": {"x": 1}, "b": {}}}, "all": {"hosts": ["a", "b"]}}
    written, inventory = io.StringIO(), tko.Inventory()
    inventory.dump(written)
    assert json.loads(written.getvalue()) == {"_meta": {"hostvars": {}}, "all": {"hosts": []}}


def test_ansible_reads_the_environment() -> None:
    code = "import json; from tko.ansible import *; from tko import ansible as a; print(json.dumps([a.DATA_HOST, a.MAX_COUNT, a.METADATA_PATTERNS]))"
    bare = {k: v for k, v in os.environ.items() if not k.startswith("TKO_")}
    settings = {"TKO_DATA_HOST": "h:1", "TKO_MAX_COUNT": "7", "TKO_METADATA_PATTERNS": "{city: Chi*}"}
    for env, want in (({}, ["tko-data:50050", 100, None]), (settings, ["h:1", 7, {"city": "Chi*"}])):
        assert json.loads(subprocess.check_output([sys.executable, "-c", code], env={**bare, **env})) == want


def test_packages_keep_their_shape() -> None:
    resources = [ONE]
    package = tko.Package(resources)
    assert package.package is resources
    package.append(TWO)
    assert resources == [ONE, TWO] and list(package) == resources
    assert package[tko.Identifier(resource=ONE)] is ONE
    gvk = tko.GVK("", "v1", "ConfigMap")
    assert package[tko.Identifier(gvk, "three")] is None
    assert [*package.iter_all(gvk)] == resources and package.get_first(tko.GVK("", "v1", "Secret")) is None
    assert tko.Package().package == [] and str(tko.Package()) == ""
    assert tko.decode_package(str(package).encode(), "yaml") == resources
    assert tko.GVK(None, None, None, {"apiVersion": "apps/v1", "kind": "D"}) == tko.GVK(
        group="apps", version="v1", kind="D"
    )
    assert tko.GVK("apps", "v1", "D").api_version == "apps/v1" and gvk.api_version == "v1"
    assert tko.Identifier(None, None, ONE) == tko.Identifier(gvk=gvk, name="one")
    assert tko.Identifier(gvk, "one") != tko.Identifier(gvk, "two")


@pytest.mark.parametrize("format", ["yaml", "cbor"])
def test_encoding_keeps_its_formats(format: str) -> None:
    encoded = tko.encode_package((r for r in [ONE, TWO]), format)
    assert isinstance(encoded, bytes)
    assert tko.encode_package(encoded, format) == encoded
    assert tko.encode_package("a: b\n", "yaml") == b"a: b\n"
    decoded = tko.decode_package(encoded, format)
    assert decoded == [ONE, TWO] and isinstance(decoded, list) and decoded[0] == ONE
    assert decoded == tko.Package([ONE, TWO]) and tko.Package(decoded) == decoded


def test_yaml_keeps_its_functions() -> None:
    assert tko.yaml.load("a: [1, yes]") == {"a": [1, "yes"]}
    assert tko.yaml.load(io.StringIO("a: b")) == {"a": "b"}
    out = io.StringIO()
    tko.yaml.dump({"a": "yes"}, out)
    assert tko.yaml.load(out.getvalue()) == {"a": "yes"}


def test_validation_keeps_its_functions() -> None:
    tko.validate_value("x", 1, True, int)
    tko.validate_value("x", 1, True, "int")
    for several in ((str, "int"), [str, "int"], {str, int}):
        tko.validate_value("x", 1, True, several)
    calls: list[Any] = []
    tko.validate_value("x", 4, True, {"type": int, "function": lambda *a: calls.append(a) or True})
    assert calls == [(4,)]
    for falsy in (False, None, 0, ""):
        with pytest.raises(Exception, match="x"):
            tko.validate_value("x", 4, True, {"function": lambda _, falsy=falsy: falsy})
    schema = {"a": {"type": int, "required": True}, "b": "str"}
    tko.validate_schema("x", {}, False, schema)
    tko.validate_value("x", {"a": 1}, True, {"schema": schema})
    for value in ({}, {"a": "1"}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, []):
        with pytest.raises(Exception, match="x"):
            tko.validate_schema("x", value, True, schema)
    assert tko.is_type(1, int) and tko.is_type(1, {"type": ("str", int)}) and tko.is_type(1, {})
    assert not tko.is_type("1", int) and not tko.is_type("1", [int, "list"])
    assert tko.is_required({"required": True}) and not tko.is_required({"required": False}) and not tko.is_required(int)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("{{ get('', 'v1', 'Namespace').metadata.name }}", "space"),
        ("{{get('', 'v1', 'ConfigMap', 'one').data.a}}", "b"),
        ("{{ get('', 'v1', 'ConfigMap', name='one').data.a }}", "b"),
        ("{{ get(group='', version='v1', kind='Namespace').metadata.labels.tier }}", "edge"),
        ("{{ get('', 'v1', 'Namespace', None).metadata.name }}", "space"),
        ("{{ package.get_first(GVK('', 'v1', 'Namespace')).metadata.name }}", "space"),
        ("{{ package[Identifier(GVK('', 'v1', 'ConfigMap'), 'one')].data.a }}", "b"),
        ("{{ package[Identifier(gvk=GVK(group='', version='v1', kind='ConfigMap'), name='none')] }}", None),
        ("{{ len(package.iter_all(GVK('', 'v1', 'ConfigMap'))) }}", 2),
        ("{{ GVK('apps', 'v1', 'Deployment').api_version }}", "apps/v1"),
        ("{{ GVK(resource=get('', 'v1', 'Namespace')).kind }}", "Namespace"),
        ("plain", "plain"),
    ],
)
def test_expressions_keep_their_results(expression: str, want: Any) -> None:
    for package in (tko.Package([ONE, TWO, SPACE]), [ONE, TWO, SPACE]):
        assert tko.evaluate_expression(expression, package) == want


@pytest.mark.parametrize(
    "expression",
    [
        "open('x')",
        "get.__class__",
        "package.__class__",
        "package.append(1)",
        "len(x=1)",
        "GVK('a', 'b', 'c', nope=1)",
        "GVK('a', group='b')",
    ],
)
def test_expressions_refuse_other_python(expression: str) -> None:
    with pytest.raises(tko.ExpressionError):
        tko.evaluate_expression("{{ " + expression + " }}", tko.Package([ONE]))


def test_scheduling_keeps_its_functions() -> None:
    intent = {"apiVersion": "workload.nephio.org/v1alpha1", "kind": "HelmChart", "metadata": {"name": "x"}}
    cluster, namespaced = tko.meta_schedule(tko.Package([ONE, intent, SPACE]))
    assert cluster == tko.Package([SPACE]) and namespaced == tko.Package([ONE])
    assert tko.is_namespaced(ONE) and not tko.is_namespaced(SPACE)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[::1]:50055", ("::1", 50055)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("", (None, None)),
        ("a", (None, None)),
        ("a:b", (None, None)),
    ],
)
def test_split_ip_address_port(text: str, want: Any) -> None:
    assert tko.split_ip_address_port(text) == want


PLUGIN = """
import sys, tko, tko.plugin

def prepare():
    assert tko.plugin.input["deploymentId"] == "d1" and tko.input is tko.plugin.input
    assert tko.plugin.output["package"] is tko.get_output_package().package
    if "replace" in sys.argv:
        tko.plugin.output["package"] = [tko.get_target_resource()]
    if "error" in sys.argv:
        tko.plugin.output["error"] = "not today"
    assert tko.get_grpc_host() == "[::1]:50050"
    return "later" not in sys.argv

def schedule():
    assert [type(p) for p in tko.get_deployments()] == [tko.Package]
    assert tko.plugin.input["siteId"] == "s"

def validate(complete):
    assert complete is tko.plugin.input["complete"] is True
    assert tko.get_target_resource() is tko.get_output_package()[tko.get_target_resource_identifier()]

getattr(tko, sys.argv[1])(globals()[sys.argv[1]])
assert tko.plugin.input is None
"""


@pytest.fixture
def plugin(tmp_path: Path, request_document: dict[str, Any]) -> Callable[..., Any]:
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)

    def run(*args: str) -> Any:
        document = dict(request_document)
        if args[0] != "prepare":
            package = document.pop("deploymentPackage")
            document |= {"package": package, "complete": True} if args[0] == "validate" else {}
            document |= (
                {"sitePackage": package, "siteId": "s", "deployments": {"d": package}} if args[0] == "schedule" else {}
            )
        done = subprocess.run(
            [sys.executable, str(file), *args], input=dump_yaml(document), capture_output=True, text=True, check=True
        )
        return load_yaml(done.stdout)

    return run


def test_plugins_see_input_and_output(plugin: Callable[..., Any]) -> None:
    assert len(plugin("prepare")["package"]) == 2 and plugin("prepare")["prepared"] is True
    assert len(plugin("prepare", "replace")["package"]) == 1
    assert plugin("prepare", "later") == {"prepared": False}
    assert plugin("prepare", "error") == {"error": "not today"}
    assert plugin("validate") == {} and plugin("schedule") == {}


def test_tools_call_their_programs(
    program: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = program("kind", 'echo "$@" >>$LOG; [ "$1" = get ] && echo old; exit 0')
    kind = tko.tools.kind
    cluster = {"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "name": "new", "metadata": {"name": "x"}}
    assert kind.cluster_gvk == tko.GVK(resource=cluster)
    assert (kind.get_cluster_name(cluster), kind.get_kube_context("new")) == ("new", "kind-new")
    assert kind.get_current_cluster_names() == ["old"]
    kind.write_cluster_manifest(cluster)
    manifest = load_yaml(Path(kind.get_cluster_path("new")).read_text())
    assert manifest == {k: v for k, v in cluster.items() if k != "metadata"}
    log.unlink()
    kind.create_cluster("new")
    assert log.read_text().splitlines()[-1] == f"create cluster --name new --config {kind.get_cluster_path('new')}"
    with pytest.raises(tko.Error, match="no name"):
        kind.get_cluster_path("../x")
    log.unlink()
    assert kind.execute("version") == "" and log.read_text() == "version\n"

    log.unlink()
    program("helm", 'echo "$@" >>$LOG; [ "$1" = list ] && echo web && echo db; exit 0')
    assert tko.tools.helm.chart_gvk == tko.GVK("workload.nephio.org", "v1alpha1", "HelmChart")
    assert tko.tools.helm.get_current_deployments(kube_context="c") == ["web", "db"]
    assert "--kube-context=c" in log.read_text()

    log.unlink()
    program("kubectl", 'echo "$@" >>$LOG; cat >>$LOG')
    tko.tools.kubectl.execute("get", "pods", kube_context="c", input="in\n")
    assert log.read_text() == "--context=c get pods\nin\n"
    log.unlink()
    tko.tools.kubectl.apply([ONE], "c")
    assert "apply" in log.read_text() and "name: one" in log.read_text()


def test_distribution_has_its_own_name() -> None:
    """The distribution of the name tko on the public index is another project's."""
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert re.findall(r'^name = "(.*)"$', project, re.MULTILINE) == ["tko-orchestrator"]
    root = Path(__file__).parents[3]
    for file in [
        root / "README.md",
        *root.glob("docs/**/*.md"),
        *root.glob("sdk/python/*.md"),
        *root.glob("internal/cli/scaffold/**/*.tmpl"),
        *root.glob("deploy/**/*"),
    ]:
        if file.is_file():
            for line in file.read_text(errors="replace").splitlines():
                assert not re.search(r"pip install (.* )?tko(\s|$|`|==)", line), f"{file}: {line}"


# With a real server


@pytest.fixture
def client() -> Iterator[tko.Client]:
    assert HOST, "TKO_TEST_HOST is not set: run this by `go test ./test/python`"
    with tko.Client(HOST) as c:
        yield c
        for purge in (c.purge_deployments, c.purge_sites, c.purge_templates, c.purge_plugins):
            purge()


RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def test_templates_and_sites_keep_their_shape(client: tko.Client) -> None:
    client.register_template("t", {"a": "b"}, "yaml", [ONE])
    client.register_template("u", None, "cbor", tko.Package([ONE]))
    client.register_template("v", package=dump_yaml(ONE))
    template = client.get_template("t")
    assert (template.templateId, template.metadata["a"], template.deploymentIds) == ("t", "b", [])
    assert template.get_package() == [ONE] and template.package and template.packageFormat
    assert [t.templateId for t in client.list_templates(["t", "u"][:1], {"a": "b"}, 0, 5)] == ["t"]
    assert [t.templateId for t in client.list_templates(None, None, 1, tko.client.MAX_MAX_COUNT)] == ["u", "v"]
    client.register_site("s", "t", {"c": "d"}, "yaml", [TWO])
    site = client.get_site("s")
    assert (site.siteId, site.templateId, site.metadata["c"]) == ("s", "t", "d") and len(site.get_package()) == 2
    (listed,) = client.list_sites(["s"], ["t"], {"c": "d"}, 0, 1)
    ard = site.to_ard()
    assert RFC3339.fullmatch(ard.pop("updated"))
    package = ard.pop("package")
    assert type(package) is list and package == site.get_package()
    assert ard == {"site_id": "s", "template_id": "t", "metadata": {"a": "b", "c": "d"}, "deployment_ids": []}
    assert {**listed.to_ard(), "updated": 1} == {**ard, "updated": 1}
    assert site.updated is not None and site.updated.ToDatetime().tzinfo is None
    client.purge_sites(["s"], ["t"], {"c": "d"})
    client.delete_template("v")
    client.purge_templates(["t"], {"a": "b"})
    assert [t.templateId for t in client.list_templates()] == ["u"]


def test_deployments_keep_their_shape(client: tko.Client) -> None:
    client.register_template("t", package=[ONE])
    client.register_site("s")
    parent = client.create_deployment("t", None, "s", {"a": "b"}, False, False, "yaml", [TWO])
    child = client.create_deployment("t", parent)
    deployment = client.get_deployment(parent)
    assert (deployment.deploymentId, deployment.parentDeploymentId, deployment.templateId, deployment.siteId) == (
        parent,
        "",
        "t",
        "s",
    )
    assert client.get_template("t").deploymentIds == [parent, child]
    ard = deployment.to_ard()
    assert RFC3339.fullmatch(ard["created"]) and RFC3339.fullmatch(ard["updated"])
    assert (ard["deployment_id"], ard["parent_deployment_id"], ard["template_id"], ard["site_id"]) == (
        parent,
        "",
        "t",
        "s",
    )
    assert (ard["prepared"], ard["approved"], ard["metadata"]["a"]) == (False, False, "b") and len(ard["package"]) == 3
    listed = list(client.list_deployments(None, ["t"], None, ["s"], None, {"a": "b"}, False, False, 0, 10))
    assert [d.deploymentId for d in listed] == [parent] and "package" not in listed[0].to_ard()
    assert [d.deploymentId for d in client.list_deployments(parent)] == [child]

    token, package = client.start_deployment_modification(parent)
    assert isinstance(token, str) and isinstance(package, list) and len(package) == 3
    changed = tko.Package(package)
    changed[tko.Identifier(resource=ONE)]["data"]["a"] = "c"
    with pytest.raises(tko.Error, match="needs a package"):
        client.end_deployment_modification(token)
    client.end_deployment_modification(token, "yaml", changed)
    assert tko.Package(client.get_deployment(parent).get_package())[tko.Identifier(resource=ONE)]["data"] == {"a": "c"}
    token, _ = client.start_deployment_modification(parent)
    with pytest.raises(Exception, match=parent):
        client.start_deployment_modification(parent)
    client.cancel_deployment_modification(token)
    with pytest.raises(Exception, match="is not known"):
        client.cancel_deployment_modification(token)
    client.purge_deployments(parent)
    client.delete_deployment(parent)
    with pytest.raises(Exception, match="nowhere"):
        client.create_deployment("nowhere")


def test_plugins_keep_their_shape(client: tko.Client) -> None:
    trigger = {"group": "g", "version": "v1", "kind": "K"}
    client.register_plugin("prepare", "p", "command", ["/bin/p"], {"k": "v"}, [trigger])
    plugin = client.get_plugin("prepare", "p")
    assert (plugin.type, plugin.name, plugin.executor, [*plugin.arguments], plugin.properties) == (
        "prepare",
        "p",
        "command",
        ["/bin/p"],
        {"k": "v"},
    )
    assert [(t.group, t.version, t.kind) for t in plugin.triggers] == [("g", "v1", "K")]
    assert [p.name for p in client.list_plugins("prepare", ["p"], "command", trigger, 0, 5)] == ["p"]
    client.purge_plugins("prepare", ["p"], "command", trigger)
    assert list(client.list_plugins()) == []
    client.register_plugin("validate", "q", "command", ["/bin/q"])
    client.delete_plugin("validate", "q")


def test_client_host_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (tko.client.DEFAULT_MAX_COUNT, tko.client.DEFAULT_PACKAGE_FORMAT) == (100, "yaml")
    assert tko.client.MAX_MAX_COUNT > 1_000_000
    with tko.Client("h:1") as client:
        assert client.host == "h:1"
