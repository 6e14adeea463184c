# gua: `make help` lists what one can do. Only the targets with install in their name touch anything outside this folder.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
RUNS = $(VENV)/.runs
# A URL, because pip splits a list of paths at blanks, and this folder may have one in its name.
BLANK := $(subst ,, )
CONSTRAINTS = file://$(subst $(BLANK),%20,$(subst %,%25,$(CURDIR)))/constraints.txt
export PIP_CONSTRAINT = $(CONSTRAINTS)
export PIP_BUILD_CONSTRAINT = $(CONSTRAINTS)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# As some images set it: then every worker would compile all tests, and every command all of gua, again and again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test-deps quick test test-real torture test-pandas-2 test-all lint format bench truth install uninstall install-user uninstall-user wheels clean

help: ## list what one can do
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

venv: $(STAMP) ## set up the virtual environment; the others do so too

$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) install/check_python.py
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(STAMP): $(RUNS)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(RUNS) ## the report of a simulated laboratory; needs no GPU
	@$(BIN)/gua demo

# Debian's and Ubuntu's names. Without them, the tests that need them are skipped, and say so; CI allows none of that.
# podman with what containers need in a guest: an image is made from busybox, a user's runtime needs a bus and subuids.
PODMAN = podman runc uidmap netavark busybox-static dbus-user-session
# Postfix takes the place of another mail program, and asks how to be set up unless it is told not to.
TEST_PACKAGES = prometheus prometheus-node-exporter redis-server chromium chromium-driver postfix zsh slurm-wlm munge openssh-server rsync $(PODMAN)
APT_INSTALL = DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends
test-deps: ## as root: install the servers and the browser that tests use (apt)
	$(APT_INSTALL) $(TEST_PACKAGES) || { apt-get update --quiet && $(APT_INSTALL) $(TEST_PACKAGES); }

# Two per core, since the end-to-end tests mostly wait. A worker takes whole files, as they share fixtures, in the order
# of their names: those that wait come first.
WORKERS ?= 4
PARALLEL = -n $(WORKERS) --dist loadscope --no-loadscope-reorder

quick: $(STAMP) ## run the unit tests that start no processes: half a minute
	$(BIN)/pytest -n 2 -q -m quick tests/unit

test: $(STAMP) ## run the tests that need nothing but Python and cc
	$(BIN)/pytest $(PARALLEL) -m 'not real'

test-real: $(STAMP) ## run those that need servers, guests or minutes
	$(BIN)/pytest $(PARALLEL) -m real

# TORTURE='--minutes 5 --seed 7', or what the log says to repeat a failure
torture: $(STAMP) ## kill, starve and feed nonsense to every command; TORTURE=--help
	$(BIN)/python -m tests.torture $(TORTURE)

# Whatever does not depend on how pandas works needs to run but once. The longest come first.
PANDAS_2 = $(VENV)-pandas-2
OF_PANDAS = integration/test_commands.py $(addprefix unit/,rollups upkeep summary render ticks reservations people fleet) \
	unit/test_notebook.py test_json_docs.py test_notebooks.py
test-pandas-2: $(PANDAS_2)/.pandas-2 ## run the report's tests with pandas 2
	$(PANDAS_2)/bin/python -m pytest $(PARALLEL) $(OF_PANDAS:%=tests/%)

# What it has of its own comes first, all else is that of the other environment.
PACKAGES = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
$(PANDAS_2)/.pandas-2: $(STAMP)
	$(PYTHON) -m venv --clear --without-pip $(PANDAS_2)
	$(BIN)/python $(PACKAGES) >$$($(PANDAS_2)/bin/python $(PACKAGES))/others.pth
	PIP_CONSTRAINT= $(BIN)/pip --python $(PANDAS_2) install --quiet --no-deps pandas==2.3.3 pytz==2026.6
	$(BIN)/pip --python $(PANDAS_2) install --quiet --no-deps --editable .
	@touch $@

test-all: ## run all tests on every Python from 3.10 up that is here
	@$(PYTHON) tests/every_python.py

lint: $(STAMP) ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## put the code into the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## the figures we hold ourselves to, as ratios of one run
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/status.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/groups.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/publish.py
	$(BIN)/python benchmarks/truth.py

# TRUTH='--seed 1 2 3 --interval 15 --pauses 2:90', or --world FILE
truth: $(STAMP) ## how true the hours are: a week of which all is known; TRUTH=--help
	$(BIN)/python benchmarks/truth.py $(TRUTH)

# What one may set: PREFIX=/usr/local DESTDIR= PYTHON=python3 VENVDIR=/opt/gua SYSCONFDIR=/etc
# SYSTEMD_UNIT_DIR=$(PREFIX)/lib/systemd/system WHEELS=DIR EXTRAS=parquet|fleet|none READERS=everyone|group INTERVAL=15s
# CONTAINERS=yes|no (a root service asks Docker and podman for the names of containers; default no) PURGE=1.
# As install.sh has the defaults, which differ for users, and make hands it what is set, nothing is repeated here.
install: ## as root: sample this machine from now on; again to upgrade
uninstall: ## the reverse; the history stays, unless PURGE=1 is given
install-user: ## without root: commands, timers and history of your own
uninstall-user: ## the reverse; the history stays, unless PURGE=1 is given
wheels: ## fill WHEELS=DIR, so that install WHEELS=DIR needs no index
install uninstall install-user uninstall-user wheels:
	@PYTHON='$(PYTHON)' sh install/install.sh $@

clean: ## remove the virtual environment and all caches
	rm -rf .venv* build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache torture.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
