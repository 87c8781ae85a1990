# Two commands do everything on a fresh machine: `make sweep` and `make test`.
PYTHON ?= python3
VENV ?= .venv
FAISS ?= cpu
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
READY := $(VENV)/.ready-$(FAISS)
TOOLS := $(VENV)/.ready-dev
DOCS := $(VENV)/.ready-docs
CLUSTERS := $(VENV)/.ready-clusters
MUTMUT := $(VENV)/.ready-mutmut
PEERS := .venv-peers
AUDIT := .venv-audit
SKY := .venv-sky
TESTS ?= tests
ARGS ?=
SUITES ?= test-long cluster-test faults fuzz mutants

.PHONY: sweep sweep-full test test-long cluster-test mutants faults fuzz release check format docs sbom audit lock ui bench papers peers clean help

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

sweep: $(READY)  ## the main job: embed, search, evaluate, export (again: resumes, or skips what is finished)
	$(BIN)/python jobs/sweep_ibkd.py $(ARGS)

sweep-full: $(READY) ## the main job with longer trials and refits, as the sweep ibkd-full, on the same vectors
	$(BIN)/python jobs/sweep_ibkd.py --scale full --name ibkd-full $(ARGS)

test: $(TOOLS)   ## the tests, in three processes; TESTS=tests/losses for some of them
	$(BIN)/python -m pytest $(TESTS) -m "not long" --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: $(TOOLS) ## the other tests: more sweeps on Ray, one killed in every phase, every family of models in slow runtimes, the runner of `mutants`
	$(BIN)/python -m pytest tests --ignore=tests/clusters -m long --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

cluster-test: $(CLUSTERS) $(SKY)/.ready ## clusters/ against a simulated AWS, Google Cloud and Kubernetes; clusters that grow, shrink, share no disk, are lost
	$(BIN)/python -m pytest tests/clusters $(ARGS)

mutants: $(MUTMUT) ## make deliberate mistakes one at a time in a copy, and name those that no test notices; mutmut's too: hours
	$(BIN)/python tests/mutants/run_mutants.py $(ARGS)

faults: $(TOOLS) ## inject faults into real commands and write docs/faults.md (at most 45 minutes); ARGS=--quick for ten minutes of it
	$(BIN)/python faults/run.py $(ARGS)

fuzz: $(TOOLS)   ## give damaged files and command lines to every reader for an hour; ARGS="--minutes 5" for less
	$(BIN)/python fuzz/run.py $(ARGS)

release: $(TOOLS) ## the suites that CI has no time for, one after another: several hours; docs/release.md has their last results
	$(BIN)/python .ci/release.py $(SUITES)

check: $(TOOLS)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy platform/stillhouse jobs tests .ci/release.py
	$(BIN)/mypy --strict --config-file= --cache-dir .mypy_cache/user tests/user_script.py
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks
	MYPYPATH=faults:tests $(BIN)/mypy faults
	MYPYPATH=fuzz $(BIN)/mypy fuzz

format: $(TOOLS) ## rewrite the code so that `check` accepts its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)    ## build the documentation site in build/site; only its packages are downloaded, once
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict $(ARGS)
	@echo "written: build/site/index.html"

sbom: $(TOOLS) $(AUDIT)/.ready ## write build/sbom.json: every installed package with version and licence (CycloneDX)
	mkdir -p build
	$(AUDIT)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible \
	    --output-file build/sbom.json $(ARGS)
	@echo "written: build/sbom.json"

audit: $(TOOLS) $(AUDIT)/.ready ## ask PyPI which installed packages have known vulnerabilities
	$(AUDIT)/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	    --progress-spinner off $(ARGS)

LOCK := $(AUDIT)/bin/uv pip compile --no-config --constraint constraints.txt --generate-hashes --universal \
    --python-version 3.11 --no-annotate --custom-compile-command "make lock" --quiet
CUDA := ^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)

lock: $(AUDIT)/.ready ## write requirements/: the versions of constraints.txt with the checksum of every file on PyPI
	mkdir -p requirements
	echo torch | $(LOCK) - --output-file requirements/torch.txt
	for each in cpu gpu; do echo faiss-$$each | $(LOCK) - --no-deps --output-file requirements/faiss-$$each.txt; done
	$(LOCK) pyproject.toml --extra cpu --extra demo --extra dev --output-file requirements/rest.txt --no-emit-package faiss-cpu \
	    $$(grep -oE '$(CUDA)' requirements/torch.txt | sed 's/^/--no-emit-package /')

$(AUDIT)/.ready:
	test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7.5,<8' 'pip-audit>=2.10,<3' 'uv>=0.9,<1'
	touch $@

bench: $(TOOLS) peers ## measure every claim of docs/benchmarks.md again; quick: make bench ARGS=--quick
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

ui: $(READY)     ## the MLflow UI over ./runs; prints the page of each sweep's trials
	@$(BIN)/python -c 'from stillhouse.tracking.reading import say_pages; say_pages()'
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow ui --host 127.0.0.1 --port 5000 \
	    --backend-store-uri sqlite:///$(abspath $(or $(STILLHOUSE_ROOT),runs))/mlflow.db

clean:           ## remove the virtual environment; runs/ stays
	rm -rf $(VENV)

# torch goes first and pinned, so that no other package's range pulls another build of it. All cores compile.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14) and "CPython 3.11 to 3.13 is needed: make PYTHON=python3.12 sweep")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile torch
	$(PIP) --no-compile --editable '.[$(FAISS),demo,onnx]'
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
	touch $@

$(TOOLS): $(READY)
	$(PIP) --editable '.[$(FAISS),demo,dev]'
	touch $@

$(CLUSTERS): $(TOOLS)
	$(PIP) --editable '.[$(FAISS),cluster-test]'
	touch $@

$(MUTMUT): $(TOOLS)
	$(PIP) 'mutmut>=3.8,<3.9'
	touch $@

# SkyPilot wants click below 8.2 and uvicorn below 0.36, which are older than those of constraints.txt.
$(SKY)/.ready:
	test -x $(SKY)/bin/python || $(PYTHON) -m venv $(SKY)
	$(SKY)/bin/python -m pip install --quiet --disable-pip-version-check 'skypilot>=0.14,<0.15'
	touch $@

$(DOCS): $(TOOLS)
	$(PIP) --editable '.[$(FAISS),docs]'
	touch $@
