// Looks at a large fleet in a real browser. The Go test in test/dashboard, which has filled a server, starts it.
// Environment: URL, BROWSER, TKO (the command, with its server in the environment), DEPLOYMENTS, SITES, MEASURE (limits of time hold),
// GRAPH (ID of a topology), CHILDREN and FAILING (their numbers).
import { chromium } from 'playwright-core'
import { execFileSync } from 'node:child_process'

const { URL: url, BROWSER: executablePath, TKO: tko, MEASURE: measure } = process.env
const deployments = Number(process.env.DEPLOYMENTS), sites = Number(process.env.SITES)
const limit = 300_000
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-background-networking'] })
const check = (ok, text) => { if (!ok) { console.log(`FAIL ${text}`); process.exitCode = 1 } }
const quantile = (all, q) => all.sort((a, b) => a - b)[Math.min(all.length - 1, Math.floor(all.length * q))]

async function open(context, path, ready) {
  const page = await context.newPage()
  page.setDefaultTimeout(limit)
  let bytes = 0, lists = 0
  page.on('response', async r => { if (/\/api\/v1\/\w+\/list/.test(r.url())) { lists++; bytes += (await r.body().catch(() => '')).length } })
  await page.addInitScript(ready => {
    const seen = () => { if (document.querySelector(ready)) { performance.mark('rows'); return } requestAnimationFrame(seen) }
    requestAnimationFrame(seen)
  }, ready)
  await page.goto(url + path)
  await page.locator(ready).first().waitFor()
  await page.waitForFunction(() => performance.getEntriesByName('rows').length > 0)
  const [shown, server] = await page.evaluate(() => [
    performance.getEntriesByName('rows')[0].startTime,
    Math.max(0, ...performance.getEntriesByType('resource').filter(r => /\/api\/v1\/\w+\/list/.test(r.name)).map(r => r.responseStart - r.requestStart)),
  ])
  return { page, shown, server, lists: () => lists, bytes: () => bytes }
}

// The first page.
const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
const times = [], servers = []
for (let i = 0; i < (measure ? 30 : 2); i++) {
  const view = await open(context, '/deployments', '[role=grid] .row')
  times.push(view.shown)
  servers.push(view.server)
  check(view.lists() <= 3, `the first page needs ${view.lists()} requests of lists`)
  check(view.bytes() <= 400_000, `the first page has ${view.bytes()} bytes of rows`)
  check(await view.page.locator('.row').count() < 100, 'rows that are not visible are drawn')
  await view.page.close()
}
console.log(`first page of ${deployments} deployments: median ${Math.round(quantile(times, 0.5))} ms, 95 % ${Math.round(quantile(times, 0.95))} ms; of these the server's time: median ${Math.round(quantile(servers, 0.5))} ms`)
if (measure) check(quantile(times, 0.5) <= 300, 'the first page needs over 300 ms')

// Many pages, of which a window is held.
const { page, lists } = await open(context, '/deployments', '[role=grid] .row')
const last = () => page.locator('.row').last().getAttribute('data-id')
await page.getByRole('grid').focus()
for (let i = 0; i < 25; i++) {
  const before = await last()
  await page.getByRole('grid').evaluate(e => { e.scrollTop = e.scrollHeight })
  await page.waitForFunction(id => [...document.querySelectorAll('.row')].at(-1)?.dataset.id !== id, before)
}
const held = Number((await page.locator('.bar [aria-live]').first().innerText()).replaceAll(/\D/g, ''))
check(held > 0 && held <= 2100, `${held} rows are held after 25 pages`)
check(lists() <= 40, `25 pages needed ${lists()} requests`)

// The picture of all sites: the first one, how long it takes to draw, what it weighs, and what it holds in memory.
{
  const page = await context.newPage()
  page.setDefaultTimeout(limit)
  let bytes = 0
  const picture = []
  for (let i = 0; i < (measure ? 10 : 1); i++) {
    await page.addInitScript(() => {
      const seen = () => { if (Number(document.querySelector('canvas')?.dataset.drawn) > 0) { performance.mark('picture'); return } requestAnimationFrame(seen) }
      requestAnimationFrame(seen)
    })
    await page.goto(url + '/')
    await page.waitForFunction(() => performance.getEntriesByName('picture').length > 0)
    picture.push(await page.evaluate(() => performance.getEntriesByName('picture')[0].startTime))
    bytes = await page.evaluate(() => performance.getEntriesByType('resource').find(r => r.name.includes('/api/v1/wall')).transferSize)
  }
  const canvas = page.locator('canvas')
  await page.waitForFunction(n => Number(document.querySelector('canvas').dataset.drawn) === n, sites)
  const box = await canvas.boundingBox()
  const draws = []
  for (let i = 0; i < 40; i++) { await page.mouse.move(box.x + 10 + i * 20, box.y + 60 + i * 7); draws.push(Number(await canvas.getAttribute('data-took'))) }
  const client = await context.newCDPSession(page)
  await client.send('HeapProfiler.collectGarbage')
  const heap = await page.evaluate(() => performance.memory.usedJSHeapSize)
  console.log(`the picture of ${sites} sites: first after median ${Math.round(quantile(picture, 0.5))} ms, 95 % ${Math.round(quantile(picture, 0.95))} ms; drawn in ${quantile(draws, 0.5)} ms, 95 % ${quantile(draws, 0.95)} ms; ${Math.round(bytes / 1024)} kB, heap ${Math.round(heap / 1e6)} MB`)
  check(heap < 80e6, `the picture holds ${Math.round(heap / 1e6)} MB`)
  check(bytes > 0 && bytes < 100_000 + 40 * sites, `the picture has ${bytes} bytes`)
  if (measure) check(quantile(picture, 0.5) <= 1000, 'the first picture needs over a second')
  await page.close()
}

// frames measures how evenly a page is drawn while something moves: frames in a second, and the longest time without one.
async function frames(page, move) {
  await page.evaluate(() => {
    window.drawnAt = []
    const drawn = at => { window.drawnAt?.push(at); if (window.drawnAt) requestAnimationFrame(drawn) }
    requestAnimationFrame(drawn)
  })
  await move()
  const at = await page.evaluate(() => { const all = window.drawnAt; delete window.drawnAt; return all })
  const gaps = at.slice(1).map((t, i) => t - at[i])
  return { rate: Math.round(1000 * gaps.length / (at.at(-1) - at[0])), gap: Math.round(Math.max(...gaps)) }
}

// The graph of a topology: the first failing deployment, what is read for it, what is drawn, and what it holds in memory.
{
  const children = Number(process.env.CHILDREN), failing = Number(process.env.FAILING), first = [], weights = [], requests = []
  let page
  for (let i = 0; i < (measure ? 10 : 2); i++) {
    await page?.close()
    page = await context.newPage()
    page.setDefaultTimeout(limit)
    let bytes = 0, reads = 0
    page.on('response', async r => { if (/\/api\/v1\/(deployment|site|wall)/.test(r.url())) { reads++; bytes += (await r.body().catch(() => '')).length } })
    await page.addInitScript(() => {
      const seen = () => { if (document.querySelector('.node .onward')) { performance.mark('graph'); return } requestAnimationFrame(seen) }
      requestAnimationFrame(seen)
    })
    await page.goto(`${url}/deployments/${process.env.GRAPH}?tab=tree`)
    await page.waitForFunction(() => performance.getEntriesByName('graph').length > 0)
    first.push(await page.evaluate(() => performance.getEntriesByName('graph')[0].startTime))
    await page.getByText(`nodes stand for ${children.toLocaleString('en')} children; ${failing.toLocaleString('en')} failing`).waitFor()
    weights.push(bytes)
    requests.push(reads)
  }
  const drawn = await page.getByRole('treeitem').count()
  check(drawn > 12 && drawn <= 60, `the graph draws ${drawn} nodes at first`)
  const sum = await page.locator('[role=treeitem][aria-level="2"]').evaluateAll(all => all.map(e => Number(/([\d,]+):/.exec(e.textContent)[1].replaceAll(',', ''))).reduce((a, b) => a + b, 0))
  check(sum === children, `the templates stand for ${sum} of ${children} children`)
  const tree = page.getByRole('tree'), box = await tree.boundingBox()
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2)
  // As much as can be drawn is opened.
  for (let i = 0; i < 8; i++) { const more = tree.locator('.more').filter({ hasText: /more/ }).first(); if (await more.count() === 0) break; const before = await page.getByRole('treeitem').count(); await more.click(); await page.waitForFunction(n => document.querySelectorAll('[role=treeitem]').length > n || !document.querySelector('.tree .more'), before, { timeout: 10_000 }).catch(() => {}) }
  check(await page.getByRole('treeitem').count() <= 300, 'more than 300 nodes are drawn')
  const scrolled = await frames(page, async () => { for (let i = 0; i < 60; i++) { await page.mouse.wheel(0, i < 30 ? 200 : -200); await page.waitForTimeout(16) } })
  const client = await context.newCDPSession(page)
  await client.send('HeapProfiler.collectGarbage')
  const heap = await page.evaluate(() => performance.memory.usedJSHeapSize)
  console.log(`the graph of ${children} children: first after median ${Math.round(quantile(first, 0.5))} ms, 95 % ${Math.round(quantile(first, 0.95))} ms; at first ${drawn} nodes, ${quantile(requests, 0.5)} requests, ${Math.round(quantile(weights, 0.5) / 1024)} kB; with ${await page.getByRole('treeitem').count()} nodes ${scrolled.rate} frames a second while scrolling, at most ${scrolled.gap} ms without one; heap ${Math.round(heap / 1e6)} MB`)
  check(quantile(weights, 0.95) < 150_000, `the graph reads ${quantile(weights, 0.95)} bytes`)
  check(quantile(requests, 0.95) <= 30, `the graph needs ${quantile(requests, 0.95)} requests`)
  check(heap < 60e6, `the graph holds ${Math.round(heap / 1e6)} MB`)
  if (measure) check(quantile(first, 0.5) <= 1000, 'the graph needs over a second')
  await page.close()
}

// The slider of the past is dragged, and the picture follows.
{
  const page = await context.newPage()
  page.setDefaultTimeout(limit)
  await page.goto(url + '/')
  await page.waitForFunction(n => Number(document.querySelector('canvas')?.dataset.drawn) === n, sites)
  await page.getByRole('button', { name: 'As of now' }).click()
  const slider = page.getByRole('slider')
  await page.waitForFunction(() => document.querySelector('input[type=range]')?.disabled === false)
  const box = await slider.boundingBox(), y = box.y + box.height / 2
  await page.mouse.move(box.x + box.width - 6, y)
  await page.mouse.down()
  const dragged = await frames(page, async () => { for (let i = 0; i < 120; i++) { await page.mouse.move(box.x + box.width - 6 - (box.width - 12) * (i < 60 ? i : 120 - i) / 60, y); await page.waitForTimeout(16) } })
  await page.mouse.up()
  const client = await context.newCDPSession(page)
  await client.send('HeapProfiler.collectGarbage')
  console.log(`dragging the slider over ${sites} sites: ${dragged.rate} frames a second, at most ${dragged.gap} ms without one; heap ${Math.round(await page.evaluate(() => performance.memory.usedJSHeapSize) / 1e6)} MB`)
  await page.close()
}

// The overview has the numbers of all, which the server counts in the background.
await page.goto(url + '/')
await page.locator('h2#states').waitFor()
await page.waitForFunction(least => {
  const all = document.querySelector('h2#now')?.innerText.match(/of ([\d,]+) deployments/) // with a plus while it counts
  return all && Number(all[1].replaceAll(',', '')) >= least
}, deployments, { timeout: 120_000 })

// A change.
await page.goto(url + '/sites?id=change/**')
await page.locator('header.top[data-live=true]').waitFor()
await page.locator('.empty').waitFor()
const changes = []
for (let i = 0; i < (measure ? 10 : 1); i++) {
  execFileSync(tko, ['site', 'register', `change/${i}`])
  const began = Date.now()
  await page.locator(`[data-id="change/${i}"]`).waitFor()
  changes.push(Date.now() - began)
}
console.log(`a change is shown after: median ${quantile(changes, 0.5)} ms, at most ${Math.max(...changes)} ms`)
if (measure) check(Math.max(...changes) <= 1000, 'a change needs over a second')
await browser.close()
