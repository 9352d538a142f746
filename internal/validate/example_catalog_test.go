package validate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

func newValidator(t testing.TB, o validate.Options) *validate.Validator {
	t.Helper()
	v, err := validate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func decode(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The packages of the example catalog are completely valid.
func TestExampleCatalogIsValid(t *testing.T) {
	v := newValidator(t, validate.Options{})
	files, err := filepath.Glob("../../examples/*/*/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "/charts/") {
			continue // Helm charts, not packages
		}
		if strings.Contains(file, "/playbooks/") {
			continue // of Ansible
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "tosca_definitions_version") {
			continue // a file that a package refers to
		}
		p := decode(t, strings.ReplaceAll(string(data), "${DEMO}", "/demo"))
		for _, complete := range []bool{true, false} {
			if err := v.Validate(t.Context(), tko.Validation{Package: p, Complete: complete}); err != nil {
				t.Errorf("%s: complete %t: %v", file, complete, err)
			}
		}
	}
}

func BenchmarkDeployment(b *testing.B) {
	v := newValidator(b, validate.Options{})
	p := decode(b, deploymentYAML)
	for b.Loop() {
		if err := v.Validate(b.Context(), tko.Validation{Package: p, Complete: true}); err != nil {
			b.Fatal(err)
		}
	}
}

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        ports: [{containerPort: 80, protocol: TCP}]
        env: [{name: A, value: b}]
        resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 1}}
        livenessProbe: {httpGet: {path: /, port: http}}
        volumeMounts: [{name: config, mountPath: /etc/web}]
      volumes: [{name: config, configMap: {name: web}}]
`
