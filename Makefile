# Everything from a fresh clone with Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLOWER := .venv-flower
FLOWER_TESTS ?= tests/engines/flower tests/bench/test_bench_flower.py tests/cli/test_serve.py
# Threads would nest: the engine runs one worker per core, each with one thread.
export OMP_NUM_THREADS ?= 1
# Processes that run the tests.
WORKERS ?= 2

.PHONY: flower demo test coverage arithmetic lint docs bench clean install
.DEFAULT_GOAL := help

help:
	@echo "make demo    train FSAR beside plain averaging on the embedded stage, and write a report"
	@echo "make test    run the tests"
	@echo "make coverage  the same, with the share of lines that they reach"
	@echo "make arithmetic  engines, methods and tests of networks on the plainest arithmetic a processor can have"
	@echo "make flower  the tests of sites of their own, slow ones too, with Flower in an environment of its own (an hour)"
	@echo "make lint    ruff, pyright, import contracts"
	@echo "make docs    run every code block in the docs and the README"
	@echo "make bench   measure the engines against a bare PyTorch loop"
	@echo "make clean   remove the virtual environment and caches"

define check_python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "fedaction needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
endef

$(VENV)/.installed: pyproject.toml constraints.txt
	$(check_python)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(VENV)/.installed

# Flower pins versions that the other extras need not have, so it is not in the environment of `make test`.
$(FLOWER)/.installed: pyproject.toml constraints.txt
	$(check_python)
	test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[video,flower]' pytest \
		'flwr[simulation]'
	@touch $@

# The tutorial of docs/sites.md as it is written, and every fault with real processes, on loopback.
flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest $(FLOWER_TESTS)

demo: install
	$(BIN)/fedaction run fsar/demo

test: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

# The same with the share of lines that tests reach: half as long again.
coverage: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term -m "not slow and not gpu"

# The same on another processor's arithmetic: no test may depend on the last bits of a trained value.
arithmetic: install
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -q \
		-m "not slow and not gpu" -k "not memory and not hostile" --ignore tests/engines/flower \
		tests/engines tests/methods tests/evaluation tests/training/test_evaluate.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: install
	$(BIN)/python -m pytest tests/test_docs.py

bench: install
	$(BIN)/fedaction bench loop
	$(BIN)/fedaction bench engines --clients 20

clean:
	rm -rf $(VENV) $(FLOWER) .pytest_cache .ruff_cache .coverage build dist src/*.egg-info
