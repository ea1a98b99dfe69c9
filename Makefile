# Everything a person needs: `make run` and `make test` do all the set-up.
VENV ?= .venv
COMPILED ?= .venv-compiled
SEEDS ?= 100000
PY := $(VENV)/bin/python
export VENV COMPILED

# What of the tests has to do with what is compiled; the rest is the same in both forms.
COMPILED_UNITS = $(addprefix tests/unit/,aof cluster commands core eventlog protocol server) \
	tests/sim --ignore=tests/sim/test_sim_audit.py $(addprefix tests/bananaq/test_bananaq_, \
	broker.py check.py deadlines.py embedded.py file.py log.py redis_keys.py redis_model.py \
	semantics.py semantics_okq.py stateful.py)
COMPILED_LIVE = tests/live --ignore=tests/live/test_live_audit_clocks.py \
	--ignore=tests/live/test_cli.py --ignore=tests/live/test_client.py \
	--ignore-glob='*/test_cluster_*' \
	$(addprefix tests/bananaq/test_banana_live_,commands.py process.py waiting.py)
IN_COMPILED = cd $(COMPILED)/tree && DISQUE_TRIO_FORM=compiled SIM_SEEDS=200 \
	../bin/python -m pytest -p no:cacheprovider

.PHONY: help run test test-pure test-rest test-pressure test-bananaq test-spark test-compiled \
	test-compiled-units test-compiled-live test-compiled-clusters lint format bench guard profile \
	simulate soak compiled wheels docs clean

help:
	@echo "make run    set up and start a node on port 7711 with config/disque.yaml"
	@echo "make test   set up, lint and run all tests"
	@echo "make test-spark  the tests that start a Spark"
	@echo "make test-compiled  those of the compiled form"
	@echo "make test-pressure, make test-bananaq  those of pressure and of bananaq, on a redis-server"
	@echo "make lint   ruff, mypy --strict, import-linter"
	@echo "make format let ruff rewrite the sources"
	@echo "make bench  measure beside redis-server (ARGS=--write-docs: into docs/performance.md)"
	@echo "make guard  count the instructions of the hot paths (ARGS=--update: write the baseline)"
	@echo "make profile  where the time of a loaded node goes, into docs/"
	@echo "make simulate  whole clusters in one process, one for each seed (ARGS=\"--seed 17\")"
	@echo "make soak   simulate 100000 clusters (SEEDS=...), let faults happen to real ones, then"
	@echo "            kill a loaded node 50 times and compare (ARGS=\"--rounds 500 --policy always\"),"
	@echo "            audit clusters in faults, and kill all that takes part in a Spark pipeline"
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
	@$(MAKE) --no-print-directory -j2 -Otarget compiled lint guard
	@$(MAKE) --no-print-directory -j2 -Otarget test-pure test-rest
endif

# Parts of `make test`. Both of these wait for much of their time, so they go on side by side.
test-pure:
	$(PY) -m pytest --ignore=tests/spark

test-rest:
	$(PY) -m pytest tests/spark
	@$(MAKE) --no-print-directory test-compiled

test-pressure:
	@tools/setup.sh test
	$(PY) -m pytest tests/pressure $(ARGS)

test-bananaq:
	@tools/setup.sh test
	$(PY) -m pytest tests/bananaq $(ARGS)

test-spark:
	@tools/setup.sh test
	$(PY) -m pytest tests/spark $(ARGS)

# The compiled package, and a copy of the tree without the sources that it could be mistaken for.
# The pure form runs all seeds.
test-compiled:
	@tools/setup.sh compiled
	@rm -rf $(COMPILED)/tree && mkdir $(COMPILED)/tree
	@cp -R tests config docs examples tools pyproject.toml $(COMPILED)/tree
ifdef ARGS
	$(IN_COMPILED) $(ARGS)
else
	@$(MAKE) --no-print-directory -j2 -Otarget test-compiled-units test-compiled-live \
		test-compiled-clusters
endif

test-compiled-units:
	$(IN_COMPILED) $(COMPILED_UNITS)

test-compiled-live:
	$(IN_COMPILED) $(COMPILED_LIVE)

# Most of their time they wait for clusters to notice something.
test-compiled-clusters:
	$(IN_COMPILED) tests/live/test_cluster_*.py

lint:
	@tools/setup.sh test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format:
	@tools/setup.sh test
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench:
	@tools/setup.sh test
	$(PY) -m tools.bench $(ARGS)

guard:
	@tools/setup.sh test
	$(PY) -m tools.bench.guard $(ARGS)

profile:
	@tools/setup.sh test
	@tools/setup.sh profile
	@tools/setup.sh compiled
	$(PY) -m tools.profiling $(if $(filter-out .venv-compiled,$(COMPILED)),--compiled $(COMPILED)/bin/python) \
		$(ARGS)

simulate:
	@tools/setup.sh test
	$(PY) tools/simulate.py $(ARGS)

# The first thousand seeds are in `make test`.
soak:
	@tools/setup.sh test
	$(PY) tools/simulate.py --first 1000 --seeds $(SEEDS)
	$(PY) tools/soak_cluster.py
	$(PY) -m tools.soak_kill $(ARGS)
	$(PY) tools/soak_audit.py
	DISQUE_SPARK_CRASHES=1 DISQUE_SPARK_LONG=1 $(PY) -m pytest tests/spark

# The compiled form in an environment of its own, so that the sources stay what runs elsewhere.
compiled:
	@tools/setup.sh compiled

wheels:
	@tools/setup.sh wheels

docs:
	@tools/setup.sh test
	$(PY) tools/make_docs.py

clean:
	rm -rf $(VENV) $(COMPILED) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
