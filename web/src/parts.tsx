// Small parts that several views share.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from 'react'
import type { ApiError, Kind, Result, Row, State } from './api'
import { act, query } from './api'
import { origins, source, type Blame, type Origin } from './blame'

const shapes: Record<State, ReactNode> = {
  failing: <path d="M8 2 15 14H1Z" />,
  waiting: <><circle cx="8" cy="8" r="6" fill="none" strokeWidth="2" stroke="currentColor" /><path d="M8 2a6 6 0 0 0 0 12Z" /></>,
  working: <><circle cx="8" cy="8" r="6" fill="none" strokeWidth="2" stroke="currentColor" /><path d="M8 8V2a6 6 0 0 1 6 6Z" /></>,
  healthy: <circle cx="8" cy="8" r="6.5" />,
  unknown: <circle cx="8" cy="8" r="6" fill="none" strokeWidth="2" stroke="currentColor" />,
}

// StateMark is the shape and the word of a state; if short, only readers of the screen get the word.
export function StateMark({ state, short }: { state?: State, short?: boolean }) {
  if (!state) return null
  return <span className={`state ${state}`}><svg viewBox="0 0 16 16" width="13" height="13" fill="currentColor" aria-hidden="true">{shapes[state]}</svg> <span className={short ? 'hidden' : undefined}>{state[0].toUpperCase() + state.slice(1)}</span></span>
}

export const number = (n: number) => n.toLocaleString('en')

// time24 is a time of the day, in UTC.
export const time24 = (at: number) => new Date(at).toISOString().slice(11, 16)

export const here = () => new URLSearchParams(location.search)

// sameMoment adds the moment of the current view to an address that has none.
function sameMoment(to: string): string {
  const moment = here().get('asOf')
  return !moment || /[?&]asOf=/.test(to) ? to : `${to}${to.includes('?') ? '&' : '?'}${query({ asOf: moment })}`
}

// navigate opens a view at the moment of the current one; with exact, at that of its address.
export const navigate = (to: string, replace = false, exact = false) => {
  history[replace ? 'replaceState' : 'pushState'](null, '', exact ? to : sameMoment(to))
  window.dispatchEvent(new PopStateEvent('popstate'))
}

// changeAddress changes parts of the address of this view, which says what is shown.
export const changeAddress = (parts: Record<string, string | string[] | undefined>) => {
  const q = here()
  for (const [name, value] of Object.entries(parts)) {
    q.delete(name)
    for (const v of value === undefined ? [] : [value].flat()) q.append(name, v)
  }
  navigate(`${location.pathname}${q.size ? `?${q}` : ''}`, true, true)
}

// Link opens a view at the moment of the current one; with now, at that of its address.
export function Link({ to, children, className, label, now }: { to: string, children: ReactNode, className?: string, label?: string, now?: boolean }) {
  const click = (e: MouseEvent) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    navigate(to, false, now)
  }
  return <a href={now ? to : sameMoment(to)} onClick={click} className={className} aria-label={label}>{children}</a>
}

export function Fact({ name, children }: { name: string, children: ReactNode }) {
  return <><dt>{name}</dt><dd>{children}</dd></>
}

// Tabs shows one of several parts; the arrow keys move between them.
export function Tabs({ all, open, select, children }: { all: [string, string][], open: string, select: (name: string) => void, children: ReactNode }) {
  const keys = (e: KeyboardEvent) => {
    const i = all.findIndex(([name]) => name === open)
    const next = e.key === 'ArrowRight' ? all[(i + 1) % all.length] : e.key === 'ArrowLeft' ? all[(i + all.length - 1) % all.length] : undefined
    if (next) { e.preventDefault(); select(next[0]); document.getElementById(`tab-${next[0]}`)?.focus() }
  }
  return <>
    <div role="tablist" aria-label="Parts" onKeyDown={keys}>{all.map(([name, title]) => <button key={name} id={`tab-${name}`} role="tab" aria-selected={name === open} aria-controls="panel" tabIndex={name === open ? 0 : -1} onClick={() => select(name)}>{title}</button>)}</div>
    <div role="tabpanel" id="panel" aria-labelledby={`tab-${open}`}>{children}</div>
  </>
}

export const entityPath = (kind: Kind, id: string, tab?: string) => `/${kind}s/${id.split('/').map(toSegment).join('/')}${tab ? `?tab=${tab}` : ''}`

// toSegment returns a part of an ID as a part of a path. Browsers and servers remove empty parts, "." and "..", also if they are escaped
// once: these begin with an escaped %, which no other part has that an ID can have.
const toSegment = (part: string) => /^\.{0,2}$/.test(part) ? '%25' + part.replaceAll('.', '2e') : encodeURIComponent(part)

// fromSegment is the inverse of toSegment.
export const fromSegment = (segment: string) => {
  const dots = /^%25((?:2e){0,2})$/.exec(segment)
  return dots ? '.'.repeat(dots[1].length / 2) : decodeURIComponent(segment)
}

let skew = 0 // milliseconds that the server's clock is ahead
export const setServerTime = (now: number) => { skew = now - Date.now() }
export const serverTime = () => Date.now() + skew

// seconds writes a time in UTC without its milliseconds.
export const seconds = (at: number) => new Date(at).toISOString().replace(/\.\d+Z$/, 'Z')

// useTick draws again after an interval, again and again.
export function useTick(milliseconds: number) {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) tick(n => n + 1) }, milliseconds)
    return () => clearInterval(timer)
  }, [milliseconds])
}

export function Ago({ at }: { at?: number }) {
  const [, tick] = useState(0)
  useEffect(() => {
    const f = () => tick(n => n + 1)
    window.addEventListener('tko-tick', f)
    return () => window.removeEventListener('tko-tick', f)
  }, [])
  if (!at) return null
  const s = Math.max(0, Math.round((Date.now() + skew - at) / 1000))
  const text = s < 10 ? 'now' : s < 60 ? `${s} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 172_800 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86_400)} d ago`
  const exact = seconds(at)
  return <time dateTime={exact} title={exact}>{text}</time>
}
setInterval(() => { if (!document.hidden) window.dispatchEvent(new Event('tko-tick')) }, 10_000)

export function Problem({ error, retry }: { error: ApiError, retry?: () => void }) {
  return <div className="problem" role="alert">
    <strong>{error.status === 403 ? 'Not allowed' : error.status === 404 ? 'Not found' : 'Failed'}</strong> <span>{error.message}</span>
    {error.requestId && <small> request {error.requestId}</small>}
    {retry && error.status !== 403 && <button onClick={retry}>Retry</button>}
  </div>
}

export function Loading() {
  const [late, setLate] = useState(false)
  useEffect(() => { const t = setTimeout(() => setLate(true), 200); return () => clearTimeout(t) }, [])
  return <div className="loading" aria-busy="true">{late && <><i /><i /><i /><span>Loading</span></>}</div>
}

export function CopyCommand({ text }: { text: string }) {
  return <p className="command"><code>$ {text}</code> <CopyText text={text} label="Copy" /></p>
}

// CopyText is a button that copies a text.
export function CopyText({ text, label }: { text: string, label: string }) {
  const [done, setDone] = useState(false)
  return <button onClick={() => navigator.clipboard?.writeText(text).then(() => { setDone(true); setTimeout(() => setDone(false), 2000) })}>{done ? 'Copied' : label}</button>
}

const version = /\/v?\d+(\.\d+)*([-+][\w.+-]*)?$/ // at the end of an ID

// nameOfTemplate is the last part of the ID of a template: smf:v1 of workload/smf:v1. A version alone is no name: smf/v1.2 of workload/smf/v1.2.
export const nameOfTemplate = (id: string) => { const rest = id.replace(version, ''); return id.slice((rest || id).lastIndexOf('/') + 1) }

// nameOf says what a deployment is, in place of its ID: smf at north/640.
export const nameOf = (row: Pick<Row, 'id' | 'template' | 'site'>) => `${nameOfTemplate(row.template ?? '').replace(version, '').replace(/:[^:]*$/, '') || 'deployment'}${row.site ? ` at ${row.site}` : ''}`

// Tokens of a line of YAML. The text is from packages and is never read as HTML.
function yamlLine(line: string): ReactNode {
  if (/^\s*#/.test(line)) return <span className="y-comment">{line}</span>
  const key = /^(\s*(?:- )*)([^\s:#][^:]*)(:)(\s.*)?$/.exec(line)
  if (!key) return line
  return <>{key[1]}<span className="y-key">{key[2]}</span>{key[3]}<span className="y-value">{key[4]}</span></>
}

export interface Resource { name: string, lines: string[], first: number }

export function resources(text: string): Resource[] {
  const all: Resource[] = []
  let lines: string[] = [], first = 1
  const end = (next: number) => {
    if (lines.some(l => l.trim())) {
      const kind = lines.find(l => l.startsWith('kind: '))?.slice(6) ?? 'Resource'
      const at = lines.findIndex(l => l.startsWith('metadata:'))
      const name = lines.slice(at + 1).find(l => /^ {2,}name: /.test(l))?.trim().slice(6) ?? ''
      all.push({ name: `${kind} ${name}`, lines, first })
    }
    lines = []
    first = next
  }
  text.replace(/\n$/, '').split('\n').forEach((line, i) => { if (line === '---') end(i + 2); else lines.push(line) })
  end(0)
  return all
}

// Yaml shows a package; with a blame, each line that another change has set than the line before is preceded by that change.
export function Yaml({ text, blame }: { text: string, blame?: Blame }) {
  const [search, setSearch] = useState('')
  const [open, setOpen] = useState<Record<number, boolean>>({})
  const all = useMemo(() => resources(text), [text])
  const from = useMemo(() => blame && origins(all.map(r => r.lines), blame), [all, blame])
  const hits = (r: Resource) => search ? r.lines.filter(l => l.toLowerCase().includes(search.toLowerCase())).length : 0
  const total = all.reduce((n, r) => n + hits(r), 0)
  if (!text) return <p className="empty">The package is empty.</p>
  return <div>
    <p className="bar"><label>Search in the package <input type="search" value={search} onChange={e => setSearch(e.target.value)} /></label> {search && <span aria-live="polite">{total} lines match</span>}
      <button onClick={() => setOpen(Object.fromEntries(all.map((_, i) => [i, true])))}>Unfold all</button> <button onClick={() => setOpen(Object.fromEntries(all.map((_, i) => [i, false])))}>Fold all</button></p>
    {all.map((r, i) => {
      const shown = open[i] ?? (all.length <= 20 || hits(r) > 0)
      return <section key={i} className="resource">
        <h3><button aria-expanded={shown} onClick={() => setOpen({ ...open, [i]: !shown })}>{shown ? '▾' : '▸'} {r.name}</button></h3>
        {shown && <pre tabIndex={0} aria-label={r.name}>{r.lines.slice(0, 5000).map((l, n) => <div key={n} className={search && l.toLowerCase().includes(search.toLowerCase()) ? 'hit' : undefined}>{from && <Blamed at={from[i][n]} before={n > 0 ? from[i][n - 1] : undefined} />}<span className="n" aria-hidden="true">{r.first + n}</span>{yamlLine(l)}</div>)}
          {r.lines.length > 5000 && <div>{r.lines.length - 5000} more lines: use the tko command to read them</div>}</pre>}
      </section>
    })}
  </div>
}

// Blamed is the change that has set a line, unless it has set the one before, too.
function Blamed({ at, before }: { at?: Origin, before?: Origin }) {
  const same = at && before && at.revision === before.revision && source(at) === source(before)
  const text = at && !same ? `r${at.revision} ${at.who || 'unknown'}, ${source(at)}` : ''
  return <span className="blame" title={at && `revision ${at.revision}, ${at.time}, ${at.who || 'unknown'}: ${source(at)}${at.why ? ` (${at.why})` : ''}`}>{text}</span>
}

export interface Pair { left?: string, right?: string, leftN?: number, rightN?: number, same: boolean }

// diff pairs the lines of two texts. Its cost is bounded: long different middles are paired in order.
export function diff(a: string[], b: string[]): Pair[] {
  let start = 0, end = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const same = (i: number, j: number): Pair => ({ left: a[i], right: b[j], leftN: i + 1, rightN: j + 1, same: true })
  const out: Pair[] = []
  for (let i = 0; i < start; i++) out.push(same(i, i))
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end)
  const gone: number[] = [], come: number[] = []
  const flush = () => {
    for (let k = 0; k < Math.max(gone.length, come.length); k++) {
      const i = gone[k], j = come[k]
      out.push({ left: i === undefined ? undefined : a[i], leftN: i === undefined ? undefined : i + 1, right: j === undefined ? undefined : b[j], rightN: j === undefined ? undefined : j + 1, same: false })
    }
    gone.length = come.length = 0
  }
  if (x.length * y.length <= 4_000_000) {
    const width = y.length + 1
    const table = new Uint32Array((x.length + 1) * width)
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) table[i * width + j] = x[i] === y[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1])
    let i = 0, j = 0
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) { flush(); out.push(same(start + i++, start + j++)) }
      else if (j >= y.length || i < x.length && table[(i + 1) * width + j] >= table[i * width + j + 1]) gone.push(start + i++)
      else come.push(start + j++)
    }
  } else {
    x.forEach((_, i) => gone.push(start + i))
    y.forEach((_, j) => come.push(start + j))
  }
  flush()
  for (let k = end; k > 0; k--) out.push(same(a.length - k, b.length - k))
  return out
}

// Hunks are the changed lines with three lines around them.
export function Diff({ from, to }: { from: string, to: string }) {
  const pairs = useMemo(() => diff(from.trimEnd().split('\n'), to.trimEnd().split('\n')), [from, to])
  const near = useMemo(() => {
    const keep = new Set<number>()
    pairs.forEach((p, i) => { if (!p.same) for (let k = i - 3; k <= i + 3; k++) keep.add(k) })
    return keep
  }, [pairs])
  if (!pairs.some(p => !p.same)) return <p className="empty">The two revisions have the same package.</p>
  return <div className="scroll" tabIndex={0} role="region" aria-label="Differences"><table className="diff"><tbody>
    {pairs.map((p, i) => near.has(i) ? <tr key={i} className={p.same ? undefined : 'changed'}>
      <td className="n">{p.leftN}</td><td className={p.same || p.left === undefined ? undefined : 'del'}>{!p.same && p.left !== undefined && <b>−</b>}{p.left}</td>
      <td className="n">{p.rightN}</td><td className={p.same || p.right === undefined ? undefined : 'add'}>{!p.same && p.right !== undefined && <b>+</b>}{p.right}</td>
    </tr> : near.has(i - 1) ? <tr key={i}><td colSpan={4} className="gap">⋯</td></tr> : null)}
  </tbody></table></div>
}

export interface Plan { verb: 'approve' | 'delete', kind: Kind, ids?: string[], filter?: string, title: string }

// Confirm shows what an action will change, counted by the server, and carries it out with that count.
export function Confirm({ plan, close }: { plan: Plan, close: (result?: Result) => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [found, setFound] = useState<Result>()
  const [error, setError] = useState<ApiError>()
  const [typed, setTyped] = useState('')
  const [reason, setReason] = useState('')
  const [busy, setBusy] = useState(false)
  const body = { verb: plan.verb, kind: plan.kind, ids: plan.ids, filter: plan.filter }
  const dryRun = () => { setError(undefined); setTyped(''); act({ ...body, dryRun: true }).then(setFound, setError) }
  useEffect(() => { dialog.current?.showModal(); dryRun() }, [])
  const many = !!found && (found.count >= 100 || found.descendants > 0)
  const run = () => {
    setBusy(true)
    act({ ...body, reason, confirm: found!.count }).then(close, e => { setBusy(false); setError(e); setFound(undefined) })
  }
  return <dialog ref={dialog} onCancel={e => { e.preventDefault(); if (!busy) close() }} aria-labelledby="confirm-title">
    <h2 id="confirm-title">{plan.title}</h2>
    {error && <Problem error={error} retry={dryRun} />}
    {!found && !error && <Loading />}
    {found && found.count === 0 && <p>Nothing to {plan.verb}: {plan.verb === 'approve' ? 'none of them is prepared and waits for an approval.' : 'none of them exists any more.'}</p>}
    {found && found.count > 0 && <>
      <p>This will {plan.verb} <strong>{found.count.toLocaleString('en')} {plan.kind}{found.count === 1 ? '' : 's'}</strong>{found.descendants > 0 && <>, {found.descendants.toLocaleString('en')} of them children</>}.</p>
      {found.count > 1 && <p><label>Reason <input value={reason} maxLength={500} onChange={e => setReason(e.target.value)} /></label></p>}
      {many && <p><label>Type the count to confirm <input inputMode="numeric" value={typed} onChange={e => setTyped(e.target.value)} autoComplete="off" /></label></p>}
    </>}
    <p className="actions"><button autoFocus onClick={() => close()} disabled={busy}>Cancel</button>
      {found && found.count > 0 && <button className={plan.verb === 'delete' ? 'danger' : 'primary'} disabled={busy || (many && typed.replaceAll(/[,. ]/g, '') !== String(found.count))} onClick={run}>{busy ? 'Pending…' : plan.verb === 'delete' ? 'Delete' : 'Approve'}</button>}</p>
  </dialog>
}

// Tail is a text of which the end is shown, if its column is too narrow: IDs begin alike.
const Tail = ({ children }: { children?: string }) => <span className="tail" title={children}><bdi>{children}</bdi></span>

export const columns: Record<Kind, { name: string, width: string, cell: (r: Row) => ReactNode }[]> = {
  deployment: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'Template', width: 'minmax(9rem, 1.2fr)', cell: r => r.template && <Tail>{r.template}</Tail> },
    { name: 'Site', width: 'minmax(8rem, 1fr)', cell: r => <Tail>{r.site}</Tail> },
    { name: 'Why', width: 'minmax(8rem, 2fr)', cell: r => r.state === 'healthy' ? '' : [r.reason, r.message].filter(Boolean).join(': ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
    { name: 'ID', width: 'minmax(7rem, 15rem)', cell: r => <code><Tail>{r.id}</Tail></code> },
  ],
  site: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Deployments', width: '7.6rem', cell: r => r.deploymentCount?.toLocaleString('en') },
    { name: 'Metadata', width: 'minmax(8rem, 1.5fr)', cell: r => Object.entries(r.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(' ') },
    { name: 'Why', width: 'minmax(8rem, 1.5fr)', cell: r => r.state === 'healthy' ? '' : [r.reason, r.message].filter(Boolean).join(': ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  template: [
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Deployments', width: '7.6rem', cell: r => r.deploymentCount?.toLocaleString('en') },
    { name: 'Metadata', width: 'minmax(8rem, 2fr)', cell: r => Object.entries(r.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(' ') },
    { name: 'Revision', width: '5rem', cell: r => r.revision },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  plugin: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'Type', width: '7rem', cell: r => r.type },
    { name: 'Name', width: 'minmax(8rem, 1fr)', cell: r => r.name },
    { name: 'Executor', width: '7rem', cell: r => r.executor },
    { name: 'Triggers', width: 'minmax(9rem, 2fr)', cell: r => r.triggers?.map(t => `${t.group}/${t.version} ${t.kind}`).join(', ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  rollout: [
    { name: 'State', width: '9rem', cell: r => <StateMark state={r.state} /> },
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Progress', width: '7rem', cell: r => r.reason },
    { name: 'Why', width: 'minmax(8rem, 2fr)', cell: r => r.message },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
}
