// The login.
import { useState, type FormEvent } from 'react'
import { login, query, useGet, type ApiError } from './api'
import { Problem } from './parts'

const problems: Record<string, string> = {
  denied: 'The issuer refused the login.', unavailable: 'The issuer can\'t be reached, or is busy: try again.', failed: 'The login has failed or took too long: try again. The log of the server has the reason.',
}

export function Login({ done }: { done: () => void }) {
  const { data } = useGet<{ logins: string[] }>('/auth/logins')
  const [error, setError] = useState<ApiError>()
  const [busy, setBusy] = useState(false)
  const submit = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault()
    const form = e.currentTarget
    const token = String(new FormData(form).get('token') ?? '').trim()
    if (!token) return
    setBusy(true)
    login(token).then(() => { form.reset(); done() }, setError).finally(() => setBusy(false))
  }
  const here = location.pathname === '/login' ? '/' : location.pathname + location.search
  const problem = problems[new URLSearchParams(location.search).get('problem') ?? '']
  return <main className="login"><h1>Log in to TKO</h1>
    {location.pathname === '/login' && problem && !error && <p className="problem" role="alert">{problem}</p>}
    {error && <Problem error={error} />}
    {data?.logins.includes('oidc') && <p><a className="button primary" href={`/auth/login?${query({ return: here })}`}>Log in with single sign-on</a></p>}
    <form onSubmit={submit}><label>Token <input name="token" type="password" autoComplete="off" autoFocus={!data?.logins.includes('oidc')} required spellCheck={false} /></label>
      <button className="primary" disabled={busy}>{busy ? 'Checking…' : 'Log in'}</button></form>
    <p className="muted">A static token, or an ID token of your OpenID Connect issuer. The browser keeps a session cookie that scripts can't read.</p></main>
}
