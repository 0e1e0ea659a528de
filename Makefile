PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One process a core, each on one thread: threads that wait for each other cost more than they save.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto
RUN_DIR ?= runs/mt_small

# Threads that spin for long while they wait cost far more than they save beside other work.
export GOMP_SPINCOUNT := 10000

.PHONY: demo test test-browser test-all bench lint clean

demo: $(VENV)/.examples
	$(BIN)/python examples/train_mt.py --config configs/mt_small.yaml --workdir $(RUN_DIR)
	@echo
	@echo "To see the monitor's curves and tables:"
	@echo "    $(BIN)/tensorboard --logdir $(RUN_DIR)"
	@echo "then open http://localhost:6006 in a browser."

test: lint
	$(PYTEST) -m "not slow and not browser"

# Needs Chromium and its driver (Debian: chromium chromium-driver).
test-browser: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser

test-all: lint
	$(PYTEST)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build *.egg-info runs lightning_logs
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file for each set of packages: pip runs again only when what it installs has changed.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.examples: pyproject.toml constraints.txt | $(VENV)/.created
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[examples]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.created
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,examples]'
	@touch $@ $(VENV)/.examples
