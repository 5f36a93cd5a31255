# These targets are for people. CI calls only these targets.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
V        := github.com/prometheus/common/version
LDFLAGS  := -s -w -X $(V).Version=$(VERSION) -X $(V).Revision=$(REVISION)

# NVML's symbols are bound at the first call, because the library of an older driver lacks some of
# them. Binding at start (-z now) would end the process. go test ./collectors/gpu checks this.
LDFLAGS += -extldflags -Wl,-z,lazy
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations

COMMANDS ?= ./cmd/...
BIN      ?= bin/
REGISTRY ?= ghcr.io/llm-node-exporter
DIST     ?= $(CURDIR)/dist
FUZZTIME ?= 60s

GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
LICENSES    := github.com/google/go-licenses@v1.6.0
VULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.1.4
CHARTDOCS   := go run github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2 --log-level warning --chart-search-root helm/llm-node-exporter

.PHONY: help check build demo drill plots draws drill-report drill-plays real scale test race lint generate drift week bench bench-peers fuzz licenses sbom vulnerabilities release release-test publish reproducible

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/exporter, bin/llm-rules and bin/drill
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN) $(COMMANDS)
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)llm-rules ./jsonnet-free-gen

demo: build ## run a simulated node with the real exporter, Prometheus and rules on this machine; INCIDENT=name starts an incident
	./bin/drill demo $(if $(INCIDENT),--incident $(INCIDENT))

drill: ## play every incident in virtual time, and score the alerts
	GOGC=400 go run ./cmd/drill run

draws: ## play incidents drawn at random, and score whether alerts and triage named the cause; SEEDS=from-to draws other incidents
	go run ./cmd/drill draws --seeds=$(or $(SEEDS),1-30)

plots: ## play every incident, and draw plots in bin/drill.html
	mkdir -p bin && GOGC=400 go run ./cmd/drill run --output html > bin/drill.html

drill-report: ## play every incident with five seeds, and write the scores to docs/ (half an hour)
	GOGC=400 go run ./cmd/drill report

drill-plays: ## play one incident, and write its transcript to the test data
	go run ./cmd/drill transcript --incident thermal-throttle --dir drill/transcript/testdata

real: ## play incidents on real engines (docs/real.md); needs uv, Prometheus and Alertmanager; PLAYS=name|name selects plays
	go run ./real -out $(or $(OUT),bin/real) -plays '$(or $(PLAYS),.)'

scale: ## play incidents of 1,000 models into Mimir and VictoriaMetrics' cluster, and kill parts of both (CONTRIBUTING.md); FLAGS='-models 100'
	SCALE=1 go -C scale test -count=1 -v -timeout 90m -run '$(or $(TESTS),.)' . $(FLAGS)

# Tests allocate much memory and keep little, so less frequent garbage collection saves a third of the time. The slowest packages begin first. Some
# packages wait for real programs, so twice as many packages as processors run at once. check and lint vet the code.
test: ## run all tests
	GOGC=400 go test -vet=off -p 4 -timeout 60m ./rules ./cmd/exporter ./dashboards ./drill/incident ./...
	go -C cmd/dist test .

check: ## vet the code, and run the tests that need no plays, weeks, soaks, browsers, chart or real programs
	go vet ./...
	GOGC=400 go test -short -p 4 ./...

# Under the race detector, tests over all recorded metrics take minutes. Other tests also run the same code, on several engines at once.
SWEEPS := GoldenPages|HangOfSGLang|LabelsStayWithTheirEngine|EveryEngineIsFoundByHostAndPort|ClaimsEqualSeries|NumbersFollowThePage|BucketsArePassedOnAsTheEngineHasThem

race: ## run the concurrent parts under the race detector
	GOGC=400 go test -vet=off -race -short -p 4 -skip '^Test($(SWEEPS))$$' ./collectors/engine ./cmd/exporter ./collectors/... ./cmd/exporter/...

lint: ## check format, suspicious code and deprecated calls
	go run $(GOLANGCI) run --timeout 20m ./...
	go -C bench vet ./...
	go -C cmd/dist vet ./...
	go -C scale vet ./...
	go run $(ACTIONLINT)

generate: ## write the generated files
	go run ./jsonnet-free-gen
	$(CHARTDOCS)

drift: ## fail when a generated file differs from the code
	go run ./jsonnet-free-gen --check
	$(CHARTDOCS) --dry-run | diff helm/llm-node-exporter/README.md - || { echo 'the README of the chart differs from values.yaml: run make generate'; exit 1; }

week: ## simulate an ordinary week of eight fleets, and count the alerts that would have paged; SEED=n draws another week
	go test ./rules -run 'TestOrdinaryWeek$$' -v -timeout 60m -args -long -seed $(or $(SEED),4)

bench: ## compare the reading of metrics with expfmt and the bare parser, and the rules with sloth's; load a fleet's dashboards
	go test -run '^$$' -bench . -benchmem ./collectors/...
	go test -run '^$$' -bench . -benchtime 1x ./rules
	go test -run '^$$' -bench . -benchtime 1x -timeout 30m ./dashboards

bench-peers: ## measure the exporter beside Prometheus, parsers and VMAGENT=FILE, and write docs/performance.md (four minutes)
	$(MAKE) build COMMANDS=./cmd/exporter
	go -C bench build -o ../bin/bench .
	dd bs=32k if=bin/exporter of=bin/unpacked status=none && chmod +x bin/unpacked # as if the file came from an image: see performance.md
	./bin/bench -exporter bin/unpacked

fuzz: ## fuzz everything that reads foreign input: metrics, answers, kernel log, kubelet, procfs, configuration
	@for file in $$(grep -rl 'func Fuzz' --include=*_test.go .); do for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' $$file); do \
	  echo $$name && go test -run '^$$' -fuzz $$name'$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$(dirname $$file) || exit 1; done; done

licenses: ## fail when a shipped program links to code under a licence that is not in this list
	go run $(LICENSES) check --allowed_licenses=Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT ./cmd/exporter ./jsonnet-free-gen

sbom: build ## write the components of bin/exporter to bin/exporter.cdx.json, as CycloneDX
	go -C cmd/dist tool cyclonedx-gomod bin -json -version $(VERSION) -output $(CURDIR)/bin/exporter.cdx.json $(CURDIR)/bin/exporter

vulnerabilities: ## look for known vulnerabilities that the code reaches; needs the Internet
	go run $(VULNCHECK) ./...

release: ## build all files of a release into dist/; VERSION=v0.1.0 names the release, REGISTRY=HOST/OWNER is the registry of its image
	go -C cmd/dist run . --tag=$(VERSION) --registry=$(REGISTRY) --out=$(DIST) $(if $(BUILDER),--builder=$(BUILDER))

release-test: release ## install the release as users do: helm, apt, rpm, runc, and arm64 under qemu; as root (CONTRIBUTING.md)
	RELEASE=$(DIST) go -C cmd/dist test -count=1 -v -timeout 60m -run '$(or $(TESTS),.)' .

publish: ## push images and chart of dist/ to REGISTRY, where crane has logged in
	@tag=$$(basename $(DIST)/*.tgz .tgz) && for from in image=llm-node-exporter try=llm-node-exporter-try chart=charts/llm-node-exporter; do \
	  go -C cmd/dist tool crane push $(DIST)/$${from%=*} $(REGISTRY)/$${from#*=}:$${tag#llm-node-exporter-} || exit 1; done

reproducible: build ## build again in another folder without a cache, and compare byte by byte
	@elsewhere=$$(mktemp -d) && trap 'chmod -R u+w "$$elsewhere" && rm -r "$$elsewhere"' EXIT && git archive --prefix=another/place/ HEAD | tar -x -C "$$elsewhere" && \
	GOCACHE="$$elsewhere/cache" $(MAKE) -s -C "$$elsewhere/another/place" build COMMANDS=./cmd/exporter VERSION=$(VERSION) REVISION=$(REVISION) && \
	cmp bin/exporter "$$elsewhere/another/place/bin/exporter" && cmp bin/llm-rules "$$elsewhere/another/place/bin/llm-rules" && echo 'the same, byte by byte'
