// A graph: nodes in columns by their depth, or the same nodes as an indented list. What is open is in the address, so that a link shows
// the same. Only nodes that are drawn are given.
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { states, type State } from './api'
import { useNarrow } from './narrow'
import { changeAddress, here, Link, navigate, number, StateMark } from './parts'

export const maxNodes = 300 // that are drawn
const maxOpen = 60 // nodes
const nodeWidth = 200, nodeHeight = 62, columnGap = 28, rowGap = 8, lineHeight = 34, indent = 26

export type Numbers = Partial<Record<State, number>>

// A Part is the number of what a node stands for that is in a state, with the color of it.
export interface Part { word: string, n: number, color: string }

// An Item is a node.
export interface Item {
  key: string
  parent?: string // its key
  depth: number
  name: string
  label?: string // a longer name, for those who can't see where the node is
  id?: string // shown on demand
  about?: ReactNode // the second line
  state?: State
  parts?: Part[] // if what it stands for is known
  open?: boolean // undefined: nothing is below it
  drawn: number // below it, if it is open
  to?: string // its page
  link?: { to: string, text: string, label: string }
  more?: { key: string, drawn: number } // it stands for what else is below a node
}

export const partsOf = (of: Numbers): Part[] => states.filter(s => of[s]).map(s => ({ word: s, n: of[s]!, color: s }))
export const inWords = (of: Part[]) => of.map(p => `${number(p.n)} ${p.word}`).join(', ')

// An Opening is what is open: how many nodes are drawn below each.
export interface Opening {
  // drawn returns how many nodes are drawn below a node, which is not open if that is 0. By default a node on the way to what
  // fails is open.
  drawn: (key: string, onTheWay: boolean, usual: number) => number
  automatic: boolean // nothing was opened or closed by hand
  pin: (items: Item[]) => void // keeps what was opened automatically, although what fails may change
  change: (items: Item[], key: string, drawn: number) => boolean // false: too many are open
  reveal: (items: Item[], keys: [string, number][]) => boolean
  reset: () => void
}

const asMap = (items: Item[]) => new Map(items.filter(i => i.open).map(i => [i.key, i.drawn]))

export function useOpening(): Opening {
  const q = here(), explicit = q.has('open'), text = q.getAll('open').join('\n')
  const [pinned, setPinned] = useState<Map<string, number>>()
  const open = useMemo(() => explicit ? new Map(text.split('\n').filter(Boolean).slice(0, maxOpen).map((line): [string, number] => {
    const [n, ...key] = line.split(' ')
    return [key.join(' '), Math.min(maxNodes, Math.max(1, Number(n) || 1))]
  })) : pinned, [explicit, text, pinned])
  const write = (next: Map<string, number>) => {
    if (next.size > maxOpen) return false
    changeAddress({ open: next.size ? [...next].map(([key, n]) => `${n} ${key}`) : [''] })
    return true
  }
  return {
    drawn: (key, onTheWay, usual) => open ? open.get(key) ?? 0 : onTheWay ? usual : 0,
    automatic: !open,
    pin: items => setPinned(asMap(items)),
    change: (items, key, drawn) => {
      const next = asMap(items)
      if (drawn > 0) next.set(key, drawn); else next.delete(key)
      return write(next)
    },
    reveal: (items, keys) => write(new Map([...asMap(items), ...keys])),
    reset: () => { setPinned(undefined); changeAddress({ open: undefined, at: undefined }) },
  }
}

interface Place { x: number, y: number }

// place lays the nodes out: a column for each depth, and each node in the row of the first one below it. What is most urgent is first, so
// the way to it is the first row.
function place(items: Item[]): { at: Map<string, Place>, width: number, height: number } {
  const at = new Map<string, Place>()
  let row = 0, deepest = 0
  items.forEach((item, n) => {
    at.set(item.key, { x: item.depth * (nodeWidth + columnGap) + 4, y: row * (nodeHeight + rowGap) + 4 })
    deepest = Math.max(deepest, item.depth)
    if (items[n + 1]?.parent !== item.key) row++ // nothing is below it
  })
  return { at, width: deepest * (nodeWidth + columnGap) + nodeWidth + 8, height: row * (nodeHeight + rowGap) + 8 }
}

const longest = 20 // characters of a name in a node

// shortened leaves out the middle of a name: names of one group often begin the same.
const shortened = (name: string) => name.length <= longest ? name : `${name.slice(0, 8)}…${name.slice(9 - longest)}`

// Share is a bar with the share of each part. The text next to it has the same.
function Share({ of }: { of: Part[] }) {
  const all = of.reduce((n, p) => n + p.n, 0)
  let x = 0
  return <svg className="progress" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
    {of.map(p => { const width = 100 * p.n / all, from = x; x += width; return <rect key={p.word} x={from} y="0" width={width} height="8" className={p.color} /> })}
  </svg>
}

export const useView = (): 'graph' | 'list' => {
  const narrow = useNarrow(), view = here().get('view')
  return view === 'graph' || view === 'list' ? view : narrow ? 'list' : 'graph'
}

export interface Selected { at: string, select: (key: string) => void }

// useSelected is the selected node. The address has it a moment later: browsers limit how often it may change.
export function useSelected(usual: string): Selected {
  const [at, setAt] = useState(here().get('at') ?? '')
  useEffect(() => {
    if (!at || here().get('at') === at) return
    const timer = setTimeout(() => changeAddress({ at }), 400)
    return () => clearTimeout(timer)
  }, [at])
  return { at: at || usual, select: setAt }
}

// Graph draws nodes. The arrow keys move: right opens a node and goes to the first below it, left closes it and goes to the one above.
// Enter opens the page of a node, space opens and closes it, Escape goes to the first.
export function Graph({ items, label, opening, selected: { at, select }, full, children }: {
  items: Item[], label: string, opening: Opening, selected: Selected, full: () => void, children: (item: Item) => ReactNode
}) {
  const view = useView(), drawn = items.slice(0, maxNodes)
  const [zoom, setZoom] = useState(1)
  const scroller = useRef<HTMLDivElement>(null)
  const layout = useMemo(() => view === 'graph' ? place(drawn) : undefined, [items, view])
  const index = Math.max(0, drawn.findIndex(i => i.key === at)), chosen = drawn[index]
  const size = layout ?? { width: 560 + indent * Math.max(...drawn.map(i => i.depth)), height: drawn.length * lineHeight }
  const boxOf = (n: number): Place & { w: number, h: number } => layout ? { ...layout.at.get(drawn[n].key)!, w: nodeWidth, h: nodeHeight } : { x: 0, y: n * lineHeight, w: 400, h: lineHeight }
  const byKey = useMemo(() => new Map(drawn.map(i => [i.key, i])), [items])
  const open = (i: Item, n: number) => { if (!opening.change(items, i.key, n)) full() }
  const toggle = (i: Item) => { if (i.more) more(i); else if (i.open !== undefined && i.parent !== undefined) open(i, i.open ? 0 : i.drawn) }
  const more = (i: Item) => { if (!opening.change(items, i.more!.key, Math.min(maxNodes, i.more!.drawn))) full() }
  const enter = (i: Item) => i.more ? more(i) : i.to ? navigate(i.to) : toggle(i)
  // What is selected is moved into view, without moving the page.
  const whereabouts = `${view} ${chosen.key} ${zoom} ${layout ? `${boxOf(index).x} ${boxOf(index).y}` : index}`
  useEffect(() => {
    const e = scroller.current, box = boxOf(index)
    if (!e) return
    const into = (start: number, length: number, from: number, room: number) => start < from ? start - 12 : start + length > from + room ? start + length - room + 12 : from
    e.scrollTop = into(box.y * zoom, box.h * zoom, e.scrollTop, e.clientHeight)
    e.scrollLeft = into(box.x * zoom, box.w * zoom, e.scrollLeft, e.clientWidth)
  }, [whereabouts])
  const keys = (e: KeyboardEvent) => {
    const go = (i?: Item) => i && select(i.key)
    const step = (n: number) => {
      if (view === 'list') return go(drawn[index + n])
      const column = drawn.filter(i => i.depth === chosen.depth)
      go(column[column.indexOf(chosen) + n])
    }
    const moves: Record<string, () => void> = {
      ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => go(drawn[0]), End: () => go(drawn.at(-1)), Escape: () => go(drawn[0]),
      ArrowRight: () => chosen.open ? go(drawn.find(i => i.parent === chosen.key)) : chosen.open === false ? toggle(chosen) : undefined,
      ArrowLeft: () => chosen.open && chosen.parent !== undefined ? toggle(chosen) : go(byKey.get(chosen.parent ?? '')),
      Enter: () => enter(chosen), ' ': () => toggle(chosen),
      '+': () => setZoom(z => Math.min(2, z * 1.25)), '-': () => setZoom(z => Math.max(0.4, z / 1.25)), '0': () => setZoom(1),
    }
    if (e.ctrlKey || e.metaKey || e.altKey || !moves[e.key] || e.target !== e.currentTarget) return
    e.preventDefault()
    moves[e.key]()
  }
  const siblings = useMemo(() => { const n = new Map<string, number>(); for (const i of drawn) n.set(i.parent ?? '', (n.get(i.parent ?? '') ?? 0) + 1); return n }, [items])
  const position = useMemo(() => { const n = new Map<string, number>(), all = new Map<string, number>(); for (const i of drawn) { const p = (n.get(i.parent ?? '') ?? 0) + 1; n.set(i.parent ?? '', p); all.set(i.key, p) } return all }, [items])
  return <>
    <p className="bar graphtools">
      <button aria-pressed={view === 'graph'} onClick={() => changeAddress({ view: 'graph' })}>As a graph</button><button aria-pressed={view === 'list'} onClick={() => changeAddress({ view: 'list' })}>As a list</button>
      <button onClick={() => { select(''); opening.reset() }}>Open what fails</button>
      <button onClick={() => setZoom(z => Math.max(0.4, z / 1.25))} aria-label="Zoom out">−</button><button onClick={() => setZoom(1)}>{Math.round(zoom * 100)} %</button><button onClick={() => setZoom(z => Math.min(2, z * 1.25))} aria-label="Zoom in">+</button>
    </p>
    <div className="graphview">
      <div className={`scroll tree ${view}`} ref={scroller} tabIndex={0} role="tree" aria-label={label} aria-activedescendant={`node-${index}`} onKeyDown={keys}>
        <div style={{ width: size.width * zoom, height: size.height * zoom }}><div style={{ transform: `scale(${zoom})`, width: size.width }} className="zoomed">
          {layout && <svg className="edges" width={size.width} height={size.height} aria-hidden="true">
            {drawn.map(i => {
              const from = layout.at.get(i.parent ?? ''), to = layout.at.get(i.key)!
              if (!from || i.parent === undefined) return null
              const x1 = from.x + nodeWidth, y1 = from.y + nodeHeight / 2, y2 = to.y + nodeHeight / 2, middle = x1 + columnGap / 2
              return <path key={i.key} className={fails(i) ? 'failing' : undefined} d={`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${to.x} ${y2}`} />
            })}</svg>}
          {drawn.map((i, n) => {
            const box = boxOf(n), text = layout && i.name.length > longest ? <span title={i.name}><span aria-hidden="true">{shortened(i.name)}</span><span className="hidden">{i.name}</span></span> : i.name
            const button = i.open !== undefined && i.parent !== undefined && <button tabIndex={-1} className="plain" aria-label={`${i.open ? 'Close' : 'Open'} ${i.label ?? i.name}`} onClick={e => { e.stopPropagation(); toggle(i) }}>{i.open ? '▾' : '▸'}</button>
            const name = i.more ? <button tabIndex={-1} className="more" onClick={e => { e.stopPropagation(); more(i) }}>{i.name}</button> : i.to ? <Link to={i.to}>{text}</Link> : <span>{text}</span>
            const about = <>{i.state && <StateMark state={i.state} short={!!layout} />} <span className="muted about">{i.about}</span></>
            const link = i.link && <Link to={i.link.to} label={i.link.label} className="onward">{i.link.text}</Link>
            return <div key={i.key} id={`node-${n}`} role="treeitem" aria-level={i.depth + 1} aria-expanded={i.open} aria-selected={i.key === chosen.key} aria-setsize={siblings.get(i.parent ?? '')} aria-posinset={position.get(i.key)} data-key={i.key} title={i.id}
              className={`${layout ? 'node' : 'leaf'}${i.key === chosen.key ? ' at' : ''}${fails(i) ? ' fails' : ''}`} style={layout ? { left: box.x, top: box.y, width: nodeWidth, height: nodeHeight } : { paddingLeft: i.depth * indent }}
              onClick={() => select(i.key)} onDoubleClick={() => i.to && navigate(i.to)}>
              {layout ? <><span className="line name">{name}{button}</span><span className="line">{about}{link}</span>{i.parts && i.parts.length > 0 && <Share of={i.parts} />}</> : <>{button || <span className="plain" />}{name}{about}{link}</>}
            </div>
          })}
        </div></div>
      </div>
      <section className="chosen" aria-label="Selected node">{children(chosen)}</section>
    </div>
    <p className="muted">Arrow keys move, right opens, left closes, Enter goes to the page, Escape to the beginning.</p>
  </>
}

const fails = (i: Item) => i.state === 'failing' || !!i.parts?.some(p => p.color === 'failing')
