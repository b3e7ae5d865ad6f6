"""A parameter sweep of a program: a command for each pair of values, and tasks that read what they print.

The program is awk, so that it runs anywhere. A command asks for CPUs and GPUs like any task, is ended when its time is
over, and its result tells what it has used. sweep.toml is a sweep without any Python: `mpi-runtime batch sweep.toml`.

    python examples/sweep.py
    mpi-runtime run -n 4 examples/sweep.py
"""

import tempfile
from pathlib import Path

import mpi_runtime
from mpi_runtime import batch

mpi_runtime.init()

PROGRAM = "awk -v seed={seed} -v rate={rate} 'BEGIN { srand(seed); print rate * (1 + rand()) }'"


@mpi_runtime.remote
def measured(result: batch.CommandResult) -> float:
    """What a command has printed."""
    return float(Path(result.stdout).read_text())


@mpi_runtime.remote
def mean(*values: float) -> float:
    return sum(values) / len(values)


with tempfile.TemporaryDirectory() as directory:
    means = []
    for rate in (0.1, 0.5, 1.0):
        runs = batch.array(
            PROGRAM, seed=range(8), rate=[rate], name=f"rate-{rate}", time_limit="10m", directory=directory
        )
        means.append(mean.remote(*(measured.remote(run) for run in runs)))
    for rate, found in zip((0.1, 0.5, 1.0), mpi_runtime.get(means), strict=True):
        print(f"rate {rate}: mean {found:.3f} of 8 runs")
        assert rate <= found <= 2 * rate

    # The values of references can be parameters too, and a command that fails says how.
    best = batch.command("test {value} = 3", value=means[0], name="best", on_failure="continue", directory=directory)
    result = mpi_runtime.get(best)
    print(f"{result.name}: {result.ending()} after {result.attempts} attempt")
    assert not result.is_success
