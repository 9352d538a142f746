#!/usr/bin/env python3
"""An example of a schedule plugin with the Python SDK: sites that are kind clusters on the machine of the meta-scheduler.

For a resource kind.x-k8s.io/v1alpha4 Cluster in a site's package it makes that cluster, unless it is there, and applies all
deployments of the site to it: what has no namespace first, then what has one, then Helm charts. It needs the programs kind,
kubectl and, for charts, helm. What leaves a deployment stays in the cluster; with a kubernetes.plugin.nephio.org Cluster for
the same kind cluster, it would go.

  tko plugin register schedule kind --argument examples/plugins/kind/schedule_kind.py --trigger kind.x-k8s.io,v1alpha4,Cluster
"""

import tko
from tko.tools import helm, kind, kubectl


def schedule(request: tko.ScheduleRequest) -> None:
    cluster = request.target
    context = kind.get_kube_context(cluster)
    if kind.create_cluster(cluster):
        request.log(f"created {context} for site {request.site_id}")
    parts = {id: tko.meta_schedule(package) for id, package in sorted(request.deployments.items())}
    for cluster_scoped, _ in parts.values(): # first the cluster-scoped resources of all deployments, which others may need
        kubectl.apply(cluster_scoped, context)
    for _, namespaced in parts.values():
        kubectl.apply(namespaced, context)
    for id, package in sorted(request.deployments.items()):
        for chart in helm.iter_charts(package):
            request.log(f"installed a chart of deployment {id}: {helm.install(chart, package, context)}")


if __name__ == "__main__":
    tko.run(schedule=schedule)
