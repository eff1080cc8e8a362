# Needs Linux, make and Python 3.11+ with venv (or uv); `make help` lists the targets.

VENV    ?= .venv
MINUTES ?= 10
EXAMPLE ?= orders
export VENV

# What `make test` runs: everything on the compiled core, of long searches a part (tests/thoroughness.py), and much of it
# interpreted as well. .ci/run has the rest.
TESTS      ?= tests
TESTS_PURE ?= $(wildcard tests/unit tests/contract tests/fault)
# About modules that are the same files in both cores, and stand on the interfaces that tests/contract has of both: they
# run once, on the compiled core if there is one.
once = $(1:%=tests/$(2)/test_%.py)
ONCE       := $(call once,copies declared docs doctests examples java macro manager membership,unit) \
  $(call once,orders_account pipelines policies scripts shop spark_options spark_scripts tracing,unit) \
  $(call once,macro_queues managers scripts,fault) \
  $(call once,copies_killed manager_killed pipelines_killed scripts_killed spark_scripts_killed,crash)
# One more than there are processors: now and then a test waits.
PYTEST     ?= -q -n $(shell expr $$(nproc) + 1) --dist worksteal
# Interpreted, on files in memory where there is room for them: on a disk the compiled core has just been tested.
MEMORY     := $(shell [ -w /dev/shm ] && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 2000000 { print "/dev/shm" }')
# Those with Spark run beside no others, in two processes: each of them starts a Spark of its own.
TESTS_SPARK ?= $(if $(filter tests,$(TESTS)),tests/spark)
# What the tests need; without `spark` or `console` those that need them are skipped.
TEST_GROUPS ?= run build test spark console

PY     := $(VENV)/bin/python
SETUP  := @tools/setup.sh
# The compiled core's directory, or src where it cannot be compiled.
CORE   := core=$$($(PY) tools/build.py)
SRC    := $(CURDIR)/src

.PHONY: help run test lint format bench soak test-deps build clean
help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

run:  ## set up what is needed and run orders through scripts on Spark (or EXAMPLE=wakeup), with ARGS="--help"
	$(SETUP) run build $(if $(filter orders,$(EXAMPLE)),spark)
	@$(CORE) && PYTHONPATH=$$core $(PY) -m examples.$(EXAMPLE) $(ARGS)

test:  ## run the tests, on the compiled core and on the interpreted one
	$(SETUP) $(TEST_GROUPS)
	@$(CORE) && if [ "$$core" != "$(SRC)" ]; then \
	  echo "penstock: tests, compiled core" && PYTHONPATH=$$core $(PY) -m pytest $(PYTEST) --ignore=tests/spark $(TESTS); \
	fi
ifneq ($(TESTS_SPARK),)
	@echo "penstock: tests with Spark"
	@$(CORE) && PYTHONPATH=$$core $(PY) -m pytest -q -n 2 --dist worksteal $(TESTS_SPARK)
endif
	@echo "penstock: tests, interpreted core"
	@$(CORE) && once= && if [ "$$core" != "$(SRC)" ]; then once="$(addprefix --ignore=,$(filter-out $(TESTS_PURE),$(ONCE)))"; fi && \
	  $(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY)) PYTHONPATH=$(SRC) $(PY) -m pytest $(PYTEST) $$once $(TESTS_PURE)

lint:  ## check style, types and the layers of the package
	$(SETUP) run build lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	PYTHONPATH=$(SRC) $(VENV)/bin/lint-imports

format:  ## let ruff fix and format the sources
	$(SETUP) run build lint
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench:  ## run the benchmarks
	$(SETUP) run build bench spark
	@$(CORE) && PYTHONPATH=$$core $(PY) -m bench $(ARGS)

soak:  ## run the soak test for MINUTES=10, and as long with Spark if it is installed
	$(SETUP) run build test
	@$(CORE) && PYTHONPATH=$$core $(PY) tests/soak.py --minutes $(MINUTES)
	@$(CORE) && PYTHONPATH=$$core $(PY) tests/soak_spark.py --minutes $(MINUTES)

test-deps:  ## install what the tests need from the system
	@tools/test_deps.sh

build:  ## compile the core (PENSTOCK_PURE=0 shows why it fails)
	$(SETUP) run build
	@$(CORE) && echo "penstock: the core is in $${core#$(CURDIR)/}"

clean:  ## remove everything that was made
	rm -rf build dist .venv* .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache src/*.egg-info
	find . -name .git -prune -o \( -name __pycache__ -o -path './src/*.so' \) -exec rm -rf {} +
