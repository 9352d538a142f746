// Where the tiles of a picture of all sites are, and how they are drawn. A tile is a site.
import type { WallGroup } from './schema'

export interface Tile { group: number, index: number, x: number, y: number }
export interface Box { x: number, y: number, width: number, height: number }
export interface Block extends Box { group: number, columns: number, label: boolean }
export interface Picture { width: number, height: number, size: number, blocks: Block[], places?: Tile[] }

const heading = 18 // height of a group's name
const gap = 10 // between groups
const largest = 26 // side of a tile
const leastName = 46 // width of a block that has room for a name

// place lays out groups as a treemap: the area of each is its share of the sites. The shorter side of what is left is filled with as many
// groups as keep their blocks near to squares.
function place(weights: number[], box: Box): Box[] {
  const boxes: Box[] = []
  let { x, y, width, height } = box
  let total = weights.reduce((a, b) => a + b, 0)
  for (let i = 0; i < weights.length;) {
    const side = Math.min(width, height), area = width * height
    const worst = (n: number, sum: number) => { // of the first n weights in one row
      const depth = sum / total * area / side
      let most = 0
      for (let k = i; k < i + n; k++) { const length = weights[k] / sum * side; most = Math.max(most, length / depth, depth / length) }
      return most
    }
    let n = 1, sum = weights[i]
    while (i + n < weights.length && worst(n + 1, sum + weights[i + n]) <= worst(n, sum)) sum += weights[i + n++]
    const depth = sum / total * (width >= height ? width : height)
    let at = width >= height ? y : x
    for (let k = i; k < i + n; k++) {
      const length = weights[k] / sum * side
      boxes.push(width >= height ? { x, y: at, width: depth, height: length } : { x: at, y, width: length, height: depth })
      at += length
    }
    if (width >= height) { x += depth; width -= depth } else { y += depth; height -= depth }
    total -= sum
    i += n
  }
  return boxes
}

// tiles lays out all sites on an area: all tiles have the same size, the largest for which all fit.
export function tiles(groups: WallGroup[], width: number, height: number): Picture {
  const all = groups.reduce((n, g) => n + g.ids.length, 0)
  const weights = groups.map(g => Math.max(g.ids.length, all / Math.max(50, 4 * groups.length))) // a small group has room for its name
  const blocks = place(weights, { x: 0, y: 0, width: width + gap, height: height + gap }).map((b, group): Block => ({ ...b, group, width: b.width - gap, height: b.height - gap, columns: 1, label: b.width - gap >= leastName }))
  const fits = (size: number) => blocks.every(b => Math.floor(b.width / size) * Math.floor((b.height - (b.label ? heading : 0)) / size) >= groups[b.group].ids.length)
  let size = 0.5
  for (let low = 0.5, high = largest, n = 0; n < 24; n++) {
    const middle = (low + high) / 2
    if (fits(middle)) { size = middle; low = middle } else high = middle
  }
  if (size >= 4) size = Math.floor(size * 2) / 2
  for (const b of blocks) {
    b.columns = Math.max(1, Math.floor(b.width / size))
    if (b.label) { b.y += heading; b.height -= heading }
  }
  return { width, height, size, blocks }
}

// map lays out the sites that have a place, north at the top. A degree of longitude is as wide as it is in the middle of the map.
export function map(groups: WallGroup[], width: number, height: number): Picture {
  const all = groups.flatMap((g, group) => (g.places ?? []).flatMap((p, index) => p.length === 2 ? [{ group, index, north: p[0], east: p[1] }] : []))
  if (all.length === 0) return { width, height, size: 6, blocks: [], places: [] }
  let south = 90, north = -90, west = 180, east = -180
  for (const p of all) { south = Math.min(south, p.north); north = Math.max(north, p.north); west = Math.min(west, p.east); east = Math.max(east, p.east) }
  const shrink = Math.max(0.2, Math.cos((north + south) / 2 * Math.PI / 180))
  const scale = Math.min((width - 40) / Math.max(0.01, (east - west) * shrink), (height - 40) / Math.max(0.01, north - south))
  const x = (e: number) => width / 2 + (e - (east + west) / 2) * shrink * scale, y = (n: number) => height / 2 - (n - (north + south) / 2) * scale
  const size = Math.max(2.5, Math.min(10, Math.sqrt(width * height / all.length) / 3))
  return { width, height, size, blocks: [], places: all.map(p => ({ group: p.group, index: p.index, x: x(p.east), y: y(p.north) })) }
}

// tileAt returns the site at a point.
export function tileAt(p: Picture, groups: WallGroup[], x: number, y: number): Tile | undefined {
  if (p.places) {
    let best: Tile | undefined, near = (p.size + 4) ** 2
    for (const t of p.places) { const d = (t.x - x) ** 2 + (t.y - y) ** 2; if (d <= near) { near = d; best = t } }
    return best
  }
  const b = p.blocks.find(b => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + b.height)
  if (!b) return undefined
  const column = Math.floor((x - b.x) / p.size), row = Math.floor((y - b.y) / p.size), index = row * b.columns + column
  return column < b.columns && index < groups[b.group].ids.length ? tile(p, b.group, index) : undefined
}

// tile returns where the tile of a site is.
export function tile(p: Picture, group: number, index: number): Tile {
  if (p.places) return p.places.find(t => t.group === group && t.index === index) ?? { group, index, x: 0, y: 0 }
  const b = p.blocks[group]
  return { group, index, x: b.x + index % b.columns * p.size, y: b.y + Math.floor(index / b.columns) * p.size }
}

// shortened cuts a text that is wider than its place.
export function shortened(text: string, width: number, measure: (text: string) => number): string {
  if (measure(text) <= width) return text
  let n = text.length - 1
  while (n > 0 && measure(`${text.slice(0, n)}…`) > width) n--
  return n > 0 ? `${text.slice(0, n)}…` : ''
}

export interface Look { colors: string[], strengths: number[], text: string, muted: string, font: string, none: string } // none: the title of sites without a value

// draw draws the picture. The tiles of one state are drawn together, the most urgent last.
export function draw(c: CanvasRenderingContext2D, p: Picture, groups: WallGroup[], look: Look, at?: Tile) {
  c.clearRect(0, 0, p.width, p.height)
  const side = p.size >= 3 ? p.size - Math.max(1, p.size * 0.15) : p.size
  for (let state = look.colors.length - 1; state >= 0; state--) {
    const digit = String(state)
    c.fillStyle = look.colors[state]
    c.globalAlpha = look.strengths[state]
    c.beginPath()
    if (p.places) for (const t of p.places) { if (groups[t.group].tiles[t.index] === digit) c.rect(t.x - side / 2, t.y - side / 2, side, side) }
    for (const b of p.blocks) {
      const all = groups[b.group].tiles
      for (let i = all.indexOf(digit); i >= 0; i = all.indexOf(digit, i + 1)) c.rect(b.x + i % b.columns * p.size, b.y + Math.floor(i / b.columns) * p.size, side, side)
    }
    c.fill()
  }
  c.globalAlpha = 1
  c.textBaseline = 'alphabetic'
  for (const b of p.blocks) {
    if (!b.label) continue
    const g = groups[b.group], name = g.rest ? 'others' : g.value || look.none, count = g.ids.length.toLocaleString('en')
    c.font = `600 ${look.font}`
    c.fillStyle = look.text
    const text = shortened(name, b.width, t => c.measureText(t).width), width = c.measureText(text).width
    c.fillText(text, b.x, b.y - 5)
    c.font = look.font
    c.fillStyle = look.muted
    if (width + 6 + c.measureText(count).width <= b.width) c.fillText(count, b.x + width + 6, b.y - 5) // a number is whole, or not there
  }
  if (at) {
    const t = tile(p, at.group, at.index), half = p.places ? side / 2 : 0
    c.strokeStyle = look.text
    c.lineWidth = 2
    c.strokeRect(t.x - half - 2, t.y - half - 2, side + 4, side + 4)
  }
}
