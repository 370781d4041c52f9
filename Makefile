# Run `make help` for what each target does.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo docs wheel test lint types unit format bench bench-quick paper paper-quick tables-only zoo zoo-quick privacy fuzz clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## create the virtual environment with everything the targets need

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	touch $@

demo: setup ## run the main job end to end on the Adult data
	$(BIN)/agglearn datasets fetch adult -o demo
	$(BIN)/agglearn aggregate demo/adult.csv --label income --positive '>50K' -o demo/adult.agg
	$(BIN)/agglearn check demo/adult.agg
	$(BIN)/agglearn fit demo/adult.agg -o demo/adult.model
	$(BIN)/agglearn evaluate demo/adult.model demo/adult.test.csv
	$(BIN)/agglearn compare demo/adult.csv demo/adult.test.csv --label income --positive '>50K'
	$(BIN)/agglearn report demo/adult.model --tables demo/adult.agg --valid demo/adult.test.csv --compare -o demo/report.html
	@echo "Open it in a browser: file://$(CURDIR)/demo/report.html"

docs: setup ## build the documentation as a site, in site/ (its search needs a server: python -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open it in a browser: file://$(CURDIR)/site/index.html"

wheel: setup ## build a wheel, in dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

test: lint types unit ## lint, type-check and run every test

lint: setup ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types
	$(BIN)/mypy

unit: setup ## run the tests
	$(BIN)/pytest -n 2 --dist worksteal

format: setup ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## run the benchmarks and rewrite docs/benchmarks.md (takes a while)
	$(BIN)/python -m evidence speed

bench-quick: setup ## run small benchmarks, under two minutes
	$(BIN)/python -m evidence speed --quick

paper: setup ## run the paper's experiments that have not been run, and rewrite docs/paper.md (takes long)
	$(BIN)/python -m evidence paper

paper-quick: setup ## run small versions of them, in minutes
	$(BIN)/python -m evidence paper --quick

tables-only: setup ## run the experiments on tables alone, and rewrite docs/tables-only.md (takes long)
	$(BIN)/python -m evidence tables_only

privacy: setup ## try what private tables promise, and rewrite docs/privacy.md (a quiet machine for its cost)
	$(BIN)/python -m evidence privacy

zoo: setup ## judge the defaults on nine data sets, and rewrite docs/zoo.md (takes long)
	$(BIN)/python -m evidence zoo

zoo-quick: setup ## run a small zoo, under two minutes
	$(BIN)/python -m evidence zoo --quick

fuzz: setup ## try to break the command line, and rewrite docs/robustness.md (takes long)
	$(BIN)/python -m evidence fuzz

clean: ## remove the environment and everything generated
	rm -rf $(VENV) demo site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
