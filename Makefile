# Two commands do all on a machine with Python, pip, venv and make: `make run` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first interpreter that will do; 3.12 and 3.11 come first, since every dependency has wheels for them. It is looked
# for when a target needs it, once.
FIT := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(eval PYTHON := $(shell for python in python3.12 python3.11 python3 python3.13 python; do \
	$$python -c '$(FIT)' 2>/dev/null && { echo $$python; break; }; done))$(PYTHON)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LDAP := $(VENV)/.ldap
DATAONE := .dataone/.installed
# Most tests wait half of the time, for processes and for ttls: three at a time for each of two processors.
JOBS ?= 6
# What they test needs Redis alone. Where the system has none that is new enough, the environment has one, without TLS.
CORE := $(addprefix tests/coordinator/,core scheduler sorters)
# python-ldap has no wheel: it is compiled, against these and against the headers of the Python in use.
HEADERS = $(eval HEADERS := $(if $(PYTHON),$(shell $(PYTHON) -c 'import os, sys, sysconfig; \
	os.path.exists(sysconfig.get_path("include") + "/Python.h") or print("python3.%d-dev" % sys.version_info[1])')))$(HEADERS)
SYSTEM_PACKAGES = $(strip redis-server slapd postgresql lua-check libfaketime gcc libc6-dev libldap2-dev libsasl2-dev rabbitmq-server \
	prometheus chromium-headless-shell systemd $(HEADERS))
# Debian's programs are below these folders, elsewhere they are on the PATH.
POSTGRES ?= /usr/lib/postgresql
RABBITMQ ?= /usr/lib/rabbitmq
# While it is there, Debian's packages start no PostgreSQL of their own: the tests want its programs only.
NO_CLUSTER ?= /etc/postgresql-common/createcluster.d/celery-coordinator.conf
# What a server tells that has functions; Valkey 7.2 leaves its name out.
NEW_SERVER := (Redis server v=([7-9]|[1-9][0-9]+)\.|(Valkey s|S)erver v=(7\.[2-9]|([89]|[1-9][0-9]+)\.))
# The judges, TLC, Celery alone beside this library, and then as many seeds as fit.
PROOF := planted spec 'peers --only plain --only celery-coordinator' '--minutes 25'
TYPED := $(wildcard coordinator tasks examples/batches examples/demo generate proof)

# Python keeps what it compiled, whatever the environment says: the tests start a thousand processes of it.
test test-core test-quick proof matrix check: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test-core test test-quick check docs generated pictures bench dataone proof matrix release system \
	system-ready lock clean

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(INSTALLED) ## the demo: a small federation on this machine (Ctrl-C ends it)
	@$(BIN)/python -m examples.demo $(ARGS)

test-core: $(INSTALLED) ## a minute: lanes, locks, jobs, store, runner, scheduler; wants no system package
	@$(BIN)/python -m pytest -n $(JOBS) -m "not tls" $(CORE) $(ARGS)

test: $(INSTALLED) system-ready $(LDAP) ## every test, on real servers and workers
	@$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

test-quick: $(INSTALLED) system-ready $(LDAP) ## the tests that need a server at most: no worker, no beat, no node
	@$(BIN)/python -m pytest -n $(JOBS) --ignore=tests/fleet $(ARGS)

check: $(INSTALLED) ## ruff, mypy --strict and the floors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy $(TYPED)
	@$(BIN)/python -m pytest -q tests/test_floors.py

docs: $(INSTALLED) ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@$(BIN)/python generate/check_site.py build/site
	@echo "build/site/index.html is the documentation."

generated: $(INSTALLED) ## the pages and pictures of docs that are made from the code
	@$(BIN)/python -m generate $(ARGS)

pictures: $(INSTALLED) system-ready ## screenshots of the dashboard over a busy fleet, in docs/screens
	@$(BIN)/python -m generate.screenshots

bench: $(INSTALLED) system-ready $(LDAP) ## figures beside peers (bench/README.md)
	@$(BIN)/python -m bench $(ARGS)

proof: $(INSTALLED) system-ready $(if $(ARGS),,dataone) ## 30 minutes: GMN, the specification, a peer, and seeds (ARGS="--help")
	@$(if $(ARGS),$(BIN)/python -m proof $(ARGS),red=0; for part in $(PROOF); do \
		echo "python -m proof $$part"; $(BIN)/python -m proof $$part || red=1; done; exit $$red)

proof-%: $(INSTALLED) system-ready $(LDAP)
	@$(BIN)/python -m proof fault $*

dataone: $(DATAONE) system-ready $(LDAP) ## DataONE's client and its member node, GMN, with this service
	@DATAONE=$(abspath .dataone/bin/python) $(BIN)/python -m pytest tests/fleet/dataone $(ARGS)

matrix: $(INSTALLED) system-ready ## a part of the tests on older and newer versions (ARGS="--only celery-5.4")
	@$(BIN)/pip install -q --disable-pip-version-check uv
	@$(BIN)/python -m tests.matrix $(ARGS)

release: $(INSTALLED) ## the checklist of a release (ARGS=--rehearse leaves out version, changelog and tree)
	@$(BIN)/pip install -q --disable-pip-version-check build twine pip-audit
	@$(BIN)/python deploy/release.py $(ARGS)

system: ## install the system packages the tests need (apt-get)
	@command -v apt-get >/dev/null || { echo "No apt-get here. Please install: $(SYSTEM_PACKAGES)" >&2; exit 1; }
	@as=; if [ "$$(id -u)" != 0 ]; then as=sudo; fi; set -ex; \
	$$as mkdir -p $(dir $(NO_CLUSTER)); echo "create_main_cluster = false" | $$as tee $(NO_CLUSTER) >/dev/null; \
	trap "$$as rm -f $(NO_CLUSTER)" EXIT; \
	$$as apt-get update -q && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SYSTEM_PACKAGES)

# Installs what is missing only where that surprises nobody: as root, in CI, in a container, or after a yes.
system-ready:
	@{ command -v redis-server || command -v valkey-server; } >/dev/null && \
	PATH="$$PATH:/usr/sbin" command -v slapd >/dev/null && command -v luacheck >/dev/null && command -v promtool >/dev/null && \
	compgen -G "/usr/lib/*/faketime/libfaketime.so.1" >/dev/null && \
	{ command -v initdb || compgen -G "$(POSTGRES)/*/bin/initdb"; } >/dev/null && \
	{ command -v chromium-headless-shell || command -v chromium; } >/dev/null && command -v systemd-analyze >/dev/null && \
	{ command -v rabbitmq-server || compgen -G "$(RABBITMQ)/lib/*/sbin/rabbitmq-server"; } >/dev/null && \
	{ [ $(LDAP) -nt requirements-ldap.txt ] || { [ -z "$(HEADERS)" ] && command -v gcc >/dev/null && \
		[ -e /usr/include/ldap.h ] && [ -e /usr/include/sasl/sasl.h ]; }; } || { \
		agreed=; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			if [ "$$CI" = true ] || [ -e /.dockerenv ] || [ -e /run/.containerenv ]; then agreed=y; \
			elif [ -t 0 ]; then read -r -p "Install $(SYSTEM_PACKAGES) with apt-get? [y/N] " agreed; fi; \
		fi; \
		if [ "$$agreed" = y ]; then $(MAKE) --no-print-directory system; \
		else echo "The tests need: $(SYSTEM_PACKAGES). Install them yourself or with: make system" >&2; exit 1; fi; }
	@told="$$(for server in $$(type -ap redis-server valkey-server); do \
		echo $$server && $$server --version; done 2>&1)"; new='$(NEW_SERVER)'; [[ $$told =~ $$new ]] || { \
		echo "The tests need Redis 7.0 or later, or Valkey 7.2 or later. The PATH has: $${told:-neither}" >&2; \
		echo "Install a newer redis-server or valkey-server, or put its folder first on the PATH." >&2; exit 1; }

# Apart from ours: it pins what we do not. GMN brings the client along, and takes a newer Django than it knows.
$(DATAONE): Makefile | $(INSTALLED)
	@$(BIN)/python -m venv .dataone
	@.dataone/bin/pip install -q --disable-pip-version-check dataone.gmn==3.5.2 'django==5.2.*' waitress
	@touch $@

# What the service runs with is in requirements.txt, which the image takes; the tests want the rest, too.
PINNED := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock: $(INSTALLED) ## pin all versions anew, with hashes, in requirements*.txt
	@$(BIN)/pip install -q --disable-pip-version-check uv
	@$(PINNED) pyproject.toml --upgrade --extra asyncio --extra batches --extra dashboard --extra docs --extra embedded \
		--extra flower --extra metrics --extra postgres --extra service --extra dev -o requirements-dev.txt
	@echo "setuptools>=77" | $(PINNED) pyproject.toml - -c requirements-dev.txt --extra asyncio --extra dashboard \
		--extra flower --extra metrics --extra postgres --extra service -o requirements.txt
	@echo "python-ldap>=3.4" | $(PINNED) - --upgrade -o requirements-ldap.txt

clean: ## remove the environment and everything made here
	@rm -rf $(VENV) build dist *.egg-info .bench .matrix .dataone .coordinator .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements-dev.txt pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or later with the venv module was found. On Debian or Ubuntu:" \
		"apt-get install python3-venv. Or name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(FIT)' 2>/dev/null || { echo "$(PYTHON) is older than 3.11 or lacks the venv module. On Debian or" \
		"Ubuntu: apt-get install python3-venv. Or name another: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes a minute) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Aside, since it needs a compiler: only the tests want it, and who keeps the nodelist in LDAP.
$(LDAP): requirements-ldap.txt $(INSTALLED) | system-ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation \
		-r requirements-ldap.txt
	@touch $@
