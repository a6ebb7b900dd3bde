# Every target sets up what it needs first: Linux with bash, Python >= 3.11, make and git are all that it needs.
# `make demo WARNING_S=120` runs the demo with EC2's own two minutes; `make demo SERVICE=services/slow-start.yaml` shows
# another service; `make demo UI=1` opens the local page meanwhile; `make demo KEEP=1` leaves the local cloud up, to try the commands against it.
# `make test ARGS='-k drain'` passes ARGS to pytest.
# `make replay TRACES='dir another'` replays recordings; `ARGS='--policy asg'` says what else `spotrelay replay` is told.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all tests-fast tests-all chaos mutants replay bench bench-check bench-baseline docs lint format synth clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

setup: ## prepare the working copy: .venv, node_modules (a repeat takes no time)
	@command -v '$(PYTHON)' >/dev/null || { echo "set-up: there is no $(PYTHON) here:" \
		"install Python >= 3.11, or name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@exec '$(PYTHON)' scripts/setup.py

demo: setup ## deploy into a local AWS, serve, interrupt, show what happened
	@exec $(BIN)/python -m lab.demo $(if $(WARNING_S),--warning-s $(WARNING_S)) $(if $(SERVICE),--service '$(SERVICE)') $(if $(UI),--ui) $(if $(KEEP),--keep)

# Five workers on two cores: end-to-end tests wait for most of their time. With six, local clouds start so many at once that
# deployments time out. Types are checked beside them, which takes two minutes of one core. A make that a test runs is no
# child of this one. Tests start hundreds of processes: where Python may not keep what it compiles, each compiles all anew.
PYTEST := env -u MAKEFLAGS -u MFLAGS -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 5 --dist loadgroup --no-loadscope-reorder

test: ## every check, and every test but the slow ones
	@exec $(MAKE) --no-print-directory -j2 lint tests-fast

test-all: ## the same, and the slow tests, which wait for minutes
	@exec $(MAKE) --no-print-directory -j2 lint tests-all

tests-fast: setup
	@exec $(PYTEST) -m 'not slow' $(ARGS)

tests-all: setup
	@exec $(PYTEST) $(ARGS)

chaos: setup ## the controller in simulated time, under every fault: 100,000 runs, more than an hour
	@exec $(BIN)/spotrelay chaos --seeds $(or $(SEEDS),100000) $(ARGS)

mutants: setup ## put one mistake at a time into the core: do tests notice? an hour and a half; ARGS=--help
	@exec $(BIN)/python -m tests.mutants $(ARGS)

replay: setup ## policies on recorded Spot markets (TRACES=<dir>..., else a made-up one), into out/replay
	@$(if $(TRACES),,echo 'no TRACES=<dir> given: replaying a made-up market, which is no recording';) \
		exec $(BIN)/spotrelay replay $(or $(TRACES),--synthetic) \
		--cold-start 90 --cold-start 120 --cold-start 180 --cold-start 300 --out out/replay $(ARGS)

bench: setup ## how fast a warning is handled, beside alternatives; ROW=batch for one row
	@exec $(BIN)/python -m lab.benchmarks $(ROW)

bench-check: setup ## fail if a count of calls or a ratio is worse than lab/benchmarks/baseline.json
	@exec $(BIN)/python -m lab.benchmarks --check $(ROW)

bench-baseline: setup ## make the present counts and ratios the baseline
	@exec $(BIN)/python -m lab.benchmarks --record $(ROW)

docs: setup ## the site of docs/, into out/site; a link that leads nowhere fails it
	@$(BIN)/sphinx-build -b html -W --keep-going -q -d build/doctrees docs out/site
	@echo 'out/site/index.html is its front page'

lint: setup ## check style, types, and which package may import which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## put the code into the style that lint checks
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

synth: setup ## the CloudFormation templates, into cdk.out
	@exec $(BIN)/cdk synth --quiet $(ARGS)

clean: ## remove what was built; .venv and node_modules stay
	@rm -rf build cdk.out out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.venv/*' -not -path './node_modules/*' -prune -exec rm -rf {} +
