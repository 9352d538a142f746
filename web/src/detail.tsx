// One entity: why it is in its state, its package, conditions, history and relations.
import { useEffect, useState } from 'react'
import { query, useGet, useMoment, type Entity, type EntityEvent, type Feed, type Kind, type Me, type Row, type Run } from './api'
import { details } from './schema'
import { List } from './list'
import type { Blame } from './blame'
import { Ago, CopyCommand, CopyText, entityPath, Fact, Link, Loading, nameOf, navigate, number, Problem, seconds, StateMark, Tabs } from './parts'
import { Confirm, type Plan } from './confirm'
import { Diff, Yaml } from './text'
import { History } from './history'
import { ParentName } from './parentname'
import { part } from './part'

const Topology = part(() => import('./topology').then(m => m.Topology))

const tabs: Record<Exclude<Kind, 'rollout'>, [string, string][]> = {
  deployment: [['why', 'Why'], ['package', 'Package'], ['conditions', 'Conditions'], ['events', 'Events'], ['history', 'History'], ['applied', 'At the site'], ['tree', 'Graph'], ['runs', 'Plugin runs']],
  site: [['why', 'Why'], ['package', 'Package'], ['conditions', 'Conditions'], ['events', 'Events'], ['history', 'History'], ['deployments', 'Deployments'], ['runs', 'Plugin runs']],
  template: [['why', 'Overview'], ['package', 'Package'], ['events', 'Events'], ['history', 'History'], ['tree', 'Graph'], ['deployments', 'Deployments']],
  plugin: [['why', 'Overview'], ['conditions', 'Conditions'], ['events', 'Events'], ['runs', 'Runs']],
}

export function Detail({ kind, id, tab, feed, me }: { kind: Exclude<Kind, 'rollout'>, id: string, tab: string, feed: Feed, me: Me }) {
  const { data, error, reload } = useGet<Entity>(`/api/v1/${kind}?${query({ id, asOf: useMoment() })}`)
  const [plan, setPlan] = useState<Plan>()
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const stop = feed.subscribe(changes => {
      if (!changes || changes.some(c => c.kind === kind && c.id === id)) timer ??= setTimeout(() => { timer = undefined; reload() }, 150)
    })
    return () => { stop(); clearTimeout(timer) }
  }, [feed.subscribe, kind, id, reload])
  if (!data) return error ? <Problem error={error} retry={reload} /> : <Loading />
  const all = tabs[kind]
  const open = all.some(([name]) => name === tab) ? tab : 'why'
  const select = (name: string) => navigate(entityPath(kind, id, name), true)
  const { row } = data
  return <article>
    <header className="title">
      {kind === 'deployment' ? <h1 title={id}>{nameOf(row)}</h1> : <h1>{kind[0].toUpperCase() + kind.slice(1)} <code>{id}</code></h1>} <StateMark state={row.state} /> <span className="muted">revision {row.revision}</span>
      {kind === 'deployment' && <CopyText text={id} label="Copy ID" />}
      <span className="actions">
        {kind === 'deployment' && row.prepared && !row.approved && data.can.includes('approve') && <button className="primary" onClick={() => setPlan({ verb: 'approve', kind, ids: [id], title: `Approve ${id}` })}>Approve…</button>}
        {data.can.includes('delete') && <button className="danger" onClick={() => setPlan({ verb: 'delete', kind, ids: [id], title: `Delete ${id}` })}>Delete…</button>}
      </span>
    </header>
    {error && <Problem error={error} retry={reload} />}
    <Tabs all={all} open={open} select={select}>
      {open === 'why' && <Why kind={kind} entity={data} />}
      {open === 'package' && <Package kind={kind} entity={data} />}
      {open === 'conditions' && <Conditions entity={data} />}
      {open === 'history' && <History kind={kind} id={id} newest={row.revision} />}
      {open === 'events' && <Events kind={kind} entity={data} />}
      {open === 'applied' && <Applied entity={data} />}
      {open === 'runs' && <Runs kind={kind} id={id} />}
      {open === 'tree' && (kind === 'deployment' || kind === 'template') && <Topology root={{ kind, row }} feed={feed} me={me} />}
      {open === 'deployments' && <List kind="deployment" filter={query(kind === 'site' ? { 'site-id': id } : { 'template-id': id })} feed={feed} me={me} embedded />}
    </Tabs>
    {plan && <Confirm plan={plan} close={result => { setPlan(undefined); if (result) reload() }} />}
  </article>
}

// Package can show beside each line which change has set it.
function Package({ kind, entity }: { kind: Kind, entity: Entity }) {
  const [wanted, setWanted] = useState(false)
  const { data, error, reload } = useGet<Blame>(wanted ? `/api/v1/blame?${query({ kind, id: entity.row.id, revision: entity.row.revision })}` : null)
  return <>
    {kind !== 'plugin' && <p><label><input type="checkbox" checked={wanted} onChange={e => setWanted(e.target.checked)} /> Who has set each line</label></p>}
    {wanted && error && <Problem error={error} retry={reload} />}
    <Yaml text={entity.package} blame={wanted ? data : undefined} />
    {wanted && <CopyCommand text={`tko blame ${kind} ${entity.row.id}`} />}
  </>
}

function Why({ kind, entity }: { kind: Kind, entity: Entity }) {
  const { row } = entity
  return <>
    {row.state && row.state !== 'healthy' && <p className={`why ${row.state}`}><StateMark state={row.state} /> <strong>{row.reason}</strong> {row.message} {row.since && <span className="muted">since <Ago at={row.since} /></span>}</p>}
    {row.state === 'healthy' && <p className="why healthy"><StateMark state="healthy" /> Everything that is known about it is as wanted.</p>}
    <dl>
      {(details as readonly (keyof Row & string)[]).map(name => row[name] && <Fact key={name} name={name[0].toUpperCase() + name.slice(1)}>{String(row[name])}</Fact>)}
      {row.template && <Fact name="Template"><Link to={entityPath('template', row.template)}>{row.template}</Link>{row.templateRevision ? <span className="muted"> revision {row.templateRevision}</span> : null}</Fact>}
      {row.site && <Fact name="Site"><Link to={entityPath('site', row.site)}>{row.site}</Link></Fact>}
      {row.parent && <Fact name="Parent"><ParentName id={row.parent} /></Fact>}
      {kind === 'deployment' && <Fact name="ID"><code>{row.id}</code></Fact>}
      {kind === 'deployment' && <Fact name="Flags">{row.prepared ? 'prepared' : 'not prepared'}, {row.approved ? 'approved' : 'not approved'}</Fact>}
      {row.conditions?.filter(c => c.type === 'Delivered' && c.status === 'False').map(c => <Fact key={c.type} name="Delivered">in part: {c.message}</Fact>)}
      {row.deploymentCount !== undefined && <Fact name="Deployments"><Link to={entityPath(kind, row.id, 'deployments')}>{row.deploymentCount.toLocaleString('en')}</Link></Fact>}
      {kind === 'plugin' && <><Fact name="Executor">{row.executor}</Fact><Fact name="Arguments"><code>{row.arguments?.join(' ')}</code></Fact>
        <Fact name="Triggers">{row.triggers?.map(t => `${t.group}/${t.version} ${t.kind}`).join(', ')}</Fact></>}
      <Fact name="Changed"><Ago at={row.updatedTimestamp} /> {entity.who && <>by {entity.who}</>} {entity.why && <span className="muted">({entity.why})</span>}</Fact>
      <Fact name="Created"><time>{seconds(row.createdTimestamp)}</time></Fact>
      {Object.entries(row.metadata ?? {}).map(([k, v]) => <Fact key={k} name={k}>{v}</Fact>)}
    </dl>
    <CopyCommand text={kind === 'plugin' ? `tko plugin get ${row.type} ${row.name}` : `tko ${kind} get ${row.id}`} />
  </>
}

function Conditions({ entity: { row } }: { entity: Entity }) {
  if (!row.conditions?.length) return <p className="empty">No condition was reported yet.</p>
  return <div className="scroll" tabIndex={0} role="region" aria-label="Conditions"><table><thead><tr><th>Condition</th><th>Status</th><th>Reason</th><th>Message</th><th>Since</th><th>Revision</th></tr></thead>
    <tbody>{row.conditions.map(c => <tr key={c.type}><th scope="row">{c.type}</th><td>{c.status}</td><td>{c.reason}</td><td>{c.message}{c.attempt ? <span className="muted"> attempt {c.attempt}{c.nextTry && <>, next try {c.nextTry}</>}</span> : null}</td><td><Ago at={Date.parse(c.lastTransitionTime)} /></td><td>{c.observedRevision}</td></tr>)}</tbody></table></div>
}

// Events are what has changed, and since when each condition has its status, newest first.
function Events({ kind, entity: { row } }: { kind: Kind, entity: Entity }) {
  const moment = useMoment()
  const { data, error, reload } = useGet<{ events: EntityEvent[] }>(moment ? null : `/api/v1/history?${query({ kind, id: row.id })}`)
  useEffect(() => { if (data && row.revision > (data.events[0]?.revision ?? 0)) reload() }, [row.revision])
  const all = [
    ...(data?.events ?? []).map(e => ({ key: `${e.position}`, at: e.time, what: e.what === 'changed' ? `revision ${e.revision}` : e.what, text: e.summary, who: e.who, why: e.why })),
    ...(row.conditions ?? []).map(c => ({ key: c.type, at: Date.parse(c.lastTransitionTime), what: `${c.type} is ${c.status}`, text: [c.reason, c.message].filter(Boolean).join(': '), who: '', why: '' })),
  ].sort((a, b) => b.at - a.at)
  if (error) return <Problem error={error} retry={reload} />
  if (!data && !moment) return <Loading />
  return <div className="scroll" tabIndex={0} role="region" aria-label="Events"><table><thead><tr><th>When</th><th>What</th><th>Details</th><th>Who</th><th>Why</th></tr></thead><tbody>
    {all.map(e => <tr key={e.key}><td><Ago at={e.at} /></td><th scope="row">{e.what}</th><td>{e.text}</td><td>{e.who}</td><td>{e.why}</td></tr>)}</tbody></table></div>
}

// Applied compares what was applied at the site with what is desired.
function Applied({ entity: { row, package: desired } }: { entity: Entity }) {
  const c = row.conditions?.find(c => c.type === 'Scheduled')
  const done = c && (c.status === 'True' || c.reason === 'Drifted') ? c.observedRevision : 0
  const { data, error, reload } = useGet<Entity>(done > 0 && done !== row.revision ? `/api/v1/deployment?${query({ id: row.id, revision: done })}` : null)
  if (!row.site) return <p className="empty">The deployment has no site.</p>
  if (!c) return <p className="empty">Nothing was reported from the site <Link to={entityPath('site', row.site)}>{row.site}</Link> yet.</p>
  const reported = row.conditions?.filter(c => ['Scheduled', 'Healthy'].includes(c.type)) ?? []
  return <>
    <dl><Fact name="Site"><Link to={entityPath('site', row.site)}>{row.site}</Link></Fact><Fact name="Desired">revision {row.revision}</Fact>
      <Fact name="Applied">{done > 0 ? <>revision {done}, since <Ago at={Date.parse(c.lastTransitionTime)} /></> : `not revision ${c.observedRevision}: the site may have parts of it, and of the one that was applied before`}</Fact>
      {reported.map(c => <Fact key={c.type} name={c.type}>{c.status} <strong>{c.reason}</strong> {c.message}</Fact>)}</dl>
    {error && <Problem error={error} retry={reload} />}
    {done === row.revision && c.reason !== 'Drifted' && <p className="why healthy">The site has what is desired.</p>}
    {c.reason === 'Drifted' && <p className="why failing">Objects at the site were changed by others: {c.message}</p>}
    {data && <><h2>Applied revision {done} and desired revision {row.revision}</h2><Diff from={data.package} to={desired} /></>}
  </>
}

// Runs are the newest runs of plugins in the server's process.
function Runs({ kind, id }: { kind: Kind, id: string }) {
  const moment = useMoment()
  const { data, error, reload } = useGet<{ runs: Run[], lines: boolean }>(moment ? null : `/api/v1/runs?${query({ kind, id })}`)
  if (moment) return <p className="empty">Runs of the past are not retained.</p>
  if (!data) return error ? <Problem error={error} retry={reload} /> : <Loading />
  return <>
    <p className="bar"><button onClick={reload}>Read again</button> <span className="muted">The newest 20 runs of each plugin since the start of this server. Preparers and schedulers in processes of their own have theirs in their logs.{!data.lines && ' What plugins log is shown only with the right to the server\'s log.'}</span></p>
    {error && <Problem error={error} retry={reload} />}
    {data.runs.length === 0 ? <p className="empty">No plugin has run for it.</p> : data.runs.map(r => <section key={`${r.plugin} ${r.began} ${r.id}`} className="run">
      <h2><span className={r.result === 'ok' ? 'healthy' : r.result === 'canceled' ? 'unknown' : 'failing'}>{r.result}</span> {r.plugin.replace('|', ' ')}{r.id && r.kind && kind === 'plugin' && <> for <Link to={entityPath(r.kind, r.id)}>{r.id}</Link></>} <span className="muted"><Ago at={r.began} />, {number(r.took)} ms</span></h2>
      {r.error && <p className="why failing">{r.error}</p>}
      {r.lines && <pre tabIndex={0} aria-label={`Log of ${r.plugin}`}>{r.more ? <div className="muted">{number(r.more)} earlier lines are in the server's log</div> : null}{r.lines.map((l, i) => <div key={i}>{l}</div>)}</pre>}
    </section>)}
  </>
}
