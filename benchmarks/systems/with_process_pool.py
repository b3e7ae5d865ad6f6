"""The standard library's process pool: processes of this machine behind two queues, with no scheduler between."""

import platform
from concurrent.futures import ProcessPoolExecutor

from benchmarks.launching import emit
from benchmarks.systems import pool, work

if __name__ == "__main__":
    started = work.clock()
    with ProcessPoolExecutor(work.WORKERS) as executor:
        executor.submit(work.empty).result()
        seconds = work.clock() - started
        emit(versions=f"Python {platform.python_version()}")
        emit(work="start", count=1, seconds=seconds)
        work.run(pool.works(executor))
