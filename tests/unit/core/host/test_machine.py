"""No limit of the machine is missed: affinity, control groups of both versions, and what Slurm grants."""

import os
from pathlib import Path

import pytest

from mpi_runtime.core.host import machine
from mpi_runtime.core.host.machine import cpu_count, cpus_allowed, memory_limit


@pytest.fixture
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8, 16)))


def files(root: Path, contents: dict[str, str]) -> str:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(root)


CGROUPS = {
    "none": ({}, 8),
    "v2 unlimited": ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, 8),
    "v2 one and a half": ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 2),
    "v2 a tenth": ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "10000 100000"}, 1),
    "v2 of a group above": (
        {
            "proc/self/cgroup": "0::/a/b/c",
            "sys/fs/cgroup/a/b/c/cpu.max": "max 100000",
            "sys/fs/cgroup/a/cpu.max": "300000 100000",
        },
        3,
    ),
    "v2 in a container": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
    "v2 with the path of the host": ({"proc/self/cgroup": "0::/../x", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
    "v1": (
        {
            "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/docker/1\n0::/",
            "sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us": "100000",
        },
        3,
    ),
    "v1 in a container": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/1",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        2,
    ),
    "v1 unlimited": (
        {
            "proc/self/cgroup": "3:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        8,
    ),
    "v1 of several controllers": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/slurm/uid_1000/job_7/step_0/task_0",
            "sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_7/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_7/cpu.cfs_period_us": "100000",
        },
        4,
    ),
    "v2 beside v1": (
        {
            "proc/self/cgroup": "4:memory:/m\n0::/user.slice/a",
            "sys/fs/cgroup/unified/user.slice/cpu.max": "300000 100000",
        },
        3,
    ),
    "v2 of Slurm": (
        {
            "proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
            "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/cpu.max": "max 100000",
            "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/cpu.max": "500000 100000",
            "sys/fs/cgroup/system.slice/cpu.max": "700000 100000",
        },
        5,
    ),
    "v2 with dots in a name": ({"proc/self/cgroup": "0::/a..b", "sys/fs/cgroup/a..b/cpu.max": "200000 100000"}, 2),
    "more than the mask": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "3200000 100000"}, 8),
    "nonsense": ({"proc/self/cgroup": "what\n0::\n::", "sys/fs/cgroup/cpu.max": "many"}, 8),
}


@pytest.mark.usefixtures("eight_processors")
@pytest.mark.parametrize("name", CGROUPS)
def test_cpu_count_keeps_the_quota(name: str, tmp_path: Path) -> None:
    contents, expected = CGROUPS[name]
    root = files(tmp_path, contents)
    assert cpu_count({}, root) == expected
    assert cpu_count({"SLURM_CPUS_ON_NODE": "1"}, root) == 1


@pytest.mark.usefixtures("eight_processors")
def test_cpu_count_keeps_the_allocation(tmp_path: Path) -> None:
    assert cpus_allowed() == list(range(8, 16))
    assert cpu_count({"SLURM_CPUS_ON_NODE": "4"}, str(tmp_path)) == 4
    assert cpu_count({"SLURM_CPUS_ON_NODE": "64"}, str(tmp_path)) == 8
    assert cpu_count({"SLURM_CPUS_ON_NODE": "four"}, str(tmp_path)) == 8
    assert cpu_count({"SLURM_CPUS_ON_NODE": "9" * 5000}, str(tmp_path)) == 8
    assert cpu_count({"SLURM_CPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "1"}, str(tmp_path)) == 4


def test_this_machine_is_within_its_bounds() -> None:
    allowed = cpus_allowed()
    assert allowed == sorted(set(allowed))
    assert 1 <= cpu_count() <= len(allowed) <= (os.cpu_count() or 1)
    assert 0 < memory_limit() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_grant_of_memory_that_is_none() -> None:
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"):
        assert memory_limit({name: "9" * 5000, "SLURM_CPUS_ON_NODE": "9" * 5000}) == memory_limit({})


def test_memory_limit(tmp_path: Path) -> None:
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit({}, str(tmp_path)) == host
    assert memory_limit({"SLURM_MEM_PER_NODE": "100"}, str(tmp_path)) == 100 << 20
    assert memory_limit({"SLURM_MEM_PER_NODE": "0"}, str(tmp_path)) == host
    assert memory_limit({"SLURM_MEM_PER_CPU": "50", "SLURM_CPUS_ON_NODE": "2"}, str(tmp_path)) == 100 << 20
    assert memory_limit({"SLURM_MEM_PER_CPU": "50"}, str(tmp_path)) == host
    assert memory_limit({"SLURM_MEM_PER_GPU": "60", "SLURM_GPUS_ON_NODE": "2"}, str(tmp_path)) == 120 << 20
    v2 = {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/memory.max": "1000000"}
    assert memory_limit({}, files(tmp_path / "v2", v2)) == 1_000_000
    high = v2 | {"sys/fs/cgroup/a/b/memory.high": "900000", "sys/fs/cgroup/a/memory.high": "max"}
    assert memory_limit({}, files(tmp_path / "high", high)) == 900_000
    v1 = {"proc/self/cgroup": "2:memory:/x", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000"}
    assert memory_limit({}, files(tmp_path / "v1", v1)) == 2_000_000
    job = {
        "proc/self/cgroup": "5:cpuset:/slurm/job_7\n2:memory:/slurm/job_7/step_0/task_0\n0::/",
        "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "3000000",
        "sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "9223372036854771712",
    }
    assert memory_limit({}, files(tmp_path / "job", job)) == 3_000_000, "no limit of v1 is a large number"


def test_a_directory_is_made_where_it_can_be(tmp_path: Path) -> None:
    assert machine.unusable(str(tmp_path / "a" / "b")) == ""
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    assert machine.unusable(str(tmp_path / "file")) == "File exists"
    assert machine.unusable(str(tmp_path / "file" / "b")) == "Not a directory"


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert machine.unusable(str(tmp_path)) == "it cannot be written"
