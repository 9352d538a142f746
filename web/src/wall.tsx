// The picture of all sites, and the wall mode: one screen with what an operator looks at, which stays open.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type ReactNode } from 'react'
import { get, query, useMoment, useFleet, useFleetDay, useTurns, useWall, type ApiError, type Feed, type Me, type Page, type RolloutStatus, type State, type Wall, type WallGroup } from './api'
import { draw, map, tileAt, tiles, type Look, type Picture, type Tile } from './picture'
import { Ago, changeAddress, entityPath, here, Link, navigate, number, Problem, StateMark, time24 } from './parts'
import { literal } from './filter'
import { Bar } from './bar'
import type { FleetPoint } from './schema'
import { seriesOf, Spark } from './spark'

const strengths: Record<State, number> = { failing: 1, waiting: 1, working: 1, unknown: 0.7, healthy: 0.5 }
const maxRollouts = 4
const onMap = 'map' // in place of a key of metadata

// useView is what the picture shows: a key of metadata, or the map. Several, by=region,tier,map, are shown in turn.
function useView(): string {
  const q = here()
  const all = (q.get('by') ?? '').split(',').filter(Boolean), seconds = Math.max(5, Number(q.get('rotate')) || 30)
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    if (all.length < 2) return
    const timer = setInterval(() => setTurn(n => n + 1), seconds * 1000)
    return () => clearInterval(timer)
  }, [all.join(), seconds])
  return all.length ? all[turn % all.length] : ''
}

// Known is what is known of all deployments: exact, if the server has the numbers at hand, else as the picture has counted them.
export interface Known { deployments: Partial<Record<State, number>>, unapproved: number }

export interface Seen { wall?: Wall, known?: Known, error?: ApiError, view: string }

// useSeen reads the picture that the address asks for.
export function useSeen(feed: Feed): Seen {
  const view = useView()
  const turn = useTurns(feed, ['deployment', 'site'], 1000)
  const fleet = useFleet(turn), { wall, error } = useWall({ by: view === onMap ? '' : view, places: view === onMap ? 'true' : '' }, turn)
  return { wall, error, known: fleet ?? (wall && !wall.counting ? wall : undefined), view }
}

const sum = (of: Partial<Record<State, number>>) => Object.values(of).reduce((a, b) => a + b, 0)

// shareOf is how many of those that report their health are healthy, in percent; undefined without any.
const shareOf = (healthy: number, reporting: number) => reporting > 0 ? Math.floor(healthy / reporting * 10_000) / 100 : undefined

// A Big is a number of the fleet, with its course over the last day.
interface Big { state: State, text: string, name: string, to?: string, of?: (p: FleetPoint) => number | undefined, now?: number, percent?: boolean }

// Numbers are sums of the whole fleet. A number that isn't known yet is not shown.
export function Numbers({ wall, known, me }: { wall?: Wall, known?: Known, me: Me }) {
  const day = useFleetDay()
  const counting = !wall || wall.counting
  const d = known?.deployments ?? {}
  const mine = me.can.deployment?.includes('approve')
  const share = known && shareOf(d.healthy ?? 0, sum(d) - (d.unknown ?? 0))
  const all: (Big & { known: boolean })[] = [
    { state: 'failing', known: !!known, now: d.failing ?? 0, text: counting ? 'failing deployments' : `failing deployments; ${number(wall.sites.failing ?? 0)} sites fail`, name: 'Failing deployments', to: '/deployments?state=failing', of: p => p.failing },
    { state: 'working', known: !!known, now: d.working ?? 0, text: 'changing now', name: 'Deployments that change', to: '/deployments?state=working', of: p => p.working },
    { state: 'waiting', known: !!known, now: known?.unapproved, text: mine ? 'wait for your approval' : 'wait for an approval', name: 'Deployments that wait for an approval', to: '/deployments?prepared=true&approved=false', of: p => p.unapproved },
    { state: 'unknown', known: !counting, now: wall?.sites.unknown ?? 0, text: 'sites of unknown health', name: '', to: '/sites?state=unknown' },
    { state: 'healthy', known: !!known, now: share, text: 'healthy, of what reports health', name: 'Healthy deployments', of: p => shareOf(p.healthy, p.reporting), percent: true },
  ]
  return <ul className="numbers" aria-label="The fleet in numbers">{all.map(({ state, known, now, text, name, to, of, percent }) => {
    const body = <><b className={state}>{!known ? 'counting…' : now === undefined ? 'none' : `${number(now)}${percent ? ' %' : ''}`}</b><span>{text}</span></>
    const series = of && seriesOf(day, of, known ? now : undefined)
    return <li key={state} data-number={state}>{to ? <Link to={to}>{body}</Link> : body}<div className="course">{series && <Spark name={name} series={series} color={state} percent={percent} />}</div></li>
  })}</ul>
}

const states = (g: WallGroup, all: State[]) => all.filter(s => g.states[s]).map(s => `${number(g.states[s]!)} ${s}`).join(', ')
const title = (g: WallGroup, by: string) => g.rest ? 'others' : g.value || (by ? `without ${by}` : 'all sites')

// useSize is the size of an element, which changes with the window.
function useSize() {
  const ref = useRef<HTMLDivElement>(null)
  const [size, setSize] = useState({ width: 0, height: 0 })
  useEffect(() => {
    const observer = new ResizeObserver(([e]) => setSize({ width: Math.floor(e.contentRect.width), height: Math.floor(e.contentRect.height) }))
    observer.observe(ref.current!)
    return () => observer.disconnect()
  }, [])
  return { ref, ...size }
}

// looks are the colors of the theme, and the words of the picture.
function looks(of: Element, all: State[], by: string): Look {
  const style = getComputedStyle(of), color = (name: string) => style.getPropertyValue(`--${name}`).trim()
  return { colors: all.map(color), strengths: all.map(s => strengths[s]), text: color('text'), muted: color('muted'), font: `${style.fontSize} system-ui, sans-serif`, none: by ? `without ${by}` : 'all sites' }
}

// Canvas is the picture. The arrow keys move through the sites, n to the next that fails; Enter opens one.
function Canvas({ wall, view }: { wall: Wall, view: string }) {
  const { ref, width, height } = useSize()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [at, setAt] = useState<Tile>()
  const [pointed, setPointed] = useState<Tile>()
  const [theme, setTheme] = useState(0)
  const picture = useMemo((): Picture => (view === onMap ? map : tiles)(wall.groups, width, height), [wall, view, width, height])
  useEffect(() => { // colors change with the theme
    const changed = () => setTheme(n => n + 1)
    const dark = matchMedia('(prefers-color-scheme: dark)'), observer = new MutationObserver(changed)
    dark.addEventListener('change', changed)
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] })
    return () => { dark.removeEventListener('change', changed); observer.disconnect() }
  }, [])
  const shown = pointed ?? at
  useEffect(() => {
    const e = canvas.current!, scale = devicePixelRatio || 1, began = performance.now()
    if (width === 0) return
    if (e.width !== width * scale || e.height !== height * scale) { e.width = width * scale; e.height = height * scale }
    const c = e.getContext('2d')!
    c.setTransform(scale, 0, 0, scale, 0, 0)
    draw(c, picture, wall.groups, looks(e, wall.states, wall.by), shown)
    e.dataset.drawn = String(wall.groups.reduce((n, g) => n + g.ids.length, 0))
    e.dataset.took = String(Math.round(performance.now() - began))
  }, [picture, wall, shown, theme, width, height])
  const site = (t: Tile) => wall.groups[t.group]?.ids[t.index]
  const stateOf = (t: Tile) => wall.states[Number(wall.groups[t.group]?.tiles[t.index])]
  const open = (t?: Tile) => { const id = t && site(t); if (id) navigate(entityPath('site', id)) }
  const order = useMemo(() => wall.groups.flatMap((g, group) => g.ids.map((_, index) => ({ group, index }))), [wall])
  const keys = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return
    const i = at ? order.findIndex(t => t.group === at.group && t.index === at.index) : -1
    const columns = at && !picture.places ? picture.blocks[at.group]?.columns ?? 1 : 1
    const go = (n: number) => { const t = order[Math.max(0, Math.min(order.length - 1, n))]; if (t) setAt({ ...t, x: 0, y: 0 }) }
    const next = () => { for (let k = 1; k <= order.length; k++) { const t = order[(i + k) % order.length]; if (wall.groups[t.group].tiles[t.index] === '0') { setAt({ ...t, x: 0, y: 0 }); return } } }
    const moves: Record<string, () => void> = { ArrowRight: () => go(i + 1), ArrowLeft: () => go(i - 1), ArrowDown: () => go(i + columns), ArrowUp: () => go(i - columns), Home: () => go(0), End: () => go(order.length - 1), n: next, Enter: () => open(at), Escape: () => setAt(undefined) }
    if (!moves[e.key]) return
    e.preventDefault()
    moves[e.key]()
  }
  const point = (e: PointerEvent) => { const r = canvas.current!.getBoundingClientRect(); return tileAt(picture, wall.groups, e.clientX - r.left, e.clientY - r.top) }
  const name = shown && site(shown)
  return <div className="canvas" ref={ref}>
    <canvas ref={canvas} tabIndex={0} role="application" aria-roledescription="picture" aria-label={`${number(order.length)} sites, ${states({ states: wall.sites } as WallGroup, wall.states)}. Arrow keys move, n goes to the next that fails, Enter opens. The table below has the same by group.`}
      onKeyDown={keys} onPointerMove={e => setPointed(point(e))} onPointerLeave={() => setPointed(undefined)} onClick={e => open(point(e as unknown as PointerEvent))} />
    <output className={name ? 'pointed' : 'hidden'}>{name && <><StateMark state={stateOf(shown!)} /> {name} <span className="muted">{title(wall.groups[shown!.group], wall.by)}</span></>}</output>
  </div>
}

// PictureView is the picture with what groups it, its legend, and the same as a table.
export function PictureView({ seen: { wall, error, view } }: { seen: Seen }) {
  const moment = useMoment()
  const known = wall?.keys ?? [], placed = known.some(k => k.key === 'latitude') && known.some(k => k.key === 'longitude')
  const by = view === onMap ? onMap : wall?.by ?? ''
  const places = view === onMap && wall ? wall.groups.reduce((n, g) => n + (g.places ?? []).filter(p => p.length).length, 0) : 0
  const link = (g: WallGroup) => g.rest || !wall!.by ? undefined : `/sites?${g.value ? query({ metadata: `${wall!.by}=${literal(g.value)}` }) : query({ within: `metadata.${wall!.by}=` })}`
  const total = wall ? sum(wall.sites) + wall.without : 0
  return <section className="picture" aria-labelledby="sites" aria-busy={!wall || !!wall.counting}>
    <div className="bar"><h2 id="sites">{wall ? `${number(total)} sites` : 'Sites: counting…'}</h2>
      <label>Group by <select value={by} onChange={e => changeAddress({ by: e.target.value || undefined })} disabled={!wall}>
        {!known.some(k => k.key === by) && by !== onMap && <option value={by}>{by || 'nothing'}</option>}
        {known.map(k => <option key={k.key} value={k.key}>{k.key}</option>)}{placed && <option value={onMap}>place, on a map</option>}</select></label>
      {wall?.counting && <span role="status" className="muted">The deployments at them are being counted: so far, tiles show less than there is.</span>}
      {wall?.behind && !wall.counting && wall.time && Date.now() - wall.time > 5000 ? <span className="muted">Counted <Ago at={wall.time} />.</span> : null}
    </div>
    {error && <Problem error={error} />}
    {wall && total > 0 ? <Canvas wall={wall} view={view} /> : <div className="canvas">{wall && !wall.counting && <p className="empty">There {moment ? 'was' : 'is'} no site yet, or you may see none.</p>}</div>}
    {view === onMap && wall && <p className="muted">{number(places)} of {number(total)} sites have a place: latitude and longitude in their metadata, in degrees.</p>}
    <p className="legend">{(wall?.states ?? []).map(s => <span key={s}><i className={`swatch ${s}`} /><StateMark state={s} /> {number(wall!.sites[s] ?? 0)}</span>)}{wall?.without ? <span>{number(wall.without)} more have no tile</span> : null}</p>
    {wall && <details className="groups"><summary>Groups, as a table</summary><div className="scroll" tabIndex={0} role="region" aria-label="Sites by group"><table><thead><tr><th>{wall.by || 'Group'}</th><th className="number">Sites</th>{wall.states.map(s => <th key={s} className="number">{s}</th>)}</tr></thead><tbody>
      {wall.groups.map(g => <tr key={`${g.rest} ${g.value}`}><th scope="row">{link(g) ? <Link to={link(g)!}>{title(g, wall.by)}</Link> : title(g, wall.by)}</th><td className="number">{number(g.ids.length)}</td>{wall.states.map(s => <td key={s} className="number">{number(g.states[s] ?? 0)}</td>)}</tr>)}</tbody></table></div></details>}
  </section>
}

// Failing lists why deployments fail, and when that began.
export function Failing({ wall, known }: { wall?: Wall, known?: Known }) {
  const moment = useMoment()
  const of = known?.deployments ?? wall?.deployments ?? {}, n = of.failing ?? 0, all = sum(of), now = moment ? 'then' : 'now'
  const listed = wall?.failures.reduce((m, f) => m + f.count, 0) ?? 0
  return <section aria-labelledby="now"><h2 id="now">{!known ? <>Failing {now}: {n > 0 && `${number(n)} of ${number(all)}, `}counting…</> : <>Failing {now}: {number(n)} of {number(all)} deployments</>}</h2>
    {n === 0 ? <p className="empty">{!known ? 'Whether a deployment fails is known when all are counted.' : 'No deployment fails.'}</p> : <ul className="failures">
      {(wall?.failures ?? []).map(f => <li key={f.reason}><b className="failing">{number(f.count)}</b><div><Link to={`/deployments?${query({ state: 'failing', reason: f.reason })}`}>{f.reason || 'no reason'}</Link> <span className="clip">{f.message}</span>
        <span className="muted">{f.since ? <>since <Ago at={f.since} />: </> : null}<Link to={entityPath('deployment', f.deployment)}>{f.site ? `at ${f.site}` : f.deployment}</Link></span></div></li>)}
      {wall && !wall.counting && n > listed && <li className="muted">{number(n - listed)} for other reasons</li>}</ul>}
    {wall && !wall.counting && !!wall.deployments.failing && <Began wall={wall} />}
  </section>
}

// Began shows when what fails now began to fail.
function Began({ wall }: { wall: Wall }) {
  const most = Math.max(1, ...wall.began), all = wall.began.reduce((a, b) => a + b, 0), hours = wall.began.length / 2
  return <figure className="began"><figcaption>When it began: {number(all)} in the last {hours} hours, {number(wall.earlier)} earlier</figcaption>
    <svg className="chart failing" viewBox={`0 0 ${wall.began.length} 24`} preserveAspectRatio="none" role="img" aria-label={`Of the failing deployments, ${number(all)} began to fail in the last ${hours} hours, at most ${number(most)} of them in half an hour`}>
      <line x1="0" x2={wall.began.length} y1="24" y2="24" vectorEffect="non-scaling-stroke" />
      {wall.began.map((n, i) => n > 0 && <rect key={i} x={i + 0.1} width="0.8" y={24 - Math.max(1, 24 * n / most)} height={Math.max(1, 24 * n / most)} />)}</svg>
    <span className="muted axis"><span>{hours} hours ago</span><span>now</span></span></figure>
}

// Running shows the rollouts that are under way or wait, with their waves.
export function Running({ feed }: { feed: Feed }) {
  const turn = useTurns(feed, ['rollout'], 2000)
  const [state, setState] = useState<{ all?: RolloutStatus[], more?: boolean, error?: ApiError }>({})
  useEffect(() => {
    const abort = new AbortController()
    const read = async () => {
      const pages = await Promise.all(['working', 'waiting'].map(state => get<Page>(`/api/v1/rollout/list?${query({ state, limit: maxRollouts + 1 })}`, abort.signal)))
      const ids = pages.flatMap(p => p.rows.map(r => r.id))
      const all = await Promise.all(ids.slice(0, maxRollouts).map(id => get<RolloutStatus>(`/api/v1/rollout/status?${query({ id })}`, abort.signal)))
      setState({ all, more: ids.length > maxRollouts })
    }
    read().catch(error => { if (!abort.signal.aborted) setState(old => ({ ...old, error })) })
    return () => abort.abort()
  }, [turn])
  const { all, more, error } = state
  return <section aria-labelledby="running"><h2 id="running">Rollouts{all && `: ${all.length === 0 ? 'none is under way' : `${number(all.length)}${more ? ' or more' : ''} under way`}`}</h2>
    {error && !all && <Problem error={error} />}
    {all?.map(s => <div key={s.id} className="running"><Link to={entityPath('rollout', s.id)}>{s.id}</Link> <span className={s.state === 'Paused' || s.state === 'Planned' ? 'waiting' : 'muted'}>{s.state}{s.reason && `: ${s.reason}`}{s.until ? `, ends about ${time24(s.until)} UTC` : ''}</span>
      {s.waves.map(w => <div key={w.name} className="wave"><span>{w.name}{w.approval === 'Required' && <span className="waiting"> waits for an approval</span>}</span><Bar wave={w} /></div>)}
      {s.blocks.slice(0, 1).map(b => <p key={b} className="muted">{b}</p>)}</div>)}
    {more && <Link to="/rollouts">All rollouts</Link>}
  </section>
}

// Waits counts what waits for a person.
export function Waits({ known, me, children }: { known?: Known, me: Me, children?: ReactNode }) {
  const mine = me.can.deployment?.includes('approve')
  return <section aria-labelledby="waits"><h2 id="waits">Waits {mine ? 'for you' : 'for a person'}</h2>
    <p><Link to="/deployments?prepared=true&approved=false">{!known ? 'Prepared and not approved deployments: counting…' : `${number(known.unapproved)} prepared and not approved deployments`}</Link></p>{children}</section>
}

// Recent are the newest changes.
export function Recent({ feed, most }: { feed: Feed, most: number }) {
  if (useMoment()) return null
  return <section aria-labelledby="changed"><h2 id="changed">Changed lately</h2>
    {feed.recent.length === 0 ? <p className="empty">Nothing yet.</p> : <div className="scroll" tabIndex={0} role="region" aria-label="Changes"><table><thead><tr><th>When</th><th>What</th><th>Change</th><th>Who</th><th>Why</th></tr></thead><tbody>
      {feed.recent.slice(0, most).map(c => <tr key={`${c.kind} ${c.id} ${c.time} ${c.op}`}><td><Ago at={c.time} /></td><td>{c.kind} {c.op === 'deleted' ? c.id : <Link to={entityPath(c.kind, c.id)}>{c.id}</Link>}</td><td>{c.op === 'status' ? 'conditions' : c.op === 'written' ? `revision ${c.revision}` : 'deleted'}</td><td>{c.who}</td><td>{c.why}</td></tr>)}</tbody></table></div>}
  </section>
}

export const openWall = () => changeAddress({ wall: '1' })
export const isWall = () => location.pathname === '/' && here().get('wall') === '1'
