"""What a process loads for an experiment in virtual time."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers import ROOT


def test_the_package_does_not_load_it() -> None:
    program = "import sys, mpi_runtime; print([name for name in sys.modules if 'tune' in name])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def loaded_by(statement: str) -> set[str]:
    """The modules of the package that a statement loads, but the one that finds others, and numpy."""
    program = (
        f"import sys\n{statement}\nprint(*[n for n in sys.modules if n == 'numpy' or n.startswith('mpi_runtime.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split()) - {"mpi_runtime.listings"}


def test_a_process_loads_what_it_uses() -> None:
    """One that runs trials needs no searcher, no scheduler and no journal."""
    assert loaded_by("import mpi_runtime.tune") == {"mpi_runtime.tune"}
    found = loaded_by("import mpi_runtime.tune.trials.runner; from mpi_runtime.tune import report, Checkpoint")
    parts = {"bundles", "checkpoint", "reporting", "runner", "storage", "trainable", "json_values", "output"}
    inside = {name.removeprefix("mpi_runtime.tune.") for name in found if name.startswith("mpi_runtime.tune.")}
    assert inside == {"unsupported", "trial", "counting", "trials", *(f"trials.{one}" for one in parts)}
    assert not {name for name in found if name.startswith(("numpy", "mpi_runtime.core.journal", "mpi_runtime.slurm"))}
