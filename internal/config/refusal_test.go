package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// Each refusal names the setting and the remedy, and is the only one; with the remedy, the
// settings are valid.
func TestRefusalsNameARemedyThatWorks(t *testing.T) {
	t.Parallel()
	const (
		open  = "--listen-grpc=*:50050"
		cert  = "--tls-cert=c"
		key   = "--tls-key=k"
		ca    = "--tls-client-ca=a"
		vault = "--vault-address=https://vault.example.com:8200"
		token = "--vault-token-file=t"
		path  = "--vault-path=secret/data/tko"
		roles = "--roles=preparer"
	)
	type args = []string
	tests := map[string]struct {
		why      string
		refused  args
		says     args
		accepted args
	}{
		// Roles, addresses, words
		"no role":            {"nothing would be done", args{"--roles="}, args{"--roles is empty", "data", "gitops", "rollout"}, args{"--roles=rollout"}},
		"an unknown role":    {"a typo must not be less than was meant", args{"--roles=data,prepare"}, args{`"prepare"`, "preparer"}, args{"--roles=data,preparer"}},
		"no data controller": {"other roles need it", args{roles, "--data="}, args{"--data", "host:port"}, args{roles, "--data=localhost:50050"}},
		"IP stack":           {"there are three", args{"--ip-stack=ipv4,ipv6"}, args{"--ip-stack", "dual, ipv6 or ipv4"}, args{"--ip-stack=dual"}},
		"package format":     {"there are two", args{"--package-format=CBOR"}, args{"--package-format", "yaml or cbor"}, args{"--package-format=yaml"}},
		"log format":         {"there are four", args{"--log-format=logfmt"}, args{"--log-format", "auto", "text", "json", "journald"}, args{"--log-format=journald"}},
		"log level":          {"of a component that exists", args{"--log-level=info,shop=debug"}, args{"--log-level", "shop", "store"}, args{"--log-level=info,store=debug"}},
		"check for secrets":  {"there are three", args{"--secrets-check=loose"}, args{"--secrets-check", "exact, strict or off"}, args{"--secrets-check=strict"}},
		"isolation":          {"there are three", args{"--plugin-isolation=on"}, args{"--plugin-isolation", "best, require or off"}, args{"--plugin-isolation=require"}},
		"TOSCA":              {"git goes over http and https", args{"--tosca-schemes=ssh"}, args{"--tosca-schemes", "file, http, https, git"}, args{"--tosca-schemes=git,https"}},
		"web hosts":          {"a scheme is no name", args{"--web-hosts=https://tko.example.com"}, args{"--web-hosts", "without scheme and port"}, args{"--web-hosts=tko.example.com,*.example.com,*"}},
		"web hosts, ports":   {"a port is no name", args{"--web-hosts=tko.example.com:443"}, args{"--web-hosts", "without scheme and port"}, args{"--web-hosts=tko.example.com"}},
		"web hosts, empty":   {"an empty name would be that of requests without one", args{"--web-hosts=a,"}, args{"--web-hosts", `""`}, args{"--web-hosts=a"}},
		"web hosts, middle":  {"patterns begin with *.", args{"--web-hosts=tko.*.com"}, args{"--web-hosts", "*.example.com"}, args{"--web-hosts=*.com"}},

		// TLS and identities (docs/security.md)
		"other machines": {
			"every client of the network could do everything",
			args{open},
			args{open, "--tls-cert", "--tls-key", "--tls-client-ca", "--oidc-issuer", "--token-file", "--token-review", "--insecure"},
			args{open, "--insecure"},
		},
		"other machines without identities":      {"TLS alone lets everybody in", args{open, cert, key}, args{open, "identities", "--tls-client-ca"}, args{open, cert, key, ca}},
		"metrics, of other roles too":            {"metrics show names of sites", args{roles, "--listen-metrics=*:50057"}, args{"--listen-metrics=*:50057", "--tls-cert", "--insecure"}, args{roles, "--listen-metrics=*:50057", cert, key}},
		"webhooks":                               {"they are signed, and not encrypted", args{"--listen-webhook=*:50058", "--webhook-secret-file=s"}, args{"--listen-webhook=*:50058", "--tls-cert"}, args{"--listen-webhook=localhost:50058", "--webhook-secret-file=s"}},
		"two other addresses":                    {"one refusal has both", args{"--listen-debug=*:1", "--listen-log=*:2"}, args{"--listen-debug=*:1", "--listen-log=*:2"}, args{"--listen-debug=localhost:1", "--listen-log=[::1]:2"}},
		"tokens as identities":                   {"each kind of identity suffices", args{open, cert, key}, args{"--token-file"}, args{open, cert, key, "--token-file=t"}},
		"users of an issuer":                     {"each kind of identity suffices", args{open, cert, key}, args{"--oidc-issuer"}, args{open, cert, key, "--oidc-issuer=https://id.example.com"}},
		"service accounts":                       {"each kind of identity suffices", args{open, cert, key}, args{"--token-review"}, args{open, cert, key, "--token-review=in-cluster"}},
		"a certificate without its key":          {"a half is of no use", args{cert}, args{"--tls-cert and --tls-key", "both, or none"}, args{cert, key}},
		"a key without its certificate":          {"a half is of no use", args{"--data-tls-key=k"}, args{"--data-tls-cert and --data-tls-key", "both, or none"}, args{"--data-tls-key=k", "--data-tls-cert=c"}},
		"authorities of clients without TLS":     {"certificates are given over TLS", args{ca}, args{"--tls-client-ca", "--tls-cert and --tls-key"}, args{ca, cert, key}},
		"authorities that are not used":          {"which of them was meant?", args{ca, cert, key, "--tls-client-auth=none"}, args{"--tls-client-auth=none", "remove one"}, args{ca, cert, key}},
		"required certificates":                  {"nothing would verify them", args{cert, key, "--tls-client-auth=require"}, args{"--tls-client-auth=require", "--tls-client-ca"}, args{cert, key, ca, "--tls-client-auth=require"}},
		"requested certificates":                 {"nothing would verify them", args{cert, key, "--tls-client-auth=request"}, args{"--tls-client-auth=request", "--tls-client-ca"}, args{cert, key, ca, "--tls-client-auth=request"}},
		"an unknown word about certificates":     {"a typo must not be less than was meant", args{cert, key, ca, "--tls-client-auth=required"}, args{`"required"`, "none, request or require"}, args{cert, key, ca, "--tls-client-auth=require"}},
		"revocations without authorities":        {"nothing would be revoked", args{cert, key, "--tls-crl=l"}, args{"--tls-crl", "--tls-client-ca"}, args{cert, key, ca, "--tls-crl=l"}},
		"a trust domain with its scheme":         {"a domain is a name", args{"--tls-spiffe-domains=spiffe://example.org"}, args{"--tls-spiffe-domains", "such as example.org"}, args{"--tls-spiffe-domains=example.org"}},
		"an empty trust domain":                  {"it would be that of no ID", args{"--tls-spiffe-domains=example.org,"}, args{"--tls-spiffe-domains", `""`}, args{"--tls-spiffe-domains=example.org"}},
		"a trust domain in capitals":             {"no SPIFFE ID has capitals there", args{"--tls-spiffe-domains=Example.org"}, args{"--tls-spiffe-domains", "such as example.org"}, args{"--tls-spiffe-domains=example.org,b"}},
		"the dashboard's URL with a path":        {"the server adds the path", args{"--web-url=https://tko.example.com/auth"}, args{"--web-url", "without a path"}, args{"--web-url=https://tko.example.com/"}},
		"the dashboard's URL without a scheme":   {"browsers need one", args{"--web-url=tko.example.com"}, args{"--web-url", "https://tko.example.com"}, args{"--web-url=http://tko.example.com:8080"}},
		"the dashboard's URL with a query":       {"it would be lost", args{"--web-url=https://tko.example.com?a=b"}, args{"--web-url", "without a path"}, args{"--web-url=https://tko.example.com"}},
		"a data controller on another machine":   {"work would be sent in plain text", args{roles, "--data=tko.example.com:50050"}, args{"--data=tko.example.com:50050", "--data-tls-ca", "--data-token-file", "--insecure"}, args{roles, "--data=tko.example.com:50050", "--data-tls-ca=a"}},
		"the same, with the system's CAs":        {"TLS is TLS", args{roles, "--data=tko.example.com:50050"}, args{"--data-tls)"}, args{roles, "--data=tko.example.com:50050", "--data-tls"}},
		"the same, in plain text":                {"the operator's choice", args{roles, "--data=tko.example.com:50050"}, args{"--insecure"}, args{roles, "--data=tko.example.com:50050", "--insecure"}},
		"the same, which isn't used":             {"the role data is here", args{roles, "--data=tko.example.com:50050"}, args{"--data"}, args{"--data=tko.example.com:50050"}},
		"the same, with a name to verify":        {"a name of a certificate implies TLS", args{roles, "--data=10.0.0.1:50050"}, args{"--data"}, args{roles, "--data=10.0.0.1:50050", "--data-tls-server-name=tko.example.com"}},
		"the same, with a certificate of a role": {"so does a certificate", args{roles, "--data=10.0.0.1:50050"}, args{"--data"}, args{roles, "--data=10.0.0.1:50050", "--data-tls-cert=c", "--data-tls-key=k"}},

		// Rights and audit (docs/access.md, docs/audit.md)
		"rights, a word":             {"there are four", args{"--access=on"}, args{"--access", "auto, off, report or enforce"}, args{"--access=report"}},
		"all rights for the network": {"every client that authenticates could do everything", args{open, cert, key, ca, "--access=off"}, args{"--access=off", open, "--access=enforce", "--insecure"}, args{open, cert, key, ca, "--access=enforce"}},
		"reports for the network":    {"a report refuses nothing", args{open, cert, key, ca, "--access=report"}, args{"--access=report", open, "--access=enforce"}, args{open, "--insecure", "--access=report"}},
		"a role for strangers":       {"a typo must not be another right", args{"--access-anonymous=reader"}, args{"--access-anonymous", `"reader"`}, args{"--access-anonymous=viewer"}},
		"a role for the cluster":     {"the same for its users", args{"--access-kubernetes=root"}, args{"--access-kubernetes", `"root"`}, args{"--access-kubernetes="}},
		"persons":                    {"a name and a subject", args{"--access-persons=ann"}, args{"--access-persons", "PERSON=SUBJECT", "ann=oidc:corp:17"}, args{"--access-persons=ann=oidc:corp:17,ann=cert:ann"}},
		"a person without a name":    {"a name and a subject", args{"--access-persons==cert:ann"}, args{"PERSON=SUBJECT"}, args{"--access-persons=a=cert:ann"}},
		"a person without a subject": {"a name and a subject", args{"--access-persons=ann=ann"}, args{"PERSON=SUBJECT", "tko whoami"}, args{"--access-persons=ann=cert:ann"}},
		"a subject of two":           {"they could approve for each other", args{"--access-persons=ann=cert:a,bob=cert:a"}, args{"cert:a", "ann", "bob", "one person"}, args{"--access-persons=ann=cert:a,ann=cert:a,bob=cert:b"}},
		"a short audit log":          {"it must outlast a night", args{"--audit-keep=23h59m"}, args{"--audit-keep", "24h", "or 0"}, args{"--audit-keep=24h"}},
		"a negative audit log":       {"0 is for ever", args{"--audit-keep=-1h"}, args{"--audit-keep", "or 0"}, args{"--audit-keep=0"}},
		"an audit loop":              {"it would never rest", args{"--audit-interval=0"}, args{"--audit-interval", "more than 0"}, args{"--audit-interval=1s"}},
		"an export of nothing":       {"nothing would be exported", args{"--audit=false", "--audit-export=f"}, args{"--audit-export needs --audit"}, args{"--audit-export=f"}},

		// Secrets (docs/secrets.md)
		"Vault without its address":       {"where is it?", args{token}, args{"--vault-token-file", "--vault-address"}, args{vault, token, path}},
		"paths without Vault":             {"where is it?", args{path}, args{"--vault-path", "--vault-address"}, args{vault, token, path}},
		"a role without Vault":            {"where is it?", args{"--vault-role=tko"}, args{"--vault-role", "--vault-address"}, args{vault, "--vault-role=tko", path}},
		"a key in Vault without Vault":    {"where is it?", args{"--encryption-key=vault:transit/tko"}, args{"--encryption-key", "give --vault-address"}, args{"--encryption-key=vault:transit/tko", vault, token}},
		"an address without a scheme":     {"TLS or none?", args{"--vault-address=vault.example.com:8200", token, path}, args{"--vault-address", "https://vault.example.com:8200"}, args{vault, token, path}},
		"an address without a host":       {"where is it?", args{"--vault-address=https://", token, path}, args{"--vault-address", "https://vault.example.com:8200"}, args{vault, token, path}},
		"Vault over another scheme":       {"Vault speaks HTTP", args{"--vault-address=grpc://vault", token, path}, args{"--vault-address", "https://"}, args{"--vault-address=http://vault", token, path}},
		"Vault without paths":             {"packages could read all of it, or nothing", args{vault, token}, args{"--vault-address needs --vault-path"}, args{vault, token, path}},
		"Vault without a login":           {"it would refuse everything", args{vault, path}, args{"--vault-token-file or --vault-role"}, args{vault, path, "--vault-role=tko"}},
		"a key in Vault without a login":  {"it would refuse everything", args{"--encryption-key=vault:transit/tko", vault}, args{"--vault-token-file or --vault-role"}, args{"--encryption-key=vault:transit/tko", vault, "--vault-role=tko"}},
		"a key in a file needs no Vault":  {"which of them was meant?", args{"--encryption-key=f", vault, token}, args{"--vault-path"}, args{"--encryption-key=f"}},
		"a kubeconfig without its labels": {"it would not be read", args{"--kubeconfig-secrets-kubeconfig=k"}, args{"--kubeconfig-secrets-kubeconfig", "add the labels"}, args{"--kubeconfig-secrets-kubeconfig=k", "--kubeconfig-secrets=a=b"}},

		// The Kubernetes API (docs/kubernetes-api.md)
		"half a certificate of the API":  {"a half is of no use", args{"--kubernetes-cert=c"}, args{"--kubernetes-cert and --kubernetes-key", "both, or none"}, args{"--kubernetes-cert=c", "--kubernetes-key=k"}},
		"the API without a certificate":  {"the cluster could not trust it", args{"--kubernetes=*:50052"}, args{"--kubernetes is *:50052", "--tls-cert", "--kubernetes-cert"}, args{"--kubernetes=*:50052", "--kubernetes-cert=c", "--kubernetes-key=k"}},
		"the API with that of all ports": {"the certificate of all ports serves", args{"--kubernetes=*:50052"}, args{"--tls-cert and --tls-key"}, args{"--kubernetes=*:50052", cert, key}},
		"all rights in the API":          {"everybody could do everything", args{"--kubernetes=*:50052", cert, key, "--kubernetes-trust-everybody"}, args{"--kubernetes-trust-everybody", "--kubernetes=localhost:50052"}, args{"--kubernetes=localhost:50052", "--kubernetes-trust-everybody"}},
		"age of audit files":             {"less than never", args{"--kubernetes-audit-log-max-age=-1"}, args{"--kubernetes-audit-log-max-age", "0 or more"}, args{"--kubernetes-audit-log-max-age=0"}},
		"number of audit files":          {"less than none", args{"--kubernetes-audit-log-max-backups=-1"}, args{"--kubernetes-audit-log-max-backups", "0 or more"}, args{"--kubernetes-audit-log-max-backups=0"}},
		"size of audit files":            {"less than nothing", args{"--kubernetes-audit-log-max-size=-1"}, args{"--kubernetes-audit-log-max-size", "0 or more"}, args{"--kubernetes-audit-log-max-size=0"}},

		// GitOps (docs/gitops.md)
		"a repository without the role":    {"no role would read it", args{roles, "--git=https://git.example.com/a"}, args{"--git", "role gitops", "--roles"}, args{"--roles=preparer,gitops", "--git=https://git.example.com/a"}},
		"sources without the role":         {"no role would read them", args{roles, "--gitops-sources=f"}, args{"--gitops-sources", "role gitops"}, args{"--roles=gitops", "--gitops-sources=f"}},
		"webhooks without the role":        {"no role would serve them", args{roles, "--listen-webhook=localhost:1", "--webhook-secret-file=s"}, args{"--listen-webhook", "role gitops"}, args{"--listen-webhook=localhost:1", "--webhook-secret-file=s"}},
		"webhooks without a secret":        {"everybody could send them", args{"--listen-webhook=localhost:50058"}, args{"--listen-webhook", "--webhook-secret-file"}, args{"--listen-webhook=localhost:50058", "--webhook-secret-file=s"}},
		"ticket systems without the role":  {"no role would ask them", args{roles, "--rollout-tickets=f"}, args{"--rollout-tickets", "role rollout"}, args{"--roles=rollout", "--rollout-tickets=f"}},
		"reports without ticket systems":   {"nothing could verify them", args{"--listen-tickets=localhost:0"}, args{"--listen-tickets needs --rollout-tickets"}, args{"--listen-tickets=localhost:0", "--rollout-tickets=f"}},
		"reports without a port":           {"a port is needed", args{"--listen-tickets=localhost", "--rollout-tickets=f"}, args{"--listen-tickets", "host:port"}, args{"--listen-tickets=localhost:0", "--rollout-tickets=f"}},
		"webhooks without a port":          {"a port is needed", args{"--listen-webhook=localhost", "--webhook-secret-file=s"}, args{"--listen-webhook", "host:port"}, args{"--listen-webhook=localhost:0", "--webhook-secret-file=s"}},
		"frequent checks":                  {"servers of repositories would be flooded", args{"--git-interval=999ms"}, args{"--git-interval", "at least 1s"}, args{"--git-interval=1s"}},
		"a budget of more than everything": {"which is no budget", args{"--git-budget-percent=101"}, args{"--git-budget-percent", "0 to 100"}, args{"--git-budget-percent=100"}},
		"a budget of less than nothing":    {"0 is nothing", args{"--git-budget-percent=-1"}, args{"--git-budget-percent", "0 to 100"}, args{"--git-budget-percent=0"}},
		"entities of less than nothing":    {"0 is nothing", args{"--git-budget-entities=-1"}, args{"--git-budget-entities", "0 or more"}, args{"--git-budget-entities=0"}},
		"namespaces without Flux":          {"nothing would be reconciled", args{"--flux-namespaces=a"}, args{"--flux-namespaces", "--flux-in-cluster or --flux-kubeconfig"}, args{"--flux-namespaces=a", "--flux-kubeconfig=k"}},
		"artifacts without Flux":           {"nothing would be fetched", args{"--flux-artifacts=a:1"}, args{"--flux-artifacts", "--flux-in-cluster"}, args{"--flux-artifacts=a:1", "--flux-in-cluster"}},
		"events without Flux":              {"there are none", args{"--events-addr=http://a"}, args{"--events-addr", "--flux-in-cluster"}, args{"--events-addr=https://a", "--flux-in-cluster"}},
		"events without a host":            {"where is the controller?", args{"--events-addr=http:///events", "--flux-in-cluster"}, args{"--events-addr", "http or https"}, args{"--events-addr=http://a/events", "--flux-in-cluster"}},
		"events over another scheme":       {"the controller speaks HTTP", args{"--events-addr=ftp://a", "--flux-in-cluster"}, args{"--events-addr", "http or https"}, args{"--events-addr=http://a", "--flux-in-cluster"}},

		// Numbers, at their limits
		"part of traces":         {"more than all", args{"--traces-sample=1.1"}, args{"--traces-sample", "0 (none) to 1 (all)"}, args{"--traces-sample=1"}},
		"less than no traces":    {"0 is none", args{"--traces-sample=-0.1"}, args{"--traces-sample", "0 (none) to 1 (all)"}, args{"--traces-sample=0.1"}},
		"no part of traces":      {"NaN compares with nothing", args{"--traces-sample=NaN"}, args{"--traces-sample", "0 (none) to 1 (all)"}, args{"--traces-sample=0"}},
		"receiver of traces":     {"of a protocol that exists", args{"--traces-endpoint=ftp://a"}, args{"--traces-endpoint", "grpc"}, args{"--traces-endpoint=grpc://a:4317"}},
		"space of disks":         {"more than all", args{"--disk-low=100.5"}, args{"--disk-low", "0 to 100"}, args{"--disk-low=100"}},
		"negative space":         {"0 is for no warning", args{"--disk-low=-1"}, args{"--disk-low", "0 to 100"}, args{"--disk-low=0"}},
		"requests":               {"0 is for no limit", args{"--requests-per-client=-1"}, args{"--requests-per-client", "0 or more"}, args{"--requests-per-client=0"}},
		"requests, no number":    {"NaN would be no limit", args{"--requests-per-client=NaN"}, args{"--requests-per-client", "0 or more"}, args{"--requests-per-client=0.5"}},
		"streams":                {"0 is for no limit", args{"--streams=-1"}, args{"--streams is", "0 for no limit"}, args{"--streams=0"}},
		"streams of a client":    {"0 is for no limit", args{"--streams-per-client=-1"}, args{"--streams-per-client", "0 for no limit"}, args{"--streams-per-client=0"}},
		"streams of connections": {"0 is for no limit", args{"--streams-per-connection=-1"}, args{"--streams-per-connection", "0 for no limit"}, args{"--streams-per-connection=0"}},
		"confirmations, 0":       {"each request would need one", args{"--confirm-above-percent=0"}, args{"--confirm-above-percent", "1 to 100"}, args{"--confirm-above-percent=1"}},
		"confirmations, more":    {"more than everything is no bound", args{"--confirm-above-percent=101"}, args{"--confirm-above-percent", "1 to 100"}, args{"--confirm-above-percent=100"}},
		"limit off, no reason":   {"who reads the status asks why", args{"--reach-created=0"}, args{"--reach-created is 0", "--reach-off-reason"}, args{"--reach-created=0", "--reach-off-reason=a lab"}},
		"window of reach":        {"a loop takes longer", args{"--reach-window=1ms"}, args{"--reach-window", "1s to 24h"}, args{"--reach-window=1s"}},
		"policy of reach":        {"a wave of nothing", args{"--reach-policy={waves: 3}"}, args{"--reach-policy", "waves"}, args{"--reach-policy={}"}},
		"limits of reach, off":   {"who reads the status asks why", args{"--reach-limits=[{limit: sites, most: 0, author: a}]"}, args{"--reach-limits", "give the reason"}, args{"--reach-limits=[{limit: sites, most: 0, author: a, reason: a lab}]"}},
		"limits of reach, word":  {"a mistyped key would limit nothing", args{"--reach-limits=[{limit: sites, most: 1, sideId: a}]"}, args{"--reach-limits", "sideId"}, args{"--reach-limits=[{limit: sites, most: 1, siteId: a}]"}},
		"limits of reach, own":   {"sites have no limit of their own", args{"--reach-limits=[{limit: sites, most: 1, upTo: 5, author: a}]"}, args{"--reach-limits", "upTo"}, args{"--reach-limits=[{limit: created, upTo: 5000, author: a}]"}},
		"limits of reach, upTo":  {"it would lower the limit", args{"--reach-limits=[{limit: created, most: 10, upTo: 5, author: a}]"}, args{"--reach-limits", "below most"}, args{"--reach-limits=[{limit: created, most: 5, upTo: 10, author: a}]"}},
		"limits of reach, all":   {"the general one has a flag", args{"--reach-limits=[{limit: sites, most: 1}]"}, args{"--reach-limits", "settings of their own"}, args{"--reach-limits=[]"}},
		"depth of topologies":    {"no topology could have children", args{"--topology-depth=0"}, args{"--topology-depth", "more than 0"}, args{"--topology-depth=1"}},
		"memory of plugins":      {"no program starts with less", args{"--plugin-memory=16777215"}, args{"--plugin-memory", "16 mebibytes", "or 0"}, args{"--plugin-memory=16777216"}},
		"memory of functions":    {"no module starts with less", args{"--kpt-memory=1048575"}, args{"--kpt-memory", "1048576"}, args{"--kpt-memory=1048576"}},
		"no memory of functions": {"there is always a limit", args{"--kpt-memory=0"}, args{"--kpt-memory", "1048576"}, args{"--kpt-memory=2097152"}},
		"no CPU":                 {"nothing would run", args{"--kpt-cpus=0"}, args{"--kpt-cpus", "more than 0"}, args{"--kpt-cpus=0.1"}},
		"watches of clusters":    {"0 is for none", args{"--cluster-watches=-1"}, args{"--cluster-watches", "0 for none"}, args{"--cluster-watches=0"}},
		"retention":              {"watchers would list all the time", args{"--keep-changes=9m59s"}, args{"--keep-changes", "at least 10m0s", "or 0"}, args{"--keep-changes=10m"}},
		"retention of tokens":    {"modifications could not continue", args{"--keep-changes=1h", "--modification-time=61m"}, args{"--keep-changes", "at least 1h1m0s"}, args{"--keep-changes=61m", "--modification-time=61m"}},
		"gathering, negative":    {"0 is for not at all", args{"--scheduler-gather=-1s"}, args{"--scheduler-gather", "or 0"}, args{"--scheduler-gather=0"}},
		"gathering, for hours":   {"nothing would seem to happen", args{"--scheduler-gather=11m"}, args{"--scheduler-gather", "at most 10m0s"}, args{"--scheduler-gather=10m"}},
		"negative retention":     {"0 is for ever", args{"--keep-changes=-1h"}, args{"--keep-changes", "or 0"}, args{"--keep-changes=0"}},
		"negative revisions":     {"0 is for all", args{"--keep-revisions=-1"}, args{"--keep-revisions", "0 to keep all"}, args{"--keep-revisions=0"}},
		"longer than for ever":   {"the policies would shorten it", args{"--keep-changes=0", "--keep-longer=testdata/longer.yaml"}, args{"--keep-longer", "--keep-changes is 0"}, args{"--keep-longer=testdata/longer.yaml"}},
		"a file that is missing": {"a path is relative to where the server starts", args{"--keep-longer=longer.yaml"}, args{"--keep-longer", "longer.yaml", "no such file"}, args{"--keep-longer=testdata/longer.yaml"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.refused, nil, "")
			if !errors.Is(err, tko.ErrInvalid) {
				t.Fatalf("%q: %v, want a refusal: %s", test.refused, err, test.why)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has several refusals:\n%v", test.refused, err)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the refusal: %v", part, err)
				}
			}
			if _, err := load(t, test.accepted, nil, ""); err != nil {
				t.Errorf("%q: %v, want no refusal", test.accepted, err)
			}
		})
	}
}

// Without a limit of time or number, nothing would be done, or all at once.
func TestTimesAndNumbersMustBePositive(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq(`modification-time retry retry-max work-lease cluster-interval chart-timeout plugin-timeout plugin-schedule-timeout
		kpt-fetch-timeout store-wait stop-timeout slow-watch max-message preparer-concurrency preparer-iterations scheduler-concurrency plugin-concurrency confirm-above`) {
		for value, accepted := range map[string]bool{"0": false, "-1": false, "1": true} {
			unit := ""
			if strings.HasSuffix(settings(t).Lookup(name).DefValue, "s") {
				unit = "s"
			}
			_, err := load(t, []string{"--" + name + "=" + value + unit}, nil, "")
			if accepted != (err == nil) || err != nil && !strings.Contains(err.Error(), "--"+name+" is "+value) {
				t.Errorf("--%s=%s%s: %v", name, value, unit, err)
			}
		}
	}
}

// An address that is served, or that is connected to, has a port. Empty addresses are not served.
func TestAddressesHavePorts(t *testing.T) {
	t.Parallel()
	for name, optional := range map[string]bool{
		"listen-grpc": false, "data": false, "listen-web": true, "kubernetes": true, "listen-log": true, "listen-debug": true, "listen-health": true, "listen-metrics": true,
	} {
		for value, accepted := range map[string]bool{"localhost": false, "::1": false, "localhost:0": true, "[::1]:0": true, "": optional} {
			_, err := load(t, []string{"--" + name + "=" + value, "--kubernetes-cert=c", "--kubernetes-key=k"}, nil, "")
			if accepted != (err == nil) || err != nil && !strings.Contains(err.Error(), "--"+name+` is "`+value+`": use host:port`) {
				t.Errorf("--%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestAllRefusalsAreReportedInOneOrder(t *testing.T) {
	t.Parallel()
	args := []string{"--roles=cook", "--retry=0s", "--streams=-1", "--listen-web=x", "--access=on", "--kubernetes-cert=c", "--vault-role=r", "--git-interval=0"}
	_, err := load(t, args, nil, "")
	if err == nil || strings.Count(err.Error(), "\n") != len(args)-1 {
		t.Fatalf("%v, want %d refusals", err, len(args))
	}
	for range 10 {
		if _, again := load(t, args, nil, ""); again == nil || again.Error() != err.Error() {
			t.Fatalf("%v\nthen\n%v", err, again)
		}
	}
}
