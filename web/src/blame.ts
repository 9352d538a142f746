// Where each line of a package comes from: the fields of a blame, beside the lines of the YAML that TKO writes.
export interface Origin { source: string, revision: number, time: string, who: string, why: string, template?: string, templateRevision?: number, resource?: string, plugin?: string, rollout?: string, restoredBy?: string, restoredAt?: number, collected?: boolean }
export interface Blame { revision: number, fields?: { resource: string, path: string, value?: string, hidden?: boolean, origin: Origin }[] }

const step = (key: string) => /^\d+$/.test(key) ? `[${key}]` : /^[\w-]+$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`

// normal writes each element of a list with keys as [].
const normal = (path: string) => {
  const text = path.replaceAll(/\["(?:[^"\\]|\\.)*"\]|\[\d+\]|\[[^\]]*\]/g, part => /^\[("|\d+\])/.test(part) && !part.includes('=') ? part : '[]')
  return text.startsWith('[') || text === '' ? text : `.${text}`
}

const unquote = (key: string) => { if (!key.startsWith('"')) return key.startsWith("'") ? key.slice(1, -1).replaceAll("''", "'") : key; try { return JSON.parse(key) as string } catch { return key } }

// origins returns the origin of each line of the resources of a package, in their order. Lines that hold no value have none.
export function origins(resources: string[][], blame: Blame): (Origin | undefined)[][] | undefined {
  const byResource = new Map<string, Map<string, Origin[]>>()
  for (const f of blame.fields ?? []) {
    const paths = byResource.get(f.resource) ?? byResource.set(f.resource, new Map()).get(f.resource)!
    const path = normal(f.path)
    paths.set(path, [...paths.get(path) ?? [], f.origin])
  }
  if (byResource.size !== resources.length) return undefined
  return [...byResource.values()].map((paths, i) => linesOf(resources[i], paths))
}

function linesOf(lines: string[], paths: Map<string, Origin[]>): (Origin | undefined)[] {
  const stack: { indent: number, path: string, origin?: Origin }[] = []
  let text = -1 // the indentation of the key of a text in several lines
  const take = (path: string) => paths.get(path)?.shift()
  return lines.map(line => {
    const indent = line.search(/\S/)
    if (text >= 0 && (indent < 0 || indent > text)) return stack.at(-1)?.origin
    text = -1
    let at = Math.max(indent, 0)
    const drop = () => { while (stack.length && stack.at(-1)!.indent >= at) stack.pop() }
    for (; /^-( |$)/.test(line.slice(at)); at += 2) {
      while (stack.length && (stack.at(-1)!.indent > at || stack.at(-1)!.indent === at && stack.at(-1)!.path.endsWith('[]'))) stack.pop()
      const path = `${stack.at(-1)?.path ?? ''}[]`
      stack.push({ indent: at, path, origin: take(path) ?? stack.at(-1)?.origin })
    }
    const key = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#][^:]*?):(?: (.*))?$/.exec(line.slice(at))
    if (!key) return stack.at(-1)?.origin
    drop()
    const path = `${stack.at(-1)?.path ?? ''}${step(unquote(key[1]))}`
    stack.push({ indent: at, path, origin: take(path) ?? stack.at(-1)?.origin })
    if (/^[|>]/.test(key[2] ?? '')) text = at
    return stack.at(-1)!.origin
  })
}

// source describes an origin in words.
export function source(o: Origin): string {
  const text = o.source === 'template' ? `template ${o.template}, revision ${o.templateRevision}` : o.source === 'merge' ? 'merged at the creation' : o.source === 'preparation' ? (o.plugin ? `plugin ${o.plugin}` : 'preparation by TKO')
    : o.source === 'rollout' ? `rollout ${o.rollout}` : o.source === 'unknown' ? 'not known: earlier revisions are no longer retained, or not visible' : o.source
  return [text, o.rollout && o.source !== 'rollout' ? `by rollout ${o.rollout}` : '', o.restoredBy ? `restored by rollout ${o.restoredBy}` : ''].filter(Boolean).join(', ')
}
