# Every target sets up what it needs: a machine with Python 3.11 or newer, pip, make and gcc is enough.
PYTHON ?= python3
VENV := .venv
INFINITY := .venv-infinity
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile -c constraints.txt
SOURCES := $(wildcard producer worker tests benchmarks demo)
# The weights that the demo and the tests use come from a package, so nothing looks for a hub.
OFFLINE := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

.DELETE_ON_ERROR:
.PHONY: setup demo test check chaos bench rivals clean

setup: $(VENV)/dev.stamp

demo: $(VENV)/demo.stamp
	@$(OFFLINE) $(BIN)/python -m demo

test: $(VENV)/dev.stamp
	$(OFFLINE) $(BIN)/python -m pytest

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/basedpyright $(SOURCES)
	$(BIN)/python tests/limits.py

chaos: $(VENV)/dev.stamp
	$(OFFLINE) $(BIN)/python -m pytest -m chaos --timeout 1200

# A rival that cannot be installed is left out; the benchmarks say so.
bench: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory rivals || echo "infinity-emb could not be installed: going on without it."
	$(OFFLINE) $(BIN)/python -m benchmarks

rivals: $(INFINITY)/installed.stamp

clean:
	rm -rf $(VENV) $(INFINITY) build dist .cordwood .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages, so that `make demo` need not wait for the developers' tools.
$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cordwood needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	@echo "Installing what the demo needs into $(VENV); the first time takes some minutes."
	@$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/python.stamp pyproject.toml constraints.txt
	@echo "Installing everything for development into $(VENV); the first time takes some minutes."
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/demo.stamp $@

# infinity-emb needs older packages than Cordwood, so it has an environment of its own. Its torch is Cordwood's.
$(INFINITY)/installed.stamp: benchmarks/infinity-requirements.txt constraints.txt
	@echo "Installing infinity-emb, a rival, into $(INFINITY); the first time takes some minutes."
	@$(PYTHON) -m venv $(INFINITY)
	@grep '^torch==' constraints.txt >$(INFINITY)/torch.txt
	@$(INFINITY)/bin/python -m pip --disable-pip-version-check install -qq --no-compile \
		-r benchmarks/infinity-requirements.txt -c $(INFINITY)/torch.txt
	@touch $@
