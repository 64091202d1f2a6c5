# Two commands do everything: `make demo` and `make test`. Both make the environment in .venv first.

PYTHON ?= python3

.PHONY: demo test test-real lint bench clean

demo: .venv/ready
	$(PYTHON) tools/demo.py

# Two at a time: most of a test's time is waiting for servers. A file's tests share a practice node.
test: .venv/ready
	.venv/bin/python -m pytest -n 2 --dist loadfile

# The commands against SGLang itself on the CPU: installs it once (2.3 GB); takes six to eight minutes in all.
test-real: .venv/ready
	.venv/bin/python -m pytest tests/real

bench: .venv/ready
	.venv/bin/python tools/benchmark.py

lint: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

.venv/ready: pyproject.toml tools/environment.py
	$(PYTHON) tools/environment.py
	@touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
