// The slider that moves all views to another moment.
import { useEffect, useRef, useState } from 'react'
import { query, useGet, useMoment, type Retention } from './api'
import { here, Link, navigate, Problem, seconds } from './parts'

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
