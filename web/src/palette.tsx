// The palette, Ctrl-K: opens a view, or an entity by the beginning of its ID.
import { useEffect, useRef, useState, type KeyboardEvent } from 'react'
import { get, query, type Entity, type Kind, type Page } from './api'
import { entityPath, navigate } from './parts'
import { savedViews, useShared } from './views'

interface Choice { text: string, kind: string, to: string }

const searched: Kind[] = ['site', 'template', 'rollout']
const most = 6 // of a kind
const savedKind = 'saved view' // it has a moment of its own, or none
const pattern = (text: string) => `${text.replace(/[\\*]/g, c => `\\${c}`)}**`

// find returns the entities whose IDs begin with a text. Deployments have no memorable IDs: they are found by the whole one.
async function find(text: string, signal: AbortSignal): Promise<Choice[]> {
  const pages = await Promise.all(searched.map(kind => get<Page>(`/api/v1/${kind}/list?${query({ id: pattern(text), limit: most })}`, signal).then(p => p.rows.map(r => ({ text: r.id, kind, to: entityPath(kind, r.id) })), () => [])))
  const deployment = /^[0-9A-Za-z]{27}$/.test(text) ? await get<Entity>(`/api/v1/deployment?${query({ id: text })}`, signal).then(e => [{ text: e.row.id, kind: 'deployment', to: entityPath('deployment', e.row.id) }], () => []) : []
  return [...pages.flat(), ...deployment]
}

export function Palette({ views, close }: { views: [string, string][], close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [text, setText] = useState('')
  const [found, setFound] = useState<Choice[]>([])
  const [at, setAt] = useState(0)
  const shared = useShared()
  useEffect(() => { dialog.current?.showModal() }, [])
  useEffect(() => {
    setAt(0)
    setFound([])
    const wanted = text.trim()
    if (!wanted) return
    const abort = new AbortController()
    const timer = setTimeout(() => find(wanted, abort.signal).then(all => { if (!abort.signal.aborted) setFound(all) }), 150)
    return () => { clearTimeout(timer); abort.abort() }
  }, [text])
  const matches = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase())
  const saved = savedViews()
  const matching = [...views.filter(([, name]) => matches(name)).map(([to, name]): Choice => ({ text: name, kind: 'view', to })), ...[...saved, ...shared.filter(v => !saved.some(o => o.name === v.name && o.to === v.to))].filter(v => matches(v.name)).map((v): Choice => ({ text: v.name, kind: savedKind, to: v.to }))]
  const all = [...matching, ...found]
  const open = (c?: Choice) => { if (c) { close(); navigate(c.to, false, c.kind === savedKind) } }
  const keys = (e: KeyboardEvent) => {
    const moves: Record<string, () => void> = { ArrowDown: () => setAt(Math.min(at + 1, all.length - 1)), ArrowUp: () => setAt(Math.max(at - 1, 0)), Enter: () => open(all[at]) }
    if (!moves[e.key]) return
    e.preventDefault()
    moves[e.key]()
  }
  return <dialog ref={dialog} className="palette" onCancel={e => { e.preventDefault(); close() }} aria-label="Go to">
    <input role="combobox" aria-label="View, or the beginning of an ID" aria-expanded={all.length > 0} aria-controls="choices" aria-activedescendant={all[at] ? `choice-${at}` : undefined} aria-autocomplete="list"
      placeholder="A view, or the beginning of an ID" autoFocus spellCheck={false} value={text} onChange={e => setText(e.target.value)} onKeyDown={keys} />
    <ul id="choices" role="listbox" aria-label="Choices">{all.map((c, i) => <li key={`${c.kind} ${c.text} ${c.to}`} id={`choice-${i}`} role="option" aria-selected={i === at} onClick={() => open(c)}><span className="muted">{c.kind}</span> {c.text}</li>)}</ul>
    {all.length === 0 && <p className="empty">Nothing begins so. Lists have filters for other searches.</p>}
  </dialog>
}
