"""Values of random sizes come and go for long: the store ends with the memory it began with, and never lacks room."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import mpi_runtime
from mpi_runtime import get, put, remote
from mpi_runtime.util import memory_summary
from tests.helpers import wait_until

ARENA = 64 << 20
LIVE = ARENA // 2
"""So much is kept at most."""
STEPS = 3000


def occupied() -> int:
    """The memory that the arena takes of the machine."""
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists the directory is closed
            if os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:mpi_runtime"):
                return os.stat(f"/proc/self/fd/{number}").st_blocks * 512
    raise AssertionError("this process has no arena")


@remote
def make(size: int, mark: int) -> Any:
    return np.full(size, mark, np.uint8)


@pytest.mark.timeout(240)
def test_values_of_all_sizes_come_and_go() -> None:
    mpi_runtime.init(num_cpus=1, object_store_memory=ARENA, object_spilling_directory="")
    try:
        rng = random.Random(1)
        live: list[tuple[Any, int, int]] = []
        moved = 0
        for step in range(STEPS):
            size = int(2 ** rng.uniform(16.1, 22))
            while live and sum(one[1] for one in live) + size > LIVE:
                ref, kept, mark = live.pop(rng.randrange(len(live)))
                array = get(ref)
                assert len(array) == kept
                assert array[0] == array[-1] == mark
                del array, ref
            ref = put(np.full(size, step % 251, np.uint8)) if rng.random() < 0.8 else make.remote(size, step % 251)
            live.append((ref, size, step % 251))
            moved += size
        assert moved > 20 * ARENA
        del ref
        live.clear()
        wait_until(lambda: not memory_summary()[0]["used"], 30, "an empty store")
        assert occupied() <= ARENA + (1 << 20), "spare memory is within the capacity, however it was cut"
        whole = put(np.ones(ARENA - (2 << 20), np.uint8))  # no fragments are in its way
        assert get(whole)[-1] == 1
    finally:
        mpi_runtime.shutdown()
