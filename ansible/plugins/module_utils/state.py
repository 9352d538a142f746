# Copyright TKO contributors. SPDX-License-Identifier: Apache-2.0
"""The desired state of entities: predictions for check mode, and comparisons.

The server decides whether a registration changes anything. Predictions are for check mode only.
"""

from __future__ import annotations

import copy

PREPARED = "nephio.org/prepared"
APPROVED = "nephio.org/approved"
MERGE = "nephio.org/merge"
RENAME = "nephio.org/rename"
DEPLOYMENT = ("deployment.nephio.org/v1alpha1", "Deployment", "deployment")


def identity(resource):
    """Returns what identifies a resource in a package."""
    metadata = resource.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else resource.get("name")
    return resource.get("apiVersion"), resource.get("kind"), name


def annotations(resource):
    """Returns the annotations of a resource."""
    metadata = resource.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def override(into, value):
    """Returns a value with another merged into it: maps by key; lists and scalars are replaced."""
    if not isinstance(into, dict) or not isinstance(value, dict):
        return copy.deepcopy(value)
    result = dict(into)
    for key, v in value.items():
        result[key] = override(into.get(key), v)
    return result


def merged(base, given):
    """Returns the package that the server makes of a template's package and a given one."""
    package = copy.deepcopy(base)
    places = {identity(r): i for i, r in enumerate(package)}
    for resource in given:
        key = identity(resource)
        renamed = annotations(resource).get(RENAME)
        if renamed:
            resource = override(resource, {"metadata": {"name": renamed}})
            key = identity(resource)
        if key not in places:
            places[key] = len(package)
            package.append(copy.deepcopy(resource))
        elif annotations(resource).get(MERGE) == "Override":
            package[places[key]] = override(package[places[key]], resource)
        else:
            package[places[key]] = copy.deepcopy(resource)
    return package


def gathered(key, package):
    """Reports whether a metadata key may be gathered from a resource of the package."""
    for resource in package:
        group = str(resource.get("apiVersion")).partition("/")[0]
        if group == "metadata.nephio.org" and key.startswith(f"{resource.get('kind')}."):
            return True
    return False


def own_metadata(entity, inherited):
    """Returns the metadata of an entity that is neither its template's nor gathered from its package."""
    package = list(entity.get_package())
    return {
        key: value
        for key, value in entity.metadata.items()
        if inherited.get(key) != value and not gathered(key, package)
    }


def predicted_metadata(before, passed, inherited, package):
    """Returns the metadata after a registration, as far as it can be predicted."""
    result = {key: value for key, value in before.items() if gathered(key, package)}
    result.update(inherited)
    result.update(passed)
    return result


def deployment_resource(package):
    """Returns the Deployment resource of a deployment's package, or None."""
    for resource in package:
        if identity(resource) == DEPLOYMENT:
            return resource
    return None


def unprepare(resource):
    """Makes the preparer prepare a resource again."""
    if PREPARED in annotations(resource):
        del resource["metadata"]["annotations"][PREPARED]


def changed_package(package, given, prepare):
    """Merges given resources into a deployment's package, and returns the package, or None if nothing changes.

    Fields that the given resources do not have stay: preparation may have added them. With prepare, changed resources
    and the deployment are prepared again.
    """
    result = copy.deepcopy(package)
    places = {identity(r): i for i, r in enumerate(result)}
    changed = False
    for resource in given:
        place = places.get(identity(resource))
        if place is None:
            result.append(copy.deepcopy(resource))
            changed = True
            continue
        new = override(result[place], resource)
        if new == result[place]:
            continue
        changed = True
        if prepare:
            unprepare(new)
        result[place] = new
    if not changed:
        return None
    own = deployment_resource(result)
    if prepare and own is not None:
        unprepare(own)
    return result
