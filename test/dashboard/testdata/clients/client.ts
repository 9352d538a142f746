// A client of the HTTP API, over types that openapi-typescript has generated. It is compiled with all checks, and run.
import createClient from 'openapi-fetch'
import type { components, paths } from './schema'

type SiteRow = components['schemas']['SiteRow']

const client = createClient<paths>({ baseUrl: process.env.URL })

function got<T>({ data, error }: { data?: T, error?: { error: string } }): T {
  if (data === undefined) throw new Error(error?.error)
  return data
}

const rows: SiteRow[] = []
for (let after: string | undefined; ;) {
  const page = got(await client.GET('/api/v1/site/list', { params: { query: { limit: 2, after, metadata: ['region=north'] } } }))
  rows.push(...page.rows)
  if (!page.next) break
  after = page.next
}
console.log('sites', rows.map(r => `${r.id} ${r.state} ${r.metadata?.region}`).join(', '))

const deployments = got(await client.GET('/api/v1/deployment/list'))
for (const { id, template, site } of deployments.rows) {
  const { row, package: text, can } = got(await client.GET('/api/v1/deployment', { params: { query: { id } } }))
  console.log('deployment', template, site, row.revision, text.includes('kind: ConfigMap'), can.includes('delete'))
}
const count = got(await client.GET('/api/v1/site/count', { params: { query: { by: 'state,metadata.region' } } }))
console.log('count', count.groups.map(g => `${g.keys.join(' ')} ${g.count}`).sort().join(', '))
const dryRun = got(await client.POST('/api/v1/actions', { body: { verb: 'delete', kind: 'site', filter: 'id=north/**', dryRun: true } }))
console.log('would delete', dryRun.count)
const missing = await client.GET('/api/v1/site', { params: { query: { id: 'nowhere' } } })
console.log('missing', missing.response.status, missing.error?.error)

// @ts-expect-error: rows have no such field
console.log(rows[0].colour ?? 'no such field')
// @ts-expect-error: an action needs a verb
const wrong = await client.POST('/api/v1/actions', { body: { kind: 'site', ids: ['north/1'], dryRun: true } })
console.log('wrong', wrong.response.status)
