"""A client of the HTTP API, over the package that openapi-python-client has generated."""

import os

from generated import Client
from generated.api.default import actions, deployment, deployment_list, site, site_count, site_list
from generated.models import ActionsBody, DeploymentEntity, DeploymentPage, SitePage

client = Client(base_url=os.environ["URL"])
rows = []
after: str = ""
while True:
    page = site_list.sync(client=client, limit=2, metadata=["region=north"], **({"after": after} if after else {}))
    assert isinstance(page, SitePage), page
    rows += page.rows
    if not page.next_:
        break
    after = page.next_
print("sites", ", ".join(f"{r.id} {r.state} {r.metadata.additional_properties['region']}" for r in rows))
page = deployment_list.sync(client=client)
assert isinstance(page, DeploymentPage), page
for row in page.rows:
    one = deployment.sync(client=client, id=row.id)
    assert isinstance(one, DeploymentEntity), one
    print("deployment", row.template, row.site, one.row.revision, str("kind: ConfigMap" in one.package).lower(), str("delete" in one.can).lower())
count = site_count.sync(client=client, by="state,metadata.region")
print("count", ", ".join(sorted(f"{' '.join(g.keys)} {g.count}" for g in count.groups)))
body = ActionsBody.from_dict({"verb": "delete", "kind": "site", "filter": "id=north/**", "dryRun": True})
print("would delete", actions.sync(client=client, body=body).count)
missing = site.sync_detailed(client=client, id="nowhere")
print("missing", int(missing.status_code), missing.parsed.error)
