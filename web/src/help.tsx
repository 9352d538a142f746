// The keys.
import { useEffect, useRef, useState } from 'react'

export function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [keys, setKeys] = useState(localStorage.getItem('tko-keys') !== 'off')
  useEffect(() => { dialog.current?.showModal() }, [])
  return <dialog ref={dialog} onCancel={e => { e.preventDefault(); close() }} aria-labelledby="help-title"><h2 id="help-title">Keys</h2>
    <dl>{[['g o, g d, g s, g t, g p, g r, g m, g c', 'overview, deployments, sites, templates, plugins, rollouts, matrix, changes'], ['Ctrl-K', 'go to a view, or to a site, template, rollout or deployment by its ID'], ['/', 'filter'], ['n', 'next site that fails, in the picture of the overview'], ['j k, arrows', 'move'], ['Page up, Page down, Home, End', 'move further'], ['Enter', 'open'], ['Space, x', 'mark'], ['y, d', 'package, history'], ['A, D', 'approve, delete: both ask'], ['Esc', 'clear marks, close'], ['?', 'this help']].map(([k, text]) => <div key={k}><dt><kbd>{k}</kbd></dt><dd>{text}</dd></div>)}</dl>
    <p><label><input type="checkbox" checked={keys} onChange={e => { setKeys(e.target.checked); localStorage.setItem('tko-keys', e.target.checked ? 'on' : 'off') }} /> Keys of a single letter outside of lists</label></p>
    <p className="actions"><button autoFocus onClick={close}>Close</button></p></dialog>
}
