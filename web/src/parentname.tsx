// The name of a deployment of which only the ID is known.
import { query, useGet, useMoment, type Entity } from './api'
import { entityPath, Link, nameOf } from './parts'

// ParentName is the name of a deployment of which only the ID is known.
export function ParentName({ id }: { id: string }) {
  const { data } = useGet<Entity>(`/api/v1/deployment?${query({ id, asOf: useMoment() })}`)
  return <Link to={entityPath('deployment', id, 'tree')}>{data ? nameOf(data.row) : id}</Link>
}
