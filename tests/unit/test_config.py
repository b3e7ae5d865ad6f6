"""The configuration is checked once, the environment is read in one place, and no limit of the machine is missed."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import config
from mpi_runtime.config import Config, child_environment, cpu_count, cpus_allowed, from_bytes, from_init, to_bytes

GIB = 1 << 30


def test_defaults() -> None:
    made = from_init()
    assert made == Config()
    assert (made.num_cpus, made.inline_bytes_max, made.log_to_driver, made.start_timeout_s) == (None, 65536, True, 60.0)
    assert from_init(num_cpus=None, resources=None) == Config()
    with pytest.raises(AttributeError, match="immutable"):
        made.num_cpus = 3  # type: ignore[misc]


def test_travels_to_the_other_ranks() -> None:
    made = from_init(
        num_cpus=0.5, num_gpus=8, memory=GIB, resources={"node:a": 1, "disk": 2.5}, labels={"zone": "a"},
        object_store_memory=2 * GIB, inline_bytes_max=0, log_to_driver=False, namespace="n", start_timeout_s=5,
    )  # fmt: skip
    assert from_bytes(to_bytes(made)) == made
    assert from_bytes(to_bytes(Config())) == Config()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"num_cpus": -1}, ValueError, "num_cpus must be .* 0 or more, not -1"),
        ({"num_cpus": True}, TypeError, "num_cpus must be a number.* not True"),
        ({"num_cpus": "4"}, TypeError, "num_cpus .* not '4'"),
        ({"num_gpus": math.nan}, ValueError, "num_gpus .* finite .* not nan"),
        ({"num_gpus": math.inf}, ValueError, "num_gpus .* finite .* not inf"),
        ({"memory": 1.5}, TypeError, "memory .* whole number of bytes, not 1.5"),
        ({"object_store_memory": -5}, ValueError, "object_store_memory .* 0 or more bytes, not -5"),
        ({"object_store_memory": True}, TypeError, "object_store_memory .* not True"),
        ({"inline_bytes_max": -1}, ValueError, "inline_bytes_max"),
        ({"resources": {"CPU": 1}}, ValueError, "resources must not name 'CPU': use num_cpus"),
        ({"resources": {"GPU": 1}}, ValueError, "use num_gpus"),
        ({"resources": {"memory": 1}}, ValueError, "use memory"),
        ({"resources": {"disk": -1}}, ValueError, r"resources\['disk'\] .* not -1"),
        ({"resources": {"disk": True}}, TypeError, r"resources\['disk'\] .* not True"),
        ({"resources": {3: 1}}, TypeError, "resources .* names .* not 3"),
        ({"resources": [("disk", 1)]}, TypeError, "resources must be a dict"),
        ({"labels": {"zone": 1}}, TypeError, r"labels\['zone'\] must be a string, not 1"),
        ({"labels": {"": "x"}}, TypeError, "labels"),
        ({"log_to_driver": 1}, TypeError, "log_to_driver must be True or False, not 1"),
        ({"namespace": 1}, TypeError, "namespace must be a string"),
        ({"start_timeout_s": 0}, ValueError, "start_timeout_s must be more than 0"),
        ({"num_cpu": 1}, TypeError, "no argument 'num_cpu'; did you mean 'num_cpus'"),
        ({"zzz": 1}, TypeError, "no argument 'zzz'; there are: num_cpus"),
    ],
)
def test_refusals_name_argument_value_and_what_is_allowed(
    arguments: dict[Any, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        from_init(**arguments)


def test_defaults_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.NUM_CPUS, "3")
    monkeypatch.setenv(config.START_TIMEOUT_S, "7.5")
    assert from_init() == Config(num_cpus=3, start_timeout_s=7.5)
    assert from_init(num_cpus=2).num_cpus == 2
    monkeypatch.setenv(config.NUM_CPUS, "many")
    with pytest.raises(ValueError, match="MPI_RUNTIME_NUM_CPUS is 'many'"):
        from_init()


def test_labels_of_all_hosts_and_of_one() -> None:
    everywhere = Config(labels={"zone": "a", "disk": "ssd"})
    assert config.labels(everywhere, {}) == {"zone": "a", "disk": "ssd"}
    stated = config.labels(everywhere, {config.LABELS: "zone=b, rack = 7,"})
    assert stated == {"zone": "b", "disk": "ssd", "rack": "7"}


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "hostname=a", "a=b,ray.io/node-id=c"])
def test_labels_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="must be like zone=a,disk=ssd"):
        config.labels(Config(), {config.LABELS: text})
    monkeypatch.setenv(config.LABELS, text)
    with pytest.raises(ValueError, match=config.LABELS):
        from_init()


def test_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config.environment()
    monkeypatch.setenv("MPI_RUNTIME_PROBE", "1")
    assert "MPI_RUNTIME_PROBE" not in before
    assert config.environment()["MPI_RUNTIME_PROBE"] == "1"


def test_settings_of_the_user_reach_the_child() -> None:
    kept = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "I_MPI_FABRICS": "shm", "MPICH_PORT": "1",
        "HYDRA_IFACE": "ib0", "SLURM_JOB_ID": "5", "SLURM_MPI_TYPE": "pmix", "CUDA_VISIBLE_DEVICES": "1", "PMIXER": "",
        "MPI_RUNTIME_FIND_GPUS": "never", "OPAL_PREFIX": "/opt/openmpi", "LD_LIBRARY_PATH": "/opt/openmpi/lib",
    }  # fmt: skip
    assert child_environment(kept | {"OMPI_MCA_ess_base_jobid": "1", "PMI_FD": "4"}) == kept


def test_paths_of_the_installed_mpi_do_not_reach_the_child() -> None:
    ours = f"{sys.prefix}/lib"
    assert child_environment({"OPAL_PREFIX": sys.prefix, "LD_LIBRARY_PATH": f"{ours}:{ours}"}) == {}
    child = child_environment({"OPAL_PREFIX": sys.prefix, "LD_LIBRARY_PATH": f"{ours}:/opt/lib"})
    assert child == {"LD_LIBRARY_PATH": "/opt/lib"}


def test_driver_leaves_the_launcher() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from mpi_runtime.config import leave_launcher\n"
        "leave_launcher()\n"
        'child = \'import os; print(sorted(n for n in os.environ if n[:3] in ("PMI", "OMP", "KEP")))\'\n'
        "subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    env = os.environ | {"PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0", "KEPT": "1", "OMP_NUM_THREADS": "2"}
    env = {name: value for name, value in env.items() if "ALLOW_RUN_AS_ROOT" not in name and "_MCA_" not in name}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "['KEPT', 'OMP_NUM_THREADS']"


# What the machine allows.


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
    assert cpu_count({"SLURM_CPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "1"}, str(tmp_path)) == 4


def test_this_machine_is_within_its_bounds() -> None:
    allowed = cpus_allowed()
    assert allowed == sorted(set(allowed))
    assert 1 <= cpu_count() <= len(allowed) <= (os.cpu_count() or 1)
    assert 0 < config.memory_limit() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_memory_limit(tmp_path: Path) -> None:
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert config.memory_limit({}, str(tmp_path)) == host
    assert config.memory_limit({"SLURM_MEM_PER_NODE": "100"}, str(tmp_path)) == 100 << 20
    assert config.memory_limit({"SLURM_MEM_PER_NODE": "0"}, str(tmp_path)) == host
    assert config.memory_limit({"SLURM_MEM_PER_CPU": "50", "SLURM_CPUS_ON_NODE": "2"}, str(tmp_path)) == 100 << 20
    assert config.memory_limit({"SLURM_MEM_PER_CPU": "50"}, str(tmp_path)) == host
    assert config.memory_limit({"SLURM_MEM_PER_GPU": "60", "SLURM_GPUS_ON_NODE": "2"}, str(tmp_path)) == 120 << 20
    v2 = {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/memory.max": "1000000"}
    assert config.memory_limit({}, files(tmp_path / "v2", v2)) == 1_000_000
    high = v2 | {"sys/fs/cgroup/a/b/memory.high": "900000", "sys/fs/cgroup/a/memory.high": "max"}
    assert config.memory_limit({}, files(tmp_path / "high", high)) == 900_000
    v1 = {"proc/self/cgroup": "2:memory:/x", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000"}
    assert config.memory_limit({}, files(tmp_path / "v1", v1)) == 2_000_000
    job = {
        "proc/self/cgroup": "5:cpuset:/slurm/job_7\n2:memory:/slurm/job_7/step_0/task_0\n0::/",
        "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "3000000",
        "sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "9223372036854771712",
    }
    assert config.memory_limit({}, files(tmp_path / "job", job)) == 3_000_000, "no limit of v1 is a large number"


def test_mpi_starts_quickly_and_nobody_else_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "OMPI_MCA_btl"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPAL_PREFIX", sys.prefix)
    monkeypatch.delenv(name, raising=False)
    with config.quick_mpi():
        assert os.environ[name] == "^ofi"
    assert name not in os.environ
    monkeypatch.setenv(name, "self,tcp")
    with config.quick_mpi():
        assert os.environ[name] == "self,tcp"
    assert os.environ[name] == "self,tcp"
    monkeypatch.delenv(name)
    monkeypatch.setenv("OPAL_PREFIX", "/opt/site")
    with config.quick_mpi():
        assert name not in os.environ


def test_whether_to_look_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.find_gpus({}) == "auto"
    assert config.find_gpus({config.FIND_GPUS: "never"}) == "never"
    monkeypatch.setenv(config.FIND_GPUS, "perhaps")
    with pytest.raises(ValueError, match="MPI_RUNTIME_FIND_GPUS is 'perhaps'; it may be auto, always, never"):
        from_init()
