// Package observer proves the gate from outside. It starts real servers with a fleet of sites, lets authors with limited
// rights work at random through every road, clumsy commands included, and kills servers and databases. The roads are commands, gRPC,
// HTTP, the Kubernetes API, GitOps sources, imports, restores and rollouts. Sites are folders of a git repository or namespaces of a
// cluster. An observer reads
// the commits of the sites' git repository, the objects of the API and the change log, and judges them with rules of its
// own: no cause reaches more than it may without consent, no author exceeds their rights, each condition that is True has
// an object at its site, and nothing is lost or there twice. There is nothing to import.
//
// The seed of a run is in its log, and TKO_OBSERVER_SEED repeats its choices, although not the moments at which processes
// act on them; "random" chooses a seed for each run. TKO_OBSERVER_SITES is the size of the fleet, TKO_OBSERVER_TIME the
// duration of the work, such as 1h.
package observer
