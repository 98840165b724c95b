# calico-audit: "make help" lists what can be done.

SHELL := /bin/bash
GO ?= go
GOLANGCI_LINT_VERSION := v2.15.0
ACTIONLINT_VERSION := v1.7.12
GOVULNCHECK_VERSION := v1.9.0
# Programs, tests and releases share one set of compiled packages: all are built without cgo
# and without local paths.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/calico-audit/calico-audit/cmd/internal/build.version=$(VERSION)
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
# Inputs, not time: at the end of a time go's fuzzing may fail with nothing but "context deadline exceeded".
FUZZTIME ?= 20000x
FUZZ ?= ^Fuzz

.DEFAULT_GOAL := help
.PHONY: help build install test quick prepare fuzz lint bench bench-scale mutants generate verify vuln examples release-notes dist soak clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 13

build: ## build bin/calico-audit
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/calico-audit ./cmd/calico-audit

INSTALL_DIR = $(or $(shell $(GO) env GOBIN),$(shell $(GO) env GOPATH)/bin)
install: build ## install calico-audit, and as a kubectl plugin, into $(go env GOBIN) or $(go env GOPATH)/bin
	mkdir -p "$(INSTALL_DIR)"
	install -m 0755 bin/calico-audit "$(INSTALL_DIR)/calico-audit"
	ln -sf calico-audit "$(INSTALL_DIR)/kubectl-calico_audit"
	ln -sf calico-audit "$(INSTALL_DIR)/kubectl_complete-calico_audit"
	@echo "installed $(INSTALL_DIR)/calico-audit$$(command -v calico-audit >/dev/null || echo ': add this directory to your PATH')"

prepare: ## build what the tests need: a real etcd, Kubernetes' servers and Calico's programs (minutes, once)
	$(GO) run ./internal/testcluster/prepare

# The linter vets; here, vetting the dependencies takes longer than some tests. Linking
# without debug information takes half the time.
TEST := $(GO) test -vet=off -ldflags=-s

# Tests often wait for servers, so more packages and tests run at once than there are cores.
# A higher GOGC makes the compiler and the tests collect less garbage.
# The packages that take longest start first, so that none runs alone at the end.
PACKAGES_AT_ONCE ?= $$(($$(getconf _NPROCESSORS_ONLN) + 1))
LONGEST := ./internal/story ./internal/storm ./cmd/calico-audit ./cmd/internal/examples ./cmd/internal/live ./cmd/internal/cli ./repair/datastore ./repair/apply
TESTS_AT_ONCE ?= $$(($$(getconf _NPROCESSORS_ONLN) * 2))
test: prepare ## run all tests, on a real etcd and kube-apiserver
	GOGC=400 $(TEST) -p $(PACKAGES_AT_ONCE) -parallel $(TESTS_AT_ONCE) -timeout 20m $(LONGEST) ./...

# Linking costs as much as running, so packages whose tests are mostly about servers are not linked.
ABOUT_SERVERS := blocks/cluster cmd/calico-audit cmd/internal/examples cmd/internal/live cmd/internal/view/page internal/lab internal/scale internal/storm internal/story internal/testcluster repair/apply repair/datastore repair/workloads
quick: ## run most tests that need no servers, network, root or other programs, within a minute, and say what was left out
	@mkdir -p bin && { $(GO) list ./... | grep -vE '/($(subst $() ,|,$(ABOUT_SERVERS)))(/|$$)' | \
		GOGC=400 xargs $(TEST) -short -v > bin/quick.log 2>&1; status=$$?; }; \
	grep -aE '^(ok|FAIL|panic:)|^ *--- FAIL' bin/quick.log; \
	sed -nE 's/^ +[^ ]+\.go:[0-9]+: (-short: .*|this test needs .*)/skipped, \1/p' bin/quick.log | sort | uniq -c; \
	echo "skipped, tests that are about servers: $(ABOUT_SERVERS)"; \
	[ $$status = 0 ] || echo "the whole output is in bin/quick.log"; exit $$status

fuzz: ## run each fuzz target that FUZZ matches for FUZZTIME, a duration or as 20000x a number of inputs
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sed -E 's|/[^/]*:func | |' | sort | while read -r pkg f; do \
		grep -qE '$(FUZZ)' <<<"$$f" || continue; \
		(set -x; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg) || exit 1; \
	done

lint: ## run the linter, and that of GitHub's workflows
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION) run ./...
	$(GO) run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

bench: prepare ## run the benchmarks: ratios to a rival or a floor measured in the same run
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./...

# NODES are the sizes, BINARY the program to measure (or several, as LABEL=PATH joined
# by commas, which take turns), SCALEFLAGS the rest: -h lists it.
NODES ?= 1000,5000
bench-scale: prepare ## measure reports and the exporter on clusters of NODES nodes, beside calicoctl and the API server alone
	@set -e; binary='$(BINARY)'; [ -n "$$binary" ] || { $(MAKE) --no-print-directory build 1>&2; binary=bin/calico-audit; }; \
		$(GO) run ./internal/scale -nodes '$(NODES)' -binary "$$binary" $(SCALEFLAGS)

mutants: prepare ## break guards of the code one by one, and fail if a test that should notice does not
	$(GO) run ./internal/mutants

soak: prepare ## run the long tests: more fuzzing, more random states, longer storms, every crash point
	$(GO) test -timeout 4h -run AgreesWithCalicoctl -count 120 ./audit/checks
	CALICO_AUDIT_CAPACITY_SCRIPTS=200 $(GO) test -timeout 4h -run TestAllocatorAgrees -v ./audit/capacity
	CALICO_AUDIT_EVERY_CASE=1 $(GO) test -timeout 4h ./audit/capacity ./audit/checks ./blocks/cluster ./cmd/internal/cli ./cmd/internal/live ./internal/lab ./metrics ./repair/apply ./repair/datastore ./repair/planner
	CALICO_AUDIT_EVERY_CASE=1 $(GO) test -timeout 4h -run 'Crash|ActsBetween|Killed|Rights' -v ./internal/storm
	CALICO_AUDIT_EVERY_CASE=1 $(GO) test -timeout 4h -v ./internal/story
	for seed in $$(seq 20); do CALICO_AUDIT_SEED=$$seed $(GO) test -timeout 30m -run 'TestStorm$$' -count 1 -v ./internal/storm || exit 1; done
	CALICO_AUDIT_STORM=10m $(GO) test -timeout 4h -run TestStorm -count 3 -v ./internal/storm
	CALICO_AUDIT_EVERY_CASE=1 CALICO_AUDIT_CHURN=10m $(GO) test -timeout 4h -run "TestWatch(Follows|IsCut)" -v ./blocks/cluster
	CALICO_AUDIT_OUTAGE=2m $(GO) test -run "TestWatchResumes$$" -v ./blocks/cluster
	$(MAKE) --no-print-directory fuzz FUZZTIME=2000000x

generate: ## write the generated documents
	$(GO) run ./cmd/internal/gendoc

verify: ## fail if generated files, modules or formatting are stale
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) run ./cmd/internal/gendoc -check
	@set -e; for mod in $$(git ls-files go.mod '*/go.mod'); do echo "$(GO) -C $${mod%go.mod}. mod tidy -diff"; $(GO) -C $${mod%go.mod}. mod tidy -diff; done

examples: prepare ## make examples/snapshots anew, on a real API server with Calico's own IPAM client, and their pictures
	$(GO) run ./internal/testcluster/makeexamples
	$(GO) run ./cmd/internal/gendoc

release-notes: ## print the section of VERSION in the changelog, and fail if there is none
	@awk -v version='$(VERSION)' '/^## / { found = $$2 == version; next } found { print } found && NF { n++ } END { exit !n }' .github/CHANGELOG.md || \
		{ echo "no section \"## $(VERSION)\" in .github/CHANGELOG.md" >&2; exit 1; }

# It asks the database of vulnerabilities, over the network.
vuln: ## fail if the program calls code with known vulnerabilities
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./cmd/calico-audit

dist: ## build static binaries for release, with checksums, completions, man pages and an image
	@rm -rf dist && mkdir -p dist
	@set -e; for p in $(PLATFORMS); do \
		os=$${p%/*}; arch=$${p#*/}; out=dist/calico-audit_$(VERSION)_$${os}_$${arch}; \
		echo "building $$out"; \
		GOOS=$$os GOARCH=$$arch $(GO) build -ldflags '$(LDFLAGS)' -o $$out ./cmd/calico-audit; \
	done
	@cd dist && { command -v sha256sum >/dev/null && sha256sum calico-audit_* || shasum -a 256 calico-audit_*; } > SHA256SUMS
	@cat dist/SHA256SUMS
	$(GO) run ./cmd/internal/gendoc -release dist
	$(GO) run ./internal/release dist/image dist/calico-audit_$(VERSION)_linux_*

clean: ## remove what was built here
	rm -rf bin dist
