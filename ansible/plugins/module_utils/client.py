# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""Connects modules to TKO by the client of the Python SDK."""

from __future__ import annotations

import hashlib
import io
import os
import re
import traceback

from ansible.module_utils.basic import AnsibleModule, env_fallback, missing_required_lib

try:
    import tko
    import tko.client
except ImportError:
    tko = None
    IMPORT_ERROR = traceback.format_exc()
else:
    IMPORT_ERROR = None

DEFAULT_HOST = "tko-data:50050"


def connection_spec():
    """Returns the argument specification of the connection."""
    return dict(
        host=dict(type="str", default=DEFAULT_HOST, fallback=(env_fallback, ["TKO_DATA_HOST", "TKO_GRPC_HOST"])),
        tls=dict(type="bool", default=False),
        ca_path=dict(type="path"),
        client_cert=dict(type="path"),
        client_key=dict(type="path", no_log=False),
        token=dict(type="str", no_log=True),
        token_file=dict(type="path", no_log=False),
        timeout=dict(type="float", default=60),
    )


def connect(option, **more):
    """Returns a client. option returns the value of an option of the connection by its name."""
    settings = dict(more)
    if option("tls"):
        settings["tls"] = True
    if option("ca_path"):
        settings["tls"] = option("ca_path")
    if option("client_cert"):
        settings["certificate"] = option("client_cert")
        settings.setdefault("tls", True)
    if option("client_key"):
        settings["key"] = option("client_key")
    if option("token"):
        settings["token"] = option("token")
    elif option("token_file"):
        with open(option("token_file"), encoding="utf-8") as f:
            settings["token"] = f.read().strip()
    return tko.Client(option("host"), timeout=option("timeout"), **settings)


def run(act, spec=None, writes=True, **settings):
    """Runs a module: act(module, client) returns its results.

    A refusal of the server fails the module, with the server's reason and the name of the status code.
    """
    arguments = connection_spec()
    if writes:
        arguments["why"] = dict(type="str")
    arguments.update(spec or {})
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True, **settings)
    if tko is None:
        module.fail_json(msg=missing_required_lib("tko-orchestrator"), exception=IMPORT_ERROR)
    try:
        more = {"why": module.params["why"]} if module.params.get("why") else {}
        with connect(module.params.get, **more) as client:
            result = act(module, client)
    except tko.client.RequestError as e:
        module.fail_json(msg=str(e), code=e.code().name)
    except (tko.Error, OSError, ValueError) as e:
        module.fail_json(msg=str(e))
    if not module._diff:
        result.pop("diff", None)
    module.exit_json(**result)


def found(get, *arguments):
    """Returns the result of a get, or None if the object does not exist."""
    try:
        return get(*arguments)
    except tko.client.RequestError as e:
        if e.code().name == "NOT_FOUND":
            return None
        raise


def texts(name, values):
    """Returns metadata, or another map of texts, with numbers and booleans as texts."""
    if values is None:
        return None
    result = {}
    for key, value in values.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (int, float)):
            value = str(value)
        elif not isinstance(value, str):
            raise ValueError(f"{name}.{key} is {type(value).__name__}: use a text")
        result[str(key)] = value
    return result


def exactly(values):
    """Returns patterns that match these metadata values, and no others."""
    return {key: exact(value) for key, value in (values or {}).items()}


def exact(text):
    """Returns a pattern that matches this text, and no other."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def package_of(params):
    """Returns the package that the options package and src describe, or None without either."""
    if params.get("src") is not None:
        return read_package(params["src"])
    package = params.get("package")
    if package is None:
        return None
    return as_package("package", package)


def as_package(name, value):
    """Returns a package given as a list of resources, one resource, or YAML."""
    if isinstance(value, (str, bytes)):
        return list(tko.decode_package(value if isinstance(value, bytes) else value.encode(), "yaml"))
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(r, dict) for r in value):
        raise ValueError(f"{name} is neither a list of resources nor YAML")
    return list(tko.Package(value))


def read_package(path):
    """Reads a package from a YAML file, or from all YAML files below a folder, ordered by path."""
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(
            os.path.join(folder, name)
            for folder, _folders, names in os.walk(path)
            for name in names
            if name.endswith((".yaml", ".yml"))
        )
        if not paths:
            raise ValueError(f"src: the folder {path} has no .yaml or .yml file")
    package = []
    for path in paths:
        with open(path, "rb") as f:
            try:
                package += as_package("src", f.read())
            except tko.Error as e:
                raise ValueError(f"src: {path}: {e}") from e
    return package


def diff_of(name, before, after):
    """Returns a diff for Ansible. Values of Secrets, and credentials of plugins, are replaced by digests."""
    return {
        "before_header": name,
        "after_header": name,
        "before": _readable(before),
        "after": _readable(after),
    }


def _readable(value):
    if value is None:
        return ""
    out = io.StringIO()
    tko.yaml.dump(_without_secrets(value), out)
    return out.getvalue()


def _without_secrets(value):
    if value.get("properties"):
        value = dict(value, properties=without_credentials(value["properties"]))
    if "package" not in value:
        return value
    return dict(value, package=[_without_data(r) for r in value["package"]])


CREDENTIAL = re.compile(r"(?i)passw|passphrase|secret|token|credential|(api|private|access)[._-]?key")
REFERENCES = ("env:", "vault:", "file:")


def credentials(properties):
    """Returns the properties of a plugin that are credentials by their names, and no references to secrets."""
    return {
        k: v
        for k, v in (properties or {}).items()
        if CREDENTIAL.search(str(k)) and v and not str(v).startswith(REFERENCES)
    }


def without_credentials(properties):
    """Returns the properties of a plugin with digests in place of credentials."""
    return dict(properties, **{k: _digest(v) for k, v in credentials(properties).items()})


def _digest(value):
    return "sha256:" + hashlib.sha256(str(value).encode()).hexdigest()[:12]


def _without_data(resource):
    if resource.get("kind") != "Secret" or resource.get("apiVersion") != "v1":
        return resource
    resource = dict(resource)
    for field in ("data", "stringData"):
        if isinstance(resource.get(field), dict):
            resource[field] = {k: _digest(v) for k, v in resource[field].items()}
    return resource
