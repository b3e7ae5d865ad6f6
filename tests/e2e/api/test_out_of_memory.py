"""Memory that runs out: by a limit of the job's own, and in control groups, where the kernel kills otherwise."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import run_program

GROUPS = Path("/sys/fs/cgroup/memory")
"""Where control groups of version 1 are."""

HEAD = """
import os, time
import mpi_runtime as ray

def fill(megabytes, seconds=2.0):
    data = bytearray(megabytes << 20)
    data[::4096] = b"x" * len(data[::4096])
    time.sleep(seconds)
    return megabytes

def fails(ref):
    try:
        return ray.get(ref, timeout=60)
    except ray.errors.OutOfMemoryError as error:
        return str(error)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of version 1 with 300 MiB."""
    if not os.access(GROUPS / "cgroup.procs", os.W_OK):
        pytest.skip("no control groups of version 1 that may be written: they need root")
    made = GROUPS / f"mpi_runtime_{uuid.uuid4().hex[:8]}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(300 << 20))
    yield made
    made.rmdir()


def output_in(group: Path, threshold: float, megabytes: int) -> str:
    """Run a job in a control group, in which a task takes too much memory and a small one succeeds. Its output."""
    source = f"""
        open({str(group / "cgroup.procs")!r}, "w").write("0")
        ray.init(num_cpus=2, object_store_memory=10 << 20, memory_usage_threshold={threshold})
        print(fails(ray.remote(max_retries=0)(fill).remote({megabytes}, 60)))
        print("after", ray.get(ray.remote(fill).remote(1, 0.0)))
        """
    done = run_program(HEAD + source.replace("\n        ", "\n")).expect(0)
    assert "after 1" in done.stdout
    return done.stdout


@pytest.mark.dies("memory")
def test_a_task_that_is_too_large_is_ended_and_says_why() -> None:
    source = """
        ray.init(num_cpus=2, memory_limit=300 << 20)
        large = ray.remote(max_retries=1)(fill).remote(600, 60)
        print(fails(large))
        print("after", ray.get(ray.remote(fill).remote(1, 0.0)))
        """
    done = run_program(HEAD + source.replace("\n        ", "\n")).expect(0)
    assert "was ended because the memory of" in done.stdout
    assert "of 300.0 MiB of memory are used (memory_limit of init(), " in done.stdout
    assert "Largest processes: " in done.stdout
    assert "It was run 2 times; max_retries is 1" in done.stdout
    assert "after 1" in done.stdout


def test_tasks_that_fit_one_at_a_time_all_end() -> None:
    """They cost no retry, though there is room for one only, and four are started at a time."""
    source = """
        ray.init(num_cpus=4, memory_limit=400 << 20)
        print(ray.get([ray.remote(max_retries=1)(fill).remote(250, 1.0) for _ in range(6)], timeout=100))
        """
    done = run_program(HEAD + source.replace("\n        ", "\n")).expect(0)
    assert done.stdout.strip() == str([250] * 6)
    assert "No more calls are started there until there is room." in done.stderr


def test_a_control_group_that_is_nearly_full(group: Path) -> None:
    printed = output_in(group, threshold=0.6, megabytes=200)
    assert f"of 300.0 MiB of memory are used (control group {group}, " in printed


@pytest.mark.dies("memory")
def test_a_kill_of_the_kernel_in_a_control_group(group: Path) -> None:
    """It kills the executor, not its rank, and the error says so."""
    printed = output_in(group, threshold=0, megabytes=500)
    assert "was killed by signal 9 (SIGKILL: Killed), by the kernel, since the memory was used up" in printed
    assert f"the limit is 300 MiB (control group {group})" in printed


def test_a_kill_by_somebody_else_is_a_crash() -> None:
    source = """
        ray.init(num_cpus=1)
        try:
            ray.get(ray.remote(max_retries=0)(lambda: os.kill(os.getpid(), 9)).remote())
        except ray.errors.OutOfMemoryError:
            print("memory")
        except ray.errors.WorkerCrashedError:
            print("crash")
        """
    assert run_program(HEAD + source.replace("\n        ", "\n")).expect(0).stdout == "crash\n"


@pytest.mark.parametrize("value", ["2", "-1", "much"])
def test_a_threshold_is_a_share(value: str) -> None:
    environment = {"MPI_RUNTIME_MEMORY_USAGE_THRESHOLD": value}
    done = run_program("import mpi_runtime as ray; ray.init()", env=environment)
    assert done.returncode == 1
    assert "memory_usage_threshold must be" in done.stderr.lower() or "MEMORY_USAGE_THRESHOLD is 'much'" in done.stderr
