// Measures the dashboard with Lighthouse. The Go test in test/dashboard, which has filled a server, starts it.
// Environment: URL, BROWSER, FACTS; RUNS of each view, whose median is printed (3); VIEWS and FORMS, names with commas (all).
// MINIMUM is the performance of a phone below which it fails (none).
import lighthouse, { desktopConfig } from 'lighthouse'
import { launch } from 'chrome-launcher'

const { BROWSER: chromePath, RUNS: runs = '3', VIEWS: wanted, FORMS: forms = 'desktop,phone', MINIMUM: minimum = '0' } = process.env
const url = process.env.URL.replace('[::1]', 'localhost') // which Lighthouse takes for local, and so for secure without TLS
const facts = JSON.parse(process.env.FACTS)
const views = [['overview', '/'], ['list', '/deployments'], ['detail', `/deployments/${facts.root}?tab=tree`], ['rollout', '/rollouts/text-v2?tab=plan'], ['matrix', '/matrix?rows=region&cols=tier']].filter(([name]) => !wanted || wanted.split(',').includes(name))
const categories = ['performance', 'accessibility', 'best-practices']
const metrics = ['first-contentful-paint', 'largest-contentful-paint', 'speed-index', 'total-blocking-time', 'cumulative-layout-shift']
const median = numbers => numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)]
const shown = (metric, value) => metric === 'cumulative-layout-shift' ? value.toFixed(3) : metric === 'total-blocking-time' ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`

const chrome = await launch({ chromePath, chromeFlags: ['--headless=new', '--no-sandbox', '--disable-background-networking'], logLevel: 'error' })
console.log(`| view | window | performance (of ${runs}) | accessibility | best practices | first paint | largest paint | speed index | blocking time | layout shift |\n|---|---|---|---|---|---|---|---|---|---|`)
for (const [name, path] of views) for (const form of forms.split(',')) {
  const all = []
  // The stream of changes keeps the network busy for ever, so a load ends with its time.
  for (let i = 0; i < Number(runs); i++) all.push((await lighthouse(url + path, { port: chrome.port, output: 'json', logLevel: 'error', onlyCategories: categories, maxWaitForLoad: 15_000 }, form === 'desktop' ? desktopConfig : undefined)).lhr)
  const scores = all.map(lhr => Math.round(100 * lhr.categories.performance.score))
  const performance = median([...scores])
  const [accessibility, practices] = ['accessibility', 'best-practices'].map(c => Math.min(...all.map(lhr => Math.round(100 * lhr.categories[c].score))))
  console.log(`| ${name} | ${form} | ${performance} (${scores.join(', ')}) | ${accessibility} | ${practices} | ${metrics.map(m => shown(m, median(all.map(lhr => lhr.audits[m].numericValue)))).join(' | ')} |`)
  if (form === 'phone' && performance < Number(minimum)) {
    console.log(`FAIL ${name}, phone: the performance is ${performance}, below ${minimum}`)
    process.exitCode = 1
  }
  for (const category of ['accessibility', 'best-practices']) for (const { id, weight } of all[0].categories[category].auditRefs) {
    const audit = all[0].audits[id]
    if (weight === 0 || audit.score === null || audit.score === 1) continue
    console.log(`FAIL ${name}, ${form}: ${id}: ${audit.title}: ${JSON.stringify(audit.details?.items?.slice(0, 3) ?? []).slice(0, 600)}`)
    process.exitCode = 1
  }
}
chrome.kill()
