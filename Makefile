# The entry point for people: `make run` and `make test` set up everything they need.
# PYTHON=python3.13 selects another interpreter, with its own environments, such as .venv-3.13.
PYTHON ?=
VENV ?= .venv$(patsubst python%,-%,$(notdir $(PYTHON)))
COMPILED ?= $(VENV)-compiled
SEEDS ?= 100000
# make soak PART=20 does a twentieth.
PART ?= 1
PY := $(VENV)/bin/python
export PYTHON VENV COMPILED
# Let test processes share compiled bytecode.
export PYTHONDONTWRITEBYTECODE =

# The tests of compiled modules; everything else is the same in both builds. Those of real processes
# run in the build that ships, and only those marked `pure` in the other one too.
LIVE_COMPILED = $(addprefix tests/live/,cluster eventlog node) \
	$(addprefix packages/bananaq/tests/live/test_,commands.py process.py semantics.py semantics_okq.py waiting.py)
COMPILED_TESTS = tests/sim $(LIVE_COMPILED) packages/bananaq/tests/unit \
	$(addprefix tests/unit/,aof cluster eventlog node process protocol resp respserver)
IN_COMPILED = cd $(COMPILED)/tree && DISQUE_TRIO_FORM=compiled SIM_SEEDS=$(COMPILED_SEEDS) \
	../bin/python -m pytest

# Tests mostly wait, so run more processes than there are CPUs.
WORKERS ?= 4
PARALLEL = -n $(WORKERS) --dist loadgroup -m "not load $(NOT_NIGHTLY)"

# Of what `make test` runs; `make nightly` says more. NOT_SLOW is for `make check` only.
PURE_SEEDS ?= 100
COMPILED_SEEDS ?= 300
COMPILED_ONLY ?= $(LIVE_COMPILED)
PROFILE ?= quick
NOT_NIGHTLY ?= and not nightly
NOT_SLOW ?= and not slow
TESTED = $(PARALLEL) --hypothesis-profile $(PROFILE)

# Tests marked `load` judge elapsed time: they run alone, one by one, and once more after a failure.
WITH_LOAD = $(shell grep -rlw 'mark[.]load' tests packages --include='*.py')
LOAD_PURE = $(filter-out $(addsuffix %,$(COMPILED_ONLY)),$(WITH_LOAD))
LOAD_COMPILED = $(filter $(addsuffix %,$(LIVE_COMPILED)),$(WITH_LOAD))
define once-more
( $(1) ) || { echo "make test: tests that judge elapsed time failed; they run once more" >&2; \
	( $(1) --last-failed ); }
endef

# What the runs of `make test` write for tools/budget.py: the CPU seconds of each folder.
SPENT = $(CURDIR)/build/spent

# What codespell checks.
PROSE = $(wildcard *.md *.py) Makefile benchmarks config disque_trio docs examples packages tests tools

# Which module may import which.
CONTRACTS = disque_trio/imports.toml benchmarks/imports.toml $(wildcard packages/*/imports.toml)

TYPED = disque_trio.client disque_trio.tasks disque_bananaq.client

.PHONY: help run test affected affected-pure affected-compiled half-pure half-compiled types check check-core check-node check-packages check-parts check-rest check-seeds check-servers note-audit test-pure test-load nightly mutants test-pressure test-console test-integrations test-bananaq test-spark \
	test-spark-versions test-stores test-interop test-django test-compiled lint format bench benchmarks guard guard-pure guard-compiled profile \
	simulate soak compiled wheels deb test-deb test-sdist audit lock docs pictures clean

help:
	@echo "make run    set up and start a node on port 7711 with config/disque.yaml"
	@echo "make test   set up (the first time: 3 GB, five minutes), lint and run all tests: 15 minutes"
	@echo "make check  the fast part, a minute: lint, unit tests, a hundred simulated clusters; sets up"
	@echo "            Python packages of 240 MB"
	@echo "make affected  the tests that your change can reach (BASE=revision: since it left that one)"
	@echo "make nightly  everything in both builds, more of all that is random, and what takes hours"
	@echo "make mutants  change the code in 300 places, and see how many changes the tests notice"
	@echo "make test-spark  the tests that start Spark (SPARK=4.2: with that PySpark version);"
	@echo "            make test-spark-versions: with the two newest PySpark versions"
	@echo "make test-stores  the tests of files on Azurite, which it installs"
	@echo "make test-interop  the tests of clients in other languages; installs Node, PHP, Ruby, Go"
	@echo "make test-django  the tests of Django's tasks, on Django 6 with Python 3.12 or later"
	@echo "make test-compiled  the tests of the compiled build"
	@echo "make test-pressure, make test-bananaq  the tests of pressure and bananaq, on a redis-server;"
	@echo "            make test-console, make test-integrations: those of the console, of integrations"
	@echo "make lint   ruff, mypy --strict, import-linter, codespell, and the phrases of tools/english.yaml"
	@echo "make types  pyright: check that users of the clients see all their types"
	@echo "make format let ruff rewrite the sources"
	@echo "make bench  compare with redis-server (ARGS=--write-docs: update docs/performance.md)"
	@echo "make benchmarks  compare with other queues, brokers and frameworks (ARGS=\"compare --quick\";"
	@echo "            without ARGS: list the runs)"
	@echo "make guard  count the instructions of the hot paths in both builds (ARGS=--update: write the"
	@echo "            baseline); make guard-pure, make guard-compiled: in one build"
	@echo "make profile  profile a loaded node, and write the result into docs/"
	@echo "make simulate  run whole clusters in one process, one for each seed (ARGS=\"--seed 17\")"
	@echo "make soak   simulate 100000 clusters (SEEDS=...), start with 10000 damaged nodes.conf files,"
	@echo "            inject faults into real clusters, kill a loaded node 50 times and compare"
	@echo "            (ARGS=\"--rounds 500 --policy always\"), audit faulty clusters, kill workers and"
	@echo "            nodes while they run 5000 tasks, also with Dramatiq and Django, and kill every"
	@echo "            part of a Spark pipeline (PART=20: a twentieth of all that)"
	@echo "make compiled  install the build compiled by mypyc into .venv-compiled"
	@echo "make wheels  build a source distribution and wheels of both builds into dist/"
	@echo "            (PYTHONS=\"python3.11 python3.12\": compiled wheels for these)"
	@echo "make test-sdist  unpack the source distribution, and lint and test it"
	@echo "make deb    build a Debian package into dist/; make test-deb: install, run, upgrade, remove"
	@echo "            and purge it in a separate Debian (needs mmdebstrap and root)"
	@echo "make audit  check the installed Python packages for known vulnerabilities, and list them"
	@echo "            with their licences in dist/sbom.json"
	@echo "make lock   choose the versions of what the container image and the Debian package contain"
	@echo "make docs   write the generated pages of docs/, and build the site into build/site"
	@echo "make pictures  take the pictures of packages/console/docs/console.md"
	@echo "make clean  remove virtual environments, builds and caches"

run:
	@tools/setup.sh run
	@mkdir -p data
	@echo "make run: running the sources. A compiled build is twice as fast: make compiled, then" \
		"$(COMPILED)/bin/disque-server config/disque.yaml --dir data" >&2
	@exec $(VENV)/bin/disque-server config/disque.yaml --dir data $(ARGS)

# Unit tests and the simulator need less than all tests do.
ONLY_UNIT = $(if $(ARGS),$(if $(filter-out tests/unit/% tests/sim%,$(ARGS)),,yes))
test:
	@tools/setup.sh $(if $(ONLY_UNIT),check,test)
ifdef ARGS
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest $(ARGS)
else
	@rm -rf $(SPENT)
	@$(MAKE) --no-print-directory -j2 -Otarget half-pure half-compiled
	@$(MAKE) --no-print-directory test-load
	@cat build/vulnerable
	$(PY) -m tools.budget $(SPENT)
endif

# While one CPU compiles, the other one lints and begins to test.
half-pure:
	@$(MAKE) --no-print-directory -Otarget lint note-audit test-pure
half-compiled:
	@$(MAKE) --no-print-directory -Otarget test-compiled guard-compiled

test-pure:
	SIM_SEEDS=$(PURE_SEEDS) $(PY) -m pytest $(TESTED) --compiled-only="$(COMPILED_ONLY)" \
		--spent=$(SPENT)/pure.json

test-load:
	$(if $(LOAD_PURE),$(call once-more,$(PY) -m pytest -m "load $(NOT_NIGHTLY)" $(LOAD_PURE)))
	$(if $(LOAD_COMPILED),$(call once-more,$(IN_COMPILED) -m "load $(NOT_NIGHTLY)" $(LOAD_COMPILED)))

# BASE=revision: what has changed since HEAD left that one.
AFFECTED = $(CURDIR)/build/affected
affected:
	@tools/setup.sh test
	@$(PY) -m tools.affected $(if $(BASE),--base $(BASE)) --write $(AFFECTED) --compiled "$(COMPILED_TESTS)"
	@$(MAKE) --no-print-directory -j2 -Otarget affected-pure affected-compiled

# Of what is selected, a build may run nothing (status 5 of pytest).
affected-pure:
	@if [ -s $(AFFECTED) ]; then SIM_SEEDS=$(PURE_SEEDS) $(PY) -m pytest $(TESTED) \
		--compiled-only="$(COMPILED_ONLY)" @$(AFFECTED) || [ $$? = 5 ]; fi
affected-compiled:
	@if [ -s $(AFFECTED)-compiled ]; then $(MAKE) --no-print-directory test-compiled \
		ARGS='$(TESTED) @$(AFFECTED)-compiled || [ $$$$? = 5 ]'; fi

check:
	@tools/setup.sh check
	@$(MAKE) --no-print-directory -k -j$(WORKERS) -Otarget \
		check-rest check-parts check-servers check-core check-seeds check-node lint check-packages

# Unit tests compute: processes of pytest-xdist, of which each imports and collects everything, and
# which report each test, would take a fifth longer. Some tests wait, so there are more such
# processes than CPUs. The longest part comes first.
CHECKED = $(PY) -m pytest -m "not load $(NOT_NIGHTLY) $(NOT_SLOW)"

PARTS = $(addprefix tests/unit/,aof cluster)
SERVERS = $(addprefix tests/unit/,eventlog respserver)
check-rest:
	$(CHECKED) tests/unit $(addprefix --ignore=,tests/unit/node $(PARTS) $(SERVERS))

check-servers:
	$(CHECKED) $(SERVERS)

check-packages:
	$(CHECKED) packages/*/tests/unit

check-parts:
	$(CHECKED) $(PARTS)

check-core:
	$(CHECKED) tests/unit/node/core

check-seeds:
	SIM_SEEDS=100 $(CHECKED) tests/sim/test_seeds.py

check-node:
	$(CHECKED) tests/unit/node --ignore=tests/unit/node/core

test-bananaq test-console test-integrations test-pressure:
	@tools/setup.sh test
	$(PY) -m pytest packages/$(@:test-%=%)/tests $(ARGS)

# SPARK=4.2 selects another PySpark, in its own environment, .venv-spark-4.2.
test-spark:
ifdef SPARK
	@VENV=$(VENV)-spark-$(SPARK) tools/setup.sh test
	@$(VENV)-spark-$(SPARK)/bin/python -m pip install --quiet --disable-pip-version-check \
		'pyspark[connect]==$(SPARK).*'
	$(VENV)-spark-$(SPARK)/bin/python -m pytest packages/spark/tests/unit packages/spark/tests/live $(ARGS)
else
	@tools/setup.sh test
	$(PY) -m pytest packages/spark/tests/unit packages/spark/tests/live $(ARGS)
endif

# The newest version and the one before it, as in the extra `spark` in pyproject.toml.
test-spark-versions:
	$(MAKE) test-spark SPARK=4.2
	$(MAKE) test-spark SPARK=4.3

STORES = packages/spark/tests/unit/test_files.py packages/spark/tests/unit/test_far_files.py

test-stores:
	@tools/setup.sh stores
	DISQUE_STORES=1 $(PY) -m pytest $(STORES) $(ARGS)

# It requires the tools of every language; `make test` skips missing ones.
test-interop:
	@tools/setup.sh test
	@tools/setup.sh interop
	DISQUE_INTEROP=1 $(PY) -m pytest tests/interop $(or $(ARGS),$(PARALLEL))

# Django has tasks since 6.0, which needs Python 3.12; `make test` uses django-tasks.
NEWER_PYTHON = $(or $(PYTHON),$(shell for name in python3.14 python3.13 python3.12; do \
	$$name -c '' 2>/dev/null && echo $$name && break; done))
IN_NEWER = .venv-$(patsubst python%,%,$(notdir $(NEWER_PYTHON)))
test-django:
	@$(if $(NEWER_PYTHON),,echo "make test-django: Django 6 needs Python 3.12 or later, and there is none in PATH" >&2; exit 1)
	@PYTHON=$(NEWER_PYTHON) VENV=$(IN_NEWER) tools/setup.sh django
	$(IN_NEWER)/bin/python -m pytest packages/integrations/tests/live/test_django.py \
		packages/integrations/tests/live/test_django_faults.py $(ARGS)

# Run the compiled package in a copy of the tree without sources, so that no source is imported. An
# option's file is not a word of its own, or pytest would take the sources beside it for its root.
test-compiled:
	@tools/setup.sh compiled
	@rm -rf $(COMPILED)/tree && mkdir $(COMPILED)/tree
	@cp -Rp tests config docs examples tools conftest.py pyproject.toml $(COMPILED)/tree
	@mkdir -p $(COMPILED)/tree/packages/bananaq && cp -Rp packages/bananaq/README.md packages/bananaq/docs \
		packages/bananaq/tests $(COMPILED)/tree/packages/bananaq
	@rm -rf $(COMPILED)/tree/examples/node/node_modules
ifdef ARGS
	$(IN_COMPILED) $(ARGS)
else
	$(IN_COMPILED) $(TESTED) $(COMPILED_TESTS) \
		--spent=$(SPENT)/compiled.json
endif

lint:
	@tools/setup.sh check
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m tools.types
	for file in $(CONTRACTS); do \
		$(VENV)/bin/lint-imports $$file || exit 1; done
	$(VENV)/bin/codespell $(PROSE)
	$(PY) -m tools.english

# pyright installs itself with npm on its first run, and finds packages with the python in PATH.
types:
	@tools/setup.sh check
	for package in $(TYPED); do PATH="$(abspath $(VENV))/bin:$$PATH" PYTHONPATH=. \
		pyright --verifytypes $$package --ignoreexternal || exit 1; done

format:
	@tools/setup.sh check
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench:
	@tools/setup.sh test
	$(PY) -m tools.bench throughput $(ARGS)

benchmarks:
	@tools/setup.sh check
	@$(PY) -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	$(PY) -m benchmarks $(or $(ARGS),--help)

guard: guard-pure guard-compiled

guard-pure:
	@tools/setup.sh test
	$(PY) -m tools.bench guard --forms pure $(ARGS)

guard-compiled:
	@tools/setup.sh test
	@tools/setup.sh compiled
	$(PY) -m tools.bench guard --forms compiled --compiled $(COMPILED)/bin/python $(ARGS)

profile:
	@tools/setup.sh test
	@tools/setup.sh profile
	@tools/setup.sh compiled
	$(PY) -m tools.bench profile $(if $(filter-out .venv-compiled,$(COMPILED)),--compiled $(COMPILED)/bin/python) \
		$(ARGS)

simulate:
	@tools/setup.sh check
	$(PY) -m tools.simulate $(ARGS)

# What takes hours, and would on every change: each test in both builds, all seeds, many examples
# of each property, tests of other languages and of Django, mutations, and a twentieth of the soak.
# The fuzz tests begin with another seed each night.
nightly: TONIGHT := $(shell echo $$(($$(date +%s) / 86400 * 1000)))
nightly:
	@tools/setup.sh test
	@AUDIT_SEEDS=48 CONF_SEEDS=1000 CROWD_EVENTS=10000 DISK_SEEDS=250 FUZZ_BYTES=10000000 \
		FUZZ_FIRST=$(TONIGHT) REQUEST_INPUTS=1000000 UNIQUE_SEEDS=100 \
		$(MAKE) --no-print-directory -j2 -Otarget half-pure half-compiled \
		PURE_SEEDS=1000 COMPILED_SEEDS=1000 COMPILED_ONLY= PROFILE=nightly NOT_NIGHTLY=
	@$(MAKE) --no-print-directory test-load COMPILED_ONLY= NOT_NIGHTLY=
	@$(MAKE) --no-print-directory guard-pure
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory test-interop
	@$(if $(NEWER_PYTHON),$(MAKE) --no-print-directory test-django,\
		echo "make nightly: Django 6 is not tested: it needs Python 3.12 or later" >&2)
	@$(MAKE) --no-print-directory soak PART=20
	@$(MAKE) --no-print-directory mutants

mutants:
	@tools/setup.sh check
	$(PY) -m tools.mutants $(ARGS)

# `make nightly` runs the first thousand seeds.
part = $(shell expr $(1) / $(PART))
soak:
	@tools/setup.sh test
	$(PY) -m tools.simulate --first 1000 --seeds $(call part,$(SEEDS))
	CONF_SEEDS=$(call part,10000) $(PY) -m pytest tests/unit/cluster/test_start_fuzz.py
	FUZZ_BYTES=$(call part,1000000000) $(PY) -m pytest tests/unit/node/core/test_bus_fuzz.py
	FUZZ_BYTES=$(call part,1000000000) $(PY) -m pytest tests/unit/node/test_client_fuzz.py
	REQUEST_INPUTS=$(call part,10000000) $(PY) -m pytest tests/unit/resp/test_plain.py
	OUTBOX_ROWS=$(call part,10000) $(PY) -m pytest packages/integrations/tests/live/outbox -k kills_while
	OUTBOX_ROUNDS=$(call part,100) $(PY) -m pytest --timeout 3600 packages/integrations/tests/live/outbox/test_cluster.py
	PRESSURE_SINGLES=$(call part,100000) $(PY) -m pytest packages/pressure/tests/live/test_queue.py -k two_processes
	CELERY_TASKS=$(call part,5000) $(PY) -m pytest packages/integrations/tests/live/test_celery_kills.py
	$(PY) -m tools.soak_cluster --rounds $(call part,20)
	$(PY) -m tools.soak_paging --rounds $(call part,20)
	$(PY) -m tools.soak_backlog --jobs $(call part,300000) --memory 20mb --retry 60
	$(PY) -m tools.soak_kill --rounds $(call part,50) $(ARGS)
	$(PY) -m tools.soak_audit --rounds $(call part,20)
	$(PY) -m tools.soak_watch --seconds $(call part,900)
	WORKER_TASKS=$(call part,5000) $(PY) -m pytest --timeout 1800 tests/live/worker/test_killed.py
	TASK_STORIES=$(call part,5000) $(PY) -m pytest packages/integrations/tests/live/test_dramatiq_faults.py \
		packages/integrations/tests/live/test_django_faults.py
	DISQUE_LEASE_SEEDS=$(call part,5000) $(PY) -m pytest packages/spark/tests/unit/test_lease_model.py
	DISQUE_SPARK_CRASHES=1 DISQUE_SPARK_LONG=1 $(PY) -m pytest packages/spark/tests/live

# The compiled build has its own environment, so that everything else keeps using the sources.
compiled:
	@tools/setup.sh compiled

wheels:
	@tools/setup.sh wheels

# The unpacked tree has its own environments.
test-sdist:
	@ls dist/disque_trio-*.tar.gz >/dev/null 2>&1 || $(MAKE) --no-print-directory wheels
	rm -rf build/sdist && mkdir -p build/sdist
	tar -xzf dist/disque_trio-*.tar.gz -C build/sdist --strip-components=1
	$(MAKE) -C build/sdist check VENV=.venv NOT_SLOW=

deb:
	@tools/setup.sh deb
	@tools/packaging/deb.sh

test-deb:
	@ls dist/disque-trio_*.deb >/dev/null 2>&1 || $(MAKE) --no-print-directory deb
	@tools/setup.sh test-deb
	DISQUE_DEB="$$(ls $(CURDIR)/dist/disque-trio_*.deb)" $(PY) -m pytest tests/deb $(ARGS)

# Without a network there is nothing to compare with; that is not a failure.
audit:
	@tools/setup.sh audit
	@$(PY) -m tools.packages $(PY) --sbom dist/sbom.json

lock:
	@tools/setup.sh lock
	$(PY) -m tools.lock

# A vulnerability that became known today is no fault of the change that is tested, so it does not
# fail `make test`, which only reports it, now and at the end.
note-audit:
	@$(PY) -m tools.packages $(PY) --limit 60 --note build/vulnerable

docs:
	@tools/setup.sh check
	$(PY) tools/make_docs.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# The pictures in packages/console/docs/console.md, compressed with pngquant.
pictures:
	@tools/setup.sh test
	$(PY) -m tools.console_pictures $(ARGS)

clean:
	rm -rf $(VENV) $(COMPILED) examples/node/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
