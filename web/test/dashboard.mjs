// Drives the dashboard in a real browser. It is started by the Go test in test/dashboard, which has filled a server.
// Environment: URL, TOKEN_URL, BROWSER, SHOTS (a folder for screenshots), TKO (the command, with its server in the environment).
import { chromium } from 'playwright-core'
import { execFile, execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'

const { URL: url, TOKEN_URL: tokenUrl, BROWSER: executablePath, SHOTS: shots, TKO: tko, VIEWER: viewer, ADMIN: admin, ONLY: only } = process.env
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const limit = 120_000
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-background-networking'] })
let failed = 0, passed = 0

const check = (ok, text) => { if (!ok) throw new Error(text) }
const same = (what, got, want) => check(got === want, `${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)

async function test(name, options, run) {
  if (only && !name.match(only)) return
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-GB', ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(limit)
  const problems = []
  page.on('pageerror', e => problems.push(`exception: ${e.message}`))
  page.on('console', m => { if (m.type() === 'error' && !/status of (4\d\d|0)|net::ERR_/.test(m.text())) problems.push(`console: ${m.text()}`) })
  try {
    await run(page, context)
    check(problems.length === 0, problems.join('; '))
    passed++
    console.log(`ok ${name}`)
  } catch (e) {
    failed++
    console.log(`FAIL ${name}: ${e.message}\n${e.stack.split('\n').filter(l => l.includes('dashboard.mjs')).slice(0, 3).join('\n')}`)
    if (problems.length > 0) console.log(`# before it failed: ${problems.join('; ').slice(0, 1000)}`)
    console.log(`# ${page.url()} shows: ${(await page.locator('body').innerText({ timeout: 5000 }).catch(() => '')).slice(0, 600)}`)
    await page.screenshot({ path: `${shots}/failed-${failed}.png` }).catch(() => {})
  } finally { await context.close() }
}

const open = async (page, path, base = url) => { await page.goto(base + path); await page.locator('[data-live=true]').waitFor() }

// shot takes a screenshot, which docs/images may have.
const shot = (page, name) => page.screenshot({ path: `${shots}/${name}-light-1440.png` })
const facts = JSON.parse(process.env.FACTS ?? '{}')

// answered makes the answers of a path what change returns for their JSON. An answer without content (304) stays as it is.
async function answered(page, path, change) {
  await page.route(path, async route => {
    const response = await route.fetch()
    await route.fulfill(response.status() === 200 ? { response, json: change(await response.json()) } : { response })
  })
}

// accessible checks the page with axe. Its script is evaluated by the browser's debugger, so the page's policy holds.
async function accessible(page, where) {
  if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(axe)
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }))
  const serious = violations.filter(v => ['serious', 'critical'].includes(v.impact))
  check(serious.length === 0, `${where}: ${serious.map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => `${n.target} ${n.failureSummary?.replaceAll('\n', ' ')}`).join(' | ')}`).join('; ')}`)
}

// nodesOf returns the nodes of a graph: their depth and whole name.
const nodesOf = page => page.getByRole('treeitem').evaluateAll(all => all.map(e => { const name = e.querySelector('a, .more, span:not(.line):not(.plain)'); return `${e.ariaLevel} ${(name.querySelector('.hidden') ?? name).textContent}` }))
const longID = /\b[0-9A-Za-z]{27}\b/

const views = [['/', 'overview', 'h2#states'], ['/?wall=1', 'wall', '[data-drawn]'], ['/?by=map', 'map', '[data-drawn]'], ['/deployments', 'deployments', '[role=grid] .row'], ['/sites', 'sites', '[role=grid] .row'], ['/templates', 'templates', '[role=grid] .row'],
  ['/plugins', 'plugins', '[role=grid] .row, .empty'], ['/rollouts', 'rollouts', '[role=grid] .row'], ['/rollouts/text-v2?tab=plan', 'rollout-plan', '.group'], ['/changes?kind=site&from=1', 'changes', '.group'], ['/matrix?rows=region&cols=tier', 'matrix', 'table.matrix'], ['/sites/north/edge-1', 'site', 'dl'], ['/sites/north/edge-1?tab=package', 'site-package', 'pre'],
  ['/sites/north/edge-1?tab=events', 'site-events', 'tbody tr'], [`/deployments/${facts.root}?tab=runs`, 'runs', '.empty'], [`/deployments/${facts.root}?tab=why`, 'deployment', 'dl'],
  [`/deployments/${facts.core}?tab=tree`, 'graph', '.tree .onward'], [`/deployments/${facts.core}?tab=tree&view=graph`, 'graph-always', '.node .onward'], [`/deployments/${facts.core}?tab=tree&view=list`, 'graph-list', '.leaf .onward'],
  ['/templates/core/smf%3Av1?tab=tree', 'graph-template', '.tree .onward']]
// Each view is loaded once, and looked at in all colors and widths.
await test('every view is accessible and fits, in light and dark, wide and narrow', {}, async page => {
  for (const [path, name, ready] of views) {
    await open(page, path)
    await page.evaluate(axe)
    for (const colorScheme of ['light', 'dark']) for (const width of [1440, 390]) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await page.setViewportSize({ width, height: width > 1000 ? 900 : 800 })
      await page.locator(ready).first().waitFor()
      await accessible(page, `${path}, ${colorScheme}, ${width} px`)
      check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1), `${path} is wider than ${width} px`)
      await page.screenshot({ path: `${shots}/${name}-${colorScheme}-${width}.png` })
    }
  }
})

await test('nothing moves while views load on a phone', { viewport: { width: 390, height: 800 } }, async page => {
  await page.addInitScript(() => {
    window.shift = 0
    window.moved = []
    new PerformanceObserver(list => {
      for (const e of list.getEntries()) {
        window.shift += e.value
        window.moved.push(...e.sources.map(s => `${s.node?.nodeName} ${s.node?.className ?? ''} ${s.node?.textContent?.slice(0, 30)}: ${s.previousRect.y} to ${s.currentRect.y}`))
      }
    }).observe({ type: 'layout-shift', buffered: true })
  })
  // Responses come as late as from a slow network, those of lists and counts last.
  await page.route('**/api/v1/**', async route => { await new Promise(resolve => setTimeout(resolve, /list|count|wall|fleet/.test(route.request().url()) ? 900 : 400)); await route.continue().catch(() => {}) })
  for (const [path, ready] of [['/', 'section[aria-labelledby=changed]'], ['/deployments', '[role=grid] .row'], ['/sites', '[role=grid] .row'], ['/sites?id=none/**', '.empty'], ['/matrix?rows=region&cols=tier', 'table.matrix']]) {
    await open(page, path)
    await page.locator(ready).first().waitFor()
    const [shift, moved] = await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => resolve([window.shift, window.moved]))))))
    console.log(`# ${path} moved by ${shift.toFixed(3)}`)
    check(shift < 0.1, `${path} moved by ${shift.toFixed(3)}: ${moved.join('; ')}`)
  }
})

// How long it takes depends on the machine: it is printed here, measured by test/dashboard's test of a large fleet, and by tko-bench.
await test('a change shows without a reload', {}, async page => {
  await open(page, '/sites?id=live/**')
  await page.locator('.empty').waitFor()
  execFileSync(tko, ['site', 'register', 'live/one', '-m', 'region=live'])
  const began = Date.now()
  await page.locator('[data-id="live/one"]').waitFor()
  console.log(`# a change took ${Date.now() - began} ms to show`)
})

await test('constant changes do not keep the matrix from its first count', {}, async page => {
  await page.route('**/api/v1/site/count*', async route => { await new Promise(resolve => setTimeout(resolve, 1500)); await route.continue().catch(() => {}) })
  await page.goto(url + '/matrix?rows=region&cols=tier')
  let shown = false
  const ready = page.locator('table.matrix').waitFor().then(() => { shown = true })
  const end = Date.now() + limit
  for (let n = 0; !shown && Date.now() < end; n++) await promisify(execFile)(tko, ['site', 'register', 'busy/one', '-m', `round=${n}`])
  check(shown, 'the count was begun anew with each change')
  await ready
})

await test('a list scrolls through all its pages and back', {}, async page => {
  await open(page, '/sites?id=north/**')
  const grid = page.getByRole('grid')
  await grid.waitFor()
  const last = () => page.locator('.row').last().getAttribute('data-id')
  // A page that is put below the view may take one above it away, so that the same rows stay in view: scroll on, as users do, until the
  // view has stayed at its end.
  await page.waitForFunction(() => {
    const view = document.querySelector('[role=grid]')
    const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - 2
    view.scrollTop = view.scrollHeight
    return atEnd && [...document.querySelectorAll('.row')].at(-1)?.dataset.id === 'north/edge-999'
  }, undefined, { timeout: 5 * limit })
  same('last row', await last(), 'north/edge-999')
  check((await page.locator('.row').count()) < 100, 'rows that are not visible are drawn')
  // Each page that is put before the view moves it down: go to its top until the list begins there.
  await page.waitForFunction(() => { document.querySelector('[role=grid]').scrollTop = 0; return document.querySelector('.row')?.dataset.id === 'north/edge-1' }, undefined, { timeout: 5 * limit })
})

await test('a wrong filter word is marked and keeps the rows', {}, async page => {
  await open(page, '/sites')
  await page.locator('.row').first().waitFor()
  await page.getByLabel('Filter').fill('regoin=north')
  await page.keyboard.press('Enter')
  await page.getByRole('alert').filter({ hasText: '“regoin” is unknown' }).waitFor()
  check(await page.locator('.row').count() > 0, 'the rows are gone')
  await page.getByLabel('Filter').fill('metadata=region=south')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/sites?metadata=region%3Dsouth')
  await page.locator('[data-id="south/edge-1"]').waitFor()
  same('copied command', await page.locator('.command code').innerText(), '$ tko site list --metadata region=south')
})

await test('deleting asks for the count and happens by keyboard alone', {}, async page => {
  await open(page, '/sites?id=gone/**')
  await page.getByRole('grid').focus()
  await page.keyboard.press('Space')
  await page.keyboard.press('j')
  await page.keyboard.press('x')
  await page.getByText('2 marked').waitFor()
  await page.keyboard.press('D')
  const dialog = page.getByRole('dialog')
  await dialog.getByText('This will delete 2 sites').waitFor()
  same('focus', await page.evaluate(() => document.activeElement.textContent), 'Cancel')
  await accessible(page, 'dialog')
  await page.screenshot({ path: `${shots}/delete-light-1440.png` })
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  check(await page.locator('[data-id="gone/1"]').count() === 1, 'Cancel has deleted')
  await page.keyboard.press('D')
  await dialog.getByText('This will delete 2 sites').waitFor()
  await dialog.getByRole('button', { name: 'Delete' }).focus()
  await page.keyboard.press('Enter')
  await page.locator('[data-id="gone/1"]').waitFor({ state: 'detached' })
  await page.locator('[data-id="gone/2"]').waitFor({ state: 'detached' })
  check(await page.locator('[data-id="gone/3"]').count() === 1, 'a site that was not marked is gone')
})

await test('all that match are deleted only with the typed count', {}, async page => {
  await open(page, '/sites?id=many/**')
  await page.getByRole('grid').focus()
  await page.keyboard.press('x')
  await page.getByRole('button', { name: 'Select all that match' }).click()
  await page.getByRole('button', { name: 'Delete…' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('This will delete 120 sites').waitFor()
  const run = dialog.getByRole('button', { name: 'Delete' })
  check(await run.isDisabled(), 'the button works without the count')
  await dialog.getByLabel('Type the count').fill('12')
  check(await run.isDisabled(), 'the button works with a wrong count')
  await dialog.getByLabel('Type the count').fill('120')
  await run.click()
  await page.locator('.empty').waitFor()
})

await test('a deployment is approved', {}, async page => {
  await open(page, '/deployments?approved=false&prepared=true&template-id=leaf/pod')
  const row = page.locator('.row').first()
  await row.waitFor()
  await page.getByRole('grid').focus()
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Approve…' }).click()
  await page.getByRole('dialog').getByText('This will approve 1 deployment').waitFor()
  await page.getByRole('dialog').getByRole('button', { name: 'Approve' }).click()
  await page.getByText('prepared, approved').waitFor()
  await page.getByRole('tab', { name: 'Package' }).click()
  await page.locator('pre').first().waitFor()
  await page.screenshot({ path: `${shots}/package-light-1440.png` })
  await page.getByRole('tab', { name: 'History' }).click()
  await page.getByRole('region', { name: 'Revisions' }).waitFor()
  await page.screenshot({ path: `${shots}/history-light-1440.png` })
  await accessible(page, 'history')
})

await test('a Secret is never shown', {}, async page => {
  await open(page, '/templates/secret/v1?tab=package')
  await page.locator('pre').first().waitFor()
  const text = await page.evaluate(async () => document.body.innerText + await (await fetch('/api/v1/template?id=secret/v1')).text())
  check(!/hunter2|aHVudGVyMg/.test(text), 'the value of a Secret is shown')
  check(text.includes('[redacted by TKO]'), 'the page does not state that the value was redacted')
})

await test('text of a package is no HTML', {}, async page => {
  await open(page, '/templates/hostile/v1?tab=package')
  await page.locator('pre').first().waitFor()
  check(await page.evaluate(() => window.hacked === undefined && document.querySelectorAll('pre img').length === 0), 'markup of a package was rendered')
})

await test('a page of each ID can be linked, also if it has dots or empty parts', {}, async page => {
  for (const id of ['zz/..', 'zz/.', 'zz/../x', 'zz//two', 'zz/end/']) {
    await open(page, '/sites?id=zz/**')
    await page.locator(`[data-id="${id}"] a`).click()
    const title = page.locator('h1 code', { hasText: id })
    await title.waitFor()
    await page.reload()
    await title.waitFor()
    check(await title.innerText() === id, `after a reload of ${page.url()}, the page is of ${await title.innerText()}, not of ${id}`)
  }
})

await test('a page that loses the server states it and recovers', {}, async (page, context) => {
  await open(page, '/sites')
  await context.setOffline(true)
  await page.route('**/api/v1/stream*', route => route.abort())
  await page.evaluate(() => { Object.defineProperty(document, 'hidden', { value: false, configurable: true }) })
  await page.reload().catch(() => {})
  await context.setOffline(false)
  await page.goto(url + '/sites')
  await page.locator('header.top[data-live=false]').waitFor()
  await page.locator('.row').first().waitFor()
  await page.unroute('**/api/v1/stream*')
  await page.locator('header.top[data-live=true]').waitFor()
})

await test('a part of the dashboard that can not be read says so, and is read when the page is loaded again', {}, async page => {
  await page.route('**/assets/matrix-*', route => route.abort())
  await open(page, '/')
  page.removeAllListeners('console')
  await page.getByRole('link', { name: 'Matrix' }).click()
  await page.getByRole('alert').getByText('Load the page again').waitFor()
  await page.unroute('**/assets/matrix-*')
  await page.getByRole('button', { name: 'Retry' }).click()
  await page.locator('table.matrix').waitFor()
})

await test('a part that arrives while it is first drawn is shown', {}, async page => {
  for (const late of [0, 5, 10, 20, 40, 80]) {
    await page.route('**/assets/list-*', async route => { await new Promise(done => setTimeout(done, late)); await route.continue() })
    await open(page, '/sites')
    await page.locator('.row').first().waitFor()
    await page.unroute('**/assets/list-*')
  }
})

await test('a response that is cut off is read again, and is no empty entity', {}, async page => {
  let cut = 0
  await page.exposeFunction('cutOff', () => cut++ === 0)
  await page.addInitScript(() => {
    const real = window.fetch
    window.fetch = async (path, options) => {
      const response = await real(path, options)
      if (!String(path).startsWith('/api/v1/rollout/status') || !await window.cutOff()) return response
      const body = new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode('{"id":')); c.error(new TypeError('network error')) } })
      return new Response(body, { status: 200, headers: { 'Content-Type': 'application/json' } })
    }
  })
  await open(page, '/rollouts/text-v2')
  await page.getByRole('heading', { name: 'text-v2' }).waitFor()
  check(cut > 1, `the status was read ${cut} times`)
})

await test('a view that fails says so, and others are still there', {}, async page => {
  await open(page, '/rollouts')
  await page.route('**/api/v1/rollout/status*', route => route.fulfill({ json: {} }))
  const errors = []
  await page.evaluate(() => { window.addEventListener('error', e => e.preventDefault()) })
  page.removeAllListeners('console')
  page.on('console', m => { if (m.type() === 'error') errors.push(m.text()) })
  await page.locator('[data-id="text-v2"]').dblclick()
  await page.getByRole('alert').getByText('This view has failed.').waitFor()
  check(errors.length > 0, 'the browser has no message of it')
  await page.getByRole('link', { name: 'Sites' }).click()
  await page.locator('.row').first().waitFor()
  same('failures after another view was opened', await page.getByText('This view has failed.').count(), 0)
})

await test('what is stopped is a banner on each page', {}, async page => {
  await page.route('**/api/stop/list', route => route.fulfill({ json: [{ id: 'stop-1', all: true, topologyId: '', siteIds: [], siteMetadata: {}, onlyUndo: false, reason: 'a fault in the core', stoppedBy: 'cert:ann', createdTimestamp: Date.now(), siteCount: 3, deploymentCount: 9, inFlightCount: 1, waitingSites: 2, waitingDeployments: 7 }] }))
  for (const path of ['/', '/sites', '/rollouts']) {
    await open(page, path)
    await page.getByRole('alert').getByText('Stopped: everything').waitFor()
    await page.getByRole('alert').getByText('a fault in the core').waitFor()
  }
  await accessible(page, 'a stop')
  await page.route('**/api/stop/list', route => route.fulfill({ json: [] }))
  await page.getByText('Stopped: everything').waitFor({ state: 'detached' })
})

await test('a rollout at sites that report no health is started only when that is accepted', {}, async page => {
  let sent
  await answered(page, '**/api/v1/rollout/plan*', plan => ({ ...plan, unreported: 12, warnings: ['12 deployments are at sites that report no health'] }))
  await page.route('**/api/v1/rollout/command', route => { sent = route.request().postDataJSON(); return route.fulfill({ status: 400, json: { error: 'not now' } }) })
  await open(page, '/rollouts')
  await page.locator('[data-id="text-v2"]').dblclick()
  await page.getByRole('button', { name: 'Start…' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('12 deployments are at sites that report no health').waitFor()
  same('start without it', await dialog.getByRole('button', { name: 'Start' }).isDisabled(), true)
  await dialog.getByLabel(/Take 12 deployments for healthy/).check()
  await accessible(page, 'a blind start')
  await dialog.getByRole('button', { name: 'Start' }).click()
  await dialog.getByText('not now').waitFor()
  same('blind', sent.blind, true)
})

await test('a rollout is planned, started, paused and undone, and each dialog says what will happen', {}, async page => {
  await open(page, '/rollouts')
  await page.locator('[data-id="text-v2"]').dblclick()
  await page.getByRole('tab', { name: 'Plan' }).click()
  const group = page.locator('.group').first()
  await group.getByRole('button').first().click()
  await group.getByRole('region', { name: 'Changed fields' }).first().getByText('v1 ConfigMap "extra"').waitFor()
  await page.locator('tr[data-deployment]').first().getByRole('button').click()
  await page.locator('tr[data-deployment] + tr').getByText('v1 ConfigMap "extra"').waitFor()
  await accessible(page, 'plan of a rollout')
  await shot(page, 'rollout-plan')
  await answered(page, '**/api/v1/rollout/plan*', plan => {
    plan.groups[0].templates = ['leaf/pod:v1 → leaf/pod:v2']
    return plan
  })
  await page.reload()
  await group.getByRole('button').first().click()
  await group.getByText('Template leaf/pod:v1 → leaf/pod:v2').waitFor()
  await page.unroute('**/api/v1/rollout/plan*')
  const dialog = page.getByRole('dialog')
  await page.getByRole('button', { name: 'Start…' }).click()
  await dialog.getByText(/This will change 40 deployments, in 2 waves: canary \(3\), rest \(37, waits for an approval\)/).waitFor()
  same('focus', await page.evaluate(() => document.activeElement.textContent), 'Close')
  await accessible(page, 'dialog of a start')
  await shot(page, 'rollout-start')
  await dialog.getByRole('button', { name: 'Start' }).click()
  await page.locator('[data-state=Running]').waitFor()
  await page.getByRole('tab', { name: 'Waves' }).click()
  await page.getByRole('row', { name: /canary/ }).getByText('3 changed, not yet healthy').waitFor()
  await page.getByRole('heading', { name: 'What blocks it' }).waitFor()
  await accessible(page, 'waves of a rollout')
  await shot(page, 'rollout-waves')
  await page.getByRole('tab', { name: 'Graph' }).click()
  await page.locator('.node .onward').first().waitFor()
  same('the graph of the waves', (await nodesOf(page)).map(n => n.replace(/north.*/, 'north')).join(), '1 text-v2,2 canary,3 3 changed, not yet healthy,4 Change at north,4 Change at north,4 Change at north,2 rest')
  await page.getByRole('button', { name: 'Open rest' }).click()
  await page.getByRole('button', { name: 'Open waiting in rest' }).click()
  await page.getByRole('button', { name: '25 more' }).waitFor()
  await accessible(page, 'graph of a rollout')
  await shot(page, 'rollout-graph')
  await page.getByRole('tab', { name: 'Waves' }).click()
  await page.getByRole('button', { name: 'Approve wave…' }).click()
  await dialog.getByText(/The wave rest may begin: 37 deployments will be changed/).waitFor()
  const approval = page.waitForRequest('**/api/v1/rollout/command')
  await dialog.getByRole('button', { name: 'Approve wave' }).click()
  same('approved wave', (await approval).postDataJSON().wave, 'rest')
  await page.getByRole('row', { name: /rest/ }).getByText('approved by').waitFor()
  await page.getByRole('button', { name: 'Pause…' }).click()
  await dialog.getByLabel('Reason').fill('lunch')
  await dialog.getByRole('button', { name: 'Pause' }).click()
  await page.locator('[data-state=Paused]').waitFor()
  await page.getByText('lunch').first().waitFor()
  await page.getByRole('button', { name: 'Resume…' }).click()
  await dialog.getByText('37 deployments wait to be changed').waitFor()
  await dialog.getByRole('button', { name: 'Resume' }).click()
  await page.locator('[data-state=Running]').waitFor()
  await page.getByRole('button', { name: 'Undo…' }).click()
  await dialog.getByText('3 deployments that were changed return to the packages that they had').waitFor()
  await dialog.getByRole('button', { name: 'Undo' }).click()
  await page.locator('[data-state=Undoing], [data-state=Undone]').waitFor()
  await page.getByRole('link', { name: 'text-v2-undo' }).waitFor()
})

await test('the past is shown as it was, and nothing can be done in it', {}, async page => {
  await open(page, '/sites?id=time/**')
  await page.locator('[data-id="time/one"]').waitFor()
  await page.getByRole('button', { name: 'As of now' }).click()
  await page.getByLabel('Moment').fill(facts.before)
  await page.getByRole('button', { name: 'Show', exact: true }).click()
  await page.waitForURL(`**/sites?*asOf=${facts.before}`)
  await page.locator('[data-id="time/gone"]').waitFor()
  same('sites of today in the past', await page.locator('[data-id="time/one"]').count(), 0)
  await page.getByRole('grid').focus()
  await page.keyboard.press('x')
  await page.getByText('1 marked').waitFor()
  same('buttons in the past', await page.getByRole('button', { name: 'Delete…' }).count(), 0)
  await accessible(page, 'the past')
  await shot(page, 'past')
  await page.getByRole('link', { name: 'Matrix' }).click()
  await page.waitForURL(`**/matrix?asOf=${facts.before}`)
  await page.getByRole('link', { name: 'What changed since' }).click()
  await page.getByLabel('Kind').selectOption('site')
  await page.getByLabel('Filter').fill('id=time/**')
  await page.getByRole('button', { name: 'Compare' }).click()
  await page.getByText('2 sites differ, in 2 groups').waitFor()
  await page.getByRole('button', { name: /1 deleted/ }).click()
  await page.getByRole('link', { name: 'time/gone' }).waitFor()
  await shot(page, 'changes')
})

await test('the time slider moves the view to a time', {}, async page => {
  await open(page, '/sites?id=time/**')
  await page.getByRole('button', { name: 'As of now' }).click()
  const slider = page.getByRole('slider')
  await page.waitForFunction(() => !document.querySelector('input[type=range]').disabled)
  await slider.focus()
  await page.keyboard.press('ArrowLeft')
  await page.waitForURL(/asOf=\d{4}-\d\d-\d\dT/)
  await page.locator('header[data-moment^="20"]').waitFor()
  await page.getByRole('button', { name: 'Back to now' }).click()
  await page.locator('header.top[data-live=true]').waitFor()
})

await test('the time slider is where a relative moment is, and its keys move by little', {}, async page => {
  await answered(page, '**/api/v1/retention*', kept => ({ ...kept, oldestTimestamp: kept.now - 30 * 86_400_000 }))
  await page.goto(url + '/sites?id=time/**&asOf=1s')
  const slider = page.getByRole('slider')
  await slider.waitFor()
  await page.waitForFunction(() => !document.querySelector('input[type=range]').disabled)
  check(Number(await slider.inputValue()) >= 990, `the handle of a second ago is at ${await slider.inputValue()} of 1000`)
  await slider.focus()
  await page.keyboard.press('ArrowLeft')
  await page.keyboard.press('ArrowLeft')
  await page.waitForURL(/asOf=\d{4}-\d\d-\d\dT/)
  const ago = Date.now() - Date.parse(new URL(page.url()).searchParams.get('asOf'))
  check(ago < 120_000, `two keys from a second ago are ${Math.round(ago / 1000)} s ago`)
  check(!/\.\d+Z/.test(page.url()), 'the moment has milliseconds')
})

await test('each line of a package has who set it', {}, async page => {
  await open(page, '/sites/blamed/one?tab=package')
  await page.getByLabel('Who has set each line').check()
  const line = page.locator('pre div').filter({ hasText: 'text: second' })
  await line.locator('.blame').filter({ hasText: /^r2 / }).waitFor()
  check(/^r1 /.test(await page.locator('pre div').first().locator('.blame').innerText()), 'the first line is not of revision 1')
  await accessible(page, 'blame')
  await shot(page, 'blame')
})

await test('the header of a phone is one line, with the rest behind a button', { viewport: { width: 390, height: 800 } }, async page => {
  await open(page, '/sites')
  check((await page.locator('header.top').boundingBox()).height < 60, 'the header has more than one line')
  await page.locator('summary', { hasText: '☰' }).click()
  await accessible(page, 'the menu of a phone')
  await page.getByRole('button', { name: 'As of now' }).click()
  await page.getByRole('slider').waitFor()
})

await test('Ctrl-K goes to a view, or to an entity by the beginning of its ID', {}, async page => {
  await open(page, '/templates')
  await page.locator('.row').first().waitFor()
  await page.keyboard.press('Control+k')
  const box = page.getByRole('combobox', { name: 'View, or the beginning of an ID' })
  await box.fill('south/edge-2')
  await page.getByRole('option', { name: 'site south/edge-2' }).waitFor()
  await accessible(page, 'the palette')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/sites/south/edge-2')
  await page.keyboard.press('Control+k')
  await box.fill('matr')
  await page.keyboard.press('Enter')
  await page.waitForURL('**/matrix')
  await page.keyboard.press('Control+k')
  await page.keyboard.press('Escape')
  await box.waitFor({ state: 'detached' })
})

await test('a view for all is saved on the server, and opens in the palette of others', {}, async (page, context) => {
  await page.goto(`${url}/sites?metadata=region%3Dsouth`)
  await page.getByRole('button', { name: 'Views' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('No view is saved for all').waitFor()
  await dialog.getByLabel('Save it as').fill('shared-south')
  await dialog.getByRole('checkbox', { name: 'for all' }).check()
  await dialog.getByRole('button', { name: 'Save', exact: true }).click()
  await dialog.getByRole('list', { name: 'Views of all' }).getByRole('link', { name: 'shared-south' }).waitFor()
  await dialog.getByRole('list', { name: 'Views of all' }).getByText(/ago|now/).waitFor()
  await accessible(page, 'views of all')
  await shot(page, 'views')
  await dialog.getByLabel('Save it as').fill('a wrong name')
  await dialog.getByRole('checkbox', { name: 'for all' }).check()
  await dialog.getByRole('button', { name: 'Save', exact: true }).click()
  await dialog.getByRole('alert').waitFor()
  const other = await browser.newContext()
  const second = await other.newPage()
  await open(second, '/')
  await second.keyboard.press('Control+k')
  await second.getByRole('combobox', { name: /^View/ }).fill('shared')
  await second.getByRole('option', { name: 'saved view shared-south' }).click()
  await second.waitForURL('**/sites?metadata=region%3Dsouth')
  await other.close()
  await dialog.getByRole('button', { name: 'Remove shared-south for all' }).click()
  await dialog.getByText('No view is saved for all').waitFor()
})

await test('a view is saved with a name, opens from the palette, and its link shows the same', {}, async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  await open(page, '/sites?metadata=region%3Dsouth&cols=tier')
  await page.locator('[data-id="south/edge-1"]').waitFor()
  await page.getByRole('button', { name: 'Views' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Save it as').fill('the south')
  await page.keyboard.press('Enter')
  await dialog.getByRole('link', { name: 'the south' }).waitFor()
  await accessible(page, 'views')
  await dialog.getByRole('list', { name: 'Saved views' }).getByRole('button', { name: 'Copy link' }).click()
  const link = await page.evaluate(() => navigator.clipboard.readText())
  same('the link', link, url + '/sites?metadata=region%3Dsouth&cols=tier')
  await page.keyboard.press('Escape')
  await open(page, '/templates')
  await page.keyboard.press('Control+k')
  await page.getByRole('combobox', { name: /^View/ }).fill('the sou')
  await page.getByRole('option', { name: 'saved view the south' }).waitFor()
  await page.keyboard.press('Enter')
  await page.locator('[data-id="south/edge-1"]').waitFor()
  await page.getByRole('columnheader', { name: 'tier' }).waitFor()
  await page.getByRole('button', { name: 'Views' }).click()
  await dialog.getByRole('button', { name: 'Remove the south' }).click()
  await dialog.getByText('No view is saved in this browser').waitFor()
  await page.evaluate(() => localStorage.setItem('tko-views', '[{"name":1},{"name":"x","to":"//evil.test"},7]'))
  await page.reload()
  await page.getByRole('button', { name: 'Views' }).click()
  await dialog.getByText('No view is saved in this browser').waitFor()
})

await test('what changed begins with the last day, or with what is retained of it', {}, async page => {
  await open(page, '/changes')
  await page.getByText(/deployments? differ/).waitFor() // since the second after the first change: the server is younger than a day
  const from = await page.getByLabel('From').inputValue()
  same('command', await page.locator('.command code').innerText(), `$ tko diff deployment --from ${from}`)
  const now = Date.parse('2026-11-30T12:00:00Z')
  await page.route('**/api/v1/retention*', route => route.fulfill({ json: { oldestPosition: '7', newestPosition: '9', oldestTimestamp: now - 3600_000, newestTimestamp: now, now } }))
  const asked = async () => { const [request] = await Promise.all([page.waitForRequest(r => r.url().includes('/api/v1/diff')), page.goto(url + '/changes')]); return new URL(request.url()).searchParams.get('from') }
  same('from, with a short past', await asked(), '2026-11-30T11:00:01Z')
  await page.unrouteAll({ behavior: 'ignoreErrors' })
  await page.route('**/api/v1/retention*', route => route.fulfill({ json: { oldestPosition: '7', newestPosition: '9', oldestTimestamp: now - 48 * 3600_000, newestTimestamp: now, now } }))
  same('from', await asked(), '1d')
  await page.unrouteAll({ behavior: 'ignoreErrors' })
})

await test('cells of the matrix are as warm as the share that fails', {}, async page => {
  const group = (tier, count, failing) => ({ keys: ['north', tier], count, states: { failing, healthy: count - failing } })
  await page.route('**/api/v1/site/count*', route => route.fulfill({ json: { position: '1', counted: 251, groups: [group('a', 222, 4), group('b', 29, 1), group('c', 20, 0), group('d', 8, 8)], other: group('', 0, 0) } }))
  await page.goto(url + '/matrix?rows=region&cols=tier')
  const cell = text => page.getByRole('cell', { name: text })
  const heat = async text => Number((await cell(text).getAttribute('class')).replace('heat', ''))
  same('4 of 222', await cell('4 of 222').innerText(), '4 of 222 failing, 1.8 %')
  check(await heat('4 of 222') < await heat('1 of 29') && await heat('1 of 29') < await heat('8 of 8') && await heat('0 of 20') === 0, 'the share does not order the heat')
  await accessible(page, 'a matrix with all heats')
})

await test('a topology is a graph that opens at what fails, with names and exact numbers, and reads only what it draws', {}, async page => {
  const lists = []
  let rows = 0
  page.on('response', async r => { if (r.url().includes('/deployment/list')) { lists.push(new URL(r.url()).searchParams); rows += (await r.json()).rows.length } })
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.locator('.node .onward').first().waitFor()
  await page.getByText('nodes stand for 200 children; 25 failing').waitFor()
  const nodes = await nodesOf(page)
  same('nodes before the failing ones', nodes.slice(0, 4).join(', '), '1 core, 2 smf:v1, 3 region north, 4 25 failing')
  same('failing ones', nodes.slice(4, 16).filter(n => /^5 smf at north\/edge-\d+$/.test(n)).length, 12)
  same('nodes after them', nodes.slice(16).join(', '), '5 13 more, 4 35 working, 3 region west, 2 upf:v1')
  const about = key => page.locator(`[data-key="${key}"]`).innerText().then(t => t.replaceAll(/\s+/g, ' '))
  check((await about(facts.core)).includes('200: 25 failing, 175 working'), `the topology: ${await about(facts.core)}`)
  check((await about(`${facts.core}/tcore~1smf:v1`)).includes('100: 25 failing, 75 working'), `the template: ${await about(`${facts.core}/tcore~1smf:v1`)}`)
  check((await about(`${facts.core}/tcore~1smf:v1/vnorth`)).includes('60: 25 failing, 35 working'), 'the numbers of north are wrong')
  check((await about(`${facts.core}/tcore~1smf:v1/vwest`)).includes('40: 40 working'), 'the numbers of west are wrong')
  same('lists', lists.map(q => `${q.getAll('within')} ${q.get('state')} ${q.get('limit')}`).join('; '), 'template=core/smf:v1,site-metadata.region=north failing 12')
  check(rows <= 12, `${rows} rows were read for 12`)
  same('IDs in the graph', (await page.getByRole('tree').innerText()).match(longID), null)
  const drawn = await page.locator('.edges path').count()
  same('edges', drawn, nodes.length - 1)
  same('selected', (await page.locator('[role=treeitem][aria-selected=true] .hidden').first().textContent()).startsWith('smf at north/edge-'), true)
  check(await page.locator('[role=treeitem][aria-selected=true]').evaluate(e => { const r = e.getBoundingClientRect(), v = e.closest('.tree').getBoundingClientRect(); return r.top >= v.top && r.bottom <= v.bottom && r.left >= v.left && r.right <= v.right }), 'what fails is not in view')
  await shot(page, 'graph')
})

await test('a group of the graph shows all of its deployments on request, also if pages are short', {}, async page => {
  await answered(page, '**/api/v1/deployment/list*', body => { // pages of three
    const rows = body.rows.slice(0, 3)
    return { ...body, rows, next: rows.length < body.rows.length || body.next ? rows.at(-1)?.id ?? '' : undefined }
  })
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.getByRole('button', { name: '13 more' }).waitFor()
  same('deployments', (await nodesOf(page)).filter(n => n.startsWith('5 smf at')).length, 12)
  await page.getByRole('button', { name: '13 more' }).click()
  await page.waitForFunction(() => document.querySelectorAll('[role=treeitem][aria-level="5"]').length === 25)
  same('more', await page.locator('.tree .more').count(), 0)
  const names = (await nodesOf(page)).filter(n => n.startsWith('5 '))
  same('different names', new Set(names).size, 25)
  await page.unrouteAll({ behavior: 'ignoreErrors' })
})

await test('the graph is moved through, opened and closed by keys, and its address shows the same', {}, async page => {
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.locator('.node .onward').first().waitFor()
  const tree = page.getByRole('tree'), at = () => page.locator('[role=treeitem][aria-selected=true]').getAttribute('data-key')
  await tree.focus()
  await page.keyboard.press('Escape')
  same('after Escape', await at(), facts.core)
  await page.keyboard.press('ArrowRight')
  same('after Right', await at(), `${facts.core}/tcore~1smf:v1`)
  await page.keyboard.press('ArrowDown')
  same('after Down, in the column', await at(), `${facts.core}/tcore~1upf:v1`)
  await page.keyboard.press('ArrowRight')
  await page.locator(`[data-key="${facts.core}/tcore~1upf:v1/vnorth"]`).waitFor()
  await page.keyboard.press('ArrowRight')
  await page.keyboard.press(' ')
  await page.locator('[role=treeitem][aria-level="4"]', { hasText: 'upf at north/edge-' }).nth(11).waitFor()
  await page.keyboard.press('ArrowRight')
  const leaf = await at()
  await page.keyboard.press('ArrowRight')
  await page.locator(`[data-key="${leaf}/o0"]`, { hasText: 'upf' }).waitFor()
  await page.keyboard.press('ArrowRight')
  same('an object', await at(), `${leaf}/o0`)
  await page.keyboard.press('ArrowLeft')
  await page.waitForURL(url => url.searchParams.get('at') === leaf)
  const before = await nodesOf(page)
  await page.reload()
  await page.locator(`[data-key="${leaf}/o0"]`).waitFor()
  await page.waitForFunction(n => document.querySelectorAll('[role=treeitem]').length === n, before.length)
  same('after a reload', (await nodesOf(page)).join(), before.join())
  same('selected after a reload', await at(), leaf)
  await tree.focus()
  await page.keyboard.press('ArrowLeft')
  await page.locator(`[data-key="${leaf}"][aria-expanded=false]`).waitFor()
  await page.keyboard.press('Home')
  await page.keyboard.press('ArrowRight')
  await page.keyboard.press('ArrowLeft')
  await page.locator(`[data-key="${facts.core}/tcore~1smf:v1"][aria-expanded=false]`).waitFor()
  await page.getByRole('button', { name: 'Open what fails' }).click()
  await page.getByRole('button', { name: '13 more' }).waitFor()
  check(!page.url().includes('open='), 'the address still has what was open')
  await tree.focus()
  await page.keyboard.press('Enter')
  await page.locator('article h1', { hasText: 'smf at north/edge-' }).waitFor()
})

await test('an ID is shown on demand, and the difference to what is applied is one click from a deployment', {}, async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write'])
  await open(page, `/deployments/${facts.core}?tab=tree`)
  const node = page.locator('.node', { has: page.locator('.onward') }).first()
  const id = await node.getAttribute('title')
  check(longID.test(id), `the title is ${id}`)
  await node.click({ position: { x: 100, y: 40 } })
  const chosen = page.getByRole('region', { name: 'Selected node' })
  await chosen.getByRole('heading', { name: /^smf at north\/edge-/ }).waitFor()
  await chosen.getByText('pool 10.1.0.0/16 is exhausted').waitFor()
  await chosen.getByRole('button', { name: 'Copy ID' }).click()
  same('the copied ID', await page.evaluate(() => navigator.clipboard.readText()), id)
  await node.getByRole('link', { name: /^Desired against applied of smf at/ }).click()
  await page.waitForURL(`**/deployments/${id}?tab=applied`)
})

await test('the graph as a list has the same nodes, and is the default on a phone', {}, async page => {
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.locator('.node .onward').first().waitFor()
  const nodes = await nodesOf(page)
  await page.getByRole('button', { name: 'As a list' }).click()
  await page.locator('.leaf .onward').first().waitFor()
  same('nodes of the list', (await nodesOf(page)).join(), nodes.join())
  await page.locator('[role=grid] .row').first().waitFor()
  await page.getByRole('tree').focus()
  await page.keyboard.press('Home')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('ArrowDown')
  same('the third', await page.locator('[role=treeitem][aria-selected=true]').getAttribute('data-key'), `${facts.core}/tcore~1smf:v1/vnorth`)
  await page.setViewportSize({ width: 390, height: 800 })
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.locator('.leaf .onward').first().waitFor()
  await page.getByRole('button', { name: 'As a graph' }).click()
  await page.locator('.node .onward').first().waitFor()
})

await test('the graph groups by any metadata of the sites, or by none', {}, async page => {
  await open(page, `/deployments/${facts.core}?tab=tree`)
  await page.locator('.node .onward').first().waitFor()
  same('the key at first', await page.getByLabel('Group by').inputValue(), 'region')
  await page.getByLabel('Group by').selectOption('tier')
  await page.waitForURL('**group=tier*')
  await page.getByRole('treeitem').filter({ hasText: /^tier tier-/ }).first().waitFor()
  await page.locator('.node .onward').first().waitFor()
  const sums = await page.locator('[role=treeitem][aria-level="3"]').evaluateAll(all => all.map(e => Number(/(\d+):/.exec(e.textContent)[1])))
  same('the sum of the tiers', sums.reduce((a, b) => a + b, 0), 100)
  await page.getByLabel('Group by').selectOption('')
  await page.waitForURL('**group=-*')
  await page.locator('.node .onward').first().waitFor()
  same('below a template', (await nodesOf(page)).filter(n => n.startsWith('3 ')).join(), '3 25 failing,3 75 working')
})

await test('groups without a value lead to their lists', {}, async page => {
  await open(page, `/deployments/${facts.core}?tab=tree&group=nosuch`)
  await page.getByRole('treeitem').getByRole('link', { name: 'no nosuch' }).first().click()
  const chip = page.getByRole('button', { name: 'Remove the filter without nosuch at the site' })
  await chip.waitFor()
  await page.locator('[role=grid] .row').first().waitFor()
  same('the list', new URL(page.url()).searchParams.getAll('within').join(), 'site-metadata.nosuch=')
  await page.getByText(/^(At least )?100 deployments/).waitFor()
  await open(page, '/matrix?rows=latitude&cols=tier')
  await page.getByRole('row', { name: /^none/ }).getByRole('link').first().click()
  await page.locator('[role=grid] .row').first().waitFor()
  await page.goto(`${url}/sites?metadata=region%3Dnorth&within=metadata.latitude%3D&within=state%3Dhealthy`)
  await page.locator('[data-id="north/edge-10"]').waitFor()
  same('a site with a latitude', await page.locator('[data-id="north/edge-1"]').count(), 0)
  await page.getByRole('button', { name: 'Remove the filter without latitude' }).click()
  await page.locator('[data-id="north/edge-1"]').waitFor()
  same('the other group', new URL(page.url()).searchParams.getAll('within').join(), 'state=healthy')
})

await test('numbers of a graph that are not complete are shown as such', {}, async page => {
  await answered(page, '**/api/v1/deployment/count*', count => ({ ...count, counting: true, behind: true }))
  await page.goto(`${url}/deployments/${facts.core}?tab=tree`)
  await page.getByText('at least 200 children (counting…); at least 25 failing').waitFor()
  await page.getByRole('treeitem').filter({ hasText: 'smf:v1' }).getByText('at least 100: 25 failing').waitFor()
  await page.unrouteAll({ behavior: 'ignoreErrors' })
})

await test('a graph states how many children are in groups that it leaves out', {}, async page => {
  await answered(page, '**/api/v1/deployment/count*', count => ({ ...count, other: { ...count.other, count: 1234 } }))
  await page.goto(`${url}/deployments/${facts.root}?tab=tree`)
  await page.getByText('1,234 of them in smaller groups, which are not drawn').waitFor()
})

await test('the graph of a template has all deployments that were made from it', {}, async page => {
  await open(page, '/templates/core/smf%3Av1?tab=tree')
  await page.locator('.node .onward').first().waitFor()
  same('nodes', (await nodesOf(page)).slice(0, 3).join(), '1 smf:v1,2 region north,3 25 failing')
  await page.getByText('nodes stand for 100 deployments; 25 failing').waitFor()
})

await test('the graph opens to any depth, and a search reveals a deployment', {}, async page => {
  await open(page, `/deployments/${facts.root}?tab=tree`)
  const tree = page.getByRole('tree')
  await tree.getByText('60: 60 working').waitFor()
  same('nodes at first', (await nodesOf(page)).join(), '1 cu at north/edge-50,2 upf,2 smf')
  await tree.getByRole('button', { name: 'Open leaf/upf' }).click()
  await tree.getByRole('button', { name: 'Open north' }).click()
  await page.waitForFunction(() => document.querySelectorAll('[role=treeitem][aria-level="4"]').length === 13)
  await tree.getByRole('button', { name: '48 more' }).click()
  await page.waitForFunction(() => document.querySelectorAll('[role=treeitem][aria-level="4"]').length === 60)
  await tree.getByRole('button', { name: 'Close leaf/upf' }).click()
  await page.getByLabel('Search the graph').fill(facts.leaf)
  await page.keyboard.press('Enter')
  await page.getByText('Found disk at north/edge-202, 3 levels down').waitFor()
  await tree.locator(`[data-key="${facts.leaf}"][aria-level="7"][aria-selected=true]`).waitFor()
  await accessible(page, 'graph')
  // A deployment that is not among the first of a large group is drawn in addition.
  await page.getByLabel('Search the graph').fill('north/edge-159')
  await page.keyboard.press('Enter')
  await page.getByText('Found upf at north/edge-159, 1 level down').waitFor()
  await tree.locator('[aria-selected=true]', { hasText: 'upf at north/edge-159' }).waitFor()
  await page.getByLabel('Search the graph').fill('nowhere')
  await page.keyboard.press('Enter')
  await page.getByText('No deployment of this graph matches').waitFor()
  const before = (await tree.getByRole('treeitem').first().boundingBox()).height
  await page.getByRole('button', { name: 'Zoom in' }).click()
  check((await tree.getByRole('treeitem').first().boundingBox()).height > before, 'zoom does not enlarge the nodes')
  execFileSync(tko, ['deployment', 'create', 'leaf/disk', '--parent', facts.root])
  await tree.getByRole('treeitem', { level: 2 }).filter({ hasText: 'disk' }).waitFor()
})

await test('what was applied at the site is compared with what is desired', {}, async page => {
  await open(page, `/deployments/${facts.behind}?tab=applied`)
  await page.getByRole('heading', { name: 'Applied revision 1 and desired revision 2' }).waitFor()
  const difference = page.getByRole('region', { name: 'Differences' })
  await difference.locator('.add', { hasText: 'text: v2' }).waitFor()
  await difference.locator('.del', { hasText: 'text: v1' }).waitFor()
  await accessible(page, 'what was applied')
  await shot(page, 'applied')
  await page.getByRole('tab', { name: 'Events' }).click()
  await page.getByRole('row', { name: /revision 2/ }).getByText('v2').waitFor()
  await page.getByRole('row', { name: /Scheduled is True/ }).waitFor()
})

await test('the picture has a tile for each site, and keys go to those that fail', {}, async page => {
  await open(page, '/')
  const canvas = page.getByRole('application')
  await page.waitForFunction(() => Number(document.querySelector('canvas')?.dataset.drawn) > 2500 && document.querySelector('.picture').getAttribute('aria-busy') === 'false')
  same('what groups the sites', await page.getByLabel('Group by').inputValue(), 'region')
  const drawn = () => canvas.evaluate(e => { const c = e.getContext('2d').getImageData(0, 0, e.width, e.height).data; let n = 0; for (let i = 3; i < c.length; i += 4) if (c[i] > 100) n++; return n })
  check(await drawn() > 50_000, `${await drawn()} points of the picture are drawn`)
  await canvas.focus()
  await page.keyboard.press('n')
  const pointed = page.locator('.picture output')
  await pointed.getByText('Failing').waitFor()
  const first = await pointed.innerText()
  await page.keyboard.press('n')
  check(await pointed.innerText() !== first, 'n stays on the same site')
  await page.getByText('Groups, as a table').click()
  const table = page.getByRole('region', { name: 'Sites by group' })
  const row = table.getByRole('row', { name: /^south / })
  same('the group south', (await row.innerText()).split(/\s+/).slice(0, 3).join(' '), 'south 3 1')
  await accessible(page, 'the picture')
  await page.getByLabel('Group by').selectOption('tier')
  await page.waitForURL('**/?by=tier')
  await table.getByRole('row', { name: /^tier-1 / }).waitFor()
  await canvas.focus()
  await page.keyboard.press('n')
  await page.keyboard.press('Enter')
  await page.locator('article h1').waitFor()
  check(new URL(page.url()).pathname.startsWith('/sites/'), `Enter opens ${page.url()}`)
})

await test('the map shows the sites that have a place', {}, async page => {
  await open(page, '/')
  await page.getByLabel('Group by').selectOption('map')
  await page.waitForURL('**/?by=map')
  await page.getByText(/^50 of [\d,]+ sites have a place/).waitFor()
  const box = await page.getByRole('application').boundingBox()
  let found = ''
  for (let x = 20; x < box.width && !found; x += 6) { await page.mouse.move(box.x + x, box.y + box.height / 2); found = await page.locator('.pointed').innerText({ timeout: 50 }).catch(() => '') }
  check(/north\/edge-/.test(found), 'no site is found on the map')
})

await test('the wall is one screen, larger, and Escape leaves it', { viewport: { width: 1920, height: 1080 } }, async page => {
  await open(page, '/')
  const before = await page.locator('[data-number=failing] b').evaluate(e => parseFloat(getComputedStyle(e).fontSize))
  await page.getByRole('button', { name: 'Wall', exact: true }).click()
  await page.waitForURL('**/?wall=1')
  await page.waitForFunction(() => Number(document.querySelector('canvas')?.dataset.drawn) > 2500 && document.querySelector('.picture').getAttribute('aria-busy') === 'false')
  check(await page.evaluate(() => document.documentElement.scrollHeight <= innerHeight + 1), 'the wall is higher than the screen')
  check(await page.locator('.canvas').evaluate(e => e.clientHeight) > 400, 'the picture is small')
  check(await page.locator('[data-number=failing] b').evaluate(e => parseFloat(getComputedStyle(e).fontSize)) > 1.5 * before, 'its type is not larger')
  await page.getByRole('heading', { name: /Failing now: \d+ of/ }).waitFor()
  await page.getByRole('heading', { name: /^Rollouts: .* under way$/ }).waitFor()
  await accessible(page, 'the wall')
  await shot(page, 'wall')
  await page.keyboard.press('Escape')
  await page.locator('header.top').waitFor()
})

await test('numbers have their course over the last day, with gaps where it is not known', {}, async page => {
  await open(page, '/')
  await page.locator('[data-number=failing] .spark path').first().waitFor() // the server has taken numbers since its start
  same('a number that has no course', await page.locator('[data-number=unknown] .spark').count(), 0)
  const end = 1_900_000_000_000, step = 300_000
  const point = (ago, failing) => ({ time: end - ago * step, failing, working: 0, healthy: 90 - failing, reporting: 90, unapproved: 2 })
  await page.route('**/api/v1/fleet/day', route => route.fulfill({ json: { begin: end - 288 * step, end, step, points: [...Array.from({ length: 100 }, (_, i) => point(280 - i, i % 50)), ...Array.from({ length: 30 }, (_, i) => point(30 - i, 3))] } }))
  await page.route('**/api/v1/fleet*', route => route.fulfill({ json: { exact: true, position: '1', sites: { healthy: 3 }, deployments: { failing: 7, healthy: 83, unknown: 1 }, unapproved: 2 } }))
  await page.goto(url + '/')
  const failing = page.getByRole('img', { name: 'Failing deployments in the last 24 hours: 0 to 49, 7 now; not known for 13 hours' })
  await failing.waitFor()
  same('lines', await failing.locator('path').count(), 2)
  await page.getByRole('img', { name: /^Healthy deployments in the last 24 hours: 45\.55 % to 100 %, 92\.22 % now/ }).waitFor()
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    const [line, number] = await Promise.all(['.spark path', 'b'].map(of => page.locator(`[data-number=failing] ${of}`).first().evaluate((e, of) => getComputedStyle(e)[of === 'b' ? 'color' : 'stroke'], of)))
    same(`the color of the line, ${colorScheme}`, line, number)
    await accessible(page, `numbers with their course, ${colorScheme}`)
    await page.screenshot({ path: `${shots}/course-${colorScheme}.png` })
  }
  await page.setViewportSize({ width: 390, height: 800 })
  const box = await failing.boundingBox()
  check(box && box.width > 60 && box.x + box.width < 390, `on a phone the course is ${JSON.stringify(box)}`)
  await page.screenshot({ path: `${shots}/course-phone.png` })
  await page.route('**/api/v1/fleet/day', route => route.fulfill({ json: { begin: end - 288 * step, end, step, points: [point(3, 5), point(2, 6), point(1, 7)] } }))
  await page.goto(url + '/')
  await page.getByRole('img', { name: 'Failing deployments in the last hour: 5 to 7, 7 now; not known for 45 minutes' }).waitFor()
  await page.goto(url + '/?asOf=1s')
  await page.locator('[data-number=failing] b').waitFor()
  same('the course in the past', await page.locator('.spark').count(), 0)
  await page.unrouteAll({ behavior: 'ignoreErrors' })
})

await test('numbers that are not counted yet are not shown', {}, async page => {
  await page.route('**/api/v1/fleet*', route => route.fulfill({ json: { exact: false, sites: {}, deployments: {}, unapproved: 0 } }))
  await answered(page, '**/api/v1/wall*', wall => ({ ...wall, counting: true, behind: true, deployments: {}, failures: [], unapproved: 0 }))
  await page.goto(url + '/')
  await page.getByRole('heading', { name: 'Failing now: counting…' }).waitFor()
  await page.locator('[data-number=failing]').getByText('counting…').waitFor()
  const shown = (await page.locator('.numbers li > :not(.course)').allInnerTexts()).join()
  check(/counting/.test(shown) && !/\d/.test(shown), `numbers are shown: ${shown}`)
  same('claims', await page.getByText('No deployment fails').count(), 0)
  await page.unrouteAll({ behavior: 'ignoreErrors' }) // a request may be under way
})

await test('numbers that the server has at hand are shown while the picture is counted', {}, async page => {
  await page.route('**/api/v1/wall*', async route => {
    const response = await route.fetch(), wall = await response.json()
    await route.fulfill({ response, json: { ...wall, counting: true, behind: true, deployments: {}, failures: [], unapproved: 0 } })
  })
  await page.route('**/api/v1/fleet*', route => route.fulfill({ json: { exact: true, position: '1', sites: { healthy: 3 }, deployments: { failing: 2, healthy: 5 }, unapproved: 4 } }))
  await page.goto(url + '/')
  await page.getByRole('heading', { name: 'Failing now: 2 of 7 deployments' }).waitFor()
  same('waiting', await page.locator('[data-number=waiting] b').innerText(), '4')
  same('sites', await page.locator('[data-number=unknown] b').innerText(), 'counting…')
  await page.unrouteAll({ behavior: 'ignoreErrors' })
})

await test('the overview shows the throughput by minute, and it grows with changes', {}, async page => {
  await open(page, '/')
  await page.locator('section[aria-labelledby=throughput][aria-busy=false]').waitFor()
  const others = page.locator('[data-series="Changed by others"] b')
  const before = Number((await others.innerText()).replaceAll(',', ''))
  check(before > 0, 'the changes of the last hour are not counted')
  execFileSync(tko, ['deployment', 'create', 'leaf/disk', '--site', 'north/edge-400'])
  await page.waitForFunction(n => Number(document.querySelector('[data-series="Changed by others"] b').textContent.replaceAll(',', '')) > n, before)
  await page.getByText('By minute, as a table').click()
  await page.getByRole('region', { name: 'Throughput by minute' }).getByRole('row').nth(1).waitFor()
})

await test('what a list needs is requested once, before the page is drawn', {}, async page => {
  await page.addInitScript(() => {
    window.asked = []
    const whole = window.fetch
    window.fetch = (path, ...rest) => { window.asked.push({ path: String(path), drawn: !!document.querySelector('header.top') }); return whole(path, ...rest) }
  })
  for (const [path, list] of [['/deployments', '/api/v1/deployment/list?limit=100'], ['/sites?id=north/**&cols=tier', '/api/v1/site/list?id=north%2F**&limit=100']]) {
    await open(page, path)
    await page.locator('.row').first().waitFor()
    const asked = (await page.evaluate(() => window.asked)).filter(a => /\/v1\/(me|\w+\/list)/.test(a.path))
    same(`the requests of ${path}`, JSON.stringify(asked), JSON.stringify([{ path: '/api/v1/me', drawn: false }, { path: list, drawn: false }]))
  }
})

await test('a request that was made early and has failed is made again', {}, async page => {
  let refused = 0
  await page.route('**/api/v1/deployment/list?*', route => refused++ === 0 ? route.abort() : route.continue())
  await open(page, '/deployments')
  await page.locator('.row').first().waitFor()
  check(refused >= 2, 'the list was not requested again')
})

await test('metadata becomes columns that the address keeps', {}, async page => {
  await open(page, '/sites?id=north/**')
  await page.locator('.row').first().waitFor()
  await page.getByText('Columns', { exact: true }).click()
  await page.getByRole('checkbox', { name: 'tier' }).check()
  await page.waitForURL('**/sites?id=north%2F**&cols=tier')
  await page.getByRole('columnheader', { name: 'tier' }).waitFor()
  await page.reload()
  await page.getByRole('columnheader', { name: 'tier' }).waitFor()
  same('cell', await page.locator('[data-id="north/edge-1"] [data-label=tier]').innerText(), 'tier-0')
  same('the column that a list is in the order of', await page.locator('[role=columnheader][aria-sort=ascending]').allInnerTexts().then(all => all.join()), 'ID')
  const ids = await page.locator('.row').evaluateAll(all => all.map(e => e.dataset.id))
  same('the order of rows', ids.join(), [...ids].sort().join())
  await page.getByLabel('Filter').fill('id=north/edge-1*')
  await page.keyboard.press('Enter')
  await page.waitForURL('**cols=tier')
  await page.getByRole('columnheader', { name: 'tier' }).waitFor()
})

if (tokenUrl) {
  const askForLogin = async (page, path) => {
    const heading = page.getByRole('heading', { name: 'Log in to TKO' })
    await page.goto(tokenUrl + path)
    await heading.or(page.getByRole('button', { name: 'Log in' })).first().waitFor()
    if (await heading.count() === 0) await page.getByRole('button', { name: 'Log in' }).click()
    await heading.waitFor()
  }
  const login = async (page, path, token) => {
    await askForLogin(page, path)
    await page.getByLabel('Token').fill(token)
    await page.getByRole('button', { name: 'Log in' }).click()
    await page.getByRole('button', { name: 'Log out' }).waitFor()
  }
  await test('a viewer logs in with a token, sees no buttons that would be refused, and logs out', {}, async (page, context) => {
    await askForLogin(page, '/sites')
    await accessible(page, 'login')
    await page.screenshot({ path: `${shots}/login-light-1440.png` })
    await page.getByLabel('Token').fill('wrong')
    await page.getByRole('button', { name: 'Log in' }).click()
    await page.getByRole('alert').waitFor()
    await page.getByLabel('Token').fill(viewer)
    await page.getByRole('button', { name: 'Log in' }).click()
    await page.locator('[data-id="one"]').waitFor()
    await page.getByRole('grid').focus()
    await page.keyboard.press('x')
    await page.getByText('1 marked').waitFor()
    same('delete buttons of a viewer', await page.getByRole('button', { name: 'Delete…' }).count(), 0)
    const cookies = await context.cookies()
    check(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === 'Lax', `cookies: ${JSON.stringify(cookies)}`)
    const leaked = await page.evaluate(secret => JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage }) + document.cookie + location.href + document.documentElement.outerHTML.includes(secret), viewer)
    check(!leaked.includes(viewer) && leaked.endsWith('false'), 'scripts can read the token')
    const refused = await page.evaluate(async () => (await fetch('/api/v1/actions', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ verb: 'delete', kind: 'site', ids: ['one'], confirm: 1 }) })).status)
    same('status of a deletion by a viewer', refused, 403)
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByRole('heading', { name: 'Log in to TKO' }).waitFor()
    same('cookies after the logout', (await context.cookies()).length, 0)
  })
  const runs = async (page, path, lines) => {
    await page.goto(tokenUrl + path)
    await page.locator('.run', { hasText: 'failed' }).first().waitFor()
    same('a note about the log', await page.getByText("only with the right to the server's log").count(), lines ? 0 : 1)
  }
  await test('runs of plugins are listed, and prepared deployments count', {}, async page => {
    await login(page, '/plugins', viewer)
    await runs(page, '/plugins/prepare%7Cgreeter?tab=runs', false)
    await accessible(page, 'runs')
    await shot(page, 'runs')
    await page.locator('.run a').first().click()
    await page.getByRole('tab', { name: 'Plugin runs' }).click()
    await page.locator('.run', { hasText: 'prepare greeter' }).first().waitFor()
    await page.getByRole('link', { name: 'Overview' }).click()
    await page.waitForFunction(() => Number(document.querySelector('[data-series=Prepared] b')?.textContent) > 0)
    await shot(page, 'throughput')
  })
  await test('an administrator sees the buttons', {}, async page => {
    await login(page, '/plugins', admin)
    await runs(page, '/plugins/prepare%7Cgreeter?tab=runs', true)
    await page.goto(tokenUrl + '/sites')
    await page.locator('[data-id="one"]').waitFor()
    await page.getByRole('grid').focus()
    await page.keyboard.press('x')
    await page.getByRole('button', { name: 'Delete…' }).waitFor()
  })
}

await browser.close()
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed ? 1 : 0)
