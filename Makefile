# On Debian with Python 3.11: `make run` serves, `make test` tests. Both install what they need, once.
# `make test-fast` tests in a minute and a half: units, HTTP, and the contract on SQLite and Redis. `make test-all` has every test.
PYTHON ?= python3
BIN := .venv/bin
PARALLEL := --dist loadscope --no-loadscope-reorder --numprocesses
FAST := --hypothesis-profile fast -m "not (slow or rabbitmq or spark or browser or prometheus)" tests/http tests/brokers/sqlite tests/brokers/redis tests/unit
BROKERS := artemis kafka pulsar rabbitmq redis servicebus sqlite sqs
# Those that Maven fetches.
FETCHED := artemis kafka pulsar sqs
CLASSES := $(addprefix .classes-of-,$(FETCHED))
# What builds the client of Artemis, where it has to be built.
COMPILER := cc=gcc,libc6-dev,python3-dev
VENV = $(shell $(PYTHON) -c 'import ensurepip' 2>/dev/null || echo python3-venv)
CLIENTS := csharp go java php python typescript
PAGES := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs helm/babelgate/README.md
LOCKS := requirements.txt requirements-build.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" $(ARGS)

.PHONY: help run demo install test test-all test-fast coverage lint-api test-deps test-all-deps broker-deps test-broker test-clients clients clients-deps bench bench-gate check release-check fmt openapi docs docs-site prose lock up down up-local screenshots recording servicebus-emulator
.DEFAULT_GOAL := run

help: ## list these targets
	@awk -F ':.* ## ' '/^[a-z-]*:.* ## / { printf "%-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: install ## serve on 127.0.0.1:8080 over a local SQLite file
	$(BIN)/babelgate serve $(ARGS)

# A day of traffic through a gateway of its own, and the report of it. Then that gateway serves, with its console.
demo: .venv/installed-dev ## make a day of traffic and its report, and serve its console
	@command -v java >/dev/null || .ci/packages openjdk-17-jre-headless
	$(BIN)/python -m babelgate.demo --serve $(ARGS)

install: .venv/installed ## install what the gateway needs in .venv

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@.ci/packages $(VENV)
	$(PYTHON) -m venv .venv

# A lock file or pyproject.toml that changed installs again; otherwise nothing is asked of a registry.
.venv/installed: $(LOCKS) pyproject.toml | .venv/bin/pip
	$(PIP) --require-hashes $(addprefix -r ,$(LOCKS))
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed
	@.ci/packages $(COMPILER)
	$(PIP) --require-hashes -r requirements-dev.txt
	@touch $@

# Python compiles a module once and not in each of the many processes that the tests start, whatever the caller set.
test test-all test-fast: export PYTHONDONTWRITEBYTECODE :=

# What is essential of everything, with each broker's contract on a real server. Most tests wait for leases, delays and
# servers, so that six at a time keep two cores busy; tests/harness/scheduling.py lets two of them compute. ARGS=-n0: one
# by one.
test: test-deps ## run what is essential of everything, on all brokers
	$(BIN)/pytest $(PARALLEL) 6 --only essential $(ARGS)

# Every test; those that are not essential wait longer, so eight at a time. ARGS="--only kafka,http": what `make test` leaves
# out of these groups; tests/harness/groups.py has them.
test-all: test-all-deps ## run every test
	@$(MAKE) --no-print-directory clients ARGS=
	$(BIN)/pytest $(PARALLEL) 8 -m "not repeated" $(ARGS)

test-fast: .venv/installed-dev ## run units, HTTP, and the contract on SQLite and Redis
	@.ci/packages $(call PACKAGES,redis) openssl=openssl
	$(BIN)/pytest $(PARALLEL) 6 $(FAST) $(ARGS)

# The lines and branches of the product that `make test` reaches, in all processes that it starts. Whether a test passes is
# for `make test` to say: measured code is slower.
coverage: test-deps ## measure what `make test` covers, by package
	@mkdir -p .coverage
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest $(PARALLEL) 6 --only essential $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o .coverage/report.json
	@$(BIN)/python -m tools.coverage_report .coverage/report.json

# What the OpenAPI document is worth: linters, generators and their clients, and what breaks clients since the release.
lint-api: test-all-deps ## check the OpenAPI document with linters and generators
	$(BIN)/pytest --numprocesses 2 tests/http/test_openapi.py tests/http/test_openapi_words.py tests/e2e/test_openapi_tools.py $(ARGS)

# Debian's brokers, and those that Maven fetches, which run on Java.
broker-deps: .venv/installed-dev ## install the brokers
	@.ci/packages $(call PACKAGES,$(BROKERS))
	$(call BROKER_DEPS,$(BROKERS))

# $(1): kinds of brokers. SQLite has no server, and the emulator of Azure Service Bus is a part of the tests.
PACKAGES = $(if $(filter redis,$(1)),redis-server=redis-server) \
	$(if $(filter rabbitmq,$(1)),rabbitmq-server=rabbitmq-server) \
	$(if $(filter $(FETCHED),$(1)),java=openjdk-17-jre-headless mvn=maven)

# Maven fetches one broker after the other, because they share its repository. What their first start writes, so that the
# next ones are faster, needs Python's packages.
define BROKER_DEPS
	$(if $(filter $(FETCHED),$(1)),@$(PYTHON) -m tests.harness.archives $(filter $(FETCHED),$(1)))
	$(if $(filter $(FETCHED),$(1)),@$(BIN)/python -m tests.brokers.classes $(filter $(FETCHED),$(1)))
endef

define JAVA_DEPS
	@.ci/packages javac=openjdk-17-jdk-headless mvn=maven
endef

# What `make test` needs beside that: HAProxy, nginx, certificates, what the README's lines need, and the official conformance suite.
# What pip needs of Debian comes first; then all other packages and the brokers, while pip installs Python's.
test-deps: ## install what `make test` needs
	@.ci/packages $(VENV) $(COMPILER)
	@$(MAKE) --no-print-directory --jobs 2 $(CLASSES) .conformance

.fetched-brokers:
	@.ci/packages $(call PACKAGES,$(BROKERS)) openssl=openssl curl=curl jq=jq haproxy=haproxy nginx=nginx ip=iproute2
	@$(PYTHON) -m tests.harness.archives $(FETCHED)

$(CLASSES): .classes-of-%: .fetched-brokers .venv/installed-dev
	@$(BIN)/python -m tests.brokers.classes $*

.conformance: .venv/installed-dev
	@$(BIN)/python -m tests.harness.conformance

# What all tests need beside that: an archive of Spark's classes, a browser, Prometheus (its programs; no service), generators
# of clients with Go and Node.js for what they generate, linters of the OpenAPI document, a reader of compose files, Helm, Envoy,
# an API server of Kubernetes with etcd, what builds and runs images, Soda and dbt, and a root of Debian with newer servers and a
# newer Python.
test-all-deps: test-deps .venv/installed-site .brokers/quality/installed ## install what `make test-all` needs
	@.ci/packages go=golang-go npm=nodejs,npm chromium-headless-shell=chromium-headless-shell prometheus=prometheus \
		etcd=etcd-server javac=openjdk-17-jdk-headless buildah=buildah,runc,uidmap podman=podman mmdebstrap=mmdebstrap
	$(BIN)/python -m tests.official.programs
	$(BIN)/python -m tools.compose
	$(BIN)/python -m tools.helm
	$(BIN)/python -m tests.harness.envoy
	$(BIN)/python -m tests.harness.image
	$(BIN)/python -m tests.harness.kubernetes
	$(BIN)/python -m tests.harness.newer
	$(BIN)/python -m tools.openapi_generator
	$(BIN)/python -m tools.openapi_tools
	$(BIN)/python -m tests.harness.spark_jvm
	$(PYTHON) -m tests.harness.archives keycloak

test-broker: test-all-deps ## run all tests of BROKER=redis
	$(BIN)/pytest tests/brokers/$(BROKER) $(ARGS)

# The clients in clients/: generated from the OpenAPI document, built and packaged. ARGS="go java": only these.
clients: clients-deps ## generate, build and package the clients
	$(BIN)/python -m tests.clients.languages $(ARGS)

clients-deps: .venv/installed-dev ## install what `make clients` needs
	$(call CLIENT_DEPS,$(or $(filter $(CLIENTS),$(ARGS)),$(CLIENTS)))

# $(1): languages. Python's client needs nothing beside this environment.
define CLIENT_DEPS
	$(if $(filter csharp typescript,$(1)),@command -v npm >/dev/null || .ci/packages nodejs npm)
	$(if $(filter php,$(1)),@command -v composer >/dev/null || .ci/packages composer php-cli php-curl php-guzzlehttp-guzzle php-mbstring)
	$(if $(filter go,$(1)),@command -v go >/dev/null || .ci/packages golang-go)
	$(if $(filter java php,$(1)),$(call JAVA_DEPS))
	$(if $(filter java php,$(1)),$(BIN)/python -m tools.openapi_generator)
	$(if $(filter csharp,$(1)),$(BIN)/python -m tools.dotnet)
	$(BIN)/python -m tools.quicktype
endef

# Each client against a real gateway, and each with each other while the gateway is killed. Prints what was proven.
test-clients: clients ## test the clients against a real gateway
	@command -v redis-server >/dev/null || .ci/packages redis-server
	$(BIN)/pytest --numprocesses 3 tests/clients

bench: test-all-deps ## measure throughput, latency and CPU
	$(BIN)/python -m bench $(ARGS)

# Whether a message costs more CPU than bench/ratios.json says. ARGS=--write: say what it costs now.
bench-gate: .venv/installed-dev ## check what a message costs in CPU
	@command -v redis-server >/dev/null || .ci/packages redis-server
	$(BIN)/python -m bench.gate $(ARGS)

check: .venv/installed-dev prose ## check format, lint, types, architecture and pages
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mdformat --check $(PAGES)
	$(BIN)/mypy
	$(BIN)/pytest -q tests/architecture

# Whether this can be released: versions, lock files, licences, generated pages; then the packages and the SBOM in dist/,
# installed and run in a new environment. ARGS=--released: the changelog must have a section of the version.
release-check: docs-site ## check whether this can be released
	$(BIN)/python -m tools.release $(ARGS)

# The rules are in tools/prose. Vale needs Go 1.25 and a C compiler; without Go the sentences are checked by CI alone.
VALE := .brokers/vale-3.21.0/vale
$(VALE):
	@if command -v go >/dev/null; then .ci/packages $(COMPILER); GOBIN=$(CURDIR)/$(@D) go install github.com/vale-cli/vale/v3/cmd/vale@v3.21.0; \
	else echo "not checked: the sentences of the pages (no Go)"; [ -z "$$CI" ]; fi

prose: $(VALE) ## check the sentences of the pages
	@[ ! -x $(VALE) ] || $(VALE) $(PAGES)

fmt: .venv/installed-dev ## format, and apply automatic fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/mdformat $(PAGES)

openapi: .venv/installed ## write the OpenAPI document
	$(BIN)/python -m babelgate.http.openapi > openapi/openapi.yaml

docs: .venv/installed openapi ## write all generated pages
	$(BIN)/python -m tools.generated_docs

.venv/installed-site: requirements-site.txt .venv/installed-dev
	$(PIP) --require-hashes -r requirements-site.txt
	@touch $@

# Soda and dbt, in an environment of their own: they need older versions of what the tests need. The lock file has all that
# they need; without --no-deps, pip 23 would look for mashumaro[msgpack] although mashumaro is locked.
.brokers/quality/installed: requirements-quality.txt | .venv/bin/pip
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r requirements-quality.txt
	@touch $@

# In build/site: it works from the folder, on any web server, and without another host. The gateway serves a copy, which
# wheels and images that are built afterwards contain.
docs-site: .venv/installed-site ## build the documentation site
	$(BIN)/python -m tools.docs_site

# The lock files hold versions and hashes, and name no registry. The client of Artemis has one of its own: it is built by
# a C compiler, which a gateway without Artemis does not need.
lock: ## update the lock files (needs uv)
	$(LOCK) pyproject.toml --extra redis --extra rabbitmq --extra sqs --extra servicebus --extra azure --extra kafka --extra pulsar --extra otlp --extra journal --extra schemas -o requirements.txt
	$(LOCK) pyproject.toml --extra artemis -c requirements.txt -o requirements-artemis.txt
	$(LOCK) pyproject.toml --extra dev -c requirements.txt -c requirements-artemis.txt -o requirements-dev.txt
	$(LOCK) pyproject.toml --extra spark --extra schemas --extra openlineage --extra kafka -c requirements-dev.txt -o requirements-spark.txt
	$(LOCK) --group build -o requirements-build.txt
	$(LOCK) --group site -c requirements-dev.txt -o requirements-site.txt
	$(LOCK) --group quality -o requirements-quality.txt

# ARGS="--profile kafka": more brokers; docs/local.md has the profiles.
up: ## start gateway and brokers in containers
	docker compose $(ARGS) up --build --detach --wait

down: ## stop them
	docker compose --profile '*' down

# They show a gateway with an hour of traffic, in Debian's Chromium.
screenshots: .venv/installed-dev ## write the pictures of the console in docs/images
	$(BIN)/python -m tools.screenshots $(ARGS)

# The commands of the README, and what a gateway answers.
recording: .venv/installed-dev ## write the recording of the quick start in docs/images
	$(BIN)/python -m tools.recording

servicebus-emulator: .venv/installed-dev ## start an emulator of Azure Service Bus, until Ctrl-C
	@$(BIN)/python -m tools.servicebus_emulator $(ARGS)

# The same without containers, until Ctrl-C. ARGS="redis kafka": only these brokers.
up-local: .venv/installed-dev ## start gateway, brokers and Prometheus without containers
	@.ci/packages $(call PACKAGES,$(or $(filter $(BROKERS),$(ARGS)),$(BROKERS)))
	$(call BROKER_DEPS,$(or $(filter $(BROKERS),$(ARGS)),$(BROKERS)))
	@command -v prometheus >/dev/null || .ci/packages prometheus
	@$(BIN)/python -m tools.up_local $(ARGS)
