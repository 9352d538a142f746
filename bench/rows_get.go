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

func rowGetLatency(clients int) string { return rowGet(clients) + ": p99" }

func rowGetProcessor(clients int) string { return rowGet(clients) + ": server processor time" }

// Aims of gets.
const (
	aimGet          = 10_000
	aimGetLatency   = 10 * time.Millisecond
	aimGetProcessor = 80 * time.Microsecond

	manyClients = 256
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

func rowsGet(clients int) []string {
	return []string{rowGet(clients), rowGetLatency(clients), rowGetProcessor(clients)}
}

// get reads deployments with their packages, with all clients, and then with many.
func (r *run) get(ctx context.Context) error {
	made, err := r.newDeployments(ctx, manyTemplates, min(r.Create, minSampled))
	if err == nil {
		err = r.getBy(ctx, r.Clients, made)
	}
	if err == nil {
		err = r.getBy(ctx, manyClients, made)
	}
	return errors.Join(err, made.purge(ctx))
}

func (r *run) getBy(ctx context.Context, clients int, made deploymentsMade) error {
	if !r.wanted(rowsGet(clients)) {
		return nil
	}
	l, err := newLoad(ctx, r.Address, clients)
	if err != nil {
		return err
	}
	defer l.close()
	n := max(r.Samples*100, 100)
	took := make([]time.Duration, n)
	sizes := make([]int, n)
	one := func(ctx context.Context, client, i int) error {
		began := time.Now()
		d, err := l.data[client].GetDeployment(ctx, &tkopb.GetDeployment{
			DeploymentId: string(made.ids[(i*7919)%len(made.ids)]), PreferredPackageFormat: string(krm.CBOR),
		})
		took[i], sizes[i] = time.Since(began), len(d.GetPackage())
		return err
	}
	if _, err := l.run(ctx, max(1, n/10), one); err != nil { // warm-up
		return err
	}
	before := r.cost(ctx)
	perSecond, err := l.run(ctx, n, one)
	if err != nil {
		return err
	}
	spent := r.since(ctx, before, n)
	r.add(Row{
		What: rowGet(clients), Value: perSecond, Unit: PerSecond, Aim: aimGet,
		Note: fmt.Sprintf("%s; no errors; packages of %d to %d B", spent, slices.Min(sizes), slices.Max(sizes)),
	})
	row := latency(rowGetLatency(clients), took, aimGetLatency)
	processor := Row{What: rowGetProcessor(clients), Value: spent.server.Seconds(), Unit: Seconds, Aim: aimGetProcessor.Seconds(), Note: "for each get"}
	if clients > r.Clients {
		row.Aim, processor.Aim = 0, 0 // with so many clients, the rate decides
	}
	r.add(row)
	if r.PID == 0 {
		processor = Row{What: processor.What, Missing: "the server's process is not known: set -pid"}
	}
	r.add(processor)
	return nil
}
