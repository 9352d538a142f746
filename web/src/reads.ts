// Reads of several addresses at once, of which some are no longer wanted when others are.
import { useCallback, useEffect, useRef, useState } from 'react'
import { get, pause, query, transient, type ApiError } from './api'

const maxShortPages = 20 // that follow a page with less than the rows that it could have

export interface Read { data?: unknown, error?: ApiError }

interface Running { abort: AbortController, turn: number, busy: boolean, again: boolean, tries: number, timer?: ReturnType<typeof setTimeout> }

// A Page is that of a list of entities, or of the rows of a plan.
interface Page { rows: { id?: string, deployment?: string }[], next?: string }

// whole reads an address; of a list as many rows as its limit: a page of a filter that no index serves may have fewer, and a next one.
async function whole(address: string, signal: AbortSignal): Promise<{ behind?: boolean, counting?: boolean }> {
  const data = await get<Page | { behind?: boolean }>(address, signal)
  if (!('rows' in data)) return data
  const limit = Number(new URLSearchParams(address.split('?')[1]).get('limit'))
  for (let pages = 0; data.next && data.rows.length < limit && pages < maxShortPages; pages++) {
    const page = await get<Page>(`${address}&${query({ after: data.next })}`, signal)
    data.rows.push(...page.rows)
    data.next = page.next
  }
  if (data.rows.length > limit) { data.rows.length = limit; const last = data.rows[limit - 1]; data.next = last.id ?? last.deployment }
  return data as object
}

// useReads returns what is known of addresses, and a function that says which are wanted. They are read again with each turn, and while
// the server counts.
export function useReads(turn: number): { known: Record<string, Read>, want: (addresses: string[]) => void } {
  const [known, setKnown] = useState<Record<string, Read>>({})
  const running = useRef(new Map<string, Running>())
  const turned = useRef(turn)
  turned.current = turn
  const start = useCallback((address: string) => {
    const all = running.current
    const mine: Running = all.get(address) ?? { abort: new AbortController(), turn: 0, busy: false, again: false, tries: 0 }
    all.set(address, mine)
    mine.turn = turned.current
    clearTimeout(mine.timer)
    if (mine.busy) { mine.again = true; return }
    mine.busy = true
    const { signal } = mine.abort
    whole(address, signal).then(data => {
      if (signal.aborted) return
      mine.tries = 0
      setKnown(old => ({ ...old, [address]: { data } }))
      if (data.behind) mine.timer = setTimeout(() => start(address), data.counting ? 100 : 2000) // a request waits for a count itself, for a moment
    }, error => {
      if (signal.aborted) return
      setKnown(old => ({ ...old, [address]: { ...old[address], error } }))
      if (transient(error)) mine.timer = setTimeout(() => start(address), pause(mine.tries++))
    }).finally(() => {
      mine.busy = false
      if (mine.again && !signal.aborted) { mine.again = false; start(address) }
    })
  }, [])
  const want = useCallback((addresses: string[]) => {
    const all = running.current, wanted = new Set(addresses)
    let gone = false
    for (const [address, r] of all) if (!wanted.has(address)) { r.abort.abort(); clearTimeout(r.timer); all.delete(address); gone = true }
    if (gone) setKnown(old => Object.fromEntries(Object.entries(old).filter(([a]) => wanted.has(a))))
    for (const address of wanted) if (all.get(address)?.turn !== turned.current) start(address)
  }, [start])
  useEffect(() => () => { for (const r of running.current.values()) { r.abort.abort(); clearTimeout(r.timer) } running.current.clear() }, [])
  return { known, want }
}
