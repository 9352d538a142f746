// The past: the difference between two moments.
import { useState, type FormEvent } from 'react'
import { query, useGet, type FieldChange, type Kind, type Retention } from './api'
import { format, parse, quote, words } from './filter'
import { CopyCommand, entityPath, Link, Loading, navigate, number, Problem, seconds } from './parts'
import { Changes, summary } from './changes'

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
