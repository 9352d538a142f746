// The bar of a wave of a rollout.
import type { Wave } from './api'
import { number } from './parts'

// The order in which a wave's bar shows progress, with the state whose color it has.
export const progress: [string, string][] = [['Healthy', 'healthy'], ['Soaking', 'working'], ['Applied', 'working'], ['AsBefore', 'unknown'], ['Waived', 'unknown'], ['Superseded', 'unknown'], ['Skipped', 'unknown'], ['Stale', 'waiting'], ['Failed', 'failing'], ['Waiting', 'rest']]
export const progressWords: Record<string, string> = { Applied: 'changed, not yet healthy', Soaking: 'soaking', Healthy: 'healthy', Failed: 'failed', Waived: 'waived', AsBefore: 'unhealthy as before', Stale: 'not as planned', Skipped: 'skipped', Superseded: 'changed by others since', Waiting: 'waiting' }

export function Bar({ wave }: { wave: Wave }) {
  const parts = progress.filter(([p]) => wave.progress[p]).map(([p, color]) => ({ p, color, n: wave.progress[p] }))
  const text = parts.map(({ p, n }) => `${number(n)} ${progressWords[p]}`).join(', ') || 'nothing planned'
  let x = 0
  return <><svg className="progress" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={text}>
    {parts.map(({ p, color, n }) => { const width = 100 * n / wave.deployments, at = x; x += width; return <rect key={p} x={at} y="0" width={width} height="8" className={color} /> })}
  </svg><span>{text}</span></>
}
