package krm_test

import (
	"fmt"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/tko-orchestrator/tko/krm"
)

// workload returns a package of a realistic template: some 30 resources.
func workload(tb testing.TB) krm.Package {
	tb.Helper()
	var p krm.Package
	for i := range 10 {
		p = append(p, parse(tb, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-%d
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/part-of: core}
  annotations: {nephio.org/prepare: Never}
spec:
  replicas: 3
  selector: {matchLabels: {app.kubernetes.io/name: web}}
  template:
    metadata: {labels: {app.kubernetes.io/name: web}}
    spec:
      containers:
      - name: main
        image: registry.example.org/web:1.2.3
        args: [--port=8080, --verbose]
        ports: [{name: http, containerPort: 8080, protocol: TCP}]
        resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: 100m, memory: 256Mi}}
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: web-%d}
spec:
  selector: {app.kubernetes.io/name: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web-%d}
data:
  config.yaml: |
    logging:
      level: info
    database: {host: db, port: 5432}
`, i, i, i))...)
	}
	return p
}

func BenchmarkEncode(b *testing.B) {
	p := workload(b)
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		b.Run(string(format), func(b *testing.B) {
			data, err := krm.Encode(format, p)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := krm.Encode(format, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	p := workload(b)
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		b.Run(string(format), func(b *testing.B) {
			data, err := krm.Encode(format, p)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := krm.Decode(format, data, krm.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReference measures general libraries, for comparison with our own
// encoding.
func BenchmarkReference(b *testing.B) {
	p := workload(b)
	data, err := krm.Encode(krm.CBOR, p)
	if err != nil {
		b.Fatal(err)
	}
	encoder, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		b.Fatal(err)
	}
	decoder, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IntDec: cbor.IntDecConvertSignedOrFail}.DecMode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encoder.Marshal(p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var got []map[string]any
			if err := decoder.Unmarshal(data, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	p := workload(b)
	more := krm.Package{p[3].Clone()}
	more[0].SetAnnotation(krm.AnnotationMerge, krm.Override)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := krm.Merge(p, more); err != nil {
			b.Fatal(err)
		}
	}
}
