// Parts of the program that are read when they are shown, so that the first view needs little.
import { useEffect, useState, type ComponentType } from 'react'
import { ApiError } from './api'
import { Loading, Problem } from './parts'

const all: (() => Promise<unknown>)[] = []

// part returns a component whose program is read when it is shown for the first time, or before by readRest. If the server has it no
// longer, since it has another version now, the page says so.
export function part<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> & { read: () => Promise<unknown> } {
  let Loaded: ComponentType<P> | undefined, running: Promise<unknown> | undefined
  const read = () => running ??= load().then(component => { Loaded = component }, error => { running = undefined; throw error })
  all.push(read)
  return Object.assign(function Part(props: P) {
    const [, drawn] = useState(0)
    const [failed, setFailed] = useState(false)
    const shown = !!Loaded // it may be there when the effect runs, but isn't drawn then
    useEffect(() => {
      let gone = false
      if (!shown) read().then(() => { if (!gone) drawn(1) }, () => { if (!gone) setFailed(true) })
      return () => { gone = true }
    }, [])
    if (Loaded) return <Loaded {...props} />
    if (failed) return <Problem error={new ApiError(0, 'this part of the dashboard could not be read: the server does not respond, or has another version now. Load the page again.', '')} retry={() => location.reload()} />
    return <Loading />
  }, { read })
}

// readRest reads all parts, one after the other: then views open at once, and also after the server has got another version.
export async function readRest() {
  for (const read of all) await read().catch(() => {})
}
