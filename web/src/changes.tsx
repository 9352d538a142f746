// Fields that differ, of rollouts and between two moments.
import type { FieldChange } from './api'
import { number } from './parts'

// Changes are the fields that differ, for groups and rows.
export function Changes({ changes, more }: { changes: FieldChange[], more?: number }) {
  if (changes.length === 0) return <p className="empty">No field differs.</p>
  return <div className="scroll" tabIndex={0} role="region" aria-label="Changed fields"><table className="changes"><thead><tr><th>Resource</th><th>Field</th><th>Before</th><th>After</th></tr></thead><tbody>
    {changes.map((c, i) => <tr key={i}><td>{c.resource}</td><td><code>{c.path}</code></td><td className={c.before ? 'del' : undefined}>{c.before && <b>−</b>}{c.before}</td><td className={c.after ? 'add' : undefined}>{c.after && <b>+</b>}{c.after}</td></tr>)}
  </tbody></table>{more ? <p className="muted">{number(more)} more fields</p> : null}</div>
}

const cut = (text: string) => text.length > 40 ? `${text.slice(0, 40)}…` : text || 'none'
export const summary = (changes: FieldChange[], more = 0) => changes.length === 0 ? 'as a whole' : `${changes.slice(0, 2).map(c => `${c.path || c.resource} ${cut(c.before)} → ${cut(c.after)}`).join(', ')}${changes.length + more > 2 ? `, and ${number(changes.length + more - 2)} more` : ''}`.slice(0, 200)
