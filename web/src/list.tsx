// Lists: pages of rows around the visible part, filters in the address, marks and actions.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { useVirtualizer } from '@tanstack/react-virtual'
import { ApiError, get, query, useMoment, type Feed, type Kind, type Me, type Page, type Row } from './api'
import { pageOf } from './early'
import { command, format, parse, quote } from './filter'
import { useNarrow } from './narrow'
import { CopyCommand, entityPath, here, Loading, navigate, Problem } from './parts'
import { columns } from './columns'
import { Confirm, type Plan } from './confirm'

const maxPages = 20 // that are held at once
const rowHeight = 32
const cardHeight = 84 // of a row on a phone

interface Loaded { after: string, rows: Row[], next?: string }

// usePages holds a window of pages. Cursors of all pages before it are kept, so that it can move back.
function usePages(kind: Kind, filter: string, feed: Feed) {
  const [pages, setPages] = useState<Loaded[]>([])
  const [error, setError] = useState<ApiError>()
  const [elsewhere, setElsewhere] = useState(0)
  const [busy, setBusy] = useState(true)
  const asOf = useMoment()
  const before = useRef<string[]>([])
  const current = useRef<Loaded[]>([])
  const turn = useRef(0)
  const loading = useRef(false)
  const set = (next: Loaded[]) => { current.current = next; setPages(next) }
  const read = useCallback((after: string) => get<Page>(pageOf(kind, filter, asOf, after)).then((p): Loaded => ({ after, rows: p.rows, next: p.next })), [kind, filter, asOf])
  const start = useCallback(async () => {
    const mine = ++turn.current
    setError(undefined)
    setElsewhere(0)
    before.current = []
    loading.current = true
    setBusy(true)
    try {
      let page = await read('')
      // A page of a filter by state may be empty and have a next one.
      for (let tries = 0; page.rows.length === 0 && page.next && tries < 20 && mine === turn.current; tries++) page = await read(page.next)
      if (mine === turn.current) set([page])
    } catch (e) { if (mine === turn.current) setError(e as ApiError) }
    if (mine === turn.current) { loading.current = false; setBusy(false) }
  }, [read])
  useEffect(() => { set([]); start() }, [start])
  const down = useCallback(async () => {
    const last = current.current.at(-1)
    if (loading.current || !last?.next) return
    const mine = turn.current
    loading.current = true
    try {
      const page = await read(last.next)
      if (mine !== turn.current) return
      const next = [...current.current, page]
      if (next.length > maxPages) before.current.push(next.shift()!.after)
      set(next)
      setError(undefined)
    } catch (e) { setError(e as ApiError) } finally { if (mine === turn.current) loading.current = false }
  }, [read])
  const up = useCallback(async () => {
    if (loading.current || before.current.length === 0) return
    const mine = turn.current
    loading.current = true
    try {
      const page = await read(before.current.at(-1)!)
      if (mine !== turn.current) return
      before.current.pop()
      set([page, ...current.current].slice(0, maxPages))
    } catch (e) { setError(e as ApiError) } finally { if (mine === turn.current) loading.current = false }
  }, [read])
  // Changes: pages that have a changed row are read again, twice a second at most.
  useEffect(() => {
    const ids = new Set<string>()
    let all = false, timer: ReturnType<typeof setTimeout> | undefined, gone = false
    const refresh = async () => {
      timer = undefined
      const changed = new Set(ids), everything = all, mine = turn.current
      ids.clear()
      all = false
      let chained = false
      let next = [...current.current]
      for (let i = 0; i < next.length; i++) {
        const rows = next[i].rows
        const hit = everything || chained || rows.some(r => changed.delete(r.id))
        const end = i === next.length - 1 && !next[i].next && changed.size > 0
        chained = false
        if (!hit && !end) continue
        if (loading.current) { changed.forEach(id => ids.add(id)); rows.forEach(r => ids.add(r.id)); timer ??= setTimeout(refresh, 300); return }
        try {
          const page = await read(next[i].after)
          if (gone || mine !== turn.current) return
          next = [...current.current]
          if (!next[i] || next[i].after !== page.after) return
          if (end) page.rows.forEach(r => changed.delete(r.id))
          if (next[i + 1] && page.next && next[i + 1].after !== page.next) { next[i + 1] = { ...next[i + 1], after: page.next }; chained = true }
          if (next[i + 1] && !page.next) next.length = i + 1
          next[i] = page
          set(next)
        } catch (e) { setError(e as ApiError); return }
      }
      if (changed.size > 0 && next.at(-1)?.next) setElsewhere(n => n + changed.size)
    }
    const stop = feed.subscribe(changes => {
      if (!changes) all = true
      changes?.forEach(c => { if (c.kind === kind) ids.add(c.id) })
      if ((all || ids.size > 0) && !timer) timer = setTimeout(refresh, 150)
    })
    return () => { gone = true; stop(); clearTimeout(timer) }
  }, [feed.subscribe, read, kind])
  return { pages, error, busy, elsewhere, start, down, up, atStart: before.current.length === 0 }
}

const maxColumns = 12

// chip is the text of a filter that the filter line doesn't have: a state, a reason, or a group, such as those without a key of metadata.
function chip(word: string, value: string): string {
  if (word !== 'within') return `${word}: ${value}`
  const [name, group = ''] = value.split(/=(.*)/s), what = name.replace(/^site-metadata\.(.*)/s, '$1 at the site').replace(/^metadata\./, '')
  return group ? `${what}: ${group}` : `without ${what}`
}

export function List({ kind, filter, feed, me, embedded }: { kind: Kind, filter: string, feed: Feed, me: Me, embedded?: boolean }) {
  const moment = useMoment()
  const { pages, error, busy, elsewhere, start, down, up, atStart } = usePages(kind, filter, feed)
  const rows = useMemo(() => { const seen = new Set<string>(); return pages.flatMap(p => p.rows).filter(r => !seen.has(r.id) && seen.add(r.id)) }, [pages])
  const more = !!pages.at(-1)?.next
  const cards = useNarrow()
  const height = cards ? cardHeight : rowHeight
  const scroller = useRef<HTMLDivElement>(null)
  const input = useRef<HTMLInputElement>(null)
  const [at, setAt] = useState(0)
  const [marked, setMarked] = useState<Set<string>>(new Set())
  const [matching, setMatching] = useState(false)
  const [plan, setPlan] = useState<Plan>()
  const words = new URLSearchParams(filter)
  const derived = ['state', 'reason', 'within'].flatMap(w => words.getAll(w).map((v): [string, string] => [w, v]))
  for (const [w] of derived) words.delete(w)
  const plain = words.toString()
  const [line, setLine] = useState(format(plain))
  const [wrong, setWrong] = useState('')
  useEffect(() => { setLine(format(plain)); setWrong(''); setMarked(new Set()); setMatching(false); setAt(0) }, [plain, kind])
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 12 })
  useEffect(() => virtual.measure(), [height])
  const items = virtual.getVirtualItems()
  const first = items[0]?.index ?? 0, last = items.at(-1)?.index ?? 0
  // The first visible row stays where it is when pages are put before it or dropped, or rows are new.
  const anchor = useRef<{ id: string, index: number } | undefined>(undefined)
  const remember = () => {
    const index = Math.min(rows.length - 1, Math.floor((scroller.current?.scrollTop ?? 0) / height))
    anchor.current = rows[index] && { id: rows[index].id, index }
  }
  useLayoutEffect(() => {
    const old = anchor.current
    const index = old ? rows.findIndex(r => r.id === old.id) : -1
    if (scroller.current && old && index >= 0 && index !== old.index) {
      scroller.current.scrollTop += (index - old.index) * height
      setAt(i => Math.max(0, i + index - old.index))
    }
    remember()
  }, [rows])
  // What is visible is read from the element: the virtualizer knows of a new position only after an event.
  const reach = () => {
    const view = scroller.current
    if (!view || rows.length === 0) return
    if ((view.scrollTop + view.clientHeight) / height > rows.length - 40 && more) down()
    else if (view.scrollTop / height < 20 && !atStart) up()
  }
  useEffect(reach, [first, last, rows, more, atStart, down, up])
  const can = me.can[kind] ?? []
  const cols = embedded ? [] : (here().get('cols') ?? '').split(',').filter(Boolean).slice(0, maxColumns)
  const shown = [...columns[kind], ...cols.map(key => ({ name: key, width: 'minmax(6rem, 1fr)', cell: (r: Row): ReactNode => r.metadata?.[key] }))]
  const keysOf = useMemo(() => [...new Set(rows.flatMap(r => Object.keys(r.metadata ?? {})))].sort().slice(0, 40), [rows])
  const open = (q: URLSearchParams, of = cols) => navigate(`/${kind}s${q.size || of.length ? `?${query({ cols: of.join() || undefined }, q.toString())}` : ''}`)
  const showColumn = (key: string, on: boolean) => open(new URLSearchParams(filter), on ? [...cols, key].slice(0, maxColumns) : cols.filter(c => c !== key))
  const wide = cols.length > 0 && !cards ? { minWidth: `${54 + 7 * cols.length}rem` } : undefined
  const grid = cards ? undefined : { ...wide, gridTemplateColumns: `2rem ${shown.map(c => c.width).join(' ')}` }
  const submit = () => {
    const parsed = parse(kind, line)
    if (parsed.error) { setWrong(parsed.error); return }
    const q = new URLSearchParams(parsed.query)
    for (const [k, v] of derived) q.append(k, v)
    open(q)
  }
  const without = (word: string, value: string) => { const q = new URLSearchParams(filter); q.delete(word, value); open(q) }
  const mark = (id: string) => { setMatching(false); setMarked(old => { const next = new Set(old); if (!next.delete(id) && next.size < 500) next.add(id); return next }) }
  const ask = (verb: Plan['verb']) => {
    if (!can.includes(verb)) return
    const title = verb === 'approve' ? 'Approve' : 'Delete'
    if (matching) setPlan({ verb, kind, filter: plain, title: `${title} all ${kind}s that match ${format(plain)}` })
    else if (marked.size > 0) setPlan({ verb, kind, ids: [...marked], title: `${title} ${marked.size} marked` })
    else if (rows[at]) setPlan({ verb, kind, ids: [rows[at].id], title: `${title} ${rows[at].id}` })
  }
  const go = (i: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, i))
    setAt(next)
    virtual.scrollToIndex(next)
  }
  const keys = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return
    const visible = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 400) / height) - 2)
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(at + 1), j: () => go(at + 1), ArrowUp: () => go(at - 1), k: () => go(at - 1), PageDown: () => go(at + visible), PageUp: () => go(at - visible),
      Home: () => go(0), End: () => go(rows.length - 1), Enter: () => rows[at] && navigate(entityPath(kind, rows[at].id)),
      ' ': () => rows[at] && mark(rows[at].id), x: () => rows[at] && mark(rows[at].id), A: () => ask('approve'), D: () => ask('delete'),
      y: () => rows[at] && navigate(entityPath(kind, rows[at].id, 'package')), d: () => rows[at] && navigate(entityPath(kind, rows[at].id, 'history')), Escape: () => { setMarked(new Set()); setMatching(false) },
    }
    const move = moves[e.key]
    if (!move) return
    e.preventDefault()
    move()
  }
  const done = (result?: { count: number }) => { setPlan(undefined); if (result) { setMarked(new Set()); setMatching(false) } }
  // The list has the focus again as soon as the dialog is gone: the next key is not lost.
  const asked = useRef(false)
  useLayoutEffect(() => { if (!plan && asked.current) scroller.current?.focus(); asked.current = !!plan }, [plan])
  const count = matching ? 'All that match' : marked.size > 0 ? `${marked.size} marked` : ''
  return <div className={embedded ? 'list embedded' : 'list'}>
    {!embedded && <form role="search" onSubmit={e => { e.preventDefault(); submit() }}>
      <label>Filter <input ref={input} id="filter" value={line} onChange={e => setLine(e.target.value)} placeholder={kind === 'deployment' ? 'template-id=workload/** site-metadata=region=north' : kind === 'plugin' ? 'type=schedule' : 'id=north/** metadata=region=north'} spellCheck={false} aria-invalid={!!wrong} aria-describedby={wrong ? 'filter-error' : undefined} /></label>
      <button>Apply</button>
      {derived.map(([w, v]) => { const text = chip(w, v); return <button type="button" key={`${w} ${v}`} className="chip" onClick={() => without(w, v)} aria-label={`Remove the filter ${text.replace(':', '')}`}>{text} ✕</button> })}
      {wrong && <span id="filter-error" className="wrong" role="alert">{wrong}</span>}
      {kind !== 'plugin' && <details className="columns"><summary>Columns{cols.length > 0 && ` (${cols.length})`}</summary><fieldset><legend>Metadata as columns</legend>
        {[...new Set([...cols, ...keysOf])].map(key => <label key={key}><input type="checkbox" checked={cols.includes(key)} disabled={!cols.includes(key) && cols.length >= maxColumns} onChange={e => showColumn(key, e.target.checked)} /> {key}</label>)}
        {keysOf.length + cols.length === 0 && <span className="muted">The rows have no metadata.</span>}</fieldset></details>}
    </form>}
    <div className="bar">
      <span aria-live="polite">{count || (rows.length > 0 || !busy ? `${more ? 'At least ' : ''}${rows.length.toLocaleString('en')} ${atStart ? '' : 'more '}${kind}${rows.length === 1 ? '' : 's'}${more ? ', more below' : ''}` : '')}</span>
      {marked.size > 0 && !matching && plain && derived.length === 0 && can.includes('purge') && kind !== 'rollout' && <button onClick={() => setMatching(true)}>Select all that match</button>}
      {count && can.includes('approve') && <button className="primary" onClick={() => ask('approve')}>Approve…</button>}
      {count && can.includes('delete') && <button className="danger" onClick={() => ask('delete')}>Delete…</button>}
      {count && <button onClick={() => { setMarked(new Set()); setMatching(false) }}>Clear</button>}
      {elsewhere > 0 && <button className="pill" onClick={start}>{elsewhere.toLocaleString('en')} changed elsewhere: read again</button>}
    </div>
    {error && <Problem error={error} retry={start} />}
    {rows.length === 0 && !error && <div className={busy || !embedded ? 'room' : undefined}>{busy ? <Loading /> : <p className="empty">No {kind} matches{filter ? <>. Remove a filter, or <button onClick={() => navigate(`/${kind}s`)}>show all</button></> : ': there is none yet, or you may see none'}.</p>}</div>}
    {rows.length > 0 && <div className="grid" role="grid" aria-label={`${kind}s`} aria-rowcount={more || !atStart ? -1 : rows.length + 1} tabIndex={0} ref={scroller} onKeyDown={keys} onScroll={() => { remember(); reach() }} aria-activedescendant={items.some(i => i.index === at) ? `row-${at}` : undefined}>
      <div role="row" className="head" style={grid}><span role="columnheader"><span className="hidden">Marked</span></span>{shown.map(c => <span role="columnheader" key={c.name} {...c.name === 'ID' && { 'aria-sort': 'ascending', title: 'Rows are in the order of IDs, as the server reads them in pages. Filter to find others.' }}>{c.name}</span>)}</div>
      <div role="rowgroup" className="body" style={{ height: virtual.getTotalSize(), ...wide }}>
        {items.map(item => {
          const row = rows[item.index]
          return <div role="row" id={`row-${item.index}`} key={row.id} data-id={row.id} className={`row${item.index === at ? ' at' : ''}${marked.has(row.id) || matching ? ' marked' : ''}`} aria-selected={marked.has(row.id) || matching} style={{ ...grid, transform: `translateY(${item.start}px)` }}
            onClick={() => { setAt(item.index) }} onDoubleClick={() => navigate(entityPath(kind, row.id))}>
            <span role="gridcell" className="mark"><input type="checkbox" tabIndex={-1} checked={marked.has(row.id) || matching} aria-label={`Mark ${row.id}`} onChange={() => mark(row.id)} /></span>
            {shown.map((c, n) => <span role="gridcell" key={c.name} data-label={c.name}>{n === 1 || (kind === 'template' && n === 0)
              ? <a tabIndex={-1} href={entityPath(kind, row.id)} onClick={e => { if (e.button === 0 && !e.ctrlKey && !e.metaKey && !e.shiftKey) { e.preventDefault(); navigate(entityPath(kind, row.id)) } }}>{c.cell(row) || row.id}</a>
              : c.cell(row)}</span>)}
          </div>
        })}
      </div>
    </div>}
    {!embedded && derived.length === 0 && <CopyCommand text={command(kind, plain) + (moment ? ` --as-of ${quote(moment)}` : '')} />}
    {plan && <Confirm plan={plan} close={done} />}
  </div>
}
