// One rollout: its waves as they go, its plan as groups of equal changes, and its commands.
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { ApiError, command as send, get, query, useGet, useTurns, type Command, type Entity, type Feed, type Me, type PlanRow, type RolloutPlan, type RolloutStatus, type Wave } from './api'
import { History } from './history'
import { Bar, progress, progressWords } from './bar'
import { Changes, summary } from './changes'
import { part } from './part'
import { Ago, CopyCommand, entityPath, Fact, Link, Loading, navigate, number, Problem, seconds, Tabs } from './parts'
import { Confirm, type Plan } from './confirm'
import { Yaml } from './text'

const WaveGraph = part(() => import('./wavegraph').then(m => m.WaveGraph))

const tabs: [string, string][] = [['waves', 'Waves'], ['graph', 'Graph'], ['plan', 'Plan'], ['rows', 'Deployments'], ['package', 'Package'], ['history', 'History']]

export function Rollout({ id, tab, feed, me }: { id: string, tab: string, feed: Feed, me: Me }) {
  const turn = useTurns(feed, ['rollout'], 400, id)
  const { data: status, error, reload } = useGet<RolloutStatus>(`/api/v1/rollout/status?${query({ id })}`)
  const [asked, setAsked] = useState<Command>()
  const [removal, setRemoval] = useState<Plan>()
  useEffect(() => { if (turn > 0) reload() }, [turn, reload])
  if (!status) return error ? <Problem error={error} retry={reload} /> : <Loading />
  const open = tabs.some(([name]) => name === tab) ? tab : 'waves'
  const may = (c: string) => me.can.rollout && status.can.includes(c === 'approve' || c === 'delete' ? c : 'command')
  const commands = status.commands.filter(may)
  return <article>
    <header className="title">
      <h1>Rollout <code>{id}</code></h1> <strong data-state={status.state}>{status.state}</strong>
      {status.until ? <span className="muted">ends about <time>{seconds(status.until)}</time></span> : null}
      <span className="actions">{commands.map(c => c === 'delete'
        ? <button key={c} className="danger" onClick={() => setRemoval({ verb: 'delete', kind: 'rollout', ids: [id], title: `Delete rollout ${id}` })}>Delete…</button>
        : <button key={c} className={c === 'undo' || c === 'cancel' ? 'danger' : c === 'start' || c === 'approve' || c === 'resume' ? 'primary' : undefined} onClick={() => setAsked(c as Command)}>{words[c as Command].button}…</button>)}</span>
    </header>
    {error && <Problem error={error} retry={reload} />}
    {status.reason && <p className="why waiting">{status.reason}</p>}
    {(status.undoes || status.undoneBy) && <p>{status.undoes && <>It undoes <Link to={entityPath('rollout', status.undoes)}>{status.undoes}</Link>. </>}{status.undoneBy && <>It is undone by <Link to={entityPath('rollout', status.undoneBy)}>{status.undoneBy}</Link>.</>}</p>}
    <Tabs all={tabs} open={open} select={name => navigate(entityPath('rollout', id, name), true)}>
      {open === 'waves' && <Waves status={status} />}
      {open === 'graph' && <WaveGraph status={status} turn={turn} />}
      {open === 'plan' && <PlanView id={id} digest={status.plan} />}
      {open === 'rows' && <Rows id={id} waves={status.waves} turn={turn} />}
      {open === 'package' && <Package id={id} turn={turn} />}
      {open === 'history' && <Package id={id} turn={turn} history />}
    </Tabs>
    <CopyCommand text={open === 'plan' ? `tko rollout plan ${id}` : `tko rollout status ${id} --watch`} />
    {asked && <CommandDialog command={asked} status={status} close={done => { setAsked(undefined); if (done) reload() }} />}
    {removal && <Confirm plan={removal} close={done => { setRemoval(undefined); if (done) navigate('/rollouts') }} />}
  </article>
}

function Package({ id, turn, history }: { id: string, turn: number, history?: boolean }) {
  const { data, error, reload } = useGet<Entity>(`/api/v1/rollout?${query({ id })}`)
  useEffect(() => { if (turn > 0) reload() }, [turn, reload])
  if (!data) return error ? <Problem error={error} retry={reload} /> : <Loading />
  return history ? <History kind="rollout" id={id} newest={data.row.revision} /> : <Yaml text={data.package} />
}

function Waves({ status }: { status: RolloutStatus }) {
  const rows = Object.entries(status.kinds ?? {}).filter(([, n]) => n > 0)
  return <>
    <p>{rows.length > 0 ? <>Plan <code>{status.plan.slice(0, 12)}</code>: {rows.map(([kind, n]) => `${number(n)} ${kind}`).join(', ')}.</> : 'It has no plan yet.'} {status.failures > 0 && <strong className="failing">{number(status.failures)} failed.</strong>}</p>
    {status.firstFailure ? <p>The first failure was <Ago at={status.firstFailure} />; {number(status.touched ?? 0)} sites were changed after it.{status.failing ? ` ${number(status.failing)} deployments are unhealthy now.` : ''}</p> : null}
    {status.blocks.length > 0 && <section aria-labelledby="blocks"><h2 id="blocks">What blocks it</h2><ul className="blocks">{status.blocks.map(b => <li key={b}>{b}</li>)}</ul></section>}
    {status.waves.length > 0 && <div className="scroll" tabIndex={0} role="region" aria-label="Waves"><table><thead><tr><th>Wave</th><th>Deployments</th><th>Progress</th><th>Approval</th></tr></thead><tbody>
      {status.waves.map(w => <tr key={w.name}><th scope="row">{w.name}</th><td className="number">{number(w.deployments)}</td><td className="wave"><Bar wave={w} /></td><td>{w.approval === 'Required' ? 'waits for an approver' : w.approval ? `approved ${w.approval}` : 'not needed'}</td></tr>)}
    </tbody></table></div>}
    {status.examples.length > 0 && <section aria-labelledby="attention"><h2 id="attention">Need attention</h2><RowTable id={status.id} rows={status.examples} waves={status.waves} /></section>}
    <dl>{status.started ? <Fact name="Started"><time>{seconds(status.started)}</time></Fact> : null}</dl>
  </>
}

function PlanView({ id, digest }: { id: string, digest: string }) {
  const { data, error, reload } = useGet<RolloutPlan>(`/api/v1/rollout/plan?${query({ id })}`)
  const [open, setOpen] = useState<number>()
  useEffect(() => { if (data && data.digest !== digest) reload() }, [data, digest, reload])
  if (!data) return error ? <Problem error={error} retry={reload} /> : <Loading />
  if (!data.digest) return <p className="empty">It has no plan yet.</p>
  const same = data.kinds.Same ?? 0
  return <>
    <p>Plan <code data-digest={data.digest}>{data.digest.slice(0, 12)}</code>: {number(data.groups.reduce((n, g) => n + g.count, 0))} deployments in {number(data.groups.length)} groups of equal changes{same > 0 && `; ${number(same)} are already as the edits make them`}.</p>
    {data.images && <ul aria-label="Images">{data.images.map(i => <li key={i.kind + i.reference}>{i.kind} <code>{i.reference}</code> at {number(i.sites)} {i.sites === 1 ? 'site' : 'sites'}</li>)}</ul>}
    {data.warnings.length > 0 && <ul className="warnings" aria-label="Warnings">{data.warnings.map(w => <li key={w}>{w}</li>)}</ul>}
    {data.groups.map((g, i) => <section key={i} className="group">
      <h2><button aria-expanded={open === i} onClick={() => setOpen(open === i ? undefined : i)}>{open === i ? '▾' : '▸'} {number(g.count)} {g.kind}: {summary(g.changes, g.more)}</button></h2>
      {open === i && <>{g.templates?.map(t => <p key={t}>Template {t}</p>)}<Changes changes={g.changes} more={g.more} />{g.coarse && <p className="muted">The values differ{g.distinct ? ` in ${number(g.distinct)} ways` : ''}: open a deployment to see its own.</p>}<PlanRows id={id} group={i} kind={g.kind} /></>}
    </section>)}
  </>
}

// usePlanRows reads pages of rows; more() reads the next one.
function usePlanRows(parts: Record<string, string | number | undefined>, turn = 0) {
  const [state, setState] = useState<{ rows?: PlanRow[], next?: string, error?: ApiError }>({})
  const address = query({ limit: 50, ...parts })
  const abort = useRef(new AbortController())
  const read = (after?: string) => {
    const { signal } = abort.current
    get<{ rows: PlanRow[], next?: string }>(`/api/v1/rollout/rows?${query({ after }, address)}`, signal).then(
      page => { if (!signal.aborted) setState(old => ({ rows: after ? [...old.rows ?? [], ...page.rows] : page.rows, next: page.next })) },
      error => { if (!signal.aborted) setState(old => ({ ...old, error })) })
  }
  useEffect(() => { abort.current = new AbortController(); read(); return () => abort.current.abort() }, [address, turn])
  return { ...state, more: () => read(state.next) }
}

function PlanRows({ id, group, kind }: { id: string, group: number, kind: string }) {
  const { rows, next, error, more } = usePlanRows({ id, group, kind })
  if (error) return <Problem error={error} />
  if (!rows) return <Loading />
  return <><RowTable id={id} rows={rows} />{next && <button onClick={more}>More deployments</button>}</>
}

function RowTable({ id, rows, waves }: { id: string, rows: PlanRow[], waves?: Wave[] }) {
  const [open, setOpen] = useState('')
  return <div className="scroll" tabIndex={0} role="region" aria-label="Deployments of the plan"><table><thead><tr><th>Deployment</th><th>Site</th><th>Change</th>{waves && <th>Wave</th>}<th>Progress</th><th>Why</th></tr></thead><tbody>
    {rows.map(r => <Row key={r.deployment} id={id} row={r} waves={waves} open={open === r.deployment} toggle={() => setOpen(open === r.deployment ? '' : r.deployment)} />)}
  </tbody></table></div>
}

function Row({ id, row, waves, open, toggle }: { id: string, row: PlanRow, waves?: Wave[], open: boolean, toggle: () => void }) {
  const why = [row.reason || row.findings.join('; '), ...row.unknown.map(u => `known after preparation: ${u}`)].filter(Boolean).join('; ')
  return <><tr data-deployment={row.deployment}><th scope="row"><button className="plain" aria-expanded={open} aria-label={`Changes of ${row.deployment}`} onClick={toggle}>{open ? '▾' : '▸'}</button> <Link to={entityPath('deployment', row.deployment)}>{row.deployment}</Link></th>
    <td>{row.site && <Link to={entityPath('site', row.site)}>{row.site}</Link>}</td><td>{row.kind}</td>{waves && <td>{waves[row.wave]?.name}</td>}<td>{progressWords[row.progress] ?? row.progress}{row.since ? <> <Ago at={row.since} /></> : null}</td><td>{why}</td></tr>
    {open && <tr><td colSpan={waves ? 6 : 5}><RowChanges id={id} deployment={row.deployment} /></td></tr>}</>
}

function RowChanges({ id, deployment }: { id: string, deployment: string }) {
  const { rows, error } = usePlanRows({ id, deployment, changes: 'true', limit: 1 })
  if (error) return <Problem error={error} />
  return rows ? <Changes changes={rows[0]?.changes ?? []} /> : <Loading />
}

function Rows({ id, waves, turn }: { id: string, waves: Wave[], turn: number }) {
  const [kind, setKind] = useState('')
  const [state, setState] = useState('')
  const [site, setSite] = useState('')
  const { rows, next, error, more } = usePlanRows({ id, kind, progress: state, site }, turn)
  const select = (name: string, value: string, set: (v: string) => void, all: string[]) => <label>{name} <select value={value} onChange={e => set(e.target.value)}><option value="">all</option>{all.map(k => <option key={k} value={k}>{progressWords[k] ?? k}</option>)}</select></label>
  return <>
    <form className="bar" onSubmit={e => { e.preventDefault(); setSite(String(new FormData(e.currentTarget).get('site')).trim()) }}>{select('Change', kind, setKind, ['Change', 'Create', 'Delete', 'Conflict', 'Invalid', 'Same'])} {select('Progress', state, setState, progress.map(([p]) => p))} <label>Site <input name="site" placeholder="north/**" /></label> <button>Show</button></form>
    {error && <Problem error={error} />}
    {!rows && !error && <Loading />}
    {rows && (rows.length === 0 ? <p className="empty">No deployment of the plan matches.</p> : <RowTable id={id} rows={rows} waves={waves} />)}
    {next && <button onClick={more}>More deployments</button>}
  </>
}

const words: Record<Command, { button: string, text: (s: RolloutStatus) => ReactNode }> = {
  plan: { button: 'Plan', text: s => s.state === 'Paused' ? 'What is left is planned again, on what is deployed now. It goes on only when you resume it with the new plan.' : 'TKO compares what the edits make with what is deployed now. No deployment is changed.' },
  start: { button: 'Start', text: s => <>This will {effect(s)}, in {s.waves.length === 1 ? 'one wave' : `${s.waves.length} waves`}: {s.waves.map(w => `${w.name} (${number(w.deployments)}${w.approval === 'Required' ? ', waits for an approval' : ''})`).join(', ')}.</> },
  approve: { button: 'Approve wave', text: s => { const w = waitingWave(s); return <>The wave <strong>{w?.name}</strong> may begin{s.state === 'Planned' ? ' once the rollout is started' : ''}: {number(w?.deployments ?? 0)} deployments will be changed, as its limits allow.</> } },
  pause: { button: 'Pause', text: s => `Nothing more is changed. ${number(sum(s, 'Applied', 'Soaking'))} deployments that were changed and are not yet healthy are observed on.` },
  resume: { button: 'Resume', text: s => `It goes on: ${number(sum(s, 'Waiting'))} deployments wait to be changed.` },
  cancel: { button: 'Cancel rollout', text: s => `${number(sum(s, 'Waiting', 'Stale'))} deployments that wait are skipped. ${number(changed(s))} that were changed stay as they are; they can be undone.` },
  undo: { button: 'Undo', text: s => `${number(changed(s))} deployments that were changed return to the packages that they had, the last wave first, under the same limits. What was deleted is created again; what was created is deleted.` },
  skip: { button: 'Skip', text: s => `${number(sum(s, 'Stale'))} deployments that are no longer as planned are left out.` },
  waive: { button: 'Waive', text: s => `${number(s.failures)} failed deployments do not count any more: neither for the budget of failures, nor for limits.` },
}
// waitingWave is the wave that an approval names: the dialog shows it, and no other one is approved.
const waitingWave = (s: RolloutStatus) => s.waves.find(w => w.approval === 'Required')
const sum = (s: RolloutStatus, ...of: string[]) => s.waves.reduce((n, w) => n + of.reduce((m, p) => m + (w.progress[p] ?? 0), 0), 0)
const changed = (s: RolloutStatus) => sum(s, 'Applied', 'Soaking', 'Healthy', 'Failed', 'Waived', 'AsBefore')
const blocked = (s: RolloutStatus) => (s.kinds?.Conflict ?? 0) + (s.kinds?.Invalid ?? 0)
const effect = (s: RolloutStatus) => [['Change', 'change'], ['Create', 'create'], ['Delete', 'delete']].filter(([k]) => s.kinds?.[k]).map(([k, verb]) => `${verb} ${number(s.kinds[k])}`).join(', ') + ' deployments'

// CommandDialog says what a command will do, and does it. What changes 100 deployments or more, or deletes any, wants their number typed.
function CommandDialog({ command, status, close }: { command: Command, status: RolloutStatus, close: (done: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [error, setError] = useState<ApiError>()
  const [busy, setBusy] = useState(false)
  const [typed, setTyped] = useState('')
  const [reason, setReason] = useState('')
  const [skipBlocked, setSkip] = useState(false)
  const [blind, setBlind] = useState(false)
  const [force, setForce] = useState(false)
  const [anyTime, setAnyTime] = useState(false)
  const [shown] = useState(status) // what the user has read stays, and is what is confirmed
  const { data: plan, error: unread } = useGet<RolloutPlan>(command === 'start' ? `/api/v1/rollout/plan?${query({ id: shown.id })}` : null)
  const unreported = plan?.unreported ?? 0
  const leave = useRef<HTMLButtonElement>(null)
  useEffect(() => { dialog.current?.showModal(); leave.current?.focus() }, []) // what changes something is never focused first
  const count = command === 'start' ? (shown.kinds.Change ?? 0) + (shown.kinds.Create ?? 0) + (shown.kinds.Delete ?? 0) : command === 'undo' ? changed(shown) : 0
  const many = count >= 100 || command === 'start' && (shown.kinds.Delete ?? 0) > 0
  const stuck = command === 'start' && (blocked(shown) > 0 && !skipBlocked || !plan || unreported > 0 && !blind)
  const moved = shown.plan !== status.plan || shown.state !== status.state
  const run = () => {
    setBusy(true)
    send({ id: shown.id, command, reason, plan: ['start', 'approve', 'resume'].includes(command) ? shown.plan : '', wave: command === 'approve' ? waitingWave(shown)?.name : undefined, skipBlocked, blind, force, anyTime }).then(() => close(true), e => { setBusy(false); setError(e) })
  }
  return <dialog ref={dialog} onCancel={e => { e.preventDefault(); if (!busy) close(false) }} aria-labelledby="command-title">
    <h2 id="command-title">{words[command].button} {shown.id}</h2>
    {error && <Problem error={error} />}
    {moved && !busy && <p className="wrong" role="alert">The rollout has changed since this dialog was opened: close it and look again.</p>}
    <p>{words[command].text(shown)}</p>
    {['start', 'approve', 'resume'].includes(command) && <p className="muted">Plan <code>{shown.plan.slice(0, 12)}</code>. If the plan is no longer this one, nothing is done.</p>}
    {command === 'start' && blocked(shown) > 0 && <p><label><input type="checkbox" checked={skipBlocked} onChange={e => setSkip(e.target.checked)} /> Leave out {number(blocked(shown))} deployments in conflict or invalid</label></p>}
    {command === 'start' && unread && !plan && <Problem error={unread} />}
    {plan && plan.warnings.length > 0 && <ul className="warnings" aria-label="Warnings">{plan.warnings.map(w => <li key={w}>{w}</li>)}</ul>}
    {command === 'start' && unreported > 0 && <p><label><input type="checkbox" checked={blind} onChange={e => setBlind(e.target.checked)} /> Take {number(unreported)} deployments for healthy whose sites report no health: nothing will stop the rollout if they fail</label></p>}
    {command === 'undo' && <><p><label><input type="checkbox" checked={force} onChange={e => setForce(e.target.checked)} /> Also what others changed since: their changes are lost</label></p>
      <p><label><input type="checkbox" checked={anyTime} onChange={e => setAnyTime(e.target.checked)} /> Also outside of the rollout's windows</label></p></>}
    <p><label>Reason <input value={reason} maxLength={500} onChange={e => setReason(e.target.value)} /></label></p>
    {many && <p><label>Type the count {number(count)} to confirm <input inputMode="numeric" value={typed} onChange={e => setTyped(e.target.value)} autoComplete="off" /></label></p>}
    <p className="actions"><button ref={leave} onClick={() => close(false)} disabled={busy}>Close</button>
      <button className={command === 'undo' || command === 'cancel' ? 'danger' : 'primary'} disabled={busy || stuck || moved || many && typed.replaceAll(/[,. ]/g, '') !== String(count)} onClick={run}>{busy ? 'Pending…' : words[command].button}</button></p>
  </dialog>
}
