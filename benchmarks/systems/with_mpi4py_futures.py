"""mpi4py.futures: `mpirun -n 3 python -m mpi4py.futures with_mpi4py_futures.py`, one master and two workers."""

from benchmarks.launching import emit
from benchmarks.systems import pool, work

try:
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor
except ImportError as error:
    work.missing(error)

if __name__ == "__main__":
    started = work.clock()
    with MPIPoolExecutor(work.WORKERS) as executor:
        executor.submit(work.empty).result()
        seconds = work.clock() - started
        library = MPI.Get_library_version().split(",")[0].split("\n")[0].strip()
        emit(versions=f"{work.found('mpi4py')}, {library}")
        emit(work="start", count=1, seconds=seconds)
        work.run(pool.works(executor))
