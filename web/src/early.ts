// What the first view reads, from before its program runs: the caller, and the first page of a list. This file is evaluated first, and
// imports nothing, so that both are under way while React is evaluated and draws.
import type { Kind } from './schema'

export const query = (parts: Record<string, string | number | undefined>, base = '') => {
  const q = new URLSearchParams(base)
  for (const [key, value] of Object.entries(parts)) if (value !== undefined && value !== '') q.append(key, String(value))
  return q.toString()
}

// kindOf has the kinds of the lists by the first part of their addresses.
export const kindOf: Record<string, Kind> = { deployments: 'deployment', sites: 'site', templates: 'template', plugins: 'plugin', rollouts: 'rollout' }

// filterOf returns what the search of an address filters by: without the moment and how it is shown.
export function filterOf(search: string): string {
  const q = new URLSearchParams(search)
  for (const name of ['asOf', 'cols', 'tab']) q.delete(name)
  return q.toString()
}

const pageRows = 100

export const caller = '/api/v1/me'
export const pageOf = (kind: Kind, filter: string, asOf: string, after: string) => `/api/v1/${kind}/list?${query({ after, limit: pageRows, asOf }, filter)}`

const begun = new Map<string, Promise<Response | undefined>>()

// take returns the response to a request that was made early, once; undefined without one, or if it has failed: then the request is made anew.
export function take(path: string): Promise<Response | undefined> | undefined {
  const response = begun.get(path)
  begun.delete(path)
  return response
}

// A page is requested after the caller, whose position is where the stream of changes begins: no change between them is missed.
function begin() {
  const [, first = '', ...rest] = location.pathname.split('/')
  if (first === 'login') return
  const ask = (path: string) => fetch(path, { credentials: 'same-origin' }).then(r => r.ok ? r : undefined, () => undefined)
  const me = ask(caller)
  begun.set(caller, me)
  const kind = kindOf[first]
  if (!kind || rest.join('')) return
  const page = pageOf(kind, filterOf(location.search), new URLSearchParams(location.search).get('asOf') ?? '', '')
  begun.set(page, me.then(r => r && ask(page)))
}
begin()
