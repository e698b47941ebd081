# Every target does its own set-up in .venv; PYTHON names the interpreter to build it with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := tests/data/torch_pfs_workers0
# Of the time of a worker a third is waiting for processes: three keep two cores at work.
JOBS ?= 3
# A file of tests runs in one process, so that what its tests share is made once.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
BASE ?= main
# An editable install compiles what `vanidl record` preloads and samples with, beside its sources.
TRACER := $(wildcard vanidl/record/tracer/*.[ch] vanidl/record/states/*.c)
# Tests that need no more than the package: what an unpacked sdist runs.
SDIST_TESTS := tests/formatting tests/model tests/schema tests/sections tests/test_package.py
# PyTorch for the tests of loaders: the CPU build, and where the package index has none for this
# Python, none. TORCH=torch takes the index's default build, which may bring gigabytes of CUDA.
TORCH ?= torch==2.13.0+cpu

# The tests start hundreds of interpreters: without compiled modules each would compile its own.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check coverage-map coverage lint golden faults fuzz laws truth loops reports studies studies-small notebooks docs dist wheels browser fuse compiler clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: $(VENV)/installed  ## a report of a recorded training run, and its headline
	$(BIN)/vanidl report $(RUN) -o report.html

test: $(VENV)/installed-loaders browser fuse  ## all tests but the long ones: under 6 minutes
	$(PYTEST) -m "not long"

test-long: $(VENV)/installed-loaders browser fuse  ## tests that run frameworks, or repeat a law at length
	$(PYTEST) -m long

check: lint  ## style, types, imports, and the tests of what changed since BASE (main)
	$(PYTEST) -q $$($(BIN)/python -m tests.changed $(BASE))

coverage-map: $(VENV)/installed-loaders  ## measure what each test runs, for check: minutes
	$(BIN)/python -m tests.covered -n 2

coverage: $(VENV)/installed-loaders  ## lines and branches that tests run, by room, as measured last
	$(BIN)/python -m tests.covered -n 2 --rooms

golden: $(VENV)/installed-loaders  ## agree to the numbers of every log as they are now
	$(BIN)/python -m tests.golden

faults: $(VENV)/installed-loaders  ## planted faults die in the tests that check picks: an hour
	$(BIN)/python -m tests.faults

fuzz: $(VENV)/installed-test  ## 3,000 damaged logs, 5,000 hostile commands, laws, atheris
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz.commands
	$(BIN)/python -m pytest -q --hypothesis-profile=explore tests/analyses tests/merge tests/readers \
	  tests/model tests/advice/test_what_if.py tests/breakdown tests/anonymize tests/compare/test_power.py
	@if $(BIN)/python -c "import atheris" 2>/dev/null; then \
	  $(BIN)/python -m tests.fuzz.guided -max_total_time=120; fi

laws: $(VENV)/installed-loaders fuse  ## runs of known truth without evidence keep it: half an hour
	$(BIN)/python -m tests.breakdown.laws

reports: $(VENV)/installed-loaders browser fuse  ## the sample pages in reports/
	$(BIN)/python reports/make.py
	$(BIN)/python reports/survey.py
	$(BIN)/python reports/ab.py
	$(BIN)/python reports/dlio.py

studies: $(VENV)/installed-loaders fuse  ## what the papers report, measured here: hours
	$(BIN)/python -m benchmarks.papers.run
	$(BIN)/python -m benchmarks.loaders.scheduled
	$(BIN)/python -m benchmarks.loaders.pls
	$(BIN)/python -m benchmarks.loaders.pls_overlap
	$(BIN)/python -m benchmarks.loaders.pls_accounting
	$(BIN)/python -m benchmarks.loaders.decode_cpu
	$(BIN)/python -m benchmarks.loaders.decode_training
	$(BIN)/python -m benchmarks.loaders.decode_training --workload deepcam --size 192
	$(BIN)/python -m benchmarks.loaders.spatial

studies-small: $(VENV)/installed-loaders fuse  ## the same in small, without the longer ones: a quarter of an hour
	$(BIN)/python -m benchmarks.papers.run --small
	$(BIN)/python -m benchmarks.loaders.decode_cpu --repeat 3

truth: $(VENV)/installed-loaders fuse  ## what waits are for, against the log of a slow mount: a quarter of an hour
	$(BIN)/python -m benchmarks.truth.states

loops: $(VENV)/installed-loaders  ## what is said of each kind of training loop, against its own timers
	$(BIN)/python -m benchmarks.loops.run

notebooks: $(VENV)/installed-loaders  ## the outputs in notebooks/
	$(BIN)/python notebooks/run.py

docs: $(VENV)/installed  ## the documentation as a site in build/site
	$(BIN)/python -m pip install -qq --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict

dist: $(VENV)/installed-test  ## sdist and wheel, checked, tried in an empty environment
	$(BIN)/python -m pip install -qq build twine py-rattler-build
	$(BIN)/python -m pytest -q tests/contrib/test_recipes.py
	rm -rf dist build/try
	$(BIN)/python -m build -q
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/try
	build/try/bin/python -m pip install -qq dist/*.whl
	cd build/try && bin/vanidl demo -o demo.html
	rm -rf build/sdist && mkdir -p build/sdist && tar xzf dist/*.tar.gz --strip-components=1 -C build/sdist
	build/try/bin/python -m pip install -qq pytest hypothesis jsonschema
	cd build/sdist && ../try/bin/python -m pytest -q $(SDIST_TESTS)

wheels: $(VENV)/installed  ## a wheel for each kind of Linux machine, and one without the tracer
	$(BIN)/python -m pip install -qq --group wheels
	for target in manylinux_2_17_x86_64 manylinux_2_17_aarch64 musllinux_1_1_x86_64 \
	  musllinux_1_1_aarch64 any; do \
	  rm -rf build/lib build/bdist.*; \
	  VANIDL_TARGET=$$target $(BIN)/python -m build -q --wheel --no-isolation || exit 1; done

lint: $(VENV)/installed-loaders  ## style, types, imports, and nothing newer than Python 3.10
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -t=3.10- --exclude long --violations --no-tips -q vanidl loaders

browser:  ## headless Chromium for the browser test, where it can be installed
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	    chromium chromium-driver; } >/dev/null 2>&1 || \
	  echo "chromium could not be installed: the browser test will be skipped"; \
	else \
	  echo "no chromium and no right to install it: the browser test will be skipped"; \
	fi

fuse:  ## libfuse for the emulated file system, where it can be installed
	@if [ ! -e /dev/fuse ]; then \
	  echo "no /dev/fuse: tests of the emulated file system will be skipped"; \
	elif command -v fusermount3 >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq fuse3; } \
	    >/dev/null 2>&1 || \
	  echo "fuse3 could not be installed: tests of the emulated file system will be skipped"; \
	else \
	  echo "no fuse3 and no right to install it: tests of the emulated file system will be skipped"; \
	fi

compiler:  ## a C compiler for the tracer, where it can be installed
	@if command -v $(firstword $(CC)) >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev; } \
	    >/dev/null 2>&1 || \
	  echo "gcc could not be installed: vanidl records without its tracer, whose tests will be skipped"; \
	else \
	  echo "no C compiler and no right to install one: vanidl records without its tracer"; \
	fi

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "vanidl needs Python 3.10 or later, $(PYTHON) is older: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml setup.py $(TRACER) | compiler
	$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"  # it knows groups of pyproject.toml
	$(BIN)/python -m pip install -qq --editable ".[all]"
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install -qq --editable . --group test --group lint
	@$(BIN)/python -m pip install -qq --only-binary atheris "atheris>=3" 2>/dev/null || \
	  echo "atheris has no wheel for this Python: readers are not tried under it"
	@touch $@

$(VENV)/installed-loaders: $(VENV)/installed-test
	@if $(BIN)/python -m pip install -qq "$(TORCH)" 2>/dev/null; then \
	  $(BIN)/python -m pip install -qq --editable ".[loaders,mpi,storage,decoders]"; \
	else \
	  echo "the package index has no $(TORCH) for this Python:" \
	    "tests that need PyTorch will be skipped"; \
	  $(BIN)/python -m pip install -qq h5py pillow --editable ".[mpi,storage]"; \
	fi
	@touch $@

clean:  ## remove what the targets made
	rm -rf $(VENV) report.html build *.egg-info
