// Packages and their differences, as text.
import { useMemo, useState, type ReactNode } from 'react'
import { origins, source, type Blame, type Origin } from './blame'

// Tokens of a line of YAML. The text is from packages and is never read as HTML.
function yamlLine(line: string): ReactNode {
  if (/^\s*#/.test(line)) return <span className="y-comment">{line}</span>
  const key = /^(\s*(?:- )*)([^\s:#][^:]*)(:)(\s.*)?$/.exec(line)
  if (!key) return line
  return <>{key[1]}<span className="y-key">{key[2]}</span>{key[3]}<span className="y-value">{key[4]}</span></>
}

export interface Resource { name: string, lines: string[], first: number }

export function resources(text: string): Resource[] {
  const all: Resource[] = []
  let lines: string[] = [], first = 1
  const end = (next: number) => {
    if (lines.some(l => l.trim())) {
      const kind = lines.find(l => l.startsWith('kind: '))?.slice(6) ?? 'Resource'
      const at = lines.findIndex(l => l.startsWith('metadata:'))
      const name = lines.slice(at + 1).find(l => /^ {2,}name: /.test(l))?.trim().slice(6) ?? ''
      all.push({ name: `${kind} ${name}`, lines, first })
    }
    lines = []
    first = next
  }
  text.replace(/\n$/, '').split('\n').forEach((line, i) => { if (line === '---') end(i + 2); else lines.push(line) })
  end(0)
  return all
}

// Yaml shows a package; with a blame, each line that another change has set than the line before is preceded by that change.
export function Yaml({ text, blame }: { text: string, blame?: Blame }) {
  const [search, setSearch] = useState('')
  const [open, setOpen] = useState<Record<number, boolean>>({})
  const all = useMemo(() => resources(text), [text])
  const from = useMemo(() => blame && origins(all.map(r => r.lines), blame), [all, blame])
  const hits = (r: Resource) => search ? r.lines.filter(l => l.toLowerCase().includes(search.toLowerCase())).length : 0
  const total = all.reduce((n, r) => n + hits(r), 0)
  if (!text) return <p className="empty">The package is empty.</p>
  return <div>
    <p className="bar"><label>Search in the package <input type="search" value={search} onChange={e => setSearch(e.target.value)} /></label> {search && <span aria-live="polite">{total} lines match</span>}
      <button onClick={() => setOpen(Object.fromEntries(all.map((_, i) => [i, true])))}>Unfold all</button> <button onClick={() => setOpen(Object.fromEntries(all.map((_, i) => [i, false])))}>Fold all</button></p>
    {all.map((r, i) => {
      const shown = open[i] ?? (all.length <= 20 || hits(r) > 0)
      return <section key={i} className="resource">
        <h3><button aria-expanded={shown} onClick={() => setOpen({ ...open, [i]: !shown })}>{shown ? '▾' : '▸'} {r.name}</button></h3>
        {shown && <pre tabIndex={0} aria-label={r.name}>{r.lines.slice(0, 5000).map((l, n) => <div key={n} className={search && l.toLowerCase().includes(search.toLowerCase()) ? 'hit' : undefined}>{from && <Blamed at={from[i][n]} before={n > 0 ? from[i][n - 1] : undefined} />}<span className="n" aria-hidden="true">{r.first + n}</span>{yamlLine(l)}</div>)}
          {r.lines.length > 5000 && <div>{r.lines.length - 5000} more lines: use the tko command to read them</div>}</pre>}
      </section>
    })}
  </div>
}

// Blamed is the change that has set a line, unless it has set the one before, too.
function Blamed({ at, before }: { at?: Origin, before?: Origin }) {
  const same = at && before && at.revision === before.revision && source(at) === source(before)
  const text = at && !same ? `r${at.revision} ${at.who || 'unknown'}, ${source(at)}` : ''
  return <span className="blame" title={at && `revision ${at.revision}, ${at.time}, ${at.who || 'unknown'}: ${source(at)}${at.why ? ` (${at.why})` : ''}`}>{text}</span>
}

export interface Pair { left?: string, right?: string, leftN?: number, rightN?: number, same: boolean }

// diff pairs the lines of two texts. Its cost is bounded: long different middles are paired in order.
export function diff(a: string[], b: string[]): Pair[] {
  let start = 0, end = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const same = (i: number, j: number): Pair => ({ left: a[i], right: b[j], leftN: i + 1, rightN: j + 1, same: true })
  const out: Pair[] = []
  for (let i = 0; i < start; i++) out.push(same(i, i))
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end)
  const gone: number[] = [], come: number[] = []
  const flush = () => {
    for (let k = 0; k < Math.max(gone.length, come.length); k++) {
      const i = gone[k], j = come[k]
      out.push({ left: i === undefined ? undefined : a[i], leftN: i === undefined ? undefined : i + 1, right: j === undefined ? undefined : b[j], rightN: j === undefined ? undefined : j + 1, same: false })
    }
    gone.length = come.length = 0
  }
  if (x.length * y.length <= 4_000_000) {
    const width = y.length + 1
    const table = new Uint32Array((x.length + 1) * width)
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) table[i * width + j] = x[i] === y[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1])
    let i = 0, j = 0
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) { flush(); out.push(same(start + i++, start + j++)) }
      else if (j >= y.length || i < x.length && table[(i + 1) * width + j] >= table[i * width + j + 1]) gone.push(start + i++)
      else come.push(start + j++)
    }
  } else {
    x.forEach((_, i) => gone.push(start + i))
    y.forEach((_, j) => come.push(start + j))
  }
  flush()
  for (let k = end; k > 0; k--) out.push(same(a.length - k, b.length - k))
  return out
}

// Hunks are the changed lines with three lines around them.
export function Diff({ from, to }: { from: string, to: string }) {
  const pairs = useMemo(() => diff(from.trimEnd().split('\n'), to.trimEnd().split('\n')), [from, to])
  const near = useMemo(() => {
    const keep = new Set<number>()
    pairs.forEach((p, i) => { if (!p.same) for (let k = i - 3; k <= i + 3; k++) keep.add(k) })
    return keep
  }, [pairs])
  if (!pairs.some(p => !p.same)) return <p className="empty">The two revisions have the same package.</p>
  return <div className="scroll" tabIndex={0} role="region" aria-label="Differences"><table className="diff"><tbody>
    {pairs.map((p, i) => near.has(i) ? <tr key={i} className={p.same ? undefined : 'changed'}>
      <td className="n">{p.leftN}</td><td className={p.same || p.left === undefined ? undefined : 'del'}>{!p.same && p.left !== undefined && <b>−</b>}{p.left}</td>
      <td className="n">{p.rightN}</td><td className={p.same || p.right === undefined ? undefined : 'add'}>{!p.same && p.right !== undefined && <b>+</b>}{p.right}</td>
    </tr> : near.has(i - 1) ? <tr key={i}><td colSpan={4} className="gap">⋯</td></tr> : null)}
  </tbody></table></div>
}
