// The dashboard: its frame, overview, matrix and login. Start reading at App.
import { caller as callerPath, filterOf, kindOf } from './early' // first: it begins what the first view reads
import { Component, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { createRoot } from 'react-dom/client'
import { logout, Moment, states, useFeed, useGet, useMoment, type Feed, type Me, type Stop } from './api'
import { setWords } from './filter'
import { useNarrow } from './narrow'
import { part, readRest } from './part'
import { Ago, CopyCommand, fromSegment, here, Link, Loading, navigate, number, Problem, setServerTime, StateMark } from './parts'
import { ThroughputView } from './throughput'
import { Failing, isWall, Numbers, openWall, PictureView, Recent, Running, useSeen, Waits } from './wall'
import './style.css'

// Parts of the program that are read when they are shown.
const List = part(() => import('./list').then(m => m.List))
const Detail = part(() => import('./detail').then(m => m.Detail))
const Rollout = part(() => import('./rollout').then(m => m.Rollout))
const ChangesView = part(() => import('./past').then(m => m.ChangesView))
const Matrix = part(() => import('./matrix').then(m => m.Matrix))
const WallMode = part(() => import('./wallmode').then(m => m.WallMode))
const Login = part(() => import('./login').then(m => m.Login))
const Slider = part(() => import('./slider').then(m => m.Slider))
const Help = part(() => import('./help').then(m => m.Help))
const Views = part(() => import('./views').then(m => m.Views))
const Palette = part(() => import('./palette').then(m => m.Palette))

// The part of the first view is read while the caller is.
function readFirst() {
  const [, first = '', id] = location.pathname.split('/')
  const parts = first === '' ? isWall() ? WallMode : undefined : first === 'matrix' ? Matrix : first === 'changes' ? ChangesView : first === 'login' ? Login : !kindOf[first] ? undefined : !id ? List : first === 'rollouts' ? Rollout : Detail
  parts?.read().catch(() => {}) // tried again when it is shown
  if (parts === Detail && here().get('tab') === 'tree') import('./topology').catch(() => {})
  if (parts === Rollout && here().get('tab') === 'graph') import('./wavegraph').catch(() => {})
}
readFirst()
const restAfter = 4000

const nav: [string, string, string][] = [['/', 'Overview', 'o'], ['/deployments', 'Deployments', 'd'], ['/sites', 'Sites', 's'], ['/templates', 'Templates', 't'], ['/plugins', 'Plugins', 'p'], ['/rollouts', 'Rollouts', 'r'], ['/matrix', 'Matrix', 'm'], ['/changes', 'Changes', 'c']]

function useLocation() {
  const [at, setAt] = useState({ path: location.pathname, search: location.search.slice(1) })
  useEffect(() => {
    const f = () => setAt({ path: location.pathname, search: location.search.slice(1) })
    window.addEventListener('popstate', f)
    return () => window.removeEventListener('popstate', f)
  }, [])
  return at
}

// A Guard says that a view has failed, in its place: without it, an error in one part would leave an empty page. The next view is tried
// anew.
class Guard extends Component<{ at: string, children: ReactNode }, { failed?: Error, at?: string }> {
  override state: { failed?: Error, at?: string } = {}
  static getDerivedStateFromError(failed: Error) { return { failed } }
  static getDerivedStateFromProps({ at }: { at: string }, state: { failed?: Error, at?: string }) { return at === state.at ? null : { at, failed: undefined } }
  override render() {
    const { failed } = this.state
    if (!failed) return this.props.children
    return <div className="problem" role="alert"><strong>This view has failed.</strong> <span>That is a defect of TKO: please report it, with this text: {failed.message}</span> <button onClick={() => location.reload()}>Load it again</button></div>
  }
}

function App() {
  const at = useLocation()
  const { data: caller, error, reload } = useGet<Me>(callerPath)
  const search = new URLSearchParams(at.search)
  const moment = at.path === '/changes' ? '' : search.get('asOf') ?? ''
  const me = useMemo(() => caller && moment ? { ...caller, can: {} as Me['can'] } : caller, [caller, moment]) // nothing can be done in the past
  const [past, setPast] = useState(false)
  const [asked, setAsked] = useState(false)
  const [help, setHelp] = useState(false)
  const [palette, setPalette] = useState(false)
  const [views, setViews] = useState(false)
  const narrow = useNarrow()
  const feed = useFeed(asked || moment || !caller ? undefined : caller.position)
  useEffect(() => { if (caller) { setServerTime(caller.now); setAsked(false) } }, [caller])
  useEffect(() => { const timer = setTimeout(readRest, restAfter); return () => clearTimeout(timer) }, [])
  useEffect(() => { const f = () => setAsked(true); window.addEventListener('tko-login', f); return () => window.removeEventListener('tko-login', f) }, [])
  const prefix = useRef(0)
  useEffect(() => {
    const f = (e: KeyboardEvent) => {
      const target = e.target as HTMLElement
      if ((e.ctrlKey || e.metaKey) && e.key === 'k') { e.preventDefault(); setPalette(true); return }
      if (e.ctrlKey || e.metaKey || e.altKey || target.closest('input, textarea, select, dialog') || localStorage.getItem('tko-keys') === 'off') return
      if (e.key === '/') { const filter = document.getElementById('filter'); if (filter) { e.preventDefault(); filter.focus() } return }
      if (e.key === '?') { setHelp(true); return }
      if (e.key === 'g') { prefix.current = Date.now(); return }
      if (Date.now() - prefix.current < 1500) {
        const to = nav.find(([, , key]) => key === e.key)
        prefix.current = 0
        if (to) { e.preventDefault(); e.stopPropagation(); navigate(to[0]) }
      }
    }
    window.addEventListener('keydown', f, true)
    return () => window.removeEventListener('keydown', f, true)
  }, [])
  const [, first = '', ...rest] = at.path.split('/')
  const kind = kindOf[first]
  const id = rest.map(fromSegment).join('/')
  const title = nav.find(([to]) => to === `/${first}`)?.[1] ?? 'Not found'
  useEffect(() => { document.title = `${id || title} – TKO` }, [id, title])
  if (asked || error?.status === 401 || first === 'login') return <Login done={() => { setAsked(false); if (first === 'login') navigate('/'); reload() }} />
  if (error && !me) return <main><h1>TKO</h1><Problem error={error} retry={reload} /></main>
  if (!me) return <Loading />
  setWords(me.filters, me.flags)
  if (isWall()) return <Moment.Provider value={moment}><WallMode feed={feed} me={me}>{!moment && <Stops />}</WallMode></Moment.Provider>
  const tools = <>
    <button aria-expanded={past || !!moment} onClick={() => setPast(!past)}>{moment ? `As of ${moment}` : 'As of now'}</button>
    <span className="muted wide" title={me.subject}>{me.display || me.subject}</span>
    <button onClick={() => setViews(true)}>Views</button>
    <button onClick={() => setHelp(true)} aria-label="Help: keys">?</button>
    <Theme />
    {me.authenticator !== 'none' ? <button onClick={() => logout().then(() => { setAsked(true) }, () => setAsked(true))}>Log out</button> : <button onClick={() => setAsked(true)}>Log in</button>}
  </>
  const lostFor = feed.live ? 0 : Date.now() - feed.since
  return <Moment.Provider value={moment}>
    <a className="skip" href="#main" onClick={e => { e.preventDefault(); document.getElementById('main')?.focus() }}>Skip to the contents</a>
    <header className={moment ? 'top past-now' : 'top'} data-live={feed.live && !moment} data-position={feed.position} data-moment={moment}>
      <strong>TKO</strong> <span className="muted wide">{me.instance}</span>
      <nav aria-label="Views">{nav.map(([to, name]) => <Link key={to} to={to} className={(to === '/' ? at.path === '/' : `/${first}` === to) ? 'current' : undefined}>{name}</Link>)}</nav>
      <span className={feed.live && !moment ? 'live' : 'live off'} role="status">{moment ? '‖ the past is not live' : feed.live ? '● live' : lostFor > 5000 ? `○ not live since ${new Date(feed.since).toLocaleTimeString()}` : '○ connecting'}</span>
      {narrow ? <details className="more"><summary aria-label="More">☰</summary><div>{tools}</div></details> : tools}
    </header>
    {!moment && <Stops />}
    {(past || moment) && at.path !== '/changes' && <Slider close={() => setPast(false)} />}
    <main id="main" tabIndex={-1}><Guard at={at.path + at.search}>
      {at.path === '/' && <Overview feed={feed} me={me} />}
      {kind && !id && <><h1>{title}</h1><List key={kind} kind={kind} filter={filterOf(at.search)} feed={feed} me={me} /></>}
      {kind === 'rollout' && id && <Rollout key={id} id={id} tab={here().get('tab') ?? 'waves'} feed={feed} me={me} />}
      {first === 'changes' && <ChangesView search={at.search} />}
      {kind && kind !== 'rollout' && id && <Detail key={`${kind} ${id}`} kind={kind} id={id} tab={here().get('tab') ?? 'why'} feed={feed} me={me} />}
      {first === 'matrix' && <Matrix search={at.search} feed={feed} />}
      {!kind && at.path !== '/' && first !== 'matrix' && first !== 'changes' && <><h1>Not found</h1><p className="empty">There is no such page. <Link to="/">Overview</Link></p></>}
    </Guard></main>
    {help && <Help close={() => setHelp(false)} />}
    {views && <Views close={() => setViews(false)} />}
    {palette && <Palette views={nav.map(([to, name]) => [to, name])} close={() => setPalette(false)} />}
  </Moment.Provider>
}

// Stops is a banner on each page while anything is stopped: what waits looks broken otherwise.
function Stops() {
  const { data, reload } = useGet<Stop[]>('/api/stop/list')
  useEffect(() => { const timer = setInterval(() => { if (!document.hidden) reload() }, 5000); return () => clearInterval(timer) }, [reload])
  if (!data?.length) return null
  return <div className="stops" role="alert">{data.map(s => <div key={s.id}><p><strong>Stopped: {stopped(s)}</strong>{s.onlyUndo && ' (undos go on)'} by {s.stoppedBy || 'an unknown caller'} <Ago at={s.createdTimestamp} />: {s.reason}.{' '}
    {s.waitingSites.toLocaleString()} sites and {s.waitingDeployments.toLocaleString()} deployments wait{s.inFlightCount > 0 && `, and ${s.inFlightCount.toLocaleString()} are still under way`}.</p><CopyCommand text={`tko resume ${s.id}`} /></div>)}</div>
}
const stopped = (s: Stop) => s.all ? 'everything' : s.topologyId ? `the topology ${s.topologyId}` : `${s.siteCount.toLocaleString()} sites (${[...s.siteIds, ...Object.entries(s.siteMetadata).map(([k, v]) => `${k}=${v}`)].join(', ')})`

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem('tko-theme') ?? 'auto')
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    localStorage.setItem('tko-theme', theme)
  }, [theme])
  return <label className="theme"><span className="hidden">Colors</span><select value={theme} onChange={e => setTheme(e.target.value)}><option value="auto">Auto</option><option value="light">Light</option><option value="dark">Dark</option></select></label>
}

function Overview({ feed, me }: { feed: Feed, me: Me }) {
  const moment = useMoment()
  const seen = useSeen(feed), { wall, known, error } = seen
  const d = (known ?? wall)?.deployments ?? {}
  const all = !!(wall || error) // each part waits for those above it, so that nothing moves down
  return <>
    <div className="title"><h1>Overview</h1><span className="actions"><button onClick={openWall}>Wall</button></span></div>
    <Numbers wall={wall} known={known} me={me} />
    <PictureView seen={seen} />
    {all && <>
      <Failing wall={wall} known={known} />
      <Waits known={known} me={me} />
      {!moment && <Running feed={feed} />}
      <section aria-labelledby="states"><h2 id="states">Deployments</h2><ul className="tiles">{states.map(s => <li key={s}><Link to={`/deployments?state=${s}`} className="tile"><StateMark state={s} /><b>{known ? number(d[s] ?? 0) : <>{d[s] ? `${number(d[s])} ` : ''}counting…</>}</b></Link></li>)}</ul></section>
      {!moment && <ThroughputView feed={feed} />}
      <Recent feed={feed} most={15} />
      <CopyCommand text="tko status" />
      <p className="muted">{me.version}</p></>}
  </>
}

createRoot(document.getElementById('root')!).render(<Guard at=""><App /></Guard>)
