// The columns of lists.
import type { ReactNode } from 'react'
import type { Kind, Row } from './api'
import { Ago, StateMark } from './parts'

// Tail is a text of which the end is shown, if its column is too narrow: IDs begin alike.
const Tail = ({ children }: { children?: string }) => <span className="tail" title={children}><bdi>{children}</bdi></span>

export const columns: Record<Kind, { name: string, width: string, cell: (r: Row) => ReactNode }[]> = {
  deployment: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'Template', width: 'minmax(9rem, 1.2fr)', cell: r => r.template && <Tail>{r.template}</Tail> },
    { name: 'Site', width: 'minmax(8rem, 1fr)', cell: r => <Tail>{r.site}</Tail> },
    { name: 'Why', width: 'minmax(8rem, 2fr)', cell: r => r.state === 'healthy' ? '' : [r.reason, r.message].filter(Boolean).join(': ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
    { name: 'ID', width: 'minmax(7rem, 15rem)', cell: r => <code><Tail>{r.id}</Tail></code> },
  ],
  site: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Deployments', width: '7.6rem', cell: r => r.deploymentCount?.toLocaleString('en') },
    { name: 'Metadata', width: 'minmax(8rem, 1.5fr)', cell: r => Object.entries(r.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(' ') },
    { name: 'Why', width: 'minmax(8rem, 1.5fr)', cell: r => r.state === 'healthy' ? '' : [r.reason, r.message].filter(Boolean).join(': ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  template: [
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Deployments', width: '7.6rem', cell: r => r.deploymentCount?.toLocaleString('en') },
    { name: 'Metadata', width: 'minmax(8rem, 2fr)', cell: r => Object.entries(r.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(' ') },
    { name: 'Revision', width: '5rem', cell: r => r.revision },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  plugin: [
    { name: 'State', width: '7rem', cell: r => <StateMark state={r.state} /> },
    { name: 'Type', width: '7rem', cell: r => r.type },
    { name: 'Name', width: 'minmax(8rem, 1fr)', cell: r => r.name },
    { name: 'Executor', width: '7rem', cell: r => r.executor },
    { name: 'Triggers', width: 'minmax(9rem, 2fr)', cell: r => r.triggers?.map(t => `${t.group}/${t.version} ${t.kind}`).join(', ') },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
  rollout: [
    { name: 'State', width: '9rem', cell: r => <StateMark state={r.state} /> },
    { name: 'ID', width: 'minmax(9rem, 1.2fr)', cell: r => <code><Tail>{r.id}</Tail></code> },
    { name: 'Progress', width: '7rem', cell: r => r.reason },
    { name: 'Why', width: 'minmax(8rem, 2fr)', cell: r => r.message },
    { name: 'Changed', width: '6rem', cell: r => <Ago at={r.updatedTimestamp} /> },
  ],
}
