"""Large numbers of everything, with the memory of the head: `pytest -s` prints the figures."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_runtime import ActorHandle, get, put, remote, wait
from mpi_runtime.core.client import current
from mpi_runtime.core.driver import session
from mpi_runtime.scheduler.protocol.questions import Statistics
from tests.e2e.shared import Counter, hold

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.slow, pytest.mark.timeout(240)]

INIT = {"num_cpus": 4, "object_store_memory": 1200 << 20}


def head_rss_mib() -> float:
    """Resident memory of the head, without the arena's pages."""
    running = session._session
    assert isinstance(running, session.Session)
    assert running is not None
    assert running.head._process is not None
    lines = Path(f"/proc/{running.head._process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].split()[0]) / 1024


@pytest.fixture(autouse=True)
def _figures(job: None, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Print how long the test took, and what memory the head had: before, at most, after."""
    before = most = head_rss_mib()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.1):
            most = max(most, head_rss_mib())

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    ended.set()
    thread.join()
    with capsys.disabled():
        print(
            f"\n{request.node.name}: {seconds:.1f} s; head {before:.0f} MiB before, {most:.0f} at most, "
            f"{head_rss_mib():.0f} after"
        )


@remote
def empty() -> None:
    pass


@remote
def add(a: Any, b: Any) -> Any:
    return a + b


def test_10_000_empty_tasks() -> None:
    assert get([empty.remote() for _ in range(10_000)]) == [None] * 10_000


def test_fan_in_of_10_000_refs_as_arguments_and_in_a_list() -> None:
    @remote
    def total(*values: int) -> int:
        return sum(values)

    @remote
    def total_of(refs: list[Any]) -> Any:
        return sum(get(refs))

    refs = [add.remote(n, 0) for n in range(10_000)]
    assert get([total.remote(*refs), total_of.remote(refs)]) == [sum(range(10_000))] * 2


def test_fan_in_of_values_that_are_not_small() -> None:
    @remote
    def make(n: int) -> bytes:
        return bytes([n % 256]) * 50_000

    @remote
    def total(*values: bytes) -> int:
        return sum(value[0] for value in values)

    refs = [make.remote(n) for n in range(1_000)]
    assert get(total.remote(*refs)) == sum(n % 256 for n in range(1_000))
    assert sum(value[0] for value in get(refs)) == sum(n % 256 for n in range(1_000))


def test_chain_of_5_000() -> None:
    ref: Any = put(0)
    for _ in range(5_000):
        ref = add.remote(ref, 1)
    assert get(ref) == 5_000


def test_chain_of_5_000_nested_refs() -> None:
    ref: Any = put("end")
    for _ in range(5_000):
        ref = put([ref])
    for _ in range(5_000):
        (ref,) = get(ref)
    assert get(ref) == "end"


def test_100_000_queued_tasks(gate: Path) -> None:
    held = [hold.remote(gate) for _ in range(4)]
    refs = [add.remote(n, 1) for n in range(100_000)]
    assert wait(held, timeout=0)[0] == []
    gate.touch()
    assert get(refs[:10]) == list(range(1, 11))
    assert get(refs) == list(range(1, 100_001))


def test_1_000_refs_of_1_mb() -> None:
    refs = [put(np.full(125_000, n, np.int64)) for n in range(1_000)]
    assert all(get(ref)[-1] == n for n, ref in enumerate(refs))
    assert [array[0] for array in get(refs)] == list(range(1_000))

    @remote
    def last(*arrays: Any) -> list[int]:
        return [int(array[-1]) for array in arrays]

    assert get(last.remote(*refs)) == list(range(1_000))


def test_1_000_results_of_1_mb() -> None:
    @remote
    def make(n: int) -> Any:
        return np.full(125_000, n, np.int64)

    refs = [make.remote(n) for n in range(1_000)]
    assert sum(int(array[0]) for array in get(refs)) == sum(range(1_000))


def test_400_actors() -> None:
    @remote
    class Cell:
        def __init__(self, n: int) -> None:
            self.n = n

        def meet(self, other: ActorHandle | None) -> None:
            self.other = other

        def value(self) -> int:
            return self.n

        def both(self) -> Any:
            return self.n + (get(self.other.value.remote()) if self.other is not None else 0)

    cells = [Cell.remote(n) for n in range(400)]
    get([cell.meet.remote(cells[n + 1] if n < 399 else None) for n, cell in enumerate(cells)])
    assert get([cell.both.remote() for cell in cells]) == [2 * n + 1 for n in range(399)] + [399]
    counts = current.client().questions.ask(Statistics())
    assert counts.actors == 400


def test_actor_calls_of_10_000() -> None:
    counter = Counter.remote()
    assert get([counter.add.remote() for _ in range(10_000)]) == list(range(1, 10_001))


def test_tasks_that_make_tasks() -> None:
    @remote
    def spread(n: int) -> Any:
        return sum(get([add.remote(k, 1) for k in range(n)]))

    assert get([spread.remote(200) for _ in range(50)]) == [sum(range(1, 201))] * 50
