# `make run` and `make test` set up all they need: Python 3.11 or newer, git and make are enough.

# The first of these that runs and is new enough; PYTHON=... overrides. An environment that is there is kept.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
SPARK := $(VENV)/.spark

# Python keeps what it compiles, also where the environment forbids it: every process would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run wheel test test-here test-cluster test-kernels test-checked test-s3 test-servers kernels lint format docs setup clean bench nights images oracles

run: $(READY)  ## the Node2Vec superworkflow on the graph that ships with the project
	$(BIN)/superworkflow run node2vec --edges flows/data/email-eu-core.txt.gz \
	    --labels flows/data/email-eu-core-department-labels.txt.gz --name email-eu-core \
	    --register node2vec-embeddings

# The longest parts of the suite, to which tests marked `slow` belong; `make test SLOW=` leaves them out, as CI does.
SLOW := test-servers test-checked
CHOSEN = $(if $(SLOW),,-m "not slow")

test: $(DEV) $(SPARK)  ## the whole test suite; tests that wait for a cluster or servers run in parallel with the rest
	$(MAKE) --jobs 4 test-here test-cluster test-kernels test-s3 $(SLOW)

test-here: $(DEV) $(SPARK)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --durations 25 --ignore tests/cluster --ignore tests/servers --ignore tests/kernels $(CHOSEN)

oracles: $(DEV)  ## checks against TF-GNN, DGL, PyG and OGB, in environments of their own below .oracles (3 GB)
	$(BIN)/python -m tests.oracles

test-cluster: $(DEV) $(SPARK)
	$(BIN)/python -m pytest tests/cluster $(CHOSEN)

test-servers: $(DEV)  ## docker-compose.yml on a Docker engine, with Compose
	SUPERWORKFLOW_TEST_SERVERS=$${SUPERWORKFLOW_TEST_SERVERS:-stand-ins} $(BIN)/python -m pytest tests/servers

VERTEX_KERNELS := renumber scheduler slots

test-kernels: $(DEV)  ## kernels as they are, with guard zones
	NUMBA_NUM_THREADS=8 $(BIN)/python -m pytest --timeout 1800 tests/kernels

test-checked: $(DEV)  ## kernels compiled anew with bounds checks (tests/kernels/checked.py); after each change of a kernel
	SUPERWORKFLOW_TEST_KERNELS=checked $(BIN)/python -m pytest --timeout 1800 tests/kernels $(VERTEX_KERNELS:%=tests/tasks/lib/vertex/test_%.py)

S3_TESTS := lock conditional_writes s3

test-s3: $(DEV)  ## leases, conditional writes and outages once more on each real S3 server that is installed
	@for server in $$($(BIN)/python -m tests.real_s3); do \
	    echo "on $$server:"; \
	    SUPERWORKFLOW_TEST_S3=$$server $(BIN)/python -m pytest -m s3 $(S3_TESTS:%=tests/infra/storage/test_%.py) || exit 1; done

kernels: $(READY)  ## compile the stages' kernels now, rather than in the first run
	$(BIN)/python -m superworkflow.images.compile_kernels

bench: $(READY)  ## every comparison with a peer; OPTIONS="--quick --only NAME --publish"
	$(BIN)/python -m tests.benchmarks $(OPTIONS)

nights: $(DEV)  ## thirty nightly retrainings of a growing graph, as in docs/measurements/retraining.md; ten minutes
	$(BIN)/python -m tests.benchmarks.nights .bench/nights

lint: $(DEV) $(SPARK)  ## types of Spark too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## docs/cli.md, docs/profiles.md and the JSON schema of profiles, from the code
	$(BIN)/python -m superworkflow.reference

wheel: $(READY)  ## dist/: the wheel, and constraints.txt with which its extras install without resolving
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	cat requirements.txt requirements-spark.txt requirements-dask.txt > dist/constraints.txt

setup: $(READY)

# --no-deps: the pinned files are complete, so nothing is left to resolve. --no-compile: of 22,000 modules, Python compiles
# those that are imported, instead of pip all of them in two minutes.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
$(READY): requirements.txt pyproject.toml
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { echo "needs Python 3.11 or newer: apt-get install python3 python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "needs venv: apt-get install python3-venv" >&2; exit 1; }
	$(INSTALL) --no-deps -r requirements.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@find infra tasks superworkflow -name '*.nb[ci]' -delete  # kernels that Numba kept name modules, also ones that were moved
	@touch $@

$(DEV): $(READY) requirements-dev.txt requirements-dask.txt  # what tests and lint need, and nobody else
	$(INSTALL) --no-deps -r requirements-dev.txt
	@touch $@

$(SPARK): $(READY) requirements-spark.txt  # 455 MB, which only Spark's own stages need
	$(INSTALL) --no-deps -r requirements-spark.txt
	@touch $@

DOCKER ?= docker
KINDS ?= cpu torch-cpu torch-cuda spark flow worker
REGISTRY ?= superworkflow
TAG ?= 0.1.0

images:  ## all images, with Docker, cpu and flow before those that are made of them; DOCKER_ARGS="--build-arg BASE=..." for another base
	for kind in $(KINDS); do \
	    $(DOCKER) build $(DOCKER_ARGS) --build-arg KERNELS=$(REGISTRY)/cpu:$(TAG) \
	        --build-arg FLOW=$(REGISTRY)/flow:$(TAG) -f infra/images/$$kind.Dockerfile -t $(REGISTRY)/$$kind:$(TAG) . || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
