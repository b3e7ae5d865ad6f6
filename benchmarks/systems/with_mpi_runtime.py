"""This project: started plainly, or by mpirun with three ranks of which two are workers."""

from benchmarks.launching import emit
from benchmarks.systems import work

try:
    import mpi_runtime
    from benchmarks.systems import ray_api
except ImportError as error:
    work.missing(error)


def mapped(count: int) -> float:
    """Seconds for so many calls of a function, in chunks of the size that is chosen without a word."""
    return work.timed(lambda: mpi_runtime.remote(work.ignore).map(range(count)).get())


def first() -> None:
    """Start, and have one result."""
    mpi_runtime.init(num_cpus=work.WORKERS)
    mpi_runtime.get(mpi_runtime.remote(work.empty).remote())


def works() -> dict[str, work.Work]:
    """All work."""
    return {**ray_api.works(mpi_runtime), "map": mapped}


if __name__ == "__main__":
    seconds = work.timed(first)  # above this line on every rank, below it on rank 0 only
    emit(versions=work.found("mpi-runtime"))
    emit(work="start", count=1, seconds=seconds)
    work.run(works())
    mpi_runtime.shutdown()
