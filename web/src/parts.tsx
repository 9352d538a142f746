// Small parts that several views share.
import { useEffect, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from 'react'
import type { ApiError, Kind, Row, State } from './api'
import { query } from './api'

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
