// The past: the slider that moves all views to another moment, and what changed between two moments.
import { useEffect, useRef, useState, type FormEvent } from 'react'
import { query, useGet, useMoment, type FieldChange, type Kind, type Retention } from './api'
import { format, parse, quote, words } from './filter'
import { CopyCommand, entityPath, here, Link, Loading, navigate, number, Problem, seconds } from './parts'
import { Changes, summary } from './rollout'

// move shows the current view as of a moment.
const move = (moment: string) => {
  const q = here()
  if (moment) q.set('asOf', moment)
  else q.delete('asOf')
  navigate(`${location.pathname}${q.size ? `?${q}` : ''}`, false, true)
}

const steps = 1000

// The handle's distance from now is the square root of the time's: near now a step is seconds, at the other end an hour.
const place = (ago: number, span: number) => Math.round(steps * (1 - Math.sqrt(Math.min(1, Math.max(0, ago / span)))))
const agoAt = (v: number, span: number) => span * (1 - v / steps) ** 2

// momentOf is the time that a view shows. Only the server knows that of a position: positions ascend, but are no measure of time.
const momentOf = (moment: string, kept: Retention): number | undefined => /^\d{4}-\d\d-\d\dT/.test(moment) ? Date.parse(moment) : kept.asOfTimestamp

export function Slider({ close }: { close?: () => void }) {
  const moment = useMoment()
  const { data: read, error, reload } = useGet<Retention>(`/api/v1/retention?${query({ asOf: moment })}`)
  const last = useRef<Retention>(undefined) // while that of another moment is read, the slider stays usable and keeps the focus
  if (read) last.current = read
  const data = read ?? (last.current && { ...last.current, asOfTimestamp: undefined })
  const [value, setValue] = useState<number>()
  const [typed, setTyped] = useState(moment)
  useEffect(() => { setTyped(moment); setValue(undefined) }, [moment])
  const now = data?.now ?? Date.now()
  const span = Math.max(now - (data?.oldestTimestamp ?? now), 1000)
  const time = (v: number) => seconds(now - agoAt(v, span))
  const shown = data && moment ? momentOf(moment, data) : now
  const at = value ?? (shown === undefined ? steps : place(now - shown, span))
  const text = (v: number) => v >= steps ? 'now' : time(v)
  useEffect(() => { // a slider that moves is followed once it rests
    if (value === undefined) return
    const timer = setTimeout(() => move(value >= steps ? '' : time(value)), 400)
    return () => clearTimeout(timer)
  }, [value])
  return <section className="past" aria-label="The past">
    {error && <Problem error={error} retry={reload} />}
    <label>Time <input type="range" min={0} max={steps} value={at} aria-valuetext={value !== undefined ? text(value) : moment || 'now'} onChange={e => setValue(Number(e.target.value))} disabled={!data?.oldestTimestamp} /></label>
    <output>{value !== undefined ? text(value) : moment || 'now'}</output>
    {data && !data.oldestTimestamp && <span className="muted">Nothing of the past is retained yet.</span>}
    <form className="bar" onSubmit={e => { e.preventDefault(); move(typed.trim()) }}><label>Moment <input value={typed} onChange={e => setTyped(e.target.value)} placeholder="2h, yesterday 14:00, 2026-11-22T14:00:00Z" /></label> <button>Show</button></form>
    {moment && <><button onClick={() => move('')}>Back to now</button> <Link to={`/changes?${query({ from: moment })}`} now>What changed since</Link></>}
    {!moment && close && <button onClick={close}>Close</button>}
  </section>
}

const day = 24 * 3600_000

// firstFrom is the moment that Changes compares with at first: a day ago or, if the server doesn't know so much, the oldest that it does.
const firstFrom = (kept: Retention) => kept.oldestTimestamp && kept.oldestTimestamp > kept.now - day ? seconds(kept.oldestTimestamp + 1000) : '1d'

interface Group { what: string, count: number, examples: string[], changes: FieldChange[], more?: number, coarse?: boolean }

// ChangesView compares two moments.
export function ChangesView({ search }: { search: string }) {
  const q = new URLSearchParams(search)
  const kind = (q.get('kind') ?? 'deployment') as Kind, to = q.get('to') ?? '', entity = q.get('entity') ?? '', asked = q.get('from') ?? ''
  const { data: kept, error: unknown } = useGet<Retention>(asked ? null : '/api/v1/retention')
  const from = asked || (kept ? firstFrom(kept) : '')
  for (const name of ['kind', 'from', 'to', 'entity', 'asOf']) q.delete(name)
  const [wrong, setWrong] = useState('')
  const [open, setOpen] = useState<number>()
  const { data, error, reload, loading } = useGet<{ groups: Group[], other: number }>(from ? `/api/v1/diff?${query({ kind, from, to, entity }, q.toString())}` : null)
  const submit = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = new FormData(e.currentTarget)
    const text = (name: string) => String(form.get(name)).trim()
    const parsed = parse(text('kind') as Kind, text('filter'))
    if (parsed.error) { setWrong(parsed.error); return }
    setWrong('')
    navigate(`/changes?${query({ kind: text('kind'), from: text('from'), to: text('to') }, parsed.query)}`, false, true)
  }
  return <>
    <h1>What changed</h1>
    <form className="bar" key={`${search} ${from}`} onSubmit={submit}><label>Kind <select name="kind" defaultValue={kind}>{(['deployment', 'site', 'template', 'plugin'] as Kind[]).filter(k => words(k).length > 0).map(k => <option key={k}>{k}</option>)}</select></label>
      <label>From <input name="from" defaultValue={from} placeholder="2h" required /></label> <label>To <input name="to" defaultValue={to} placeholder="now" /></label> <label>Filter <input name="filter" defaultValue={format(q.toString())} /></label> <button>Compare</button></form>
    {wrong && <p className="wrong" role="alert">{wrong}</p>}
    {error && <Problem error={error} retry={reload} />}
    {!from && (unknown ? <p className="empty">Give the moment to compare with: a position, a time, or a duration before now, such as 2h.</p> : <Loading />)}
    {from && loading && <Loading />}
    {data && <>
      <p aria-live="polite">{data.groups.length === 0 ? `No ${kind} differs.` : `${number(data.groups.reduce((n, g) => n + g.count, data.other))} ${kind}s differ, in ${number(data.groups.length)} groups of equal differences${data.other > 0 ? `; ${number(data.other)} in groups that are not shown` : ''}.`}</p>
      {data.groups.map((g, i) => <section key={i} className="group">
        <h2><button aria-expanded={open === i} onClick={() => setOpen(open === i ? undefined : i)}>{open === i ? '▾' : '▸'} {number(g.count)} {g.what}: {summary(g.changes, g.more)}</button></h2>
        {open === i && <><Changes changes={g.changes} more={g.more} />{g.coarse && <p className="muted">The values differ.</p>}
          <p>For example {g.examples.map((id, n) => <span key={id}>{n > 0 && ', '}{g.what === 'deleted' ? <Link to={`${entityPath(kind, id)}?${query({ asOf: from })}`}>{id}</Link> : <Link to={entityPath(kind, id, kind === 'plugin' ? 'why' : 'history')}>{id}</Link>}</span>)}</p></>}
      </section>)}
      <CopyCommand text={`tko diff ${kind}${entity ? ` ${quote(entity)}` : ''} --from ${quote(from)}${to ? ` --to ${quote(to)}` : ''}${[...q].map(([k, v]) => ` --${k} ${quote(v)}`).join('')}`} />
    </>}
  </>
}
