"""What the kernel says of memory: of the host, and of control groups of both versions, with limits and kills."""

import os
from pathlib import Path

import pytest

from mpi_runtime.core.agent.custody import Custody
from mpi_runtime.core.agent.executors import LocalExecutor
from mpi_runtime.core.agent.memory import PERIOD_S, MemoryWatch
from mpi_runtime.core.host.memory_usage import OWN, Memory, Use
from mpi_runtime.core.transport.tokens import tokens_of
from mpi_runtime.scheduler.protocol.rank_events import MemoryReported

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


def write(root: Path, **files: str) -> None:
    """Files of the kernel's; `__` stands for a slash and `_dot_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def host(root: Path, available: int = 900) -> None:
    write(root, proc__meminfo=f"MemTotal: {1000 * 1024} kB\nMemFree: 5 kB\nMemAvailable: {available * 1024} kB\n")
    write(root, proc__vmstat="nr_free_pages 7\noom_kill 2\n")


def version_1(root: Path, used: int, limit: int, kills: int = 0) -> None:
    write(root, proc__self__cgroup="4:memory:/slurm/job_7\n0::/\n")
    group = root / "sys/fs/cgroup/memory/slurm/job_7"
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (group / "memory.usage_in_bytes").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {4 * MIB}\ntotal_active_file {6 * MIB}\n")
    (group / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
    (group.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")


def version_2(root: Path, used: int, limit: str, kills: int = 0) -> None:
    write(root, proc__self__cgroup="0::/system.slice/job_7/step_0\n")
    group = root / "sys/fs/cgroup/system.slice/job_7"
    (group / "step_0").mkdir(parents=True, exist_ok=True)
    (group / "step_0/memory.max").write_text("max\n")
    (group / "step_0/memory.events").write_text(f"low 0\noom 3\noom_kill {kills}\noom_group_kill 0\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {4 * MIB}\nactive_file {6 * MIB}\n")


def test_of_the_host(tmp_path: Path) -> None:
    host(tmp_path, available=100)
    memory = Memory(root=str(tmp_path))
    assert memory.fullest([]) == Use(900 * MIB, 1000 * MIB, "the host")
    assert memory.kills() == 2


def test_of_a_control_group_of_version_1(tmp_path: Path) -> None:
    host(tmp_path)
    version_1(tmp_path, 90 * MIB, 100 * MIB, kills=1)
    memory = Memory(root=str(tmp_path))
    where = f"control group {tmp_path}/sys/fs/cgroup/memory/slurm/job_7"
    assert memory.fullest([]) == Use(80 * MIB, 100 * MIB, where)
    assert memory.kills() == 1


def test_of_a_control_group_of_version_2_above_ours(tmp_path: Path) -> None:
    host(tmp_path)
    version_2(tmp_path, 90 * MIB, str(100 * MIB), kills=4)
    memory = Memory(root=str(tmp_path))
    where = f"control group {tmp_path}/sys/fs/cgroup/system.slice/job_7"
    assert memory.fullest([]) == Use(80 * MIB, 100 * MIB, where)
    assert memory.kills() == 4


def test_of_a_control_group_that_is_slowed_down(tmp_path: Path) -> None:
    """A systemd unit with `MemoryHigh=`: above it the kernel takes pages away, and nothing runs at speed any more."""
    host(tmp_path)
    version_2(tmp_path, 60 * MIB, "max")
    group = tmp_path / "sys/fs/cgroup/system.slice/job_7"
    (group / "memory.high").write_text(f"{100 * MIB}\n")
    assert Memory(root=str(tmp_path)).fullest([]) == Use(50 * MIB, 100 * MIB, f"control group {group}")


@pytest.mark.parametrize("limit", ["max", ""])
def test_a_control_group_without_a_limit_does_not_count(tmp_path: Path, limit: str) -> None:
    host(tmp_path)
    version_2(tmp_path, 90 * MIB, limit)
    assert Memory(root=str(tmp_path)).fullest([]).where == "the host"


def test_of_a_limit_of_the_jobs_own(tmp_path: Path) -> None:
    host(tmp_path)
    write(tmp_path, proc__41__statm="900 500 100 1 0 300 0", proc__42__statm="900 300 100 1 0 300 0")
    memory = Memory(1000 * PAGE, root=str(tmp_path))
    assert memory.fullest([41, 42, 43]) == Use(600 * PAGE, 1000 * PAGE, "memory_limit of init()")


def test_of_a_job_inside_a_call_only_its_own_limit_counts(tmp_path: Path) -> None:
    """Children of an executor count with it, and the full host does not."""
    host(tmp_path)
    write(tmp_path, proc__41__statm="900 500 100 1 0 300 0", proc__42__statm="900 300 100 1 0 300 0")
    write(tmp_path, proc__41__task__41__children="42 ")
    memory = Memory(100_000 * PAGE, root=str(tmp_path), is_alone=False)
    assert memory.fullest([41]) == Use(600 * PAGE, 100_000 * PAGE, "memory_limit of init()")
    assert Memory(100_000 * PAGE, root=str(tmp_path)).fullest([41]).where == "the host"


def test_the_largest_processes(tmp_path: Path) -> None:
    host(tmp_path)
    for number in range(1, 6):
        write(tmp_path, **{f"proc__{number}__statm": f"900 {number * 100} 50", f"proc__{number}__comm": f"p{number}\n"})
    memory = Memory(root=str(tmp_path))
    largest = memory.largest(Use(1, 1, "the host"), [1])
    assert [(pid, name) for pid, name, _ in largest] == [(5, "p5"), (4, "p4"), (3, "p3")]
    assert largest[0][2] == 450 * PAGE
    write(tmp_path, proc__1__task__1__children="3 ")
    assert [pid for pid, _, _ in memory.largest(Use(1, 1, OWN), [1])] == [3, 1], "others do not count"


class Busy(LocalExecutor):
    """An executor with calls."""

    def __init__(self, *calls: bytes) -> None:
        custody = Custody(tokens_of(-1), lambda frame: None)
        custody.ids.extend(calls)
        super().__init__(1, 0, -1, custody)
        self.pid = os.getpid()


class Watch:
    """A watch over files that a test writes, with a clock."""

    def __init__(self, root: Path) -> None:
        self.now_s = 100.0
        self.said: list[MemoryReported] = []
        self.watch = MemoryWatch(3, Memory(root=str(root)), 0.95, lambda: self.now_s, self.said.append)

    def turn(self, *executors: Busy) -> float | None:
        self.now_s += PERIOD_S
        return self.watch.turn(executors)


def test_nothing_is_looked_at_while_nothing_runs(tmp_path: Path) -> None:
    host(tmp_path, available=10)
    watch = Watch(tmp_path)
    assert watch.turn() is None
    assert watch.turn(Busy()) is None
    assert not watch.said
    assert watch.turn(Busy(b"call")) == PERIOD_S
    assert len(watch.said) == 1


def test_it_is_said_while_it_lasts_and_once_when_it_is_over(tmp_path: Path) -> None:
    host(tmp_path)
    watch = Watch(tmp_path)
    watch.turn(Busy(b"call"))
    assert not watch.said
    host(tmp_path, available=20)
    watch.turn(Busy(b"call"))
    watch.turn(Busy())  # nothing runs, but who waits must hear when it is over
    host(tmp_path)
    for _ in range(3):
        watch.turn(Busy(b"call"))
    assert [event.is_tight for event in watch.said] == [True, True, False]
    assert watch.said[0].rank == 3
    assert watch.said[0].used == 980 * MIB


def test_a_kill_of_the_kernel_is_told_apart(tmp_path: Path) -> None:
    host(tmp_path)
    version_1(tmp_path, 90 * MIB, 100 * MIB, kills=1)
    watch = Watch(tmp_path)
    watch.turn(Busy(b"call"))
    assert not watch.watch.has_killed()
    version_1(tmp_path, 90 * MIB, 100 * MIB, kills=2)
    assert "by the kernel, since the memory was used up: the limit is 100 MiB" in watch.watch.has_killed()
    watch.turn(Busy(b"call"))
    assert watch.watch.has_killed(), "the death may be heard of a little later than the kill is counted"
    watch.turn(Busy(b"call"))
    assert not watch.watch.has_killed(), "a later kill is somebody else's"
