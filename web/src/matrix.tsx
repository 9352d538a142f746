// Sites by two keys of their metadata.
import { useCallback, type FormEvent } from 'react'
import { query, states, useCount, useTurns, type Count, type Feed } from './api'
import { literal } from './filter'
import { Ago, Link, Loading, navigate, number, Problem } from './parts'

// Counted says how complete and how old a count is, if that matters.
function Counted({ count }: { count: Count }) {
  if (count.counting) return <p role="status">{count.counted > 0 ? `${count.counted.toLocaleString('en')} were counted so far.` : 'Counting…'}</p>
  return count.behind && count.time && Date.now() - count.time > 5000 ? <p className="muted">Counted <Ago at={count.time} />.</p> : null
}

const steps = [1, 2, 5, 10, 20, 35, 60] // percent that fail, from which a cell is warmer

export function Matrix({ search, feed }: { search: string, feed: Feed }) {
  const q = new URLSearchParams(search)
  const rows = q.get('rows') ?? 'region', cols = q.get('cols') ?? 'tier'
  const turn = useTurns(feed, ['site'], 1000)
  const { count, error } = useCount('site', { by: `metadata.${rows},metadata.${cols}` }, turn)
  const submit = useCallback((e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const data = new FormData(e.currentTarget)
    navigate(`/matrix?${query({ rows: String(data.get('rows')).trim(), cols: String(data.get('cols')).trim() })}`)
  }, [])
  const names = (n: number) => [...new Set(count?.groups.map(g => g.keys[n]))].sort()
  const down = names(0).slice(0, 100), across = names(1).slice(0, 30)
  return <>
    <h1>Sites by {rows} and {cols}</h1>
    <form onSubmit={submit} className="bar" key={`${rows} ${cols}`}><label>Rows <input name="rows" defaultValue={rows} required /></label> <label>Columns <input name="cols" defaultValue={cols} required /></label> <button>Show</button></form>
    {error && <Problem error={error} />}
    {!count && !error && <Loading />}
    {count && !count.counting && count.groups.length === 0 && <p className="empty">There is no site yet, or you may see none.</p>}
    {count && count.groups.length > 0 && <div className="scroll" tabIndex={0} role="region" aria-label="Matrix of sites"><table className="matrix"><thead><tr><th>{rows}</th>{across.map(c => <th key={c}>{c || 'none'}</th>)}</tr></thead><tbody>
      {down.map(r => <tr key={r}><th scope="row">{r || 'none'}</th>{across.map(c => {
        const g = count.groups.find(g => g.keys[0] === r && g.keys[1] === c)
        if (!g) return <td key={c} className="none"><span className="hidden">no site</span></td>
        const bad = g.states.failing ?? 0
        const share = 100 * bad / g.count, heat = bad ? 1 + steps.filter(s => share >= s).length : 0
        const to = `/sites?${new URLSearchParams([[rows, r], [cols, c]].map(([key, value]) => value ? ['metadata', `${key}=${literal(value)}`] : ['within', `metadata.${key}=`]))}`
        const text = <><b>{number(bad)}</b> of {number(g.count)} failing</>
        const rest = states.filter(s => s !== 'failing' && s !== 'healthy' && g.states[s]).map(s => `${number(g.states[s]!)} ${s}`).join(', ')
        return <td key={c} className={`heat${heat}`}><Link to={to}>{text}</Link>{bad > 0 && <>, {share < 0.1 ? 'under 0.1' : share < 10 ? share.toFixed(1) : Math.round(share)} %</>}{rest && <div>{rest}</div>}</td>
      })}</tr>)}
    </tbody></table></div>}
    {count && <Counted count={count} />}
  </>
}
