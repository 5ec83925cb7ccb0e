# Everything happens in .venv; each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST_ARGS ?=

.PHONY: demo test check format bench starter clean

demo: $(VENV)/.demo  ## answer three customer messages with the starter checkpoint
	$(BIN)/drut predict --file examples/messages.txt --preset triage --table

test: $(VENV)/.dev check  ## lint, types, import rules, and every test
	$(BIN)/python -m pytest --numprocesses auto $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## measure this machine
	$(BIN)/python benchmarks/latency.py

starter: $(VENV)/.starter  ## train, export and evaluate the starter checkpoint (about an hour)
	$(BIN)/python -m starter.run

clean:
	rm -rf $(VENV) build dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[cpu]'
	touch $@

# torch first and by itself: the pin picks the build that the later requirements accept.
$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) 'torch==2.13.0'
	$(PIP) --editable '.[cpu,export,lang,openvino,triton,dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.starter: $(VENV)/.dev starter/requirements.txt
	$(PIP) --requirement starter/requirements.txt
	touch $@
