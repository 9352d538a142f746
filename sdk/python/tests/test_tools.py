import json
from collections.abc import Callable
from pathlib import Path

import pytest

import tko

Program = Callable[[str, str], Path]
ONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}


def test_execute(program: Program) -> None:
    assert tko.execute("sh", "-c", "cat; echo $A", env={"A": "b"}, input="in ") == "in b\n"
    assert tko.execute("cat") == ""
    program("fails", "echo out; echo why >&2; exit 3")
    with pytest.raises(tko.ExecuteError, match="fails ended with 3: why") as raised:
        tko.execute("fails")
    assert (raised.value.returncode, raised.value.stderr) == (3, "why")
    with pytest.raises(tko.ExecuteError, match="no-such-program can't be run"):
        tko.execute("no-such-program")
    with pytest.raises(tko.ExecuteError):
        tko.execute("sh", "-c", "echo $1; exit 1; ; rm", "x; y")


def test_kubectl(program: Program) -> None:
    log = program("kubectl", 'echo "$@" >>$LOG; cat >>$LOG; echo applied')
    assert tko.tools.kubectl.apply(tko.Package([ONE]), kube_context="edge") == "applied\n"
    arguments, _, manifest = log.read_text().partition("\n")
    assert arguments.startswith("--context=edge apply --server-side") and arguments.endswith("--filename=-")
    assert tko.decode_package(manifest.encode(), "yaml") == tko.Package([ONE])
    log.unlink()
    assert tko.tools.kubectl.apply(tko.Package()) == ""
    assert not log.exists()
    tko.tools.kubectl.delete(tko.Package([ONE]))
    assert log.read_text().startswith("delete --ignore-not-found --filename=-\n")


def test_kind(program: Program) -> None:
    log = program(
        "kind", '[ "$1" = get ] && echo old && exit; echo "$@" >>$LOG; [ "$5" = --config ] && cat >>$LOG; true'
    )
    assert tko.tools.kind.list_clusters() == ["old"]
    cluster = {"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "name": "new"}
    assert tko.tools.kind.get_cluster(tko.Package([ONE, cluster])) is cluster
    assert tko.tools.kind.create_cluster(cluster) is True
    assert log.read_text().startswith("create cluster --name new --config -\napiVersion: kind.x-k8s.io/v1alpha4\n")
    log.unlink()
    assert tko.tools.kind.create_cluster("old") is False
    assert not log.exists()
    tko.tools.kind.delete_cluster("old")
    assert log.read_text() == "delete cluster --name old\n"
    assert tko.tools.kind.get_kube_context(cluster) == "kind-new"


def test_helm(program: Program) -> None:
    log = program("helm", 'printf "%s\\n" "$@" >>$LOG')
    chart = {
        "apiVersion": "workload.nephio.org/v1alpha1",
        "kind": "HelmChart",
        "metadata": {"name": "web", "namespace": "apps"},
        "spec": {
            "chart": "nginx",
            "repository": "https://charts.example",
            "version": "~1.2",
            "parameters": {
                "a.b": "{{ get('', 'v1', 'ConfigMap').metadata.name }}",
                "count": 2,
                "list": ["x"],
                "t": "yes",
            },
        },
    }
    package = tko.Package([ONE, chart])
    assert list(tko.tools.helm.iter_charts(package)) == [chart]
    tko.tools.helm.install(chart, package, kube_context="edge")
    assert log.read_text().split("\n")[:-1] == [
        "upgrade",
        "--install",
        "--kube-context=edge",
        "--repo=https://charts.example",
        "--version=~1.2",
        "--namespace=apps",
        "--create-namespace",
        '--set-json=a.b="one"',
        "--set-json=count=2",
        '--set-json=list=["x"]',
        '--set-json=t="yes"',
        "--",
        "web",
        "nginx",
    ]
    chart["spec"] = {"chart": "nginx", "parameters": {"bad": "{{ open('/etc/passwd') }}"}}
    with pytest.raises(tko.Error, match="spec.parameters.bad: .*no function 'open'"):
        tko.tools.helm.install(chart, package)
    chart["spec"] = {}
    with pytest.raises(tko.Error, match="spec.chart is missing"):
        tko.tools.helm.install(chart, package)


def test_inventory() -> None:
    inventory = tko.ansible.Inventory()
    inventory.add_group("edge", children=["south"], tier="far")
    inventory.add_host("lagos-1", groups=["south"], ansible_host="10.0.0.1")
    inventory.add_host("lagos-1", groups=["south"], port=22)
    written: list[str] = []
    inventory.main(["--list"], written.append)
    inventory.main(["--host", "lagos-1"], written.append)
    inventory.main(["--host", "nobody"], written.append)
    listed, host, nobody = map(json.loads, written)
    assert listed == {
        "_meta": {"hostvars": {"lagos-1": {"ansible_host": "10.0.0.1", "port": 22}}},
        "all": {"children": ["edge", "south"]},
        "edge": {"children": ["south"], "vars": {"tier": "far"}},
        "south": {"hosts": ["lagos-1"]},
    }
    assert (host, nobody) == ({"ansible_host": "10.0.0.1", "port": 22}, {})
    with pytest.raises(SystemExit):
        inventory.main(["--nonsense"], written.append)
