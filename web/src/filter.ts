// The filter language: words as in the flags of the tko command, written as name=value, separated by spaces.
import type { Kind } from './api'

let known: Partial<Record<Kind, string[]>> = {}, flags: string[] = []

// setWords sets the words of each kind, and those whose values are true or false, as the server has them.
export const setWords = (filters: Record<Kind, string[]>, flagWords: string[]) => { known = filters; flags = flagWords }
export const words = (kind: Kind) => known[kind] ?? []

// parse returns the query of a filter line, or why it is wrong. Values with spaces are in double quotes.
export function parse(kind: Kind, line: string): { query: string, error?: string } {
  const q = new URLSearchParams()
  for (const [, word, quoted, plain] of line.matchAll(/([^\s"=]+)(?:=(?:"([^"]*)"|([^\s"]*)))?/g)) {
    const value = quoted ?? plain
    if (!words(kind).includes(word)) return { query: '', error: `“${word}” is unknown: use ${words(kind).join(', ')}` }
    if (!value) return { query: '', error: `“${word}” has no value: write ${word}=…` }
    if (word.endsWith('metadata') && !value.includes('=')) return { query: '', error: `${word} needs a key and a pattern: ${word}=region=north` }
    q.append(word, value)
  }
  return { query: q.toString() }
}

export function format(query: string): string {
  return [...new URLSearchParams(query)].map(([k, v]) => `${k}=${/\s/.test(v) ? `"${v}"` : v}`).join(' ')
}

// quote quotes a text for a POSIX shell, if it must be.
export const quote = (text: string) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

// command returns the command that lists the same.
export function command(kind: Kind, query: string): string {
  const parts = [...new URLSearchParams(query)].map(([k, v]) => flags.includes(k) ? `--${k}=${quote(v)}` : `--${k} ${quote(v)}`)
  return ['tko', kind, 'list', ...parts].join(' ')
}

// literal returns the pattern that matches only a text.
export const literal = (text: string) => text.replaceAll('\\', '\\\\').replaceAll('*', '\\*')
