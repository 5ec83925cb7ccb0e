# Everything happens in .venv; each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST_ARGS ?=
BENCH_ARGS ?=
TRITON := .triton-venv
TRITON_PYTHON ?= $(PYTHON)
OPTIMUM := .venvs/optimum
OPTIMUM_PIP := $(OPTIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-optimum.txt
TRITON_PIP := $(TRITON)/bin/python -m pip install --quiet --disable-pip-version-check
RAY := .venvs/ray
KSERVE := .venvs/kserve
OLD_ENGINES := $(patsubst %,.venvs/onnxruntime-%/.ready,1.16.3 1.19.2 1.20.1)

.PHONY: demo test check format bench bench-quick nightly optimum-env ray-env kserve-env starter triton clean

demo: $(VENV)/.demo  ## answer three customer messages with the starter checkpoint
	$(BIN)/drut predict --file examples/messages.txt --preset triage --table

# Without the tests marked slow: minutes each, gigabytes of memory. `make nightly` runs those.
test: $(VENV)/.dev $(TRITON)/.ready check  ## lint, types, import rules, and every quick test
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow" $(PYTEST_ARGS)

nightly: $(VENV)/.dev $(OPTIMUM)/.ready $(RAY)/.ready $(KSERVE)/.ready $(OLD_ENGINES)  ## the tests marked slow: large checkpoints, other versions
	$(BIN)/python -m pytest -m slow -s $(PYTEST_ARGS)

optimum-env: $(OPTIMUM)/.ready  ## transformers 4 with optimum's ONNX exporter, for `make nightly`

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing docker
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## measure beside upstream, which gets an environment of its own; about 20 minutes
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.page

bench-quick: $(VENV)/.dev  ## the same with few rounds, results under benchmarks/build only
	$(BIN)/python -m benchmarks.run --quick $(BENCH_ARGS)

triton: $(TRITON)/.ready  ## the tritonserver that the tests start

starter: $(VENV)/.starter  ## train, export and evaluate the starter checkpoint (about an hour)
	$(BIN)/python -m starter.run

clean:
	rm -rf $(VENV) $(TRITON) .venvs build dist

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

# Apart from .venv, because the Python backend of this server reads arrays of numpy 1 only.
$(TRITON)/.ready: pyproject.toml constraints.txt
	$(TRITON_PYTHON) -m venv $(TRITON)
	sed '/^numpy==/d' constraints.txt > $(TRITON)/constraints.txt
	$(TRITON_PIP) --constraint $(TRITON)/constraints.txt 'numpy==1.26.4' --editable '.[cpu]'
	$(TRITON_PIP) --no-deps 'nvidia-pytriton==0.7.0'
	touch $@

# Apart from .venv: optimum's exporter and transformers 5 exclude each other.
$(OPTIMUM)/.ready: pyproject.toml constraints-optimum.txt
	$(PYTHON) -m venv $(OPTIMUM)
	$(OPTIMUM_PIP) 'torch==2.13.0'
	$(OPTIMUM_PIP) --editable '.[cpu]' transformers optimum-onnx safetensors onnx onnxscript pytest
	touch $@

ray-env: $(RAY)/.ready  ## Ray for examples/ray, for `make nightly`

$(RAY)/.ready: pyproject.toml constraints.txt constraints-ray.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --constraint constraints-ray.txt --editable '.[cpu]' 'ray[data]'
	touch $@

kserve-env: $(KSERVE)/.ready  ## KServe's model classes, for `make nightly`

$(KSERVE)/.ready:
	$(PYTHON) -m venv $(KSERVE)
	$(KSERVE)/bin/python -m pip install --quiet --disable-pip-version-check 'kserve==0.21.0' 'pyyaml>=6.0'
	touch $@

# The oldest ONNX Runtime that images of Triton have, by drut_export/triton_releases.py.
.venvs/onnxruntime-%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check 'numpy==1.26.4' 'onnxruntime==$*'
	touch $@
