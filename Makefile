# Two commands do everything on a fresh machine: `make sweep` and `make test`.
PYTHON ?= python3
VENV ?= .venv
FAISS ?= cpu
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(FAISS)
DOCS := $(VENV)/.ready-docs
CLUSTERS := $(VENV)/.ready-clusters
PEERS := .venv-peers
ARGS ?=

.PHONY: sweep test cluster-test mutants faults faults-quick fuzz check format docs ui bench papers peers clean help

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

sweep: $(READY)  ## the main job: embed, search, evaluate, export (again: resumes, or skips what is finished)
	$(BIN)/python jobs/sweep_ibkd.py $(ARGS)

test: $(READY)   ## all tests, in two processes
	$(BIN)/python -m pytest tests --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

cluster-test: $(CLUSTERS) ## every file of clusters/ against a simulated AWS, Google Cloud's API and Kubernetes' schemas
	$(BIN)/python -m pytest tests/clusters $(ARGS)

mutants: $(READY) ## make deliberate mistakes one at a time in a copy, and name those that no test notices
	$(BIN)/python tests/mutants/run_mutants.py $(ARGS)

faults: $(READY) ## inject faults into real commands and write docs/faults.md (at most 45 minutes); ARGS="--only checkpoint" for some
	$(BIN)/python faults/run.py $(ARGS)

faults-quick: $(READY) ## a part of `faults` of at most ten minutes, which writes no page
	$(BIN)/python faults/run.py --quick $(ARGS)

fuzz: $(READY)   ## give damaged files and command lines to every reader for an hour; ARGS="--minutes 5" for less
	$(BIN)/python fuzz/run.py $(ARGS)

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy platform/stillhouse jobs tests
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks
	MYPYPATH=faults:tests $(BIN)/mypy faults
	MYPYPATH=fuzz $(BIN)/mypy fuzz

format: $(READY) ## rewrite the code so that `check` accepts its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)    ## build the documentation site in build/site; only its packages are downloaded, once
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)
	@echo "written: build/site/index.html"

bench: $(READY) peers ## measure every claim of docs/benchmarks.md again; quick: make bench ARGS=--quick
	$(BIN)/python benchmarks/run.py $(ARGS)

papers: $(READY) ## run the experiment files of the papers' tables at their small scale; ARGS="--only ibkd_table2" for some
	$(BIN)/python benchmarks/paper_tables.py $(ARGS)

peers: $(PEERS)/.ready
$(PEERS)/.ready: benchmarks/peers/requirements.txt benchmarks/peers/trainer.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	    --target $(PEERS)/trainer --requirement benchmarks/peers/trainer.txt
	touch $@

ui: $(READY)     ## the MLflow UI over ./runs, on http://127.0.0.1:5000
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow ui --host 127.0.0.1 --port 5000 \
	    --backend-store-uri sqlite:///$(abspath $(or $(STILLHOUSE_ROOT),runs))/mlflow.db

clean:           ## remove the virtual environment; runs/ stays
	rm -rf $(VENV)

# torch goes first and pinned, so that no other package's range pulls another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14) and "CPython 3.11 to 3.13 is needed: make PYTHON=python3.12 sweep")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[$(FAISS),demo,dev]'
	touch $@

$(CLUSTERS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[$(FAISS),cluster-test]'
	touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[$(FAISS),docs]'
	touch $@
