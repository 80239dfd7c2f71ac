# `make` alone lists what can be done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.DEFAULT_GOAL := help
.PHONY: help setup docs demo java test ci warm archive check lint format types imports unit campaign functions faults golden fuzz bench kafka broker delta iceberg lock clean wheel newcomer

# Compiled files are kept, whatever the environment says: every worker would compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE
# In `make ci`, Java starts some thirty times, sooner with an archive of Spark's classes (docs/spark.md).
ARCHIVE := WEFT_CLASS_ARCHIVE=1 XDG_CACHE_HOME=$(CURDIR)/$(VENV)/cache
# Three workers for two cores: one has Spark, which waits a lot, and helps the others when it is done (tests/conftest.py).
PYTEST := SPARK_LOCAL_IP=127.0.0.1 $(BIN)/pytest -n 3 --dist loadgroup --durations=40
# Tests that compile what joins alone do not need: functions of texts, Avro. They run again with the others, which say what fails.
COMPILING := $(addprefix tests/unit/,kernels/test_edge_values.py connectors/kafka/avro/test_decode.py test_factors.py)
SEED := $(or $(SEED),$(shell date +%s))
SCALE ?= 20
FAULT_SCALE = $(or $(filter-out 20,$(SCALE)),11)

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Weft needs Python 3.10 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@echo "Making a virtual environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing Weft, Spark and the tools into it, 1.4 GB, which takes a minute or two …"
	@$(PIP) --requirement requirements-dev.txt
	@$(PIP) --no-deps --editable .
	@touch $@

setup: $(READY) ## Make a virtual environment with everything in it

demo: $(READY) java ## Join four live streams on local Spark, on a web page; without a terminal, for 20 seconds
	@SPARK_LOCAL_IP=127.0.0.1 $(BIN)/weft demo

java: $(READY) ## Find the Java that Spark runs on, or get one
	@$(BIN)/weft java

test: $(READY) ## Check everything and run all tests that are quick: 6 minutes on two cores
	$(MAKE) --no-print-directory --jobs=2 check warm
	$(MAKE) --no-print-directory unit

ci: $(READY) archive ## Run what `make test` leaves out: clusters, servers, kills, demos, a browser, the benchmarks' own tests
	$(ARCHIVE) $(PYTEST) -m "ci and not slow"

warm: $(READY) java # Compile the kernels and the tests once, before several processes would do it at the same time
	$(BIN)/python -c 'from weft.kernels.warm_up import warm_up; warm_up()'
	$(BIN)/pytest --collect-only -qq > /dev/null
	@$(BIN)/pytest -qq -m "not ci and not slow" $(COMPILING) > /dev/null || true

archive: $(READY) java warm # Archive Spark's classes, for programs that start Java
	SPARK_LOCAL_IP=127.0.0.1 $(ARCHIVE) $(BIN)/python -c 'from weft.runtime.spark.class_archive import archive_place as place; \
		from weft.runtime.spark.class_archive_maker import make_archive; make_archive(place())'

check: lint types imports ## Formatting, lint, types and the direction of imports

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

unit: $(READY) java ## Run the tests of `make test` alone
	$(PYTEST) -m "not ci and not slow"

campaign: $(READY) archive ## Run all tests on many random cases, others each time; SEED=... SCALE=... repeats one
	@echo "make campaign SEED=$(SEED) SCALE=$(SCALE)"
	$(ARCHIVE) $(PYTEST) --seed $(SEED) --scale $(SCALE) || \
		{ echo "to repeat it: make campaign SEED=$(SEED) SCALE=$(SCALE)"; exit 1; }

functions: $(READY) java ## Compare every function of SQL with Spark, 300,000 cells, others each time; SEED=... repeats them
	@echo "make functions SEED=$(SEED)"
	SPARK_LOCAL_IP=127.0.0.1 $(BIN)/pytest -q tests/equivalence/test_scalar_functions.py --seed $(SEED) --scale 2

FAULTS := tests/recovery/test_faults.py tests/recovery/test_suspended.py tests/recovery/test_places.py \
	tests/recovery/test_log_losses.py tests/unit/service/test_promises.py
faults: $(READY) archive ## Tell 500 random stories of faults and kills, others each time; SEED=... SCALE=... repeats them
	@echo "make faults SEED=$(SEED) SCALE=$(FAULT_SCALE)"
	$(PYTEST) --seed $(SEED) --scale $(FAULT_SCALE) $(FAULTS) -m "not spark" || \
		{ echo "to repeat it: make faults SEED=$(SEED) SCALE=$(FAULT_SCALE)"; exit 1; }
	$(ARCHIVE) $(PYTEST) --seed $(SEED) tests/recovery -m "spark and not slow" || \
		{ echo "to repeat it: make faults SEED=$(SEED) SCALE=$(FAULT_SCALE)"; exit 1; }

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(READY) ## Write the golden plans anew; review the diff
	$(BIN)/pytest -n auto tests/golden --regenerate-golden -q

fuzz: $(READY) ## Fuzz the SQL front end with 100,000 inputs, others each time; SEED=... repeats them
	$(BIN)/pytest tests/unit/sql/test_fuzz.py --seed $(SEED) --scale 100

kafka: $(READY) java ## Fetch a Kafka broker and a schema registry by Maven into .venv, for the tests, which start them on loopback
	@$(BIN)/python -m weft.service.kafka_broker fetch
	@$(BIN)/python -m tests.kafka.registry

broker: kafka ## Run the Kafka broker on loopback until Ctrl-C; it prints its address
	@$(BIN)/python -m weft.service.kafka_broker serve

delta: $(READY) # Fetch Spark's reader of Delta tables by Maven into .venv, for the tests
	@$(BIN)/python -m tests.lakes.spark_readers fetch delta

iceberg: $(READY) # The same of Iceberg tables, with the Spark that it works with, 500 MB
	@$(BIN)/python -m tests.lakes.spark_readers fetch iceberg

s3: $(READY) # Install the server of moto into .venv/cache, an S3 interface on loopback for the tests
	@$(BIN)/python -m tests.storage.s3_server fetch

docs: $(READY) ## Build the documentation site into site/: a broken link fails it
	$(BIN)/python -m docs.drawn.site

bench: $(READY) ## List the benchmarks; run one with `.venv/bin/weft bench NAME`
	$(BIN)/weft bench

wheel: $(READY) ## Build the wheel into dist/, and say what is in it
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t wheel
	@$(BIN)/python -m zipfile -l dist/*.whl | awk 'NR > 1 {size += $$NF; files++} END {printf "%d files, %.1f MB unpacked\n", files, size / 1e6}'

newcomer: wheel ## Be somebody who has never run Weft: install the wheel, do what we tell newcomers, write docs/first_hour.md
	$(BIN)/python -m tests.newcomer.newcomer dist/*.whl --write

lock: ## Pin the development dependencies anew
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --no-emit-index-url \
		--no-header --annotation-style line --output-file requirements-dev.txt pyproject.toml

clean: ## Remove the virtual environment, all caches, and the compiled kernels
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
