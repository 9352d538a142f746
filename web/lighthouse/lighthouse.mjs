// Measures the dashboard with Lighthouse. The Go test in test/dashboard, which has filled a server, starts it.
// Environment: URL, BROWSER, FACTS.
import lighthouse, { desktopConfig } from 'lighthouse'
import { launch } from 'chrome-launcher'

const { BROWSER: chromePath } = process.env
const url = process.env.URL.replace('[::1]', 'localhost') // which Lighthouse takes for local, and so for secure without TLS
const facts = JSON.parse(process.env.FACTS)
const views = [['overview', '/'], ['list', '/deployments'], ['detail', `/deployments/${facts.root}?tab=tree`], ['rollout', '/rollouts/text-v2?tab=plan'], ['matrix', '/matrix?rows=region&cols=tier']]
// The stream of changes keeps the network busy for ever, so a load ends with its time.
const categories = ['performance', 'accessibility', 'best-practices']

const chrome = await launch({ chromePath, chromeFlags: ['--headless=new', '--no-sandbox', '--disable-background-networking'], logLevel: 'error' })
console.log('| view | window | performance | accessibility | best practices | first contentful paint | blocking time | layout shift |\n|---|---|---|---|---|---|---|---|')
for (const [name, path] of views) for (const form of ['desktop', 'phone']) {
  const { lhr } = await lighthouse(url + path, { port: chrome.port, output: 'json', logLevel: 'error', onlyCategories: categories, maxWaitForLoad: 15_000 }, form === 'desktop' ? desktopConfig : undefined)
  const score = c => Math.round(100 * lhr.categories[c].score)
  console.log(`| ${name} | ${form} | ${categories.map(score).join(' | ')} | ${['first-contentful-paint', 'total-blocking-time', 'cumulative-layout-shift'].map(a => lhr.audits[a].displayValue).join(' | ')} |`)
  for (const category of ['accessibility', 'best-practices']) for (const { id, weight } of lhr.categories[category].auditRefs) {
    const audit = lhr.audits[id]
    if (weight === 0 || audit.score === null || audit.score === 1) continue
    console.log(`FAIL ${name}, ${form}: ${id}: ${audit.title}: ${JSON.stringify(audit.details?.items?.slice(0, 3) ?? []).slice(0, 600)}`)
    process.exitCode = 1
  }
}
chrome.kill()
