// The graph of a rollout: its waves, what is in them by progress, and the deployments.
import { useEffect, useRef, useState } from 'react'
import { query, type PlanRow, type RolloutStatus } from './api'
import { progress, progressWords } from './bar'
import { Graph, inWords, maxNodes, useOpening, useSelected, type Item, type Opening, type Part } from './graph'
import { Ago, CopyText, entityPath, Fact, Link, Loading, number, Problem } from './parts'
import { useReads, type Read } from './reads'

const rowsFirst = 12 // of a group
const step = 50 // that are drawn in addition

// What needs a person is first, and then what moves.
const urgent = ['Failed', 'Stale', 'Soaking', 'Applied', 'Waiting', 'AsBefore', 'Superseded', 'Skipped', 'Waived', 'Healthy']
const colors = Object.fromEntries(progress)
const nameOfRow = (r: PlanRow) => r.site ? `${r.kind} at ${r.site}` : `${r.kind} of …${r.deployment.slice(-6)}`

interface Built { items: Item[], rows: Map<string, PlanRow>, loading: boolean, error?: Read['error'] }

function build(status: RolloutStatus, opening: Opening, ask: (key: string, address: string) => Read): Built {
  const out: Built = { items: [], rows: new Map(), loading: false }
  const parts = (of: Record<string, number>): Part[] => urgent.filter(p => of[p]).map(p => ({ word: progressWords[p], n: of[p], color: colors[p] }))
  const all: Record<string, number> = {}
  for (const w of status.waves) for (const [p, n] of Object.entries(w.progress)) all[p] = (all[p] ?? 0) + n
  out.items.push({ key: 'all', depth: 0, name: status.id, about: status.state, open: true, drawn: status.waves.length, parts: parts(all) })
  // The way goes to the first wave that fails, or else to the first one that isn't through.
  const onTheWay = [(p: Record<string, number>) => p.Failed > 0, (p: Record<string, number>) => p.Applied > 0 || p.Soaking > 0 || p.Waiting > 0].map(is => status.waves.findIndex(w => is(w.progress))).find(i => i >= 0)
  status.waves.forEach((w, i) => {
    const key = `w${i}`, has = parts(w.progress), drawn = opening.drawn(key, i === onTheWay, urgent.length)
    out.items.push({ key, parent: 'all', depth: 1, name: w.name, about: `${number(w.deployments)}: ${inWords(has) || 'nothing planned'}`, open: drawn > 0, drawn: drawn || urgent.length, parts: has })
    if (!drawn) return
    urgent.filter(p => w.progress[p]).forEach((p, first) => {
      const n = w.progress[p], key = `w${i}/${p}`, drawn = opening.drawn(key, i === onTheWay && first === 0, rowsFirst)
      out.items.push({ key, parent: `w${i}`, depth: 2, name: `${number(n)} ${progressWords[p]}`, label: `${progressWords[p]} in ${w.name}`, open: drawn > 0, drawn: drawn || rowsFirst, parts: parts({ [p]: n }) })
      if (!drawn) return
      const { data, error } = ask(key, `/api/v1/rollout/rows?${query({ id: status.id, wave: i, progress: p, limit: Math.min(drawn, maxNodes) })}`)
      if (error) out.error = error
      const page = data as { rows: PlanRow[], next?: string } | undefined
      if (!page) { out.loading ||= !error; return }
      for (const r of page.rows) {
        out.rows.set(`${key}/${r.deployment}`, r)
        out.items.push({ key: `${key}/${r.deployment}`, parent: key, depth: 3, drawn: 0, name: nameOfRow(r), id: r.deployment, state: p === 'Failed' ? 'failing' : undefined, about: r.reason || r.findings.join('; ') || progressWords[p], to: entityPath('deployment', r.deployment), link: r.site ? { to: entityPath('deployment', r.deployment, 'applied'), text: 'applied', label: `Desired against applied of ${nameOfRow(r)}` } : undefined })
      }
      if (page.next) out.items.push({ key: `${key}/more`, parent: key, depth: 3, drawn: 0, name: n > page.rows.length ? `${number(n - page.rows.length)} more` : 'more', about: drawn >= maxNodes ? 'the tab Deployments has all' : `draw ${step} more`, ...drawn >= maxNodes ? { to: entityPath('rollout', status.id, 'rows') } : { more: { key, drawn: drawn + step } } })
    })
  })
  return out
}

export function WaveGraph({ status, turn }: { status: RolloutStatus, turn: number }) {
  const opening = useOpening()
  const [said, setSaid] = useState('')
  const { known, want } = useReads(turn)
  const last = useRef<Record<string, unknown>>({}) // by keys: shown until more of the same is read
  const wanted: string[] = [], kept: Record<string, unknown> = {}
  const { items, rows, loading, error } = build(status, opening, (key, address) => {
    wanted.push(address)
    const data = known[address]?.data ?? last.current[key]
    if (data !== undefined) kept[key] = data
    return { data, error: known[address]?.error }
  })
  useEffect(() => { last.current = kept; want(wanted) })
  useEffect(() => { if (opening.automatic && !loading && !error) opening.pin(items) }, [opening.automatic, loading])
  const selected = useSelected(items.find(i => i.depth === 3 && i.state === 'failing')?.key ?? 'all')
  if (status.waves.length === 0) return <p className="empty">It has no plan yet.</p>
  return <>
    {error && <Problem error={error} retry={() => want([])} />}
    {loading && items.length === 1 && <Loading />}
    <p><span role="status">{said}</span></p>
    <Graph items={items} label="Waves of the rollout" opening={opening} selected={selected} full={() => setSaid('60 nodes are open, which is the most: close one first.')}>{item => <Chosen item={item} row={rows.get(item.key)} />}</Graph>
  </>
}

function Chosen({ item, row }: { item: Item, row?: PlanRow }) {
  if (!row) return <><h2>{item.name}</h2>{item.parts?.length ? <p>{inWords(item.parts)}</p> : item.about && <p>{item.about}</p>}</>
  const why = [row.reason || row.findings.join('; '), ...row.unknown.map(u => `known after preparation: ${u}`)].filter(Boolean).join('; ')
  return <><h2>{item.name}</h2>
    <p className={`why ${colors[row.progress]}`}><strong>{progressWords[row.progress] ?? row.progress}</strong> {why} {row.since ? <span className="muted">since <Ago at={row.since} /></span> : null}</p>
    <dl>{row.site && <Fact name="Site"><Link to={entityPath('site', row.site)}>{row.site}</Link></Fact>}<Fact name="Change">{row.kind}</Fact><Fact name="ID"><code>{row.deployment}</code> <CopyText text={row.deployment} label="Copy ID" /></Fact></dl>
    <p><Link to={entityPath('deployment', row.deployment)} className="button">Why</Link> {row.site && <Link to={entityPath('deployment', row.deployment, 'applied')} className="button">Desired against applied</Link>}</p></>
}
