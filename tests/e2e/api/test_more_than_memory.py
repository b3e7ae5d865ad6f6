"""Values that the object store has no room for: written to disk, read back, and gone with the job."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpi_runtime
from mpi_runtime import get, put, remote
from mpi_runtime.errors import ObjectStoreFullError
from tests.helpers import ROOT, start_command
from tests.hosts.namespaces import missing

MIB = 1 << 20
ARENA = 32 * MIB
BLOCK = 4 * MIB
BLOCKS = 3 * ARENA // BLOCK


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A job with a small arena that writes to this directory, where nothing is ever seen."""
    mpi_runtime.init(num_cpus=2, object_store_memory=ARENA, object_spilling_directory=str(tmp_path))
    yield tmp_path
    mpi_runtime.shutdown()
    assert not list(tmp_path.iterdir())


@remote
def make(seed: int) -> Any:
    return np.full(BLOCK // 8, seed, np.int64)


@remote
def total(block: Any) -> int:
    return int(block.sum())


@pytest.mark.timeout(120)
def test_results_of_three_times_the_store_are_summed(directory: Path) -> None:
    blocks = [make.remote(n) for n in range(BLOCKS)]
    assert get([total.remote(block) for block in blocks]) == [n * BLOCK // 8 for n in range(BLOCKS)]
    assert get([total.remote(block) for block in reversed(blocks)]) == [n * BLOCK // 8 for n in reversed(range(BLOCKS))]


@pytest.mark.timeout(120)
def test_values_of_the_driver_come_back(directory: Path) -> None:
    refs = [put(np.full(BLOCK // 8, n, np.int64)) for n in range(BLOCKS)]
    for n, ref in enumerate(refs):
        array = get(ref)
        assert (array[0], array[-1]) == (n, n)
    assert not list(directory.iterdir())


@pytest.mark.timeout(180)
def test_three_times_the_store_is_sorted(directory: Path) -> None:
    parts = 16

    @remote
    def draw(seed: int) -> Any:
        return np.random.default_rng(seed).integers(0, 1 << 40, BLOCK // 8)

    @remote(num_returns=parts)
    def split(block: Any) -> Any:
        block = np.sort(block)
        edges = np.searchsorted(block, [(index << 40) // parts for index in range(1, parts)])
        return [part.copy() for part in np.split(block, edges)]

    @remote
    def merge(*pieces: Any) -> Any:
        return np.sort(np.concatenate(pieces))

    @remote
    def check(piece: Any) -> tuple[int, int, int, bool]:
        return len(piece), int(piece[0]), int(piece[-1]), bool((piece[1:] >= piece[:-1]).all())

    pieces = [split.remote(draw.remote(seed)) for seed in range(BLOCKS)]
    merged = [merge.remote(*(row[index] for row in pieces)) for index in range(parts)]
    del pieces
    told = get([check.remote(one) for one in merged])
    assert sum(length for length, _, _, _ in told) == BLOCKS * BLOCK // 8
    assert all(is_sorted for _, _, _, is_sorted in told)
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(told))


@pytest.mark.timeout(120)
def test_what_an_executor_looks_at_stays(directory: Path) -> None:
    @remote
    class Keeper:
        def keep(self, block: Any) -> None:
            self.block = block

        def look(self) -> int:
            return int(self.block.sum())

    keeper = Keeper.remote()
    get(keeper.keep.remote(make.remote(7)))
    refs = [make.remote(n) for n in range(BLOCKS)]
    get([total.remote(ref) for ref in refs])
    assert get(keeper.look.remote()) == 7 * BLOCK // 8


@pytest.mark.timeout(120)
def test_arrays_of_three_times_the_store_are_held_at_once(directory: Path) -> None:
    """All memory is in use by views, so that no value on disk finds room there: it is read in the file."""

    @remote
    def hold(refs: list[Any]) -> list[int]:
        held = get(refs)
        return [int(array.sum()) for array in held]

    refs = [make.remote(n) for n in range(BLOCKS)]
    assert get(hold.remote(refs)) == [n * BLOCK // 8 for n in range(BLOCKS)]
    held = [get(ref) for ref in refs]
    del refs
    assert [int(array.sum()) for array in held] == [n * BLOCK // 8 for n in range(BLOCKS)]
    assert not any(array.flags.writeable for array in held)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"object_spilling_directory .*/file/spill: Not a directory"):
        mpi_runtime.init(num_cpus=1, object_spilling_directory=str(tmp_path / "file" / "spill"))
    with mpi_runtime.init(num_cpus=1, object_spilling_directory=str(tmp_path / "new" / "spill")):
        assert (tmp_path / "new" / "spill").is_dir()


@pytest.mark.timeout(120)
def test_without_a_disk_the_store_is_full_and_nothing_else_is_lost() -> None:
    with mpi_runtime.init(num_cpus=2, object_store_memory=ARENA, object_spilling_directory=""):
        refs = [put(np.full(BLOCK // 8, n, np.int64)) for n in range(6)]
        with pytest.raises(
            ObjectStoreFullError, match=r"no room .* Nothing can be written to disk: no directory"
        ) as full:
            put(np.zeros(3 * BLOCK, np.int8))
        said = str(full.value).split("The largest: ")[1]
        line = rf"made by {re.escape(__file__)}:\d+ in \S+; kept by driver"
        assert re.match(rf"4.0 MiB object {refs[0].hex()} \({line}\), 4.0 MiB object ", said)
        assert [int(get(ref)[0]) for ref in refs] == list(range(6))
        refs.clear()
        assert len(get(put(np.zeros(3 * BLOCK, np.int8)))) == 3 * BLOCK


SMALL_DISK = """
import sys, numpy as np, mpi_runtime as ray
from mpi_runtime.errors import ObjectStoreFullError

MIB = 1 << 20
ray.init(num_cpus=1, object_store_memory=16 * MIB, object_spilling_directory=sys.argv[1])

@ray.remote
def make(seed):
    return np.full(MIB, seed, np.uint8)

kept = []
try:
    for number in range(200):
        kept.append(ray.put(np.full(MIB, number, np.uint8)))
except ObjectStoreFullError as error:
    print(error)
print(len(kept))
try:
    ray.get(make.remote(1))
except ObjectStoreFullError as error:  # a result finds no room either, and its call says so
    print("result:", sys.argv[1] in str(error))
assert [int(ray.get(ref)[-1]) for ref in kept] == list(range(len(kept)))
held = ray.get(kept)
assert [int(array[-1]) for array in held] == list(range(len(kept)))
del kept[::2], held
assert int(ray.get(make.remote(7))[0]) == 7
print("goes on")
"""


@pytest.mark.timeout(120)
@pytest.mark.hosts
def test_a_full_disk_is_told_with_who_holds_what_and_nothing_is_lost(tmp_path: Path) -> None:
    """A disk of 40 MiB, behind a store of 16 MiB."""
    if reason := missing(("unshare", "mount"), "util-linux"):
        pytest.skip(reason)
    disk, program = tmp_path / "disk", tmp_path / "app.py"
    disk.mkdir()
    program.write_text(SMALL_DISK)
    mount = f'mount -t tmpfs -o size=40m tmpfs {disk} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, str(program), str(disk)]
    with start_command(command, cwd=tmp_path) as started:
        refusal, count, result, end = started.finish(timeout=100).expect().stdout.splitlines()
    assert "has no room for an object of" in refusal
    assert f"Nothing can be written to disk: {disk}: No space left on device" in refusal or "would be left" in refusal
    assert f"(made by {program}:15 in <module>; kept by driver)" in refusal
    assert 40 <= int(count) <= 60  # what fits memory and disk
    assert (result, end) == ("result: True", "goes on")


KILLED = """
import sys, time, numpy as np, mpi_runtime
mpi_runtime.init(num_cpus=1, object_store_memory=16 << 20, object_spilling_directory=sys.argv[1])
refs = [mpi_runtime.put(np.zeros(4 << 20, np.int8)) for _ in range(12)]
print("full", flush=True)
time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_nothing_is_left_when_the_program_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"full\n"
        assert not list(tmp_path.iterdir())
        os.kill(process.pid, signal.SIGKILL)
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(180)
def test_what_is_put_got_and_dropped_leaves_nothing(directory: Path) -> None:
    """Sizes and orders at random, in and beside memory: in the end all is as in the beginning."""
    rng = np.random.default_rng(1)
    kept: list[Any] = []
    for step in range(600):
        action = rng.integers(4)
        if action < 2:
            size = int(2 ** rng.uniform(10, 22))
            kept.append((size, put(np.full(size, size % 100, np.int8))))
        elif kept:
            size, ref = kept.pop(int(rng.integers(len(kept)))) if action == 2 else kept[int(rng.integers(len(kept)))]
            array = get(ref)
            assert (len(array), array[-1]) == (size, size % 100), step
            del array, ref
    assert mpi_runtime.util.memory_summary()[0].objects_on_disk > 0
    kept.clear()
    until = time.monotonic() + 20
    while True:
        (node,) = mpi_runtime.util.memory_summary()
        if (node.used, node.objects, node.on_disk, node.in_flight, node.being_written) == (0, 0, 0, 0, 0):
            break
        assert time.monotonic() < until, node
        time.sleep(0.05)
    assert mpi_runtime.available_resources()["object_store_memory"] == ARENA
