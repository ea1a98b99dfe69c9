# Everything a person needs: `make run` and `make test` do all the set-up.
# PYTHON=python3.13 is another interpreter, with environments of its own: .venv-3.13.
PYTHON ?=
VENV ?= .venv$(patsubst python%,-%,$(notdir $(PYTHON)))
COMPILED ?= $(VENV)-compiled
SEEDS ?= 100000
PY := $(VENV)/bin/python
export PYTHON VENV COMPILED
# Processes of tests share what the first one has compiled.
export PYTHONDONTWRITEBYTECODE =

# What of the tests has to do with what is compiled; the rest is the same in both forms.
COMPILED_TESTS = tests/sim --ignore=tests/sim/test_audit.py \
	$(addprefix tests/unit/,aof bananaq cluster eventlog node process protocol resp respserver) \
	$(addprefix tests/live/,cluster eventlog node \
	$(addprefix bananaq/test_,commands.py process.py semantics.py semantics_okq.py waiting.py))
IN_COMPILED = cd $(COMPILED)/tree && DISQUE_TRIO_FORM=compiled \
	../bin/python -m pytest -p no:cacheprovider

# Most tests wait for most of their time, so there are more processes of them than CPUs.
WORKERS ?= 3
PARALLEL = -n $(WORKERS) --dist loadgroup

TYPED = disque_trio.client disque_trio.tasks disque_trio.bananaq.client

.PHONY: help run test types check check-tests collect test-pure test-pressure test-bananaq test-spark \
	test-spark-versions test-stores test-interop test-django test-compiled lint format bench guard guard-pure guard-compiled profile \
	simulate soak compiled wheels docs clean

help:
	@echo "make run    set up and start a node on port 7711 with config/disque.yaml"
	@echo "make test   set up, lint and run all tests"
	@echo "make check  what takes less than a minute of it: lint, unit tests, a hundred simulated clusters"
	@echo "make test-spark  the tests that start a Spark (SPARK=4.2: with that PySpark);"
	@echo "            make test-spark-versions: with the newest PySpark and the one before"
	@echo "make test-stores  those of files on Azurite and HDFS; installs both (400 MB)"
	@echo "make test-interop  those of clients in other languages; installs Node, PHP, Ruby, Go"
	@echo "make test-django  those of Django's tasks, on Django 6 with a Python 3.12 or later"
	@echo "make test-compiled  those of the compiled form"
	@echo "make test-pressure, make test-bananaq  those of pressure and of bananaq, on a redis-server"
	@echo "make lint   ruff, mypy --strict, import-linter"
	@echo "make types  pyright: that all types of the clients are known to who uses them"
	@echo "make format let ruff rewrite the sources"
	@echo "make bench  measure beside redis-server (ARGS=--write-docs: into docs/performance.md)"
	@echo "make guard  count the instructions of the hot paths in both forms (ARGS=--update: write the"
	@echo "            baseline); make guard-pure, make guard-compiled: of one form"
	@echo "make profile  where the time of a loaded node goes, into docs/"
	@echo "make simulate  whole clusters in one process, one for each seed (ARGS=\"--seed 17\")"
	@echo "make soak   simulate 100000 clusters (SEEDS=...), start on 10000 damaged nodes.conf, let"
	@echo "            faults happen to real clusters, then"
	@echo "            kill a loaded node 50 times and compare (ARGS=\"--rounds 500 --policy always\"),"
	@echo "            audit clusters in faults, kill workers and nodes while they run 5000 tasks, also"
	@echo "            those of Dramatiq and Django, and kill all that takes part in a Spark pipeline"
	@echo "make compiled  install the form compiled by mypyc into .venv-compiled"
	@echo "make wheels  build the wheels of both forms into dist/"
	@echo "make docs   write the generated pages of docs/"
	@echo "make clean  remove the virtual environment and caches"

run:
	@tools/setup.sh run
	@mkdir -p data
	@exec $(VENV)/bin/disque-server config/disque.yaml --dir data $(ARGS)

test:
	@tools/setup.sh test
ifdef ARGS
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest $(ARGS)
else
	@$(MAKE) --no-print-directory -j2 -Otarget compiled lint guard-pure collect
	@$(MAKE) --no-print-directory -j2 -Otarget test-pure test-compiled guard-compiled
endif

# All seeds are run in the compiled form, which takes less than half of the time for one.
test-pure:
	SIM_SEEDS=200 $(PY) -m pytest $(PARALLEL)

check:
	@tools/setup.sh check
	@$(MAKE) --no-print-directory -j2 -Otarget lint check-tests

# Before the processes of tests do: what one has compiled the others need not.
collect:
	@$(PY) -m pytest --collect-only -qq >/dev/null || $(PY) -m pytest --collect-only -qq

check-tests:
	SIM_SEEDS=100 $(PY) -m pytest $(PARALLEL) tests/unit tests/sim/test_seeds.py

test-pressure:
	@tools/setup.sh test
	$(PY) -m pytest tests/unit/pressure tests/live/pressure $(ARGS)

test-bananaq:
	@tools/setup.sh test
	$(PY) -m pytest tests/unit/bananaq tests/live/bananaq $(ARGS)

# SPARK=4.2 is another PySpark, in an environment of its own: .venv-spark-4.2.
test-spark:
ifdef SPARK
	@VENV=$(VENV)-spark-$(SPARK) tools/setup.sh test
	@$(VENV)-spark-$(SPARK)/bin/python -m pip install --quiet --disable-pip-version-check \
		'pyspark[connect]==$(SPARK).*'
	$(VENV)-spark-$(SPARK)/bin/python -m pytest tests/unit/spark tests/live/spark $(ARGS)
else
	@tools/setup.sh test
	$(PY) -m pytest tests/unit/spark tests/live/spark $(ARGS)
endif

# The newest and the one before, as pyproject.toml has them in the extra `spark`.
test-spark-versions:
	$(MAKE) test-spark SPARK=4.2
	$(MAKE) test-spark SPARK=4.3

# Here the tools of a language must be there; `make test` does without those that are not.
STORES = tests/unit/spark/test_files.py tests/unit/spark/test_far_files.py

test-stores:
	@tools/setup.sh stores
	DISQUE_STORES=1 $(PY) -m pytest $(STORES) $(ARGS)

test-interop:
	@tools/setup.sh test
	@tools/setup.sh interop
	DISQUE_INTEROP=1 $(PY) -m pytest tests/interop $(or $(ARGS),$(PARALLEL))

# Django has tasks of its own since 6.0, which needs Python 3.12; `make test` has django-tasks.
test-django:
	@python="$(PYTHON)"; \
	for name in python3.14 python3.13 python3.12; do \
		if [ -z "$$python" ] && $$name -c '' 2>/dev/null; then python=$$name; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make test-django: Django 6 needs Python 3.12 or later, and there is none in PATH" >&2; \
		exit 1; \
	fi; \
	venv=.venv-$${python##*python}; \
	PYTHON=$$python VENV=$$venv tools/setup.sh django && \
	$$venv/bin/python -m pytest tests/live/integrations/test_django.py \
		tests/live/integrations/test_django_faults.py $(ARGS)

# The compiled package, and a copy of the tree without the sources that it could be mistaken for.
# The pure part goes first, as it takes longer: the tests that share a Spark run one after another.
test-compiled:
	@tools/setup.sh compiled
	@rm -rf $(COMPILED)/tree && mkdir $(COMPILED)/tree
	@cp -Rp tests config docs examples tools pyproject.toml $(COMPILED)/tree
	@rm -rf $(COMPILED)/tree/examples/node/node_modules
ifdef ARGS
	$(IN_COMPILED) $(ARGS)
else
	nice -n 3 $(SHELL) -c '$(IN_COMPILED) $(PARALLEL) $(COMPILED_TESTS)'
endif

lint:
	@tools/setup.sh check
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# pyright fetches itself with npm when it first runs. It looks for packages with the python of PATH.
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

# The first thousand seeds are in `make test`.
soak:
	@tools/setup.sh test
	$(PY) -m tools.simulate --first 1000 --seeds $(SEEDS)
	CONF_SEEDS=10000 $(PY) -m pytest tests/unit/cluster/test_start_fuzz.py
	REQUEST_INPUTS=10000000 $(PY) -m pytest tests/unit/resp/test_plain.py
	OUTBOX_ROWS=10000 $(PY) -m pytest tests/live/outbox -k kills_while
	OUTBOX_ROUNDS=100 $(PY) -m pytest --timeout 3600 tests/live/outbox/test_cluster.py
	PRESSURE_SINGLES=100000 $(PY) -m pytest tests/live/pressure/test_queue.py -k two_processes
	CELERY_TASKS=5000 $(PY) -m pytest tests/live/integrations/test_celery_kills.py
	$(PY) -m tools.soak_cluster
	$(PY) -m tools.soak_kill $(ARGS)
	$(PY) -m tools.soak_audit
	$(PY) -m tools.soak_watch --seconds 900
	WORKER_TASKS=5000 $(PY) -m pytest --timeout 1800 tests/live/worker/test_killed.py
	TASK_STORIES=5000 $(PY) -m pytest tests/live/integrations/test_dramatiq_faults.py \
		tests/live/integrations/test_django_faults.py
	DISQUE_LEASE_SEEDS=5000 $(PY) -m pytest tests/unit/spark/test_lease_model.py
	DISQUE_SPARK_CRASHES=1 DISQUE_SPARK_LONG=1 $(PY) -m pytest tests/live/spark

# The compiled form in an environment of its own, so that the sources stay what runs elsewhere.
compiled:
	@tools/setup.sh compiled

wheels:
	@tools/setup.sh wheels

docs:
	@tools/setup.sh check
	$(PY) tools/make_docs.py

clean:
	rm -rf $(VENV) $(COMPILED) examples/node/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
