# make demo       train and evaluate a small model end to end       make accept         scored trainings, minutes each
# make test       unit tests, and one of each promise, 3 to 5 min   make lint           format, lint, spelling, imports, types
# make test-integration  whole runs in several processes, 8 min     make format         apply the format
# make test-nightly      the rest: pages, recipes, real sizes       make fuzz           1,000 damaged files, 1,000 settings
# make test-gpu-wheel    unit and integration tests on Paddle 2.6.2 make coverage       lines that these two run
# make audit      known vulnerabilities of what is installed
# make bench      a figure of each benchmark, 25 minutes       make bench-all   all benchmarks in full, hours
# make bench-gpu  images/s and memory on GPUs                  make accept-gpu  what has to work on GPUs, by numbers
# make dist       source archive and wheel of this commit, in dist/, checked as a registry would
# make pairs      what must hold for pairs of settings, 10 minutes; PAIRS_FLAGS="-task=detection -minutes=30"
# make walk       functions that a batch, a score and a key pass through, in a minute
# make reference  write pages of keys, commands; models' names    make site        all pages as a site with a search, in site/
PYTHON ?= python3
VENV := .venv
GPU_VENV := .venv-gpu
BIN := $(VENV)/bin
# A test process per core, up to four: most tests use one core, and tests of several processes start their own.
PYTEST := -m pytest -q -n auto --maxprocesses 4 --dist worksteal
PROMISES := tests/integration/test_promises.py
# Integration tests wait for processes a third of their time: one more at once than cores.
WAITING := $(shell cores=$$(nproc); echo $$(( cores < 4 ? cores + 1 : 4 )))

# The tests start hundreds of processes: none need compile what another has compiled, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
# Tests write file names of many scripts, whatever the locale.
export PYTHONUTF8 := 1

.PHONY: address demo pairs walk test test-integration test-nightly coverage fuzz lint format accept accept-gpu bench bench-all bench-gpu test-gpu-wheel audit dist reference site clean
.DELETE_ON_ERROR:

$(VENV)/.ready: setup.py tools/install.py
	$(PYTHON) tools/install.py $(VENV)

$(GPU_VENV)/.ready: setup.py tools/install.py
	$(PYTHON) tools/install.py $(GPU_VENV) --paddle gpu-wheel

demo: $(VENV)/.ready
	@PYTHON=$(BIN)/python tools/demo.sh $(DEMO_FLAGS)

pairs: $(VENV)/.ready
	PYTHONPATH=.:tests $(BIN)/python -m support.pairs $(PAIRS_FLAGS)

walk: $(VENV)/.ready
	$(BIN)/python tools/walk.py $(WALK_FLAGS)

test: $(VENV)/.ready
	$(BIN)/python $(PYTEST) tests/unit $(PROMISES)

test-integration: $(VENV)/.ready
	$(BIN)/python $(PYTEST) -n $(WAITING) --ignore=$(PROMISES) tests/integration

test-nightly: $(VENV)/.ready
	$(BIN)/python $(PYTEST) tests/nightly

coverage: $(VENV)/.ready
	rm -f .coverage .coverage.*
	$(BIN)/coverage run $(PYTEST) tests/unit tests/integration
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --sort=cover

fuzz: $(VENV)/.ready
	FUZZ_CASES=1000 $(BIN)/python $(PYTEST) tests/nightly/fuzz

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/python tools/check_prose.py
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/hadolint docker/Dockerfile examples/serve.Dockerfile

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

accept: $(VENV)/.ready
	$(BIN)/python tests/acceptance.py

# With the Paddle of the shell's Python, since GPUs need another than .venv has: PYTHON=/path/to/another, ROWS="amp resume".
accept-gpu:
	$(PYTHON) tests/acceptance_gpu.py $(ROWS)

# The same; PEER_PYTHON has torch and timm.
bench-gpu:
	$(PYTHON) benchmarks/gpu_throughput.py $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON)) $(BENCH_FLAGS)

# PEER_PYTHON=/path/to/an/interpreter with torch: without it, what is compared with torch is left out.
bench: $(VENV)/.ready
	$(BIN)/python benchmarks/headlines.py $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))

bench-all: $(VENV)/.ready
	$(BIN)/python benchmarks/headlines.py --all $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))

test-gpu-wheel: $(GPU_VENV)/.ready
	$(GPU_VENV)/bin/python $(PYTEST) tests/unit tests/integration

# In an environment of its own: what audits is not what is audited.
audit: $(VENV)/.ready
	test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install -q pip-audit; }
	$(VENV)-audit/bin/python tools/audit.py $(VENV)/lib/python3*/site-packages

# A registry shows the project's address next to its name.
address:
	@! grep -q 'ADDRESS = "https://example.org' setup.py || { echo "error: setup.py: replace ADDRESS, https://example.org, by the project's address" >&2; exit 1; }

dist: address $(VENV)/.ready
	test -x $(VENV)-dist/bin/twine || { $(PYTHON) -m venv $(VENV)-dist && $(VENV)-dist/bin/pip install -q twine; }
	$(BIN)/python tools/release.py
	$(VENV)-dist/bin/twine check --strict dist/*

reference: $(VENV)/.ready
	$(BIN)/python tools/reference.py

# In an environment of its own, which needs nothing of the package. A link that leads nowhere is an error.
site:
	test -x $(VENV)-docs/bin/mkdocs || { $(PYTHON) -m venv $(VENV)-docs && $(VENV)-docs/bin/pip install -q -r tools/site_requirements.txt; }
	$(VENV)-docs/bin/mkdocs build --strict --clean
	@echo "look at it: $(PYTHON) -m http.server -d site 8000, then http://localhost:8000"

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-dist $(VENV)-docs $(GPU_VENV) build dist site *.egg-info
