"""The work of anything that is a `concurrent.futures.Executor`."""

from concurrent.futures import Executor

from benchmarks.systems.work import Work, clock, empty, repeated


def works(executor: Executor) -> dict[str, Work]:
    """Tasks, submitted one by one: what `map` with a chunk size does is fewer, larger tasks."""

    def tasks(count: int) -> float:
        started = clock()
        for future in [executor.submit(empty) for _ in range(count)]:
            future.result()
        return clock() - started

    return {"tasks": tasks, "task": repeated(lambda: executor.submit(empty).result())}
