"""The standard library's process pool: processes of this machine behind two queues, with no scheduler between.

`map` is that of `multiprocessing.Pool`, with its own chunks.
"""

import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor

from benchmarks.launching import emit
from benchmarks.systems import pool, work

if __name__ == "__main__":
    plain_pool = multiprocessing.get_context("fork").Pool(work.WORKERS)  # before there are threads
    started = work.clock()
    with ProcessPoolExecutor(work.WORKERS) as executor, plain_pool:
        executor.submit(work.empty).result()
        seconds = work.clock() - started
        emit(versions=f"Python {platform.python_version()}")
        emit(work="start", count=1, seconds=seconds)

        mapped = lambda count: work.timed(lambda: plain_pool.map(work.ignore, range(count)))  # noqa: E731
        work.run({**pool.works(executor), "map": mapped})
