// Logs in with single sign-on in a real browser. The Go test in test/login, which has started the server and a real issuer, starts it.
// Environment: URL (of the dashboard), ADDRESS (HOST:PORT at which it is), ISSUER, BROWSER.
import { chromium } from 'playwright-core'

const { URL: url, ADDRESS: address, ISSUER: issuer, BROWSER: executablePath } = process.env
const limit = 120_000
// The certificates are of authorities of the test.
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-background-networking', `--host-resolver-rules=MAP ${new URL(url).host}:443 ${address}`] })
const check = (ok, text) => { if (!ok) throw new Error(text) }
const same = (what, got, want) => check(got === want, `${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)

async function test(name, run) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 } })
  const page = await context.newPage()
  page.setDefaultTimeout(limit)
  try {
    await run(page, context)
    console.log(`ok ${name}`)
  } catch (e) {
    process.exitCode = 1
    console.log(`FAIL ${name}: ${e.message}\n# ${page.url()} shows: ${(await page.locator('body').innerText({ timeout: 5000 }).catch(() => '')).slice(0, 600)}`)
  } finally { await context.close() }
}

const heading = page => page.getByRole('heading', { name: 'Log in to TKO' })

// login begins at a view, and returns to it by way of the issuer.
async function login(page, user, to) {
  await page.goto(url + to)
  await heading(page).or(page.getByRole('button', { name: 'Log in' })).first().waitFor()
  if (await heading(page).count() === 0) await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByRole('link', { name: 'Log in with single sign-on' }).click()
  await page.waitForURL(u => u.href.startsWith(issuer))
  await page.locator(`a[href*="/auth/${user}?"]`).click()
  await page.waitForURL(url + to)
  await page.getByRole('button', { name: 'Log out' }).waitFor()
}

async function mark(page) {
  await page.locator('[data-id="north/one"]').waitFor()
  await page.getByRole('grid').focus()
  await page.keyboard.press('x')
  await page.getByText('1 marked').waitFor()
}

await test('a viewer logs in, sees the name and no refused button, and logs out', async (page, context) => {
  await login(page, 'ann', '/sites?metadata=region%3Dnorth')
  await page.locator('header.top').getByText('ann@example.org', { exact: true }).waitFor()
  await mark(page)
  same('delete buttons of a viewer', await page.getByRole('button', { name: 'Delete…' }).count(), 0)
  const cookies = (await context.cookies(url)).map(c => `${c.name} ${c.httpOnly} ${c.secure} ${c.sameSite}`)
  same('cookies', cookies.join(), '__Host-tko true true Lax')
  same('what scripts can read', await page.evaluate(() => document.cookie + JSON.stringify({ ...sessionStorage }) + [...Object.values(localStorage)].filter(v => v.split('.').length === 3)), '{}')
  await page.getByRole('button', { name: 'Log out' }).click()
  await heading(page).waitFor()
  same('cookies after the logout', (await context.cookies(url)).length, 0)
  same('status after the logout', await page.evaluate(async () => (await fetch('/api/v1/site/list')).status), 403)
  await page.reload()
  check(await page.locator('[data-id="north/one"]').count() === 0, 'sites are shown after the logout')
})

await test('the rights are those of the groups at the issuer', async page => {
  await login(page, 'eve', '/sites')
  await mark(page)
  await page.getByRole('button', { name: 'Delete…' }).waitFor()
})

await browser.close()
