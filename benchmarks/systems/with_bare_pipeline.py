"""The bare pipeline: what this design costs with no feature at all, so that there is a bound to compare with.

Driver, head and two executors over socketpairs, batches of pickled tuples, 64 tasks in flight for each executor. No
object store, no references, no errors, no resources. Beside it the speed of copying memory, the bound of `put`.
"""

import os
import pickle
import platform
import selectors
import socket
import struct
from collections import deque
from typing import Any

import numpy as np

from benchmarks.launching import emit
from benchmarks.systems import work
from benchmarks.systems.work import LARGE_BYTES, Work, clock, timed

LENGTH = struct.Struct("<I")
IN_FLIGHT = 64
BATCH = 64

Batch = list[tuple[Any, ...]]


class Line:
    """One end of a socketpair that carries pickled batches."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.rest = b""
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 1 << 20)

    def send(self, batch: Batch) -> None:
        """Send one batch, waiting while the line is full."""
        data = pickle.dumps(batch, 5)
        self.end.sendall(LENGTH.pack(len(data)) + data)

    def receive(self) -> list[Batch]:
        """Wait for something, and return the batches that are complete."""
        data = self.end.recv(1 << 18)
        if not data:
            os._exit(0)
        data, at, batches = self.rest + data, 0, []
        while len(data) - at >= LENGTH.size:
            stop = at + LENGTH.size + LENGTH.unpack_from(data, at)[0]
            if stop > len(data):
                break
            batches.append(pickle.loads(memoryview(data)[at + LENGTH.size : stop]))
            at = stop
        self.rest = data[at:]
        return batches


def execute(head: Line) -> None:
    """An executor: run what comes, send back what it gave."""
    functions = {1: work.empty}
    while True:
        for batch in head.receive():
            head.send([(task, pickle.dumps(functions[f](*pickle.loads(payload)), 5)) for task, f, payload in batch])


def schedule(driver: Line, executors: list[Line]) -> None:
    """The head: hand each task to the executor with the least in flight."""
    selector = selectors.DefaultSelector()
    for who, line in enumerate([*executors, driver]):
        selector.register(line.end, selectors.EVENT_READ, who)
    ready: deque[tuple[Any, ...]] = deque()
    in_flight = [0] * len(executors)
    values: dict[int, bytes | None] = {}
    while True:
        results: Batch = []
        for key, _ in selector.select():
            if key.data == len(executors):
                for batch in driver.receive():
                    ready.extend(batch)
                    values.update((task[0], None) for task in batch)
            else:
                for batch in executors[key.data].receive():
                    in_flight[key.data] -= len(batch)
                    values.update(batch)
                    results += batch
        going: list[Batch] = [[] for _ in executors]
        while ready and min(in_flight) < IN_FLIGHT:
            least = in_flight.index(min(in_flight))
            in_flight[least] += 1
            going[least].append(ready.popleft())
        for line, batch in zip(executors, going, strict=True):
            if batch:
                line.send(batch)
        if results:
            driver.send(results)


def start() -> Line:
    """Fork the head and its executors; the driver's end of the line to the head."""
    mine, heads = socket.socketpair()
    if os.fork():
        heads.close()
        return Line(mine)
    mine.close()
    executors = []
    for _ in range(work.WORKERS):
        near, far = socket.socketpair()
        if os.fork() == 0:
            near.close()
            heads.close()
            execute(Line(far))
        far.close()
        executors.append(Line(near))
    schedule(Line(heads), executors)
    raise AssertionError("unreachable: the head ends with its line")


def works(head: Line) -> dict[str, Work]:
    """Tasks, and copying into memory that has been written before."""
    source, target = np.ones(LARGE_BYTES // 8), np.zeros(LARGE_BYTES // 8)
    next_task = iter(range(10**9))

    def tasks(count: int) -> float:
        started = clock()
        batch: Batch = []
        for _ in range(count):
            batch.append((next(next_task), 1, pickle.dumps((), 5)))
            if len(batch) == BATCH:
                head.send(batch)
                batch = []
        if batch:
            head.send(batch)
        values: dict[int, None] = {}
        while len(values) < count:
            for results in head.receive():
                for task, value in results:
                    values[task] = pickle.loads(value)
        return clock() - started

    return {
        "tasks": tasks,
        "task": work.repeated(lambda: tasks(1)),
        "memcpy": work.repeated(lambda: np.copyto(target, source)),
    }


if __name__ == "__main__":
    emit(versions=f"Python {platform.python_version()}")
    line = start()
    all_works = works(line)
    emit(work="start", count=1, seconds=timed(lambda: all_works["task"](1)))
    work.run(all_works)
