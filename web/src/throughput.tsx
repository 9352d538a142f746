// Throughput: what preparers and schedulers have done in each minute of the last hour.
import { useThroughput, useTurns, type Feed, type Minute } from './api'
import { Loading, number, Problem, serverTime, time24 } from './parts'

const minutes = 60
const step = 60_000

const series: { name: string, of: (m: Minute) => number, color: string }[] = [
  { name: 'Prepared', of: m => m.prepared, color: 'working' }, { name: 'Scheduled', of: m => m.scheduled, color: 'healthy' }, { name: 'Changed by others', of: m => m.others, color: 'unknown' },
]

export function ThroughputView({ feed }: { feed: Feed }) {
  const { throughput, error } = useThroughput(useTurns(feed, ['deployment'], 5000))
  if (error && !throughput) return <section aria-labelledby="throughput"><h2 id="throughput">Throughput</h2><Problem error={error} /></section>
  if (!throughput) return <section aria-labelledby="throughput" aria-busy="true"><h2 id="throughput">Throughput of deployments in the last hour</h2><Loading /></section>
  const last = Math.floor(serverTime() / step) * step
  const all = Array.from({ length: minutes }, (_, i): Minute => {
    const start = last - (minutes - 1 - i) * step
    return throughput.minutes.find(m => m.start === start) ?? { start, prepared: 0, scheduled: 0, others: 0 }
  })
  const sum = (of: (m: Minute) => number) => all.reduce((n, m) => n + of(m), 0)
  return <section aria-labelledby="throughput" aria-busy="false"><h2 id="throughput">Throughput of deployments in the last hour</h2>
    <ul className="charts">{series.map(({ name, of, color }) => {
      const most = Math.max(1, ...all.map(of))
      return <li key={name} data-series={name}><span>{name} <b>{number(sum(of))}</b> <span className="muted">{number(of(all[minutes - 1]))} in this minute, {number(Math.max(...all.map(of)))} at most</span></span>
        <svg className={`chart ${color}`} viewBox={`0 0 ${minutes} 24`} preserveAspectRatio="none" role="img" aria-label={`${name}: ${number(sum(of))} in the last hour, ${number(Math.max(...all.map(of)))} in a minute at most`}>
          <line x1="0" x2={minutes} y1="24" y2="24" vectorEffect="non-scaling-stroke" />
          {all.map((m, i) => of(m) > 0 && <rect key={m.start} x={i + 0.1} width="0.8" y={24 - Math.max(1, 24 * of(m) / most)} height={Math.max(1, 24 * of(m) / most)} />)}
        </svg><span className="muted axis"><span>{time24(all[0].start)}</span><span>{time24(last)} UTC</span></span></li>
    })}</ul>
    {throughput.complete === false && <p className="muted">There were many changes: only the newest are counted.</p>}
    <details><summary>By minute, as a table</summary><div className="scroll" tabIndex={0} role="region" aria-label="Throughput by minute"><table><thead><tr><th>Minute (UTC)</th>{series.map(s => <th key={s.name} className="number">{s.name}</th>)}</tr></thead><tbody>
      {all.filter(m => m.prepared + m.scheduled + m.others > 0).reverse().map(m => <tr key={m.start}><th scope="row">{time24(m.start)}</th>{series.map(s => <td key={s.name} className="number">{number(s.of(m))}</td>)}</tr>)}</tbody></table></div></details>
  </section>
}
