// Package agents serves the agents of sites, which call home: it gives them certificates, sends
// them what their sites shall have, and takes over what they report. Package agent is the other
// end; the protocol is in proto/tko/agent/v1.
//
// No request names a site. The site is that of the enrollment which the certificate of the agent
// names, as the catalog has it at that time. So an agent can't ask for what is of another site; and
// what it reports is compared with the deployments at its own.
//
// Start reading at [Server].
package agents
