// Sparklines: small charts next to numbers, of the last day.
import { number } from './parts'
import type { FleetDay, FleetPoint } from './schema'

const width = 96, height = 20
const late = 1.6 // steps after a point from which nothing is known

// A Series is numbers over time. Where two are further from each other than a step, those between them aren't known.
export interface Series { begin: number, end: number, hours: number, step: number, points: { time: number, n: number }[] }

const hour = 3600_000

// seriesOf returns the series of a number of the fleet, up to that of now; numbers that don't exist, such as a share of nothing, are left out. It
// begins with the hour of the first number that the server knows: a day is too long for those of a server that was just started.
export function seriesOf(day: FleetDay | undefined, of: (p: FleetPoint) => number | undefined, now: number | undefined): Series | undefined {
  if (!day || day.points.length === 0) return undefined
  const points = day.points.map(p => ({ time: p.time, n: of(p) })).filter((p): p is { time: number, n: number } => p.n !== undefined)
  if (now !== undefined) points.push({ time: day.end, n: now })
  if (points.length === 0) return undefined
  const hours = Math.max(1, Math.min(24, Math.ceil((day.end - day.points[0].time) / hour)))
  return { begin: day.end - hours * hour, end: day.end, hours, step: day.step, points }
}

// parts splits a series where numbers aren't known.
export function parts({ points, step }: Series): Series['points'][] {
  const all: Series['points'][] = []
  points.forEach((p, i) => { if (i > 0 && p.time - points[i - 1].time <= late * step) all.at(-1)!.push(p); else all.push([p]) })
  return all
}

const inHours = (n: number) => n === 1 ? 'hour' : `${n} hours`

// inWords says what a series shows to those who don't see it.
export function inWords(name: string, s: Series, unit: string): string {
  const all = s.points.map(p => p.n), write = (n: number) => `${number(n)}${unit}`
  const known = parts(s).reduce((sum, p) => sum + p.at(-1)!.time - p[0].time, 0), unknown = Math.round((s.end - s.begin - known) / 60_000)
  return `${name} in the last ${inHours(s.hours)}: ${write(Math.min(...all))} to ${write(Math.max(...all))}, ${write(all.at(-1)!)} now${unknown < 10 ? '' : `; not known for ${unknown < 90 ? `${unknown} minutes` : inHours(Math.round(unknown / 60))}`}`
}

// Spark draws a series as a line with gaps: from 0 to the most or, with percent, from the least to 100.
export function Spark({ name, series, color, percent }: { name: string, series: Series, color: string, percent?: boolean }) {
  const all = series.points.map(p => p.n), low = percent ? Math.min(99, ...all) : 0, range = (percent ? 100 : Math.max(1, ...all)) - low
  const x = (t: number) => Math.round(10 * Math.max(0, Math.min(1, (t - series.begin) / (series.end - series.begin))) * width) / 10
  const y = (n: number) => Math.round(10 * (height - 1.5 - (height - 3) * (n - low) / range)) / 10
  const text = inWords(name, series, percent ? ' %' : '')
  return <><svg className={`spark ${color}`} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={text}><title>{text}</title>
    <line x1="0" x2={width} y1={height - 0.5} y2={height - 0.5} vectorEffect="non-scaling-stroke" />
    {parts(series).map(p => <path key={p[0].time} vectorEffect="non-scaling-stroke" d={p.length === 1 ? `M${Math.max(0, x(p[0].time) - 1)} ${y(p[0].n)}h1` : `M${p.map(q => `${x(q.time)} ${y(q.n)}`).join('L')}`} />)}
  </svg> <span aria-hidden="true">{series.hours} h</span></>
}
