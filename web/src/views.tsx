// Saved views: names for addresses, which say what a view shows. They are kept in this browser, or on the server for all.
import { useEffect, useRef, useState } from 'react'
import { changeView, useGet } from './api'
import { Ago, CopyText, Link } from './parts'
import type { Views as Shared } from './schema'

const store = 'tko-views'
const most = 30

export interface SavedView { name: string, to: string }

// savedViews reads the views. What another version or program has written there is left out.
export function savedViews(): SavedView[] {
  try {
    const all: unknown = JSON.parse(localStorage.getItem(store) ?? '[]')
    return Array.isArray(all) ? all.filter((v): v is SavedView => typeof v?.name === 'string' && typeof v.to === 'string' && /^\/(?!\/)/.test(v.to)).slice(0, most) : []
  } catch { return [] }
}

// ours reports whether an address is one of this dashboard: what the server sends is checked here, too.
const ours = (to: string) => /^\/(?![/\\])/.test(to)

// useShared reads the views that all share; none from a server of an earlier version.
export function useShared(): SavedView[] {
  const { data } = useGet<Shared>('/api/v1/views')
  return (data?.views ?? []).filter(v => ours(v.address)).map(v => ({ name: v.name, to: v.address }))
}

// SharedViews are the views that all share, and what may be done with them.
function SharedViews({ all, failed, close, change }: { all?: Shared, failed?: string, close: () => void, change: (body: object) => void }) {
  if (!all) return failed ? <p className="wrong" role="alert">{failed}</p> : <p className="empty">Loading…</p>
  if (all.views.length === 0) return <p className="empty">No view is saved for all yet.</p>
  return <ul className="views" aria-label="Views of all">{all.views.map(v => <li key={v.name}>
    {ours(v.address) ? <span onClick={close}><Link to={v.address} now>{v.name}</Link></span> : v.name} <span className="muted">{[v.description, v.declaredBy ? `of the source ${v.declaredBy}` : v.savedBy && `by ${v.savedBy}`].filter(Boolean).join(', ')}{v.updated ? <> <Ago at={v.updated} /></> : null}</span>{' '}
    <CopyText text={location.origin + v.address} label="Copy link" />{all.save && !v.declaredBy && <> <button onClick={() => change({ name: v.name, delete: true })} aria-label={`Remove ${v.name} for all`}>Remove</button></>}
    {v.problem && <p className="why failing">{v.problem}</p>}</li>)}</ul>
}

export function Views({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [views, setViews] = useState(savedViews)
  const [wrong, setWrong] = useState('')
  const { data: read, error } = useGet<Shared>('/api/v1/views')
  const [changed, setChanged] = useState<Shared>()
  const shared = changed ?? read
  const change = (body: object) => changeView(body).then(all => { setWrong(''); setChanged(all) }, (e: Error) => setWrong(e.message))
  const to = location.pathname + location.search
  useEffect(() => { dialog.current?.showModal() }, [])
  const write = (next: SavedView[]) => {
    try { localStorage.setItem(store, JSON.stringify(next)) } catch { setWrong('The browser keeps no data for this site: use the link.'); return }
    setWrong('')
    setViews(next)
  }
  const save = (name: string) => {
    if (!name) return
    const others = views.filter(v => v.name !== name)
    if (others.length >= most) { setWrong(`There are ${most} views, which is the most: remove one first.`); return }
    write([...others, { name, to }].sort((a, b) => a.name.localeCompare(b.name)))
  }
  return <dialog ref={dialog} onCancel={e => { e.preventDefault(); close() }} aria-labelledby="views-title">
    <h2 id="views-title">Views</h2>
    <p>The address of this view has its filter, columns, grouping, what is open, and the moment: its link shows the same to others. <CopyText text={location.origin + to} label="Copy link" /></p>
    <form className="bar" onSubmit={e => { e.preventDefault(); const data = new FormData(e.currentTarget), name = String(data.get('name')).trim(); if (data.get('all')) change({ name, address: to }); else save(name); e.currentTarget.reset() }}>
      <label>Save it as <input name="name" maxLength={60} required autoComplete="off" /></label> {shared?.save && <label><input type="checkbox" name="all" /> for all</label>} <button className="primary">Save</button></form>
    {wrong && <p className="wrong" role="alert">{wrong}</p>}
    <h3>For all</h3>
    <SharedViews all={shared} failed={error?.message} close={close} change={change} />
    <h3>In this browser</h3>
    {views.length > 0 ? <ul className="views" aria-label="Saved views">{views.map(v => <li key={v.name}><span onClick={close}><Link to={v.to} now>{v.name}</Link></span> <CopyText text={location.origin + v.to} label="Copy link" /> <button onClick={() => write(views.filter(o => o !== v))} aria-label={`Remove ${v.name}`}>Remove</button></li>)}</ul>
      : <p className="empty">No view is saved in this browser yet.</p>}
    <p className="actions"><button autoFocus onClick={close}>Close</button></p></dialog>
}
