# The targets of daily work. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
GO ?= go
# One configuration for all that is built, tools included: what one builds, the others find in the cache. (The tests set their own.)
export CGO_ENABLED := 0
export GOFLAGS := -trimpath $(filter-out -trimpath,$(GOFLAGS))
BIN := bin
ARGS ?=
PROGRAMS := tko tko-server tko-server-spanner tko-kubernetes tko-agent tko-tosca tko-demo tko-bench
# What the demo runs; tko-tosca is for its tour, and not for its checks.
STORE ?=
DEMO := tko $(if $(filter spanner,$(STORE)),tko-server-spanner,tko-server) tko-demo $(if $(findstring -once,$(ARGS)),,tko-tosca)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Go itself finds the commit of a plain clone only: not that of a work tree, or of a container without git's settings.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)$(shell test -z "$$(git status --porcelain 2>/dev/null | head -c1)" || echo ' (changed)')
# Symbols and debug information are left out: they are a third of the programs.
LDFLAGS := -s -w -X github.com/tko-orchestrator/tko/internal/version.Version=$(VERSION) -X 'github.com/tko-orchestrator/tko/internal/version.Commit=$(COMMIT)'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

BUILD = mkdir -p $(BIN) && $(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/

.PHONY: build
build: ## build the programs and the example plugins into bin/
	@$(BUILD) $(PROGRAMS:%=./cmd/%) ./examples/plugins/...

.PHONY: build-programs
build-programs:
	@$(BUILD) $(PROGRAMS:%=./cmd/%)

.PHONY: build-demo
build-demo:
	@$(BUILD) $(DEMO:%=./cmd/%) ./examples/plugins/...

.PHONY: build-demo-kubernetes
build-demo-kubernetes:
	@$(BUILD) $(DEMO:%=./cmd/%) ./cmd/tko-kubernetes ./cmd/tko-agent ./examples/plugins/...

.PHONY: demo
demo: build-demo ## start TKO with the example catalog and show what happens (ARGS=--once: check and stop; STORE=spanner: in Spanner's emulator, STORE=DSN: in PostgreSQL)
	@$(if $(filter spanner,$(STORE)),test/setup/emulator.sh) $(BIN)/tko-demo $(if $(STORE),-store='$(if $(filter spanner,$(STORE)),spanner:projects/demo/instances/demo/databases/demo,$(STORE))') $(ARGS)

.PHONY: demo-kubernetes
demo-kubernetes: build-demo-kubernetes ## the same with two real Kubernetes clusters as sites, which are built the first time: minutes
	@echo 'Kubernetes and etcd are built from their sources the first time: some minutes, and 2 GB on disk.'
	@programs=$$(test/setup/kube.sh) && $(BIN)/tko-demo -kubernetes "$$programs" $(ARGS)

.PHONY: clean-demo
clean-demo: ## forget the demo's state
	rm -rf demo

.PHONY: web
web: ## build the web dashboard into web/dist, which is committed
	npm --prefix web ci --no-audit --no-fund
	npm --prefix web run build

.PHONY: site
site: $(BIN)/mkdocs/installed ## build the documentation site into site/, with MkDocs in an environment of its own below bin/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs/bin/mkdocs build --quiet --strict

$(BIN)/mkdocs/installed: tools/site-requirements.txt
	@python3 -m venv --clear $(BIN)/mkdocs
	@$(BIN)/mkdocs/bin/pip install --quiet --disable-pip-version-check -r tools/site-requirements.txt
	@touch $@

# The packages whose tests take longest start first, so that the last ones are short.
LONGEST := ./test/kubernetes ./test/e2e ./test/clusters ./test/ansible ./test/network ./test/hostile ./test/dashboard ./test/login ./test/cli ./test/deploy ./test/docs \
	./internal/store/postgres ./internal/store/sqlite ./internal/rollout/planner ./internal/catalog ./cmd/tko-bench ./internal/gitops ./internal/plugin/krmfn \
	./internal/schedule/kubernetes ./internal/kubeapi ./internal/grpcapi ./test/upgrade ./cmd/internal/tkoserver ./test/spanner

.PHONY: test
test: ## set up what the tests need, and run them all
	@test/setup/setup.sh
	@test/setup/run.sh "$(LONGEST) ./..." -timeout 40m $(ARGS)
	@cd tools/monitoring && $(GO) test -count=1 ./... # dashboards and alert rules
	@cd tools/proto && $(GO) test -count=1 ./... # the reference of gRPC; no cached results, because the files are of another module

.PHONY: changed
changed: ## the tests of the packages that a change can affect, for daily work (SINCE=COMMIT; otherwise the change of the work tree)
	@packages=$$(test/setup/changed.sh $(SINCE)); \
	if [ -n "$$packages" ]; then test/setup/run.sh "$$(tr '\n' ' ' <<<"$$packages")" -timeout 20m $(ARGS); else echo 'nothing has changed'; fi
	@echo 'Tests below test/ start programs, and may be affected, too: make test runs them.'

.PHONY: quick
quick: ## the tests that need no server: within a minute
	$(GO) test -short $(ARGS) . ./krm/... ./client/... $$($(GO) list ./internal/... | grep -v /store/postgres)

FAULTS_TIME ?= 1h

.PHONY: images
images: ## take the screenshots of docs/images
	TKO_IMAGES=yes $(GO) test -count=1 -timeout 60m -run InABrowser ./test/dashboard
	$(GO) test -count=1 -run Images ./internal/dashboard -update

.PHONY: lighthouse
lighthouse: ## measure the web dashboard with Lighthouse; accessibility and best practices must be perfect, performance on a phone 90 (MINIMUM)
	npm --prefix web/lighthouse ci --no-audit --no-fund
	TKO_LIGHTHOUSE=yes MINIMUM=$${MINIMUM:-90} $(GO) test -count=1 -timeout 60m -run DashboardInABrowser -v ./test/dashboard

.PHONY: soak
soak: ## break everything at random for FAULTS_TIME (1h), observe 2,000 sites under clumsy authors, kill -9 in 50 rounds, 100,000 simulated fleets, 100,000 deployments in a browser, 200,000 in a new database without autovacuum, the Kubernetes API under 100,000 objects, the image, and the long form of all searches (test/soak)
	@test/setup/setup.sh
	TKO_FAULTS_SEED=$${TKO_FAULTS_SEED:-random} TKO_FAULTS_TIME=$(FAULTS_TIME) $(GO) test -count=1 -timeout 24h -run Faults -v $(ARGS) ./test/faults
	TKO_OBSERVER_SEED=$${TKO_OBSERVER_SEED:-random} TKO_OBSERVER_SITES=$${TKO_OBSERVER_SITES:-2000} TKO_OBSERVER_TIME=$${TKO_OBSERVER_TIME:-20m} $(GO) test -count=1 -timeout 24h -run EveryRoad -v $(ARGS) ./test/observer
	$(GO) test -count=1 -timeout 2h -tags planted -run FaultyServers -v $(ARGS) ./test/observer
	TKO_DASHBOARD_DEPLOYMENTS=100000 $(GO) test -count=1 -timeout 60m -run LargeFleet -v $(ARGS) ./test/dashboard
	TKO_LIFE_DEPLOYMENTS=200000 $(GO) test -count=1 -timeout 60m -run NewDatabaseGrows -v $(ARGS) ./internal/store/postgres
	TKO_SOAK_ROUNDS=50 $(GO) test -count=1 -timeout 60m -run Kill -v $(ARGS) ./test/e2e
	TKO_ROLLOUT_RUNS=2000 $(GO) test -count=1 -timeout 120m -run Random -v $(ARGS) ./internal/rollout/planner
	TKO_PAST_OPERATIONS=200000 $(GO) test -count=1 -timeout 120m -run PastOfALongLog -v $(ARGS) ./internal/store/sqlite
	TKO_ROLLOUT_SEEDS=100000 $(GO) test -count=1 -timeout 60m -run Limit -v $(ARGS) ./internal/rollout/fleettest
	TKO_KUBERNETES_OBJECTS=10000 $(GO) test -count=1 -timeout 20m -run Followers -v $(ARGS) ./test/kubernetes
	TKO_KUBERNETES_OBJECTS=100000 TKO_KUBERNETES_WATCHERS=50 TKO_KUBERNETES_WRITES=1000 $(GO) test -count=1 -timeout 20m -run LargeLists -v $(ARGS) ./test/kubernetes
	$(GO) test -count=1 -timeout 20m -tags image -run Image -v $(ARGS) ./test/deploy
	test/soak/run.sh -v $(ARGS)

# Those of test/e2e whose subject isn't another database, a cluster, or what only other stores have.
.PHONY: spanner
spanner: build-programs ## the tests that run with any store, with Spanner's emulator: minutes (ARGS=-run=Kill)
	test/setup/emulator.sh $(GO) test -count=1 -timeout 60m -run "PlacementSurvivesKills|RolloutSurvivesKills|TicketsSurviveKills|DeletionsContinue|DemoCatalog|ScenarioOfTheOriginal|Approval|StopHolds|TraceGoes" -v $(ARGS) ./test/e2e
	TKO_SOAK=/dev/null $(GO) test -count=1 -timeout 60m -v $(ARGS) ./test/spanner
	STORE=spanner $(MAKE) --no-print-directory demo ARGS=--once

FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## fuzz every decoder for FUZZTIME each (30s); a failing input is saved in testdata/fuzz and becomes a test
	@for package in $$(grep -rl --include=*_test.go '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' $$package/*_test.go | cut -c6-); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $(ARGS) $$package; \
		done; \
	done

.PHONY: vulnerabilities
vulnerabilities: ## report known vulnerabilities that the code reaches (needs https://vuln.go.dev, or DB=file:///FOLDER with a copy of its data)
	@cd tools/security && $(GO) build -o ../../$(BIN)/ golang.org/x/vuln/cmd/govulncheck
	$(BIN)/govulncheck $(if $(DB),-db $(DB)) ./...

.PHONY: licences
licences: ## check that the licences of all dependencies are among the allowed ones, and are shipped
	@cd tools/security && $(GO) build -o ../../$(BIN)/ ./sbom
	@$(BIN)/sbom -licences $(PROGRAMS:%=./cmd/%)

PLATFORMS ?= amd64,arm64

.PHONY: release
release: ## make tarballs, .deb, .rpm, the image, bills of materials and SHA256SUMS in dist/, twice, and compare (PLATFORMS=amd64)
	@cd tools/security && $(GO) build -o ../../$(BIN)/ ./sbom
	@cd tools/release && $(GO) build -o ../../$(BIN)/release .
	@tools/release/release.sh $(BIN) dist $(PLATFORMS)

.PHONY: bench
bench: build ## measure TKO and raw PostgreSQL in the same run (results: docs/performance.md)
	@test/setup/setup.sh
	@PYTHONPATH=$(CURDIR)/sdk/python/src $(BIN)/tko-bench -python "$$(test/setup/python.sh)" $(ARGS)

.PHONY: generate
generate: $(BIN)/buf $(BIN)/openapi-gen ## make the generated code anew
	PATH="$(CURDIR)/$(BIN):$$PATH" buf lint
	PATH="$(CURDIR)/$(BIN):$$PATH" buf generate
	PATH="$(CURDIR)/$(BIN):$$PATH" buf generate test/wire/contract --template test/wire/buf.gen.yaml
	sdk/python/generate.sh
	$(GO) run ./tools/entities
	$(GO) run ./tools/responses
	$(GO) run ./tools/methods
	api/v1alpha1/generate.sh $(BIN)

.PHONY: format
format: $(BIN)/golangci-lint ## format the code
	$(BIN)/golangci-lint fmt ./...

.PHONY: lint
lint: $(BIN)/golangci-lint ## check the code (linters), the words of texts (test/conventions/words.txt) and the imports (docs/architecture.md)
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	$(GO) test -vet=off ./test/conventions

.PHONY: compatible
compatible: $(BIN)/buf ## check that clients of the last release, and those of the contract (test/wire), can call this server
	$(BIN)/buf breaking --against proto/released.binpb
	$(BIN)/buf breaking --against test/wire/contract --config '{"version":"v2","modules":[{"path":"proto"}],"breaking":{"use":["WIRE_JSON","RPC_NO_DELETE"]}}'

.PHONY: released
released: $(BIN)/buf ## record the protocol of a release, with which make compatible compares later ones
	$(BIN)/buf build --exclude-source-info -o proto/released.binpb

.PHONY: verify
verify: generate compatible format lint licences test ## all that CI does: and the work tree must be clean after it
	@git diff --exit-code || { echo 'make verify: generated or formatted files differ: commit them'; exit 1; }

.PHONY: clean
clean: clean-demo ## remove what was built
	rm -rf $(BIN) dist

$(BIN)/buf: tools/proto/go.mod
	@mkdir -p $(BIN)
	cd tools/proto && $(GO) build -o ../../$(BIN)/ github.com/bufbuild/buf/cmd/buf google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc

$(BIN)/openapi-gen: tools/openapi/go.mod
	@mkdir -p $(BIN)
	cd tools/openapi && $(GO) build -o ../../$(BIN)/ k8s.io/code-generator/cmd/deepcopy-gen k8s.io/kube-openapi/cmd/openapi-gen

$(BIN)/golangci-lint: tools/lint/go.mod
	@mkdir -p $(BIN)
	cd tools/lint && $(GO) build -o ../../$(BIN)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
