package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

func rowGet(clients int) string {
	return fmt.Sprintf("get a deployment (1.9 kB package), %d clients", clients)
}

func rowsGet(clients int) []string {
	return []string{rowGet(clients), rowGet(clients) + ": p99", rowGet(clients) + ": server processor time"}
}

const (
	manyClients = 256  // of the second measurement of gets
	maxRead     = 5000 // deployments that are read in turn
)

// marker is a value in the package of created deployments that modifications replace. It
// keeps its length.
const marker = "value-to-replace"

// padding enlarges [functionPackage] to about 1.9 kB.
const padding = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: more, annotations: {bench.example/value: %[4]s}}
data:
  interfaces.conf: |
    n3 address=10.20.30.40/24 gateway=10.20.30.1 mtu=9000 vlan=1003
    n4 address=10.20.31.40/24 gateway=10.20.31.1 mtu=1500 vlan=1004
    n6 address=10.20.32.40/24 gateway=10.20.32.1 mtu=9000 vlan=1006
    n9 address=10.20.33.40/24 gateway=10.20.33.1 mtu=9000 vlan=1009
  sessions.conf: |
    limit=250000 idle=3600s report=60s buffer=64k reorder=off downlink=on
  logging.conf: |
    level=info format=json target=stdout rotate=never
    pfcp=warning gtpu=warning metrics=info session=info
  peers.conf: |
    smf-a.example.com:8805 weight=10 heartbeat=5s retries=3
    smf-b.example.com:8805 weight=10 heartbeat=5s retries=3
    smf-c.example.com:8805 weight=1 heartbeat=30s retries=1
  slices.conf: |
    sst=1 sd=000001 dnn=internet ambr=2Gbps qos=9
    sst=1 sd=000002 dnn=ims ambr=10Mbps qos=5
    sst=2 sd=00000a dnn=factory ambr=500Mbps qos=82
  nat.conf: |
    pool=192.0.2.0/24 ports=1024-65535 timeout=120s log=off
    pool=198.51.100.0/24 ports=1024-65535 timeout=120s log=off
`

// get reads deployments with their packages, with all clients, and then with many.
func (r *run) get(ctx context.Context) error {
	made, err := r.newDeployments(ctx, manyTemplates, min(r.Create, maxRead))
	if err == nil {
		err = r.getBy(ctx, r.Clients, made)
	}
	if err == nil {
		err = r.getBy(ctx, manyClients, made)
	}
	return errors.Join(err, made.purge(ctx))
}

func (r *run) getBy(ctx context.Context, clients int, made deploymentsMade) error {
	rows := rowsGet(clients)
	if !r.wanted(rows) {
		return nil
	}
	n := max(r.Samples*100, 100)
	took, sizes := make([]time.Duration, n), make([]int, n)
	m, err := r.load(ctx, clients, max(1, n/10), n, func(ctx context.Context, p peer, i int) error {
		began := time.Now()
		d, err := p.data.GetDeployment(ctx, &tkopb.GetDeployment{
			DeploymentId: string(made.ids[(i*7919)%len(made.ids)]), PreferredPackageFormat: string(krm.CBOR),
		})
		took[i], sizes[i] = time.Since(began), len(d.GetPackage())
		return err
	})
	if err != nil {
		return err
	}
	aimP99, aimProcessor := 10*time.Millisecond, 80*time.Microsecond
	if clients > r.Clients {
		aimP99, aimProcessor = 0, 0 // with so many clients, the rate decides
	}
	r.add(Row{What: rows[0], Value: m.perSecond(), Unit: PerSecond, Aim: 10_000}.with(
		m.String(), "no errors", fmt.Sprintf("packages of %d to %d B", slices.Min(sizes), slices.Max(sizes))))
	r.add(latency(rows[1], took, aimP99), r.processor(rows[2], m, aimProcessor, "for each get"))
	return nil
}
