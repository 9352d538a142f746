// The revisions of an entity, and their differences.
import { useEffect, useState } from 'react'
import { get, query, type Entity, type Kind } from './api'
import { Loading, seconds } from './parts'
import { Diff } from './text'

const shownRevisions = 10

export function History({ kind, id, newest }: { kind: Kind, id: string, newest: number }) {
  const [list, setList] = useState<{ revision: number, entity?: Entity, gone?: string }[]>([])
  const [down, setDown] = useState(shownRevisions)
  const [from, setFrom] = useState(Math.max(1, newest - 1))
  const [to, setTo] = useState(newest)
  useEffect(() => {
    const abort = new AbortController()
    const wanted = Array.from({ length: Math.min(down, newest) }, (_, i) => newest - i)
    Promise.all(wanted.map(revision => get<Entity>(`/api/v1/${kind}?${query({ id, revision })}`, abort.signal).then(entity => ({ revision, entity }), e => ({ revision, gone: (e as Error).message }))))
      .then(all => { if (!abort.signal.aborted) setList(all) })
    return () => abort.abort()
  }, [kind, id, newest, down])
  useEffect(() => { setFrom(Math.max(1, newest - 1)); setTo(newest) }, [newest])
  if (list.length === 0) return <Loading />
  const left = list.find(r => r.revision === from)?.entity, right = list.find(r => r.revision === to)?.entity
  const retained = list.filter(r => r.entity)
  return <>
    <div className="scroll" tabIndex={0} role="region" aria-label="Revisions"><table><thead><tr><th>Revision</th><th>Changed</th><th>Who</th><th>Why</th><th>Old</th><th>New</th></tr></thead><tbody>
      {list.map(r => <tr key={r.revision}><th scope="row">{r.revision}</th>{r.entity
        ? <><td><time>{seconds(r.entity.row.updatedTimestamp)}</time></td><td>{r.entity.who}</td><td>{r.entity.why}</td>
          <td><input type="radio" name="from" aria-label={`Compare from revision ${r.revision}`} checked={from === r.revision} onChange={() => setFrom(r.revision)} /></td><td><input type="radio" name="to" aria-label={`Compare to revision ${r.revision}`} checked={to === r.revision} onChange={() => setTo(r.revision)} /></td></>
        : <td colSpan={5} className="muted">{r.gone}</td>}</tr>)}
    </tbody></table></div>
    {down < newest && <p><button onClick={() => setDown(down + shownRevisions)}>Earlier revisions</button></p>}
    {left && right && from !== to ? <><h2>Revision {from} and {to}</h2><Diff from={left.package} to={right.package} /></> : <p className="empty">{retained.length < 2 ? 'There is no other retained revision to compare with.' : 'Select two retained revisions to compare.'}</p>}
  </>
}
