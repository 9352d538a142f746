// The HTTP API of the server, and its stream of changes.
import { createContext, useCallback, useContext, useEffect, useRef, useState } from 'react'

import { query, take } from './early'
import type { Change, Count, DeploymentEntity, DeploymentPage, DeploymentRow, Fleet, FleetDay, Kind, PluginRow, Result, RolloutRow, RolloutStatus, SiteRow, State, TemplateRow, Throughput, Views, Wall } from './schema'
export type {
  Condition, Change, Count, EntityEvent, Group, Kind, Me, Minute, PlanRow, Result, Retention, RolloutChange as FieldChange, RolloutPlan, RolloutStatus, RolloutWave as Wave, Run, State, Stop, Throughput, Wall, WallGroup,
} from './schema'

export { query } from './early'

export const states: State[] = ['failing', 'waiting', 'working', 'unknown', 'healthy']

// A Row is that of any kind: it has the fields of all of them that are set.
type AnyRow = DeploymentRow & SiteRow & TemplateRow & PluginRow & RolloutRow
type Always = 'id' | 'createdTimestamp' | 'updatedTimestamp' | 'revision'
export type Row = Pick<AnyRow, Always> & Partial<Omit<AnyRow, Always>>
export type Page = Omit<DeploymentPage, 'rows'> & { rows: Row[] }
export type Entity = Omit<DeploymentEntity, 'row'> & { row: Row }
export type Command = 'plan' | 'start' | 'approve' | 'pause' | 'resume' | 'cancel' | 'undo' | 'skip' | 'waive'

// Moment is the moment as of which the views read; '' is now.
export const Moment = createContext('')
export const useMoment = () => useContext(Moment)

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly requestId: string) { super(message) }
}

async function request<T>(method: string, path: string, options: RequestInit = {}, seen?: (r: Response) => void): Promise<T> {
  let response: Response
  try {
    response = method === 'GET' && await take(path) || await fetch(path, { method, credentials: 'same-origin', ...options })
  } catch (cause) {
    if ((cause as Error).name === 'AbortError') throw cause
    throw new ApiError(0, 'the server does not respond: check the connection', '')
  }
  seen?.(response)
  if (response.status === 304) return undefined as T
  if (response.ok) {
    try {
      return await response.json() as T
    } catch (cause) { // aborted, or cut off in the middle: an empty body would look like data
      if ((cause as Error).name === 'AbortError') throw cause
      throw new ApiError(0, 'the response of the server was cut off', '')
    }
  }
  const body = await response.json().catch(() => ({}))
  const error = new ApiError(response.status, body.error ?? response.statusText, response.headers.get('Tko-Request-Id') ?? '')
  if (response.status === 401) window.dispatchEvent(new Event('tko-login'))
  throw error
}

// A Tagged is what was read, with its tag: a request that has it is responded to without what is already known.
interface Tagged<T> { tag: string, data: T }

async function getTagged<T>(path: string, signal: AbortSignal, known?: Tagged<T>): Promise<Tagged<T>> {
  let tag = ''
  const data = await request<T | undefined>('GET', path, { signal, headers: known ? { 'If-None-Match': known.tag } : {} }, response => { tag = response.headers.get('ETag') ?? '' })
  return data === undefined ? known! : { tag, data }
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>('GET', path, { signal })
const post = <T>(path: string, body: object) => request<T>('POST', path, { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
export const act = (body: object) => post<Result>('/api/v1/actions', body)
export const changeView = (body: object) => post<Views>('/api/v1/views', body)
export const command = (body: object) => post<RolloutStatus>('/api/v1/rollout/command', body)
export const login = (token: string) => request<object>('POST', '/auth/session', { headers: { Authorization: `Bearer ${token}` } })
export const logout = () => request<object>('DELETE', '/auth/session')

// A transient error may be gone when the same is read again.
export const transient = (error: ApiError) => [0, 429, 502, 503, 504].includes(error.status)
export const pause = (tries: number) => 500 + Math.random() * Math.min(30_000, 1000 * 2 ** tries)

export interface Loaded<T> { data?: T, error?: ApiError, loading: boolean, reload: () => void }

// useGet reads a path, and again on reload. It keeps the data that it has meanwhile.
export function useGet<T>(path: string | null): Loaded<T> {
  const [state, setState] = useState<{ path: string | null, data?: T, error?: ApiError }>({ path })
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    if (path === null) return
    const abort = new AbortController()
    let tries = 0, timer: ReturnType<typeof setTimeout> | undefined
    const read = () => {
      get<T>(path, abort.signal).then(
        data => { if (!abort.signal.aborted) setState({ path, data }) },
        error => {
          if (abort.signal.aborted) return
          setState(old => ({ path, data: old.path === path ? old.data : undefined, error }))
          if (transient(error)) timer = setTimeout(read, pause(tries++))
        })
    }
    read()
    return () => { abort.abort(); clearTimeout(timer) }
  }, [path, turn])
  const reload = useCallback(() => setTurn(n => n + 1), [])
  const mine = state.path === path
  return { data: mine ? state.data : undefined, error: mine ? state.error : undefined, loading: !mine || (!state.data && !state.error), reload }
}

export interface Feed { live: boolean, since: number, position: string, recent: Change[], subscribe: (f: Listener) => () => void }
type Listener = (changes: Change[] | null) => void // null: too many, read what is shown again

const maxRecent = 50

// isAfter compares positions of the change log. They are strings, since numbers are rounded from 2^53 on.
const isAfter = (a: string, b: string) => BigInt(a) > BigInt(b)

// useFeed follows the changes of all kinds while the page is visible. It begins before the newest change, for what has changed lately;
// what is read later has these changes, so listeners get only those after it. It stops when a login is needed.
export function useFeed(newest: string | undefined): Feed {
  const listeners = useRef(new Set<Listener>())
  const [status, setStatus] = useState({ live: false, since: Date.now(), position: newest ?? '0' })
  const [recent, setRecent] = useState<Change[]>([])
  const subscribe = useCallback((f: Listener) => { listeners.current.add(f); return () => { listeners.current.delete(f) } }, [])
  useEffect(() => {
    if (newest === undefined) return
    let position = newest, begun = false, abort = new AbortController(), stopped = false, tries = 0
    let timer: ReturnType<typeof setTimeout> | undefined, hiding: ReturnType<typeof setTimeout> | undefined, watchdog: ReturnType<typeof setTimeout> | undefined
    const tell = (changes: Change[] | null) => listeners.current.forEach(f => f(changes))
    const lost = () => setStatus(old => old.live ? { ...old, live: false, since: Date.now() } : old)
    const again = (seconds?: number) => {
      if (stopped || abort.signal.aborted) return
      lost()
      clearTimeout(timer)
      timer = setTimeout(run, seconds !== undefined ? seconds * 1000 : Math.random() * Math.min(30_000, 1000 * 2 ** tries++))
    }
    const handle = (event: string, data: { changes?: Change[], position?: string, changed?: number }) => {
      begun ||= data.position !== undefined
      if (event === 'changes' || event === 'stale') {
        position = data.position ?? position
        if (isAfter(position, newest)) tell(event === 'stale' ? null : data.changes ?? [])
        if (data.changes) setRecent(old => [...data.changes!.sort((a, b) => b.time - a.time), ...old].slice(0, maxRecent))
      }
      if (event === 'reset') { position = '-1'; tell(null) }
      setStatus(old => old.live && old.position === position ? old : { live: true, since: Date.now(), position })
    }
    const run = async () => {
      abort = new AbortController()
      const mine = abort
      const alive = () => { clearTimeout(watchdog); watchdog = setTimeout(() => { mine.abort(); stopped || (abort = new AbortController(), again(0)) }, 40_000) }
      let wait: number | undefined
      try {
        alive()
        const response = await fetch(`/api/v1/stream?${begun ? `after=${position}` : `newest=${2 * maxRecent}`}`, { signal: mine.signal, credentials: 'same-origin' })
        if (response.status === 401) { stopped = true; lost(); window.dispatchEvent(new Event('tko-login')); return }
        if (response.status === 403) { stopped = true; lost(); return }
        if (!response.ok || !response.body) throw new Error(response.statusText)
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
        let text = ''
        for (;;) {
          const { done, value } = await reader.read()
          if (done) break
          alive()
          tries = 0
          text += value
          for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
            const lines = text.slice(0, end).split('\n')
            text = text.slice(end + 2)
            const event = lines.find(l => l.startsWith('event: '))?.slice(7) ?? ''
            const data = JSON.parse(lines.find(l => l.startsWith('data: '))?.slice(6) ?? '{}')
            if (event === 'bye') wait = data.retryAfter
            handle(event, data)
          }
        }
      } catch { /* tried again below */ }
      clearTimeout(watchdog)
      if (!mine.signal.aborted) again(wait)
    }
    const visible = () => {
      clearTimeout(hiding)
      if (document.hidden) hiding = setTimeout(() => { abort.abort(); clearTimeout(timer); lost() }, 30_000)
      else if (abort.signal.aborted && !stopped) { tries = 0; run() }
    }
    document.addEventListener('visibilitychange', visible)
    run()
    return () => {
      stopped = true
      abort.abort()
      for (const t of [timer, hiding, watchdog]) clearTimeout(t)
      document.removeEventListener('visibilitychange', visible)
    }
  }, [newest])
  return { ...status, recent, subscribe }
}

// useTurns counts up when something of a kind has changed, or the entity with an ID, once per interval at most.
export function useTurns(feed: Feed, kinds: Kind[], interval: number, id?: string) {
  const [turn, setTurn] = useState(0)
  const names = kinds.join()
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined, last = 0
    const stop = feed.subscribe(changes => {
      if (changes && !changes.some(c => names.includes(c.kind) && (id === undefined || c.id === id))) return
      timer ??= setTimeout(() => { timer = undefined; last = Date.now(); setTurn(n => n + 1) }, Math.max(150, interval - (Date.now() - last)))
    })
    return () => { stop(); clearTimeout(timer) }
  }, [feed.subscribe, names, interval, id])
  return turn
}

// useThroughput holds the changes of deployments by minute, of the last hour. After the first time it reads what is new.
export function useThroughput(turn: number): { throughput?: Throughput, error?: ApiError } {
  const [state, setState] = useState<{ throughput?: Throughput, error?: ApiError }>({})
  const known = useRef<Throughput>(undefined)
  useEffect(() => {
    const abort = new AbortController()
    get<Throughput>(`/api/v1/throughput?${query({ after: known.current?.position })}`, abort.signal).then(next => {
      if (abort.signal.aborted) return
      known.current = known.current ? addMinutes(known.current, next) : next
      setState({ throughput: known.current })
    }, error => { if (!abort.signal.aborted) setState(old => ({ ...old, error })) })
    return () => abort.abort()
  }, [turn])
  return state
}

function addMinutes(old: Throughput, next: Throughput): Throughput {
  const all = new Map(old.minutes.map(m => [m.start, m]))
  for (const m of next.minutes) {
    const before = all.get(m.start)
    all.set(m.start, before ? { start: m.start, prepared: before.prepared + m.prepared, scheduled: before.scheduled + m.scheduled, others: before.others + m.others } : m)
  }
  return { position: next.position, complete: old.complete && next.complete, minutes: [...all.values()].sort((a, b) => a.start - b.start).slice(-120) }
}

// useCount has the numbers of all entities that the server has counted, and asks again while something may have changed since.
export function useCount(kind: Kind, parts: Record<string, string>, refresh: number): { count?: Count, error?: ApiError } {
  const { data: count, error } = usePolled<Count>(`/api/v1/${kind}/count?${query({ ...parts, whole: 'true', asOf: useMoment() })}`, refresh)
  return { count, error }
}

// useWall has the newest picture of all sites that the server has made.
export function useWall(parts: Record<string, string>, refresh: number): { wall?: Wall, error?: ApiError } {
  const { data: wall, error } = usePolled<Wall>(`/api/v1/wall?${query({ ...parts, asOf: useMoment() })}`, refresh)
  return { wall, error }
}

// useFleet has the numbers of everything that are exact now; undefined for those who may read a part, and in the past.
export function useFleet(refresh: number): Fleet | undefined {
  const { data } = usePolled<Fleet & { behind?: boolean, counting?: boolean }>(`/api/v1/fleet?${query({ asOf: useMoment() })}`, refresh)
  return data?.exact ? data : undefined
}

// useFleetDay has the numbers of the last day, as far as the server knows them, in steps; none in the past, and for those who may read a part.
export function useFleetDay(): FleetDay | undefined {
  const past = useMoment() !== ''
  const { data, reload } = useGet<FleetDay>(past ? null : '/api/v1/fleet/day')
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) reload() }, 60_000)
    return () => clearInterval(timer)
  }, [reload])
  return past ? undefined : data
}

// usePolled reads what the server makes in the background, and again while something may have changed since.
function usePolled<T extends { behind?: boolean, counting?: boolean }>(address: string, refresh: number): { data?: T, error?: ApiError } {
  const [state, setState] = useState<{ data?: T, error?: ApiError }>({})
  const again = useRef(() => {})
  useEffect(() => {
    const abort = new AbortController()
    let running = false, stale = false, tries = 0, timer: ReturnType<typeof setTimeout> | undefined, known: Tagged<T> | undefined
    const start = () => {
      if (running) { stale = true; return }
      running = true
      clearTimeout(timer)
      getTagged<T>(address, abort.signal, known?.tag ? known : undefined).then(read => {
        if (abort.signal.aborted) return
        tries = 0
        if (read !== known) setState({ data: read.data })
        known = read
        if (read.data.behind) timer = setTimeout(start, read.data.counting ? 500 : 2000)
      }, error => {
        if (abort.signal.aborted) return
        setState(old => ({ ...old, error }))
        if (transient(error)) timer = setTimeout(start, pause(tries++))
      }).finally(() => {
        running = false
        if (stale && !abort.signal.aborted) { stale = false; start() }
      })
    }
    again.current = start
    start()
    return () => { abort.abort(); clearTimeout(timer) }
  }, [address])
  useEffect(() => { if (refresh > 0) again.current() }, [refresh])
  return state
}
