// The filter language: words as in the flags of the tko command, written as name=value, separated by spaces.
import type { Kind } from './api'

export const words: Record<Kind, string[]> = {
  deployment: ['parent', 'metadata', 'template-id', 'template-metadata', 'site-id', 'site-metadata', 'prepared', 'approved', 'outdated', 'condition'],
  site: ['id', 'template-id', 'metadata', 'condition'],
  template: ['id', 'metadata'],
  plugin: ['type', 'name', 'executor'],
}

// parse returns the query of a filter line, or why it is wrong. Values with spaces are in double quotes.
export function parse(kind: Kind, line: string): { query: string, error?: string } {
  const q = new URLSearchParams()
  for (const [, word, quoted, plain] of line.matchAll(/([^\s"=]+)(?:=(?:"([^"]*)"|([^\s"]*)))?/g)) {
    const value = quoted ?? plain
    if (!words[kind].includes(word)) return { query: '', error: `“${word}” is unknown: use ${words[kind].join(', ')}` }
    if (!value) return { query: '', error: `“${word}” has no value: write ${word}=…` }
    if (word.endsWith('metadata') && !value.includes('=')) return { query: '', error: `${word} needs a key and a pattern: ${word}=region=north` }
    q.append(word, value)
  }
  return { query: q.toString() }
}

export function format(query: string): string {
  return [...new URLSearchParams(query)].map(([k, v]) => `${k}=${/\s/.test(v) ? `"${v}"` : v}`).join(' ')
}

const quote = (text: string) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

// command returns the command that lists the same, quoted for a POSIX shell.
export function command(kind: Kind, query: string): string {
  const flags = [...new URLSearchParams(query)].map(([k, v]) => ['prepared', 'approved', 'outdated'].includes(k) ? `--${k}=${quote(v)}` : `--${k} ${quote(v)}`)
  return ['tko', kind, 'list', ...flags].join(' ')
}
