"""A job in the test process itself, for tests of the API; and what else several modules are given.

A module asks for one with `pytestmark = pytest.mark.usefixtures("job")`, and may say with INIT how it is to be started.
After each of its tests nothing may be left in it: no object, no actor, no call, and all resources free.
"""

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pytest
from msgspec.structs import asdict

import mpi_runtime
from mpi_runtime.core.client import current
from mpi_runtime.scheduler.protocol.questions import Statistics
from tests.e2e import shared
from tests.helpers import pause_after
from tests.hosts.lab import Lab, lab, missing

SETTLE_S = 30.0
"""How long what was released may take to be gone: actors' processes have to end."""


def statistics() -> dict[str, int]:
    """What there is in the job."""
    return asdict(current.client().questions.ask(Statistics()))


def left() -> dict[str, Any]:
    """What is there and would not be in a job at rest."""
    counts = statistics()
    kinds = ("objects", "actors", "ready", "stored_extents")
    found: dict[str, Any] = {name: counts[name] for name in kinds if counts[name]}
    total, free = mpi_runtime.cluster_resources(), mpi_runtime.available_resources()
    for name in total:
        if free.get(name) != total[name]:
            found[name] = f"{free.get(name)} of {total[name]} free"
    return found


def wait_until_at_rest() -> None:
    """Fail if anything is left in the job."""
    asked = time.monotonic()
    end = asked + SETTLE_S
    while found := left():
        gc.collect()
        if time.monotonic() > end:
            pytest.fail(f"left in the job: {found}")
        pause_after(asked)
        asked = time.monotonic()


@pytest.fixture(scope="module")
def _job(request: pytest.FixtureRequest) -> Iterator[None]:
    # By value, as functions of a program's main module travel: executors need not import modules of tests.
    for module in (request.module, shared):
        cloudpickle.register_pickle_by_value(module)
    with mpi_runtime.init(**getattr(request.module, "INIT", {"num_cpus": 4})):
        # The arena is mapped with the first large object, which opens descriptors.
        assert mpi_runtime.get(mpi_runtime.put(numpy.ones(100_000))).sum() == 100_000
        yield
    for module in (request.module, shared):
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def job(_job: None) -> Iterator[None]:
    """A job that is at rest before and after."""
    yield
    wait_until_at_rest()


@pytest.fixture
def at_rest() -> Callable[[], None]:
    """A function that waits until nothing is left in the job."""
    return wait_until_at_rest


@pytest.fixture
def counts() -> Callable[[], dict[str, int]]:
    """A function that tells what there is in the job."""
    return statistics


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file for which `shared.is_open` waits: made with `touch`, and at the end in any case."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Lab]:
    """Two hosts, for all tests of a module."""
    yield from hosts(2)


@pytest.fixture(scope="module")
def four_hosts() -> Iterator[Lab]:
    """Four hosts, for all tests of a module."""
    yield from hosts(4)


def hosts(count: int) -> Iterator[Lab]:
    """So many hosts; the test is skipped where there can be none."""
    if reason := missing():
        pytest.skip(reason)
    with lab(count) as found:
        yield found
