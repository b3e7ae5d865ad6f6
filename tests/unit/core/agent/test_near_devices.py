"""Executors with GPUs run on the processors that are near to them."""

import pytest

from mpi_runtime.core.executor.fork_messages import Fork
from mpi_runtime.core.executor.process_setup import near_devices
from mpi_runtime.gpu.device import Device


@pytest.mark.parametrize(("devices", "threads", "cpus"), [
    ([(0, 1, 2)], 1, [0, 1]),
    ([(0,), (3,)], 1, [0, 3]),
    ([(0,)], 2, [0, 1, 3, 5]),  # it has two threads, and one of them would wait
    ([(2, 4)], 1, [0, 1, 3, 5]),  # none that the job may use
    ([()], 1, [0, 1, 3, 5]),  # nothing is known
    ([], 1, [0, 1, 3, 5]),
])  # fmt: skip
def test_processors_near_to_devices(devices: list[tuple[int, ...]], threads: int, cpus: list[int]) -> None:
    known = [Device(f"GPU-{number}", cpus=near) for number, near in enumerate(devices)]
    assert near_devices(Fork(1, {}, [], threads, [0, 1, 3, 5], devices=known)) == cpus
