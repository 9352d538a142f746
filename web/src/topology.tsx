// The graph of a topology: its children by template, by a key of the metadata of their sites, by state, and their objects. It opens at
// what fails, and reads only what is open.
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { ApiError, get, query, states, useGet, useMoment, useTurns, type Count, type Entity, type Feed, type Group, type Me, type Page, type Row, type State, type Wall } from './api'
import { Graph, inWords, maxNodes, partsOf, useOpening, useSelected, useView, type Item, type Numbers, type Opening } from './graph'
import { literal } from './filter'
import { List } from './list'
import { Ago, changeAddress, CopyText, entityPath, Fact, here, Link, Loading, nameOf, nameOfTemplate, number, Problem } from './parts'
import { resources } from './text'
import { ParentName } from './parentname'
import { useReads, type Read } from './reads'

const few = 12 // deployments that are drawn without groups
const rowsFirst = 12 // of a group
const groupsFirst = 24
const step = 50 // that are drawn in addition
const maxObjects = 20
const maxDepth = 100 // of the path to a deployment that was searched
const nothing = '-' // in the address, in place of a key

// A Root is what the graph begins with: a deployment, or a template with all deployments that were made from it.
export type Root = { kind: 'deployment' | 'template', row: Row }

// An Of is a group of deployments: children, or all, of a template; then at sites with a value of the metadata; then in a state.
interface Of { parent: string, template: string, value?: string, state?: State }

// Keys are paths of groups from a deployment. Their parts can contain any character.
const escaped = (text: string) => text.replaceAll('~', '~0').replaceAll('/', '~1').replaceAll('\n', '~2')
const keyOf = (of: Of) => [escaped(of.parent), `t${escaped(of.template)}`, ...of.value === undefined ? [] : [`v${escaped(of.value)}`], ...of.state ? [`s${of.state}`] : []].join('/')
const rootKey = (root: Root) => root.kind === 'deployment' ? root.row.id : keyOf({ parent: '', template: root.row.id })

// within returns the parameters of requests for the deployments of a group.
const within = (of: Of, grouping: string) => {
  const q = new URLSearchParams()
  if (of.parent) q.append('parent', of.parent)
  q.append('within', `template=${of.template}`)
  if (of.value !== undefined) q.append('within', `site-metadata.${grouping}=${of.value}`)
  if (of.state) q.append('state', of.state)
  return q
}

// listOf returns the address of the list of a group. Those without a template, or without a value, are selected as groups.
function listOf(of: Of, grouping: string): string {
  const q = new URLSearchParams()
  if (of.parent) q.append('parent', of.parent)
  if (of.template) q.append('template-id', literal(of.template))
  else q.append('within', 'template=')
  if (of.value) q.append('site-metadata', `${grouping}=${literal(of.value)}`)
  else if (of.value === '') q.append('within', `site-metadata.${grouping}=`)
  if (of.state) q.append('state', of.state)
  return `/deployments?${q}`
}

// A Found is a deployment that was searched, which is drawn although it is not among the first of its group.
interface Found { row: Row, value?: string }

interface Built { items: Item[], rows: Map<string, Row>, groups: Map<string, Of>, loading: boolean, counting: boolean, error?: ApiError, counted: number, numbers: Numbers, others: number }

interface Source { grouping: string | undefined, asOf: string, opening: Opening, found: Found[], ask: (key: string, address: string) => Read }

// atLeast writes a number that is not yet complete as such.
const atLeast = (n: number, counting?: boolean) => counting ? `at least ${number(n)}` : number(n)

const failing = (g: Group) => g.states.failing ?? 0
const byFailing = (a: Group, b: Group) => failing(b) - failing(a) || b.count - a.count

// build makes the nodes from what is open and what is known, and asks for what else is needed.
export function build(root: Root, { grouping, asOf, opening, found, ask }: Source): Built {
  const out: Built = { items: [], rows: new Map(), groups: new Map(), loading: false, counting: false, counted: 0, numbers: {}, others: 0 }
  const read = <T,>(key: string, path: string, q: URLSearchParams): T | undefined => {
    if (asOf) q.set('asOf', asOf)
    const { data, error } = ask(key, `/api/v1/${path}?${q}`)
    if (error) out.error = error
    else if (data === undefined) out.loading = true
    const counting = (data as { counting?: boolean } | undefined)?.counting
    if (counting) out.counting = true
    return data as T | undefined
  }
  const add = (item: Item) => { out.items.push(item); return item }
  const count = (key: string, of: URLSearchParams, by: string) => { of.append('by', by); of.append('whole', 'true'); return read<Count>(`${key} ${by}`, 'deployment/count', of) }
  // others adds a node for the groups that are not drawn.
  const others = (of: { key: string, depth: number }, all: Group[], drawn: number, other: Group) => {
    const left = all.slice(drawn)
    if (left.length) add({ key: `${of.key}/more`, parent: of.key, depth: of.depth + 1, drawn: 0, name: `${number(left.length)} more groups`, about: `${number(left.reduce((n, g) => n + g.count, 0))} deployments`, more: { key: of.key, drawn: drawn + step } })
    if (other.count > 0) { out.others += other.count; add({ key: `${of.key}/other`, parent: of.key, depth: of.depth + 1, drawn: 0, name: `${number(other.count)} in smaller groups`, about: 'not drawn: the list has all', parts: partsOf(other.states) }) }
  }

  const rows = (of: Of, g: Group, item: Item, counting?: boolean) => {
    const q = within(of, grouping ?? '')
    q.set('limit', String(Math.min(item.drawn, maxNodes)))
    const page = read<Page>(item.key, 'deployment/list', q)
    if (!page) return
    const pinned = found.filter(f => (!of.parent || f.row.parent === of.parent) && f.row.template === of.template && (of.value === undefined || f.value === of.value) && (!of.state || f.row.state === of.state)).map(f => f.row)
    const all = [...pinned.filter(f => !page.rows.some(r => r.id === f.id)), ...page.rows]
    if (!page.next) all.sort((a, b) => states.indexOf(a.state!) - states.indexOf(b.state!))
    const names = all.map(nameOf)
    all.forEach((r, i) => deployment(r, names.indexOf(names[i]) === names.lastIndexOf(names[i]) ? names[i] : `${names[i]} · …${r.id.slice(-6)}`, item.key, item.depth + 1))
    if (page.next) add({
      key: `${item.key}/more`, parent: item.key, depth: item.depth + 1, drawn: 0, state: of.state, name: counting || g.count <= all.length ? 'more' : `${number(g.count - all.length)} more`, about: page.rows.length >= maxNodes ? 'the list has all' : `draw ${step} more`,
      ...page.rows.length >= maxNodes ? { to: listOf(of, grouping ?? '') } : { more: { key: item.key, drawn: item.drawn + step } },
    })
  }

  const group = (of: Of, g: Group, parent: string | undefined, depth: number, onTheWay: boolean, name: string, about: ReactNode, counting?: boolean) => {
    const key = keyOf(of), kinds = states.filter(s => g.states[s])
    const byValue = of.value === undefined && !of.state && grouping !== '' && g.count > few, byState = !byValue && !of.state && g.count > few && kinds.length > 1
    const usual = byValue ? groupsFirst : byState ? states.length : rowsFirst
    const drawn = parent === undefined ? opening.drawn(key, true, usual) || usual : opening.drawn(key, onTheWay, usual)
    out.groups.set(key, of)
    const item = add({ key, parent, depth, name, about, label: of.state ? `${of.state} ${(of.value ?? of.template) || 'without'}` : (of.value ?? of.template) || name, open: drawn > 0, drawn: drawn || usual, parts: partsOf(g.states), to: listOf(of, grouping ?? '') })
    if (!drawn) return
    if (byValue) {
      if (grouping === undefined) { out.loading = true; return }
      const values = count(key, within(of, grouping), `site-metadata.${grouping}`)
      if (!values) return
      const all = [...values.groups].sort(byFailing)
      all.slice(0, drawn).forEach((v, i) => group({ ...of, value: v.keys[0] }, v, key, depth + 1, onTheWay && i === 0 && failing(v) > 0, v.keys[0] ? `${grouping} ${v.keys[0]}` : `no ${grouping}`, inGroup(v, values.counting), values.counting))
      others(item, all, drawn, values.other)
    } else if (byState) kinds.forEach(s => group({ ...of, state: s }, { ...g, count: g.states[s]!, states: { [s]: g.states[s] } }, key, depth + 1, onTheWay && s === 'failing', `${atLeast(g.states[s]!, counting)} ${s}`, '', counting))
    else rows(of, g, item, counting)
  }

  const inGroup = (g: Group, counting?: boolean) => `${atLeast(g.count, counting)}: ${inWords(partsOf(g.states))}`

  // below adds what is below a deployment: its children in groups, or else its objects.
  const below = (row: Row, item: Item, onTheWay: boolean) => {
    const children = count(row.id, new URLSearchParams({ parent: row.id }), 'template')
    if (!children) return children
    const all = [...children.groups].sort(byFailing)
    all.slice(0, item.drawn).forEach((g, i) => group({ parent: row.id, template: g.keys[0] }, g, item.key, item.depth + 1, onTheWay && (i === 0 && failing(g) > 0 || all.length === 1), nameOfTemplate(g.keys[0]) || 'no template', inGroup(g, children.counting), children.counting))
    others(item, all, item.drawn, children.other)
    if (all.length > 0 || children.counting) return children
    const entity = read<Entity>(`${row.id} objects`, 'deployment', new URLSearchParams({ id: row.id }))
    if (!entity) return children
    const scheduled = row.conditions?.find(c => c.type === 'Scheduled'), applied = scheduled?.status === 'True' ? scheduled.observedRevision : 0
    const objects = resources(entity.package), page = entityPath('deployment', row.id, 'package')
    if (objects.length === 0) add({ key: `${row.id}/none`, parent: item.key, depth: item.depth + 1, drawn: 0, name: 'no objects', about: 'the package is empty' })
    objects.slice(0, maxObjects).forEach((o, i) => {
      const [kind, name] = o.name.split(/ (.*)/)
      add({ key: `${row.id}/o${i}`, parent: item.key, depth: item.depth + 1, drawn: 0, name: name || kind, about: `${kind}, ${applied === row.revision ? `applied, revision ${applied}` : `desired, revision ${row.revision}`}`, to: page })
    })
    if (objects.length > maxObjects) add({ key: `${row.id}/objects`, parent: item.key, depth: item.depth + 1, drawn: 0, name: `${number(objects.length - maxObjects)} more objects`, about: 'in the package', to: page })
    return children
  }

  const deployment = (row: Row, name: string, parent: string | undefined, depth: number) => {
    if (out.rows.has(row.id)) return // a cycle is drawn once
    out.rows.set(row.id, row)
    const first = parent === undefined
    const drawn = first ? opening.drawn(row.id, true, groupsFirst) || groupsFirst : opening.drawn(row.id, false, groupsFirst)
    const item = add({
      key: row.id, parent, depth, name, label: name, id: row.id, state: row.state, about: row.state === 'healthy' ? '' : [row.reason, row.message].filter(Boolean).join(': '), open: drawn > 0, drawn: drawn || groupsFirst, to: entityPath('deployment', row.id),
      link: row.site && !first ? { to: entityPath('deployment', row.id, 'applied'), text: 'applied', label: `Desired against applied of ${name}` } : undefined,
    })
    if (!drawn) return
    const children = below(row, item, first)
    if (first && children) {
      for (const g of [...children.groups, children.other]) for (const s of states) if (g.states[s]) out.numbers[s] = (out.numbers[s] ?? 0) + g.states[s]!
      out.counted = children.counted
      item.parts = partsOf(out.numbers)
      // Its own state says nothing of its children: next to the bar it would look as if it did.
      if (out.counted > 0) { item.state = undefined; item.about = `${atLeast(out.counted, children.counting)}: ${inWords(item.parts)}` }
    }
  }

  if (root.kind === 'deployment') { deployment(root.row, nameOf(root.row), undefined, 0); return out }
  const of: Of = { parent: '', template: root.row.id }
  const all = count(`${keyOf(of)} all`, within(of, ''), 'state')
  if (!all) { add({ key: keyOf(of), depth: 0, name: nameOfTemplate(root.row.id), open: true, drawn: groupsFirst }); return out }
  const numbers: Numbers = Object.fromEntries(all.groups.map(g => [g.keys[0], g.count]))
  out.numbers = numbers
  out.counted = all.counted
  group(of, { keys: [root.row.id], count: out.counted, states: numbers }, undefined, 0, true, nameOfTemplate(root.row.id), `${atLeast(out.counted, all.counting)} deployments`, all.counting)
  return out
}

export function Topology({ root, feed, me }: { root: Root, feed: Feed, me: Me }) {
  const asOf = useMoment()
  const view = useView()
  const turn = useTurns(feed, ['deployment', 'site'], 1500)
  const { data: fleet, error: fleetError, reload } = useGet<Wall>(`/api/v1/wall?${query({ tiles: 'false', asOf })}`)
  useEffect(() => { // keys are known as soon as the sites were read
    if (!fleet?.counting || fleet.keys.length > 0) return
    const timer = setTimeout(reload, 500)
    return () => clearTimeout(timer)
  }, [fleet, reload])
  const asked = here().get('group')
  const grouping = asked === nothing ? '' : asked ?? (fleet && !(fleet.counting && fleet.keys.length === 0) ? fleet.by : fleetError ? '' : undefined)
  const opening = useOpening()
  const [found, setFound] = useState<Found[]>([])
  const [said, setSaid] = useState('')
  const [error, setError] = useState<ApiError>()
  const { known, want } = useReads(turn)
  const last = useRef<Record<string, unknown>>({}) // by keys: shown until more of the same is read
  const wanted: string[] = [], kept: Record<string, unknown> = {}
  const built = build(root, { grouping, asOf, opening, found, ask: (key, address) => {
    wanted.push(address)
    const read = known[address]
    const data = read?.data ?? last.current[key]
    if (data !== undefined) kept[key] = data
    return { data, error: read?.error }
  } })
  useEffect(() => { last.current = kept; want(wanted) })
  const { items } = built, first = rootKey(root)
  const settled = !built.loading && !built.counting && !built.error && grouping !== undefined
  useEffect(() => { if (opening.automatic && settled) opening.pin(items) }, [opening.automatic, settled])
  const selected = useSelected((opening.automatic || !here().has('at') ? items.find(i => i.depth > 0 && i.id && i.state === 'failing')?.key : undefined) ?? first)
  const full = () => setSaid('60 nodes are open, which is the most: close one first.')

  // search finds a deployment of the graph, by its ID, its site or its template, and opens the way to it.
  const search = async (text: string) => {
    setSaid('')
    setError(undefined)
    if (!text) return
    const drawn = items.find(i => i.id === text || i.name === text)
    if (drawn) { selected.select(drawn.key); setSaid(`Found ${drawn.name}.`); return }
    try {
      const base = root.kind === 'template' ? { within: `template=${root.row.id}` } : {}
      const candidates: Row[] = []
      await get<Entity>(`/api/v1/deployment?${query({ id: text, asOf })}`).then(e => candidates.push(e.row), e => { if ((e as ApiError).status !== 404) throw e })
      for (const word of ['site-id', 'template-id']) if (candidates.length === 0) candidates.push(...(await get<Page>(`/api/v1/deployment/list?${query({ ...base, [word]: text, limit: step, asOf })}`)).rows)
      for (const candidate of candidates) {
        const way = [candidate], begins = (r: Row) => root.kind === 'deployment' ? r.id === root.row.id : r.template === root.row.id
        while (way[0].parent && !begins(way[0]) && way.length < maxDepth) way.unshift((await get<Entity>(`/api/v1/deployment?${query({ id: way[0].parent, asOf })}`)).row)
        if (!begins(way[0])) continue
        const steps: [string, number][] = [], rows: Found[] = []
        for (let i = root.kind === 'deployment' ? 1 : 0; i < way.length; i++) {
          const r = way[i], of: Of = { parent: i > 0 ? way[i - 1].id : '', template: r.template ?? '' }
          const value = grouping && r.site ? (await get<Entity>(`/api/v1/site?${query({ id: r.site, asOf })}`).then(e => e.row.metadata?.[grouping], () => undefined)) ?? '' : ''
          if (i > 0) steps.push([way[i - 1].id, groupsFirst])
          for (const o of [of, { ...of, state: r.state }, ...grouping ? [{ ...of, value }, { ...of, value, state: r.state }] : []]) steps.push([keyOf(o), rowsFirst])
          rows.push({ row: r, value })
        }
        if (!opening.reveal(items, steps)) { full(); return }
        setFound(rows)
        selected.select(candidate.id)
        const levels = way.length - (root.kind === 'deployment' ? 1 : 0)
        setSaid(`Found ${nameOf(candidate)}, ${levels} ${levels === 1 ? 'level' : 'levels'} down.`)
        return
      }
      setSaid('No deployment of this graph matches: search for an ID, or a pattern of a site or template.')
    } catch (e) { setError(e as ApiError) }
  }

  const regroup = (key: string) => { setFound([]); selected.select(''); opening.reset(); changeAddress({ group: key }) }
  const keys = (fleet?.keys ?? []).filter(k => !/[=,]/.test(k.key)).map(k => k.key)
  const bad = built.numbers.failing ?? 0, shown = items.length > 1 || settled
  return <>
    {root.row.parent && <p>Parent: <ParentName id={root.row.parent} /></p>}
    {(error ?? built.error) && <Problem error={(error ?? built.error)!} retry={() => { setError(undefined); want([]) }} />}
    {!shown && !built.error && <Loading />}
    {shown && <>
      <p>{number(Math.min(items.length, maxNodes))} nodes stand for {atLeast(built.counted, built.counting)} {root.kind === 'deployment' ? (built.counted === 1 ? 'child' : 'children') : 'deployments'}{built.counting ? ' (counting…)' : ''}{bad > 0 && <>; <strong className="failing">{atLeast(bad, built.counting)} failing</strong></>}{built.others > 0 && `; ${number(built.others)} of them in smaller groups, which are not drawn: the list has all`}{items.length > maxNodes && `; ${number(items.length - maxNodes)} nodes are left out: close a group`}.</p>
      <form className="bar" onSubmit={e => { e.preventDefault(); search(String(new FormData(e.currentTarget).get('search')).trim()) }}>
        <label>Group by <select value={grouping ?? ''} onChange={e => regroup(e.target.value || nothing)}><option value="">template and state only</option>{[...new Set([...grouping ? [grouping] : [], ...keys])].map(k => <option key={k} value={k}>{k}</option>)}</select></label>
        <label>Search the graph <input name="search" type="search" placeholder="ID, site or template" spellCheck={false} /></label> <button>Search</button>
        <span role="status">{said}</span></form>
      <Graph items={items} label={root.kind === 'deployment' ? 'Descendants' : 'Deployments of the template'} opening={opening} selected={selected} full={full}>{item => <Chosen item={item} row={built.rows.get(item.key)} of={built.groups.get(item.key)} />}</Graph>
      {view === 'list' && <><h2>{root.kind === 'deployment' ? 'Children' : 'Deployments'}</h2><List kind="deployment" filter={query(root.kind === 'deployment' ? { parent: root.row.id } : { 'template-id': literal(root.row.id) })} feed={feed} me={me} embedded /></>}
    </>}
  </>
}

// Chosen says more of the selected node, with its ID and its pages.
function Chosen({ item, row, of }: { item: Item, row?: Row, of?: Of }) {
  if (row) return <>
    <h2>{item.name}</h2>
    {row.state && <p className={`why ${row.state}`}><strong>{row.reason || row.state}</strong> {row.state !== 'healthy' && row.message} {row.since ? <span className="muted">since <Ago at={row.since} /></span> : null}</p>}
    <dl>{row.template && <Fact name="Template"><Link to={entityPath('template', row.template)}>{row.template}</Link></Fact>}
      {row.site && <Fact name="Site"><Link to={entityPath('site', row.site)}>{row.site}</Link></Fact>}
      <Fact name="Revision">{row.revision}</Fact><Fact name="ID"><code>{row.id}</code> <CopyText text={row.id} label="Copy ID" /></Fact></dl>
    <p><Link to={entityPath('deployment', row.id)} className="button">Why</Link> {row.site && <Link to={entityPath('deployment', row.id, 'applied')} className="button">Desired against applied</Link>} <Link to={entityPath('deployment', row.id, 'package')} className="button">Package</Link></p>
  </>
  return <><h2>{of?.state ? `${item.name}: ${nameOfTemplate(of.template)}` : item.name}</h2>
    {item.parts?.length ? <p className={`why ${item.parts[0].color}`}>{inWords(item.parts)}</p> : item.about && <p>{item.about}</p>}
    {of && <dl><Fact name="Template">{of.template ? <Link to={entityPath('template', of.template)}>{of.template}</Link> : 'none'}</Fact></dl>}
    {item.to && <p><Link to={item.to} className="button">{of ? 'As a list' : 'Open'}</Link></p>}</>
}
