# Everything a person needs: `make run` and `make test` do all the set-up.
VENV ?= .venv
SEEDS ?= 100000
PY := $(VENV)/bin/python
export VENV

.PHONY: help run test test-pressure test-bananaq test-spark lint format bench simulate soak compiled docs clean

help:
	@echo "make run    set up and start a node on port 7711 with config/disque.yaml"
	@echo "make test   set up, lint and run all tests"
	@echo "make test-spark  the tests that start a Spark"
	@echo "make test-pressure, make test-bananaq  those of pressure and of bananaq, on a redis-server"
	@echo "make lint   ruff, mypy --strict, import-linter"
	@echo "make format let ruff rewrite the sources"
	@echo "make bench  measure beside redis-server (ARGS=--write-docs: into docs/performance.md)"
	@echo "make simulate  whole clusters in one process, one for each seed (ARGS=\"--seed 17\")"
	@echo "make soak   simulate 100000 clusters (SEEDS=...), let faults happen to real ones, then"
	@echo "            kill a loaded node 50 times and compare (ARGS=\"--rounds 500 --policy always\"),"
	@echo "            audit clusters in faults, and kill all that takes part in a Spark pipeline"
	@echo "make compiled  install the form compiled by mypyc into .venv-compiled"
	@echo "make docs   write the generated pages of docs/"
	@echo "make clean  remove the virtual environment and caches"

run:
	@tools/setup.sh run
	@mkdir -p data
	@exec $(VENV)/bin/disque-server config/disque.yaml --dir data $(ARGS)

test:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory lint
ifdef ARGS
	$(PY) -m pytest $(ARGS)
else
	$(PY) -m pytest --ignore=tests/spark
	$(PY) -m pytest tests/spark
endif

# Parts of `make test`.
test-pressure:
	@tools/setup.sh test
	$(PY) -m pytest tests/pressure $(ARGS)

test-bananaq:
	@tools/setup.sh test
	$(PY) -m pytest tests/bananaq $(ARGS)

test-spark:
	@tools/setup.sh test
	$(PY) -m pytest tests/spark $(ARGS)

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

docs:
	@tools/setup.sh test
	$(PY) tools/make_docs.py

clean:
	rm -rf $(VENV) .venv-compiled .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
