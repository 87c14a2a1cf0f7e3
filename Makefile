# plegd's one entry point for people and CI: `make help` lists what it can do.
#
# Everything that is built or fetched lands in ./bin and ./.cache (both ignored by git); `make run`
# keeps its state in ./.plegd. Nothing else on the machine is changed, but for gcc, which -race needs,
# and Chromium, which the tests of the web page need: `make test` installs them when it runs as root on
# a Debian that has none.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)

# Tools carry the Go version in their path: a linter built by an older Go refuses newer code.
GOVERSION := $(shell go env GOVERSION)
TOOLS     := $(CURDIR)/.cache/tools-$(GOVERSION)
RUNTIMES  := $(CURDIR)/.cache/runtimes-$(GOVERSION)

# Two compilers at once: more only makes a small machine swap.
GOBUILD := go build -p 2 -trimpath

# What the real-runtime tests demand of the machine; empty means that it has it.
NO_RUNTIMES := $(shell test/e2e/runtimes/install.sh --check)

BENCH    ?= .
FUZZTIME ?= 20s
SEEDS    ?= 2000
FROM     ?= 0
TO       ?=
MINUTES  ?= 60
MUTANTS  ?=
PKG      ?= ./...
ARGS     ?=

# $(call number,NAME,LEAST) is a command that takes nothing but a whole number in variable NAME.
number = { [[ '$($1)' =~ ^(0|[1-9][0-9]{0,9})$$ ]] && (( $($1) >= $2 )); } || { echo '$1="$($1)": must be a whole number, $2 or more' >&2; exit 2; }
# The same, but the variable may be empty.
maybe = $(if $($1),$(call number,$1,$2),:)

##@ Use

.PHONY: build
build: ## Build bin/plegd
	@$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/plegd ./cmd/plegd

.PHONY: run
run: build ## Run plegd on this machine's CRI runtime, else on a simulated one (ARGS="--output json" adds flags)
	@$(GOBUILD) -o bin/makerun ./test/makerun
	@exec bin/makerun -plegd bin/plegd -dir .plegd -- $(ARGS)

.PHONY: clean
clean: ## Remove what was built, the cached tools and the state of `make run`
	@rm -rf bin .cache .plegd

##@ Check

.PHONY: test
test: policy lint unit e2e ## Everything: policies, lint, unit tests under -race, tests on real runtimes

.PHONY: policy
policy: ## Check the rules on imports, clocks and goroutines (test/policy), and that mutants fit the code (test/mutation)
	@go test -count=1 ./test/policy ./test/mutation

.PHONY: lint
lint: tidy generated $(TOOLS)/golangci-lint ## Run golangci-lint as pinned in test/tools, and check that the go.mod files are tidy
	@$(TOOLS)/golangci-lint run $(PKG)

.PHONY: tidy
tidy: # Says what is not tidy and changes nothing; `go mod tidy` in the folder mends it.
	@for dir in . test/tools test/tools/protogen test/e2e/runtimes test/e2e/runtimes/containerd17; do \
		go -C $$dir mod tidy -diff || { echo "$$dir/go.mod is not tidy: run go mod tidy there" >&2; exit 1; }; \
	done

PROTOGEN = go -C test/tools/protogen run . -root $(CURDIR)/api -out $(1) plegd/v1/plegd.proto

.PHONY: generate generated
generate: ## Generate the code of the gRPC API from api/plegd/v1/plegd.proto
	@$(call PROTOGEN,$(CURDIR)/api)

generated:
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(call PROTOGEN,$$dir) && \
	diff -ru --exclude='*.proto' "$$dir/plegd/v1" api/plegd/v1 >&2 || { echo 'the code of the API is not as generated: run make generate' >&2; exit 1; }

.PHONY: unit
unit: cc chromium ## Unit tests under the race detector
	@go test -race -p $$(( $$(nproc) + 1 )) $$(go list $(PKG) | grep -v -e /test/e2e$$ -e /test/policy$$ -e /test/mutation$$ -e /test/field$$)
	@go test -race ./test/field # by itself: its runtimes answer within 200 ms or count as hung
	@mkdir -p $(SIM); $(MAKE) --no-print-directory sim SEEDS=200 FROM=0 >$(SIM)/unit.log || { cat $(SIM)/unit.log; exit 1; }
	@go test -run '^TestScale' . # what it bounds is memory, which the race detector multiplies
	@go test -run '^Test(AnythingIsReplayed|SameBytes)$$' ./internal/replay # under the race detector goroutines run in any order
	@unshare --mount true 2>/dev/null || { \
		printf '\n*** SKIPPED the tests of full and read-only disks (store): no right to mount a tmpfs ***\n' >&2; \
		[ '$(CI)' != true ]; \
	}

.PHONY: explore
explore: ## Every interleaving of small worlds, breadth-first, for MINUTES=60 (WORLD=regexp of one, DEPTH=, FAULTS=)
	@$(call number,MINUTES,1); $(call maybe,DEPTH,1); $(call maybe,FAULTS,0)
	@PLEGD_EXPLORE_SECONDS=$$(( $(MINUTES) * 60 )) PLEGD_EXPLORE_DEPTH='$(DEPTH)' PLEGD_EXPLORE_FAULTS='$(FAULTS)' PLEGD_EXPLORE_WORLD='$(WORLD)' \
		go test -count=1 -timeout 0 -v -run '^TestExploreSmallWorlds$$' ./arbiter
	@PLEGD_EXPLORE_WALKS=50000 go test -count=1 -timeout 0 -run '^TestExploreSameDigestSameFuture$$' ./arbiter

.PHONY: mutation
mutation: ## Break each rule in turn, show which test notices, and write that into docs/proof.md (MUTANTS=regexp)
	@go run ./test/mutation -run '$(MUTANTS)'

# The simulation: a test binary, and a command that runs it on all processors.
SIM := $(CURDIR)/.cache/sim

# The last seed, for the shell.
LAST = $(or $(TO),$$(( $(FROM) + $(SEEDS) - 1 )))

.PHONY: sim sim-campaign sim-range sim-binaries
sim: sim-range sim-binaries ## The whole agent in virtual time, SEEDS=2000 of them from FROM=0 on; FROM=n TO=n is one seed again, TWICE=1 compares two runs of each
	@$(SIM)/campaign -bin $(SIM)/sim.test -dir $(SIM)/last -from $(FROM) -to $(LAST) $(if $(TWICE),-twice)

sim-campaign: sim-range sim-binaries ## The same for many seeds, FROM= to TO=: goes on where it was stopped
	@$(SIM)/campaign -bin $(SIM)/sim.test -dir $(SIM)/long -from $(FROM) -to $(LAST) -resume

sim-range:
	@$(call number,SEEDS,1); $(call number,FROM,0); $(call maybe,TO,0)
	@(( $(FROM) <= $(LAST) )) || { echo 'FROM="$(FROM)": must not be above TO="$(TO)"' >&2; exit 2; }

sim-binaries:
	@overlay='-overlay $(SIM)/steady/overlay.json'; \
	go run ./test/sim/steady $(SIM)/steady || { \
		overlay=; printf '\n*** a seed may not do the same each time with this Go ***\n' >&2; \
	}; \
	go test -c $$overlay -o $(SIM)/sim.test ./test/sim
	@go build -o $(SIM)/campaign ./test/sim/campaign

# The tests on real runtimes, with the binary and the runtimes that make has built.
E2E := PLEGD_E2E_REQUIRED=1 PLEGD_E2E_RUNTIMES=$(RUNTIMES) PLEGD_E2E_BIN=$(CURDIR)/bin/plegd go test -count=1 -parallel 5

.PHONY: e2e e2e-long e2e-kubelet comparison
ifeq ($(NO_RUNTIMES),)
e2e: build $(RUNTIMES)/installed $(RUNTIMES)/critest/critest ## Black-box tests of bin/plegd on real containerds (root on Debian 12)
	@$(E2E) -timeout 15m -skip '^(TestKubelet|TestComparison)$$' ./test/e2e

e2e-long: build $(RUNTIMES)/installed ## The same at length: 50 kills under churn, 110 pods, with figures (15 min)
	@PLEGD_E2E_LONG=1 $(E2E) -timeout 40m -v -run 'UnderChurn|ManyPods|Upgrade|AgentStopped|MemoryBound' ./test/e2e

e2e-kubelet: build $(RUNTIMES)/installed $(RUNTIMES)/kubelet/kubelet ## A real kubelet makes the pods; its PLEG beside ours (10 min)
	@$(E2E) -timeout 30m -v -run '^TestKubelet$$' ./test/e2e

comparison: build $(RUNTIMES)/installed ## Measure evented, generic, hybrid and hinted side by side, and write docs/comparison.md (15 min); reports in comparison/
	@PLEGD_COMPARISON=$(CURDIR)/comparison $(E2E) -timeout 60m -v -run '^TestComparison$$' ./test/e2e
else ifeq ($(CI),true)
e2e e2e-long e2e-kubelet comparison:
	@echo 'real runtime tests cannot run: $(NO_RUNTIMES); CI must not pass without them' >&2; exit 1
else
e2e: # The package still runs, so that what needs no runtime (proxy, parsers) is tested.
	@go test -count=1 ./test/e2e
	@printf '\n*** SKIPPED real runtime tests: %s ***\n' '$(NO_RUNTIMES)' >&2

e2e-long e2e-kubelet comparison:
	@echo 'real runtime tests cannot run: $(NO_RUNTIMES)' >&2; exit 1
endif

.PHONY: field-long
field-long: cc ## The field cases in the size in which they were seen in the field, with figures (15 min)
	@PLEGD_FIELD_LONG=1 go test -race -count=1 -timeout 60m -parallel 4 -v ./test/field

.PHONY: bench
bench: ## Benchmarks, six runs for benchstat (BENCH=regexp, PKG=./store)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count=6 $(PKG) | \
		awk '{print; fflush()} /^Benchmark/ {found = 1} END {exit !found}' || { \
		status=("$${PIPESTATUS[@]}"); \
		[ "$${status[0]}" != 0 ] || echo 'BENCH="$(BENCH)": matches no benchmark of PKG="$(PKG)"' >&2; \
		exit 1; \
	}

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 20s)
	@[[ '$(FUZZTIME)' =~ ^([0-9]+x|([0-9]+(ms|s|m|h))+)$$ ]] || { \
		echo 'FUZZTIME="$(FUZZTIME)": must be a duration such as 20s or 1m30s, or a number of runs such as 1000x' >&2; exit 2; \
	}
	@{ grep -rHo --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . || true; } | sort | \
	while IFS=: read -r file target; do \
		echo "== $${target#func } in $$(dirname "$$file")"; \
		go test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null; \
	done

# Tools

$(TOOLS)/golangci-lint: test/tools/go.mod test/tools/go.sum
	@echo 'building golangci-lint (once, about 90 s)' >&2
	@cd test/tools && $(GOBUILD) -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(RUNTIMES)/installed: test/e2e/runtimes/go.mod test/e2e/runtimes/go.sum \
		test/e2e/runtimes/containerd17/go.mod test/e2e/runtimes/containerd17/go.sum test/e2e/runtimes/install.sh
	@test/e2e/runtimes/install.sh $(RUNTIMES)

$(RUNTIMES)/kubelet/kubelet: test/e2e/runtimes/kubelet/go.mod test/e2e/runtimes/kubelet/go.sum
	@test/e2e/runtimes/install.sh --kubelet $(RUNTIMES)
	@touch $@

$(RUNTIMES)/critest/critest: test/e2e/runtimes/critest/go.mod test/e2e/runtimes/critest/go.sum
	@test/e2e/runtimes/install.sh --critest $(RUNTIMES)
	@touch $@

.PHONY: cc
cc:
	@command -v $$(go env CC) >/dev/null || test/e2e/runtimes/install.sh --cc

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || test/page/install.sh || { \
		printf '\n*** SKIPPED the tests of the web page (test/page): no Chromium ***\n' >&2; \
		[ '$(CI)' != true ]; \
	}

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
