// The question before an action.
import { useEffect, useRef, useState } from 'react'
import { act, type ApiError, type Kind, type Result } from './api'
import { Loading, Problem } from './parts'

export interface Plan { verb: 'approve' | 'delete', kind: Kind, ids?: string[], filter?: string, title: string }

// loss says what entities lose that stay when others are deleted.
function loss(kind: Kind, n: number): string {
  const of = kind === 'site' ? ['deployment', 'site'] : ['site or deployment', 'template']
  return n === 1 ? `1 ${of[0]} loses its ${of[1]}, and stays.` : `${n.toLocaleString('en')} ${of[0].replace(' or ', 's and ')}s lose their ${of[1]}, and stay.`
}

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
  const going = found ? found.count - found.orphaned : 0 // the others stay, and lose what is deleted
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
      <p>This will {plan.verb} <strong>{going.toLocaleString('en')} {plan.kind}{going === 1 ? '' : 's'}</strong>{found.descendants > 0 && <>, {found.descendants.toLocaleString('en')} of them children</>}.{found.orphaned > 0 && <> {loss(plan.kind, found.orphaned)}</>}</p>
      {found.count > 1 && <p><label>Reason <input value={reason} maxLength={500} onChange={e => setReason(e.target.value)} /></label></p>}
      {many && <p><label>Type the count{found.orphaned > 0 && ` of both, ${found.count.toLocaleString('en')},`} to confirm <input inputMode="numeric" value={typed} onChange={e => setTyped(e.target.value)} autoComplete="off" /></label></p>}
    </>}
    <p className="actions"><button autoFocus onClick={() => close()} disabled={busy}>Cancel</button>
      {found && found.count > 0 && <button className={plan.verb === 'delete' ? 'danger' : 'primary'} disabled={busy || (many && typed.replaceAll(/[,. ]/g, '') !== String(found.count))} onClick={run}>{busy ? 'Pending…' : plan.verb === 'delete' ? 'Delete' : 'Approve'}</button>}</p>
  </dialog>
}
