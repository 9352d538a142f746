// The wall mode: one screen with the picture of all sites, which stays open.
import { useEffect, type ReactNode } from 'react'
import { useMoment, type Feed, type Me } from './api'
import { changeAddress, useTick } from './parts'
import { Slider } from './slider'
import { Failing, Numbers, PictureView, Recent, Running, useSeen } from './wall'

// WallMode is one screen without anything to scroll, for a wall.
export function WallMode({ feed, me, children }: { feed: Feed, me: Me, children: ReactNode }) {
  const seen = useSeen(feed)
  const moment = useMoment()
  useTick(1000)
  useEffect(() => {
    const leave = (e: globalThis.KeyboardEvent) => { if (e.key === 'Escape' && !document.fullscreenElement && (e.target as HTMLElement).tagName !== 'CANVAS') changeAddress({ wall: undefined }) }
    window.addEventListener('keydown', leave)
    return () => window.removeEventListener('keydown', leave)
  }, [])
  return <main id="main" tabIndex={-1} className="wallmode" data-live={feed.live && !moment} data-position={feed.position}>
    <header><h1>TKO</h1> <span className="muted">{me.instance}</span> <span className={feed.live && !moment ? 'live' : 'live off'} role="status">{moment ? `‖ as of ${moment}` : feed.live ? '● live' : `○ not live since ${new Date(feed.since).toLocaleTimeString()}`}</span>
      <time>{new Date().toISOString().slice(11, 19)} UTC</time>
      <button onClick={() => document.documentElement.requestFullscreen?.().catch(() => {})}>Full screen</button> <button onClick={() => changeAddress({ wall: undefined })}>Leave the wall</button></header>
    {children}
    <Numbers wall={seen.wall} known={seen.known} me={me} />
    <div className="wallgrid"><PictureView seen={seen} /><div className="side"><Failing wall={seen.wall} known={seen.known} />{!moment && <Running feed={feed} />}<Recent feed={feed} most={6} /></div></div>
    <Slider />
  </main>
}
