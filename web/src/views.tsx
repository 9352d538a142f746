// Saved views: names for addresses, which say what a view shows. They are kept in this browser; their links work in any.
import { useEffect, useRef, useState } from 'react'
import { CopyText, Link } from './parts'

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

export function Views({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [views, setViews] = useState(savedViews)
  const [wrong, setWrong] = useState('')
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
    <form className="bar" onSubmit={e => { e.preventDefault(); save(String(new FormData(e.currentTarget).get('name')).trim()); e.currentTarget.reset() }}>
      <label>Save it as <input name="name" maxLength={60} required autoComplete="off" /></label> <button className="primary">Save</button></form>
    {wrong && <p className="wrong" role="alert">{wrong}</p>}
    {views.length > 0 ? <ul className="views" aria-label="Saved views">{views.map(v => <li key={v.name}><span onClick={close}><Link to={v.to} now>{v.name}</Link></span> <CopyText text={location.origin + v.to} label="Copy link" /> <button onClick={() => write(views.filter(o => o !== v))} aria-label={`Remove ${v.name}`}>Remove</button></li>)}</ul>
      : <p className="empty">No view is saved in this browser yet.</p>}
    <p className="actions"><button autoFocus onClick={close}>Close</button></p></dialog>
}
