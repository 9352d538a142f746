// The tree of a deployment: its descendants to any depth, in groups by template, with zoom and search. What is not opened is not read.
import { useCallback, useEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react'
import { ApiError, get, query, states, useMoment, useTurns, type Count, type Entity, type Feed, type Group, type Me, type Page, type Row, type State } from './api'
import { List } from './list'
import { entityPath, Link, Loading, navigate, number, Problem, StateMark } from './parts'

const opened = 50 // deployments of a group that are drawn at once
const maxNodes = 300 // that are drawn in all
const maxDepth = 100 // of the path to a deployment that was searched

export const worst = (g: Group): State => states.find(s => g.states[s]) ?? 'unknown'

// A node is a deployment, or a group of siblings with one template.
interface Node { key: string, parent?: string, depth: number, row?: Row, of?: string, template?: string, group?: Group }

// A branch is what is known of the children of a deployment.
interface Branch { groups: Group[], other: number, counted: number, partial: boolean, rows: Record<string, { rows: Row[], next?: string }> }

const groupKey = (parent: string, template: string) => `${parent} ${template}`

export function Tree({ entity: { row }, feed, me }: { entity: Entity, feed: Feed, me: Me }) {
  const asOf = useMoment()
  const turn = useTurns(feed, ['deployment'], 900)
  const [branches, setBranches] = useState<Record<string, Branch>>({})
  const [open, setOpen] = useState<Record<string, number>>({ [row.id]: 1 }) // keys of open nodes, and of groups how many are drawn
  const [error, setError] = useState<ApiError>()
  const [zoom, setZoom] = useState(1)
  const [at, setAt] = useState(row.id)
  const [found, setFound] = useState('')
  const [again, setAgain] = useState(0) // grows while the server counts
  const view = useRef<HTMLDivElement>(null)
  const wanted = useRef(open)
  wanted.current = open

  const read = useCallback(async (id: string, limits: Record<string, number>, signal: AbortSignal): Promise<Branch> => {
    const count = await get<Count>(`/api/v1/deployment/count?${query({ parent: id, by: 'template', whole: 'true', asOf })}`, signal)
    const rows: Branch['rows'] = {}
    for (const g of count.groups) {
      const limit = limits[groupKey(id, g.keys[0])]
      if (!limit || !g.keys[0]) continue
      const page = await get<Page>(`/api/v1/deployment/list?${query({ parent: id, 'template-id': g.keys[0], limit: Math.min(limit, maxNodes), asOf })}`, signal)
      rows[g.keys[0]] = { rows: page.rows, next: page.next }
    }
    return { groups: count.groups, other: count.other.count, counted: count.counted, partial: !!count.counting, rows }
  }, [asOf])

  // What is open is read, and again when a deployment has changed.
  const openKeys = Object.keys(open).filter(k => open[k]).sort().join('\n')
  useEffect(() => {
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const all = Object.keys(wanted.current).filter(k => wanted.current[k] && !k.includes(' '))
    Promise.all(all.map(id => read(id, wanted.current, abort.signal).then(b => [id, b] as const)))
      .then(list => {
        setError(undefined)
        setBranches(Object.fromEntries(list))
        if (list.some(([, b]) => b.partial)) timer = setTimeout(() => setAgain(n => n + 1), 500)
      }, e => { if (!abort.signal.aborted) setError(e as ApiError) })
    return () => { abort.abort(); clearTimeout(timer) }
  }, [openKeys, turn, read, open, again])

  const nodes = useMemo(() => {
    const all: Node[] = []
    const visit = (of: Row, depth: number, parent?: string) => {
      all.push({ key: of.id, parent, depth, row: of })
      const branch = open[of.id] ? branches[of.id] : undefined
      for (const g of branch?.groups ?? []) {
        const template = g.keys[0], key = groupKey(of.id, template)
        all.push({ key, parent: of.id, depth: depth + 1, of: of.id, template, group: g })
        if (open[key]) for (const child of branch!.rows[template]?.rows ?? []) if (!all.some(n => n.key === child.id)) visit(child, depth + 2, key) // a cycle is drawn once
      }
    }
    visit(row, 0)
    return all
  }, [row, branches, open])
  const drawn = nodes.slice(0, maxNodes)
  const total = branches[row.id]

  const toggle = (n: Node) => setOpen(old => ({ ...old, [n.key]: old[n.key] ? 0 : n.group ? opened : 1 }))
  const path = (n: Node) => n.group ? `/deployments?${query({ parent: n.of, 'template-id': n.template })}` : entityPath('deployment', n.key)
  const keys = (e: KeyboardEvent) => {
    const i = Math.max(0, drawn.findIndex(n => n.key === at)), n = drawn[i]
    const go = (to?: Node) => to && setAt(to.key)
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(drawn[i + 1]), ArrowUp: () => go(drawn[i - 1]), Home: () => go(drawn[0]), End: () => go(drawn.at(-1)), Enter: () => navigate(path(n)), ' ': () => toggle(n),
      ArrowRight: () => open[n.key] ? go(drawn[i + 1]) : toggle(n), ArrowLeft: () => open[n.key] ? toggle(n) : go(drawn.find(p => p.key === n.parent)),
      '+': () => setZoom(z => Math.min(2, z * 1.25)), '-': () => setZoom(z => Math.max(0.4, z / 1.25)), '0': () => setZoom(1),
    }
    if (e.ctrlKey || e.metaKey || e.altKey || !moves[e.key]) return
    e.preventDefault()
    moves[e.key]()
  }
  useEffect(() => { if (at !== row.id) document.getElementById(`node-${drawn.findIndex(n => n.key === at)}`)?.scrollIntoView({ block: 'nearest' }) }, [at, drawn.length])

  // search finds a deployment below this one, by its ID, its site or its template, and opens the way to it.
  const search = async (text: string) => {
    setFound('')
    if (!text) return
    const here = drawn.find(n => n.row?.site === text || n.template === text || n.key === text)
    if (here) { setAt(here.key); setFound(`Found ${here.key}`); return }
    try {
      const candidates: Row[] = []
      await get<Entity>(`/api/v1/deployment?${query({ id: text, asOf })}`).then(e => candidates.push(e.row), e => { if ((e as ApiError).status !== 404) throw e })
      for (const word of ['site-id', 'template-id']) if (candidates.length === 0) candidates.push(...(await get<Page>(`/api/v1/deployment/list?${query({ [word]: text, limit: opened, asOf })}`)).rows)
      for (const candidate of candidates) {
        const way = [candidate]
        while (way[0].parent && way[0].id !== row.id && way.length < maxDepth) way.unshift((await get<Entity>(`/api/v1/deployment?${query({ id: way[0].parent, asOf })}`)).row)
        if (way[0].id !== row.id) continue
        setOpen(old => ({ ...old, ...Object.fromEntries(way.slice(0, -1).flatMap((r, i) => [[r.id, 1], [groupKey(r.id, way[i + 1].template ?? ''), maxNodes]])) }))
        setAt(candidate.id)
        setFound(`Found ${candidate.id}, ${way.length - 1} levels down`)
        return
      }
      setFound('No deployment below this one matches: search for an ID, or a pattern of a site or template.')
    } catch (e) { setError(e as ApiError) }
  }

  const h = 34, indent = 26, width = 620 + indent * Math.max(0, ...drawn.map(n => n.depth))
  return <>
    {row.parent && <p>Parent: <Link to={entityPath('deployment', row.parent, 'tree')}>{row.parent}</Link></p>}
    {error && <Problem error={error} retry={() => setOpen({ ...open })} />}
    {!total && !error && <Loading />}
    {total && <>
      <p>{number(total.counted)}{total.partial ? ' (counting…)' : ''} children in {number(total.groups.length)} groups by template{total.other > 0 && `; ${number(total.other)} of them in smaller groups, which are not drawn: the list below has all`}. {number(drawn.length)} nodes are drawn{nodes.length > drawn.length && `; ${number(nodes.length - drawn.length)} are left out: close a group`}.</p>
      <form className="bar" onSubmit={e => { e.preventDefault(); search(String(new FormData(e.currentTarget).get('search')).trim()) }}>
        <label>Search the tree <input name="search" type="search" placeholder="ID, site or template" spellCheck={false} /></label> <button>Search</button>
        <button type="button" onClick={() => setZoom(z => Math.max(0.4, z / 1.25))} aria-label="Zoom out">−</button><button type="button" onClick={() => setZoom(1)}>{Math.round(zoom * 100)} %</button><button type="button" onClick={() => setZoom(z => Math.min(2, z * 1.25))} aria-label="Zoom in">+</button>
        <span role="status">{found}</span></form>
      <div className="scroll tree" ref={view} tabIndex={0} role="tree" aria-label="Descendants" aria-activedescendant={drawn.some(n => n.key === at) ? `node-${drawn.findIndex(n => n.key === at)}` : undefined} onKeyDown={keys}>
        <div style={{ width: width * zoom, height: drawn.length * h * zoom }}><div style={{ transform: `scale(${zoom})`, width }} className="zoomed">
          {drawn.map((n, i) => <div key={n.key} id={`node-${i}`} role="treeitem" aria-level={n.depth + 1} aria-expanded={!!open[n.key]} aria-selected={n.key === at} data-key={n.key} className={`leaf ${n.key === at ? 'at' : ''}`} style={{ paddingLeft: n.depth * indent }} onClick={() => setAt(n.key)}>
            <button tabIndex={-1} className="plain" aria-label={`${open[n.key] ? 'Close' : 'Open'} ${n.template ?? n.key}`} onClick={() => toggle(n)}>{open[n.key] ? '▾' : '▸'}</button>
            {n.group ? <><StateMark state={worst(n.group)} /> <Link to={path(n)}>{number(n.group.count)} × {n.template || 'no template'}</Link> <span className="muted">{states.filter(s => n.group!.states[s]).map(s => `${number(n.group!.states[s]!)} ${s}`).join(', ')}</span>
              {!!open[n.key] && branches[n.of!]?.rows[n.template!]?.next && (open[n.key] < maxNodes ? <button tabIndex={-1} onClick={() => setOpen(old => ({ ...old, [n.key]: Math.min(maxNodes, old[n.key] + opened) }))}>{opened} more</button> : <Link to={path(n)}>all as a list</Link>)}</>
              : <><StateMark state={n.row!.state} /> <Link to={path(n)}>{n.row!.template || n.key}</Link>{n.row!.site && <span> at {n.row!.site}</span>} <code className="muted">{n.key}</code>{!!open[n.key] && branches[n.key]?.groups.length === 0 && <span className="muted"> has no children</span>}</>}
          </div>)}
        </div></div>
      </div>
    </>}
    <h2>Children</h2>
    <List kind="deployment" filter={query({ parent: row.id })} feed={feed} me={me} embedded />
  </>
}
