"""Programs on machines with GPUs: found, counted and given out; and what happens where the driver is of no use.

The machines are described (`tests/fake_nvml`), all else is real: helper processes, pynvml, ranks, executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fake_nvml import machines
from tests.fake_nvml.machines import a100x4, h100x8, no_driver, shown, shown_on_hosts, v100_pairs
from tests.helpers import Completed, run_program
from tests.hosts.lab import Lab

WAYS = [None, pytest.param("openmpi", marks=pytest.mark.mpi)]

BEGIN = """
import json, os, sys, tempfile, time
import mpi_runtime as ray

def meet(count):
    "Wait until so many calls are here, each in a process of its own."
    open(os.path.join(tempfile.gettempdir(), f"here-{os.getpid()}"), "w").close()
    while sum(name.startswith("here-") for name in os.listdir(tempfile.gettempdir())) < count:
        time.sleep(0.01)

def visible():
    return os.environ["CUDA_VISIBLE_DEVICES"]

@ray.remote(num_cpus=0, num_gpus=1)
def have(seconds=0.0):
    time.sleep(seconds)
    gpus = ray.get_gpus()
    assert len(gpus) == len(ray.get_gpu_ids())
    return ray.get_gpu_ids(), visible(), [gpu.types[0] for gpu in gpus], os.getpid()

def fails(error, text, function, *args):
    try:
        function(*args)
    except error as raised:
        assert text in str(raised), str(raised)
    else:
        raise AssertionError("it did not fail")
"""


def run(source: str, machine: machines.Machine, way: str | None = None, **variables: str) -> Completed:
    """Run a program where it finds this machine: by itself, or on four ranks."""
    return run_program(BEGIN + source, ranks=4 if way else None, mpi=way, env=shown(machine, **variables))


@pytest.mark.parametrize("way", WAYS)
def test_eight_gpus(way: str | None) -> None:
    """Seen by all ranks, they are eight; each way of asking for them gets what it should."""
    done = run(
        """
ray.init(num_cpus=4)
found = ray.cluster_resources()
assert (found["GPU"], found["accelerator_type:H100"], found["accelerator_type:H100-80G"]) == (8, 8, 8)
assert found["gpu_memory"] == 8 * (81559 - 551) * 2**20
(node,) = ray.nodes()
workers = [rank for rank in node["ranks"] if rank or len(node["ranks"]) == 1]
assert all(gpu["ranks"] == workers for gpu in node["gpus"]) and node["gpu_problems"] == []

ones = ray.get([have.remote(0.5) for _ in range(8)])
assert sorted(ids for ids, *_ in ones) == [[n] for n in range(8)]
assert all(shown == str(id) and types == ["H100"] for (id,), shown, types, _ in ones)

ids, shown, _, _ = ray.get(have.options(num_gpus=4).remote())
assert len(ids) == 4 and shown == ",".join(map(str, ids))
assert len({node["gpus"][id]["numa"] for id in ids}) in (1, 2)

halves = ray.get([have.options(num_gpus=0.5).remote(0.3) for _ in range(2)])
assert halves[0][0] == halves[1][0], "shares go where shares are"
by_memory = ray.get([have.options(num_gpus=0, gpu_memory="50GB").remote(0.3) for _ in range(2)])
assert by_memory[0][0] != by_memory[1][0], "two of 50 GB do not fit onto one of 80"

assert ray.get(ray.remote(visible).remote()) == "", "who asks for none sees none"
@ray.remote
def ask_for(gpus):
    return ray.get(have.options(num_gpus=gpus).remote(0))
ids, shown, *_ = ray.get(ask_for.remote(1))
assert shown == str(ids[0]), "who has none can ask for some"
open_to_all = {"env_vars": {"CUDA_VISIBLE_DEVICES": "6"}}
assert ray.get(ray.remote(visible).options(runtime_env=open_to_all).remote()) == "6", "the user's own word counts"

@ray.remote(num_gpus=2, accelerator_type="H100")
class Model:
    def have(self):
        return ray.get_gpu_ids(), visible()

model = Model.remote()
mine, shown = ray.get(model.have.remote())
assert shown == ",".join(map(str, mine))
users = [gpu["used_by"] for gpu in ray.nodes()[0]["gpus"] if gpu["id"] in mine]
assert [[(user["name"], user["share"]) for user in one] for one in users] == [[("Model", 1.0)]] * 2
assert ray.available_resources()["GPU"] == 6
others = ray.get([have.remote(0.2) for _ in range(12)])
assert not {id for ids, *_ in others for id in ids} & set(mine)

fails(ray.errors.InfeasibleResourceError, "9 GPU of type H100", ray.get,
      have.options(num_gpus=9, accelerator_type="H100").remote())
fails(ray.errors.InfeasibleResourceError, "GPUs by node", ray.get, have.options(accelerator_type="A100").remote())
print("done")
""",
        h100x8(),
        way,
    ).expect(0)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.parametrize("way", [None, pytest.param("mpich", marks=pytest.mark.mpi)])
def test_four_gpus_of_which_one_is_split(way: str | None) -> None:
    done = run(
        """
ray.init(num_cpus=4)
found = ray.cluster_resources()
assert found["GPU"] == 6 and found["accelerator_type:A100"] == 3 and found["accelerator_type:A100-MIG-3g.20gb"] == 2
part = ray.get(have.options(accelerator_type="A100-MIG-3g.20gb").remote())
assert part[1].startswith("MIG-00000001-") and part[2] == ["A100-MIG-3g.20gb"]
whole = ray.get([have.options(accelerator_type="A100").remote(0.3) for _ in range(3)])
assert sorted(shown[:12] for _, shown, *_ in whole) == ["GPU-00000000", "GPU-00000002", "GPU-00000003"]
three = ray.get(have.options(num_gpus=3).remote())
assert set(three[2]) == {"A100"}, "a process can use one instance of MIG only"
fails(ray.errors.InfeasibleResourceError, "one instance of MIG only", ray.get, have.options(num_gpus=4).remote())
small = have.options(num_gpus=0.25, gpu_memory="4GB", accelerator_type="A100-MIG-1g.5gb")
assert ray.get(small.remote())[1].endswith("000000000009")
fails(ray.errors.InfeasibleResourceError, "5.6 GiB of GPU memory", ray.get,
      small.options(gpu_memory="6GB").remote())
print("done")
""",
        a100x4(split=(1,)),
        way,
    ).expect(0)
    assert done.stdout == "done\n"


@pytest.mark.mpi
def test_ranks_that_are_bound_to_their_own() -> None:
    """As `srun --gpus-per-task=1` binds them: each device belongs to one rank, and no task can have two."""
    done = run(
        """
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
os.environ["CUDA_VISIBLE_DEVICES"] = str(max(0, rank - 1))
ray.init(num_cpus=4)
assert ray.cluster_resources()["GPU"] == 3
assert [gpu["ranks"] for gpu in ray.nodes()[0]["gpus"]] == [[1], [2], [3]]

@ray.remote(num_cpus=0, num_gpus=1)
def where():
    meet(3)
    return ray.get_gpu_ids()[0], visible(), os.environ["CUDA_DEVICE_ORDER"], ray.get_runtime_context().get_rank()

found = ray.get([where.remote() for _ in range(3)])
assert sorted(found) == [(n, str(n), "PCI_BUS_ID", n + 1) for n in range(3)], found
fails(ray.errors.InfeasibleResourceError, "srun --gpus-per-node=N", ray.get, where.options(num_gpus=2).remote())
print("done")
""",
        v100_pairs(),
        "openmpi",
        SLURM_GPUS_PER_TASK="1",
    ).expect(0)
    assert done.stdout == "done\n"
    assert done.stderr.count("mpi_runtime: host ") == 1, "said once for each host"
    assert "--gpus-per-task, which does not reach ranks that mpirun starts" in done.stderr


@pytest.mark.mpi
def test_calls_go_to_the_rank_that_is_near_their_gpus() -> None:
    """Ranks 1 to 3 run calls, each on one processor: the home of a GPU is a rank that is near to it."""
    machine = v100_pairs()
    for number, gpu in enumerate(machine["gpus"]):
        gpu["cpus"] = [1] if number < 2 else [0]
    done = run(
        """
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
every = sorted(os.sched_getaffinity(0))
if len(every) > 1:
    os.sched_setaffinity(0, [every[rank % 2]])
ray.init(num_cpus=4)
homes = [gpu["home"] for gpu in ray.nodes()[0]["gpus"]]
assert sorted(homes.count(one) for one in (1, 2, 3)) == [1, 1, 2], homes
if every[:2] == [0, 1]:
    assert homes == [1, 3, 2, 2], homes

@ray.remote(num_cpus=0, num_gpus=1)
def where():
    meet(4)
    return ray.get_gpu_ids()[0], ray.get_runtime_context().get_rank()

found = dict(ray.get([where.remote() for _ in range(4)]))
assert [found[id] for id in range(4)] == homes, (found, homes)
""",
        machine,
        "openmpi",
    ).expect(0)
    assert done.stderr == ""


def test_executors_stay_with_their_devices_and_let_go_of_them() -> None:
    """A call finds the process of the last one; another kind of call gets the device when that process is gone."""
    run(
        """
ray.init(num_cpus=4, num_gpus=2)
assert ray.cluster_resources()["GPU"] == 2, "the first two of four"
both = have.options(num_gpus=2)
pids = {ray.get(both.remote())[3] for _ in range(5)}
assert len(pids) == 1, "warm"
(old,) = pids

@ray.remote(num_cpus=0, num_gpus=1, runtime_env={"env_vars": {"A": "1"}})
def alone(pid):
    return os.path.exists(f"/proc/{pid}"), ray.get_gpu_ids()

assert ray.get(alone.remote(old)) == (False, [0])
for _ in range(5):  # to and fro
    (old,) = {ray.get(both.remote())[3]}
    assert ray.get(alone.remote(old))[0] is False

@ray.remote(num_cpus=0, num_gpus=1)
def die():
    os._exit(3)

fails(ray.errors.WorkerCrashedError, "exited with code 3", ray.get, die.options(max_retries=0).remote())
assert sorted(sum((ids for ids, *_ in ray.get([have.remote(0.3) for _ in range(2)])), [])) == [0, 1]
""",
        v100_pairs(),
    ).expect(0)


def test_sets_follow_the_links() -> None:
    run(
        """
ray.init(num_cpus=4)
two = have.options(num_gpus=2)
found = ray.get([two.remote(0.5) for _ in range(2)])
assert sorted(ids for ids, *_ in found) == [[0, 3], [1, 2]], found
group = ray.util.placement_group([{"GPU": 2}, {"GPU": 2}])
ray.get(group.ready())
inside = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
found = [ray.get(two.options(scheduling_strategy=inside(group, n)).remote())[0] for n in range(2)]
assert sorted(found) == [[0, 3], [1, 2]], found
""".replace("ray.init", "import mpi_runtime.util.scheduling_strategies\nray.init"),
        v100_pairs(),
    ).expect(0)


@pytest.mark.parametrize(("variables", "gpus", "text"), [
    ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["0", "2"], ""),
    ({"CUDA_VISIBLE_DEVICES": "GPU-00000003"}, ["3"], ""),
    ({"CUDA_VISIBLE_DEVICES": "1,9,2"}, ["1"], "there is no device '9' for this process; as in CUDA"),
    ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, [], ""),
])  # fmt: skip
def test_the_users_variable_is_kept_to(variables: dict[str, str], gpus: list[str], text: str) -> None:
    done = run(
        """
ray.init(num_cpus=4)
count = int(ray.cluster_resources().get("GPU", 0))
print(json.dumps(sorted(shown for _, shown, *_ in ray.get([have.remote(0.3) for _ in range(count)]))))
""",
        v100_pairs(),
        **variables,
    ).expect(0)
    assert json.loads(done.stdout) == gpus
    assert text in done.stderr
    assert bool(text) == bool(done.stderr)


# Where the driver is of no use


def broken() -> Iterator[tuple[str, Any]]:
    """Machines whose driver is no good, and what is said of them."""
    lost = v100_pairs()
    lost["gpus"][2]["errors"] = {"*": "GPU_IS_LOST"}
    hanging = {**v100_pairs(), "delay_s": 100}
    yield "no driver", (no_driver(), 0, "NVML reports DriverNotLoaded: the driver is not loaded")
    yield "one is lost", (lost, 3, "GPU 2 does not answer (GpuIsLost) and is left out")
    yield "hangs", (hanging, 0, "NVML did not answer within 4.5 s")


BROKEN = dict(broken())


@pytest.mark.parametrize("case", BROKEN)
def test_a_warning_and_the_rest_works(case: str) -> None:
    machine, count, text = BROKEN[case]
    done = run(
        """
ray.init(num_cpus=4, start_timeout_s=6)
print(ray.cluster_resources().get("GPU", 0), ray.get(have.options(num_gpus=0, num_cpus=1).remote())[:2])
""",
        machine,
    ).expect(0)
    assert done.stdout == f"{count or 0}{'.0' if count else ''} ([], '')\n"
    (line,) = done.stderr.splitlines()
    assert " mpi_runtime: host " in line
    assert text in line


@pytest.mark.parametrize(("way", "machine", "asked", "text"), [
    (None, no_driver(), 2, "init(num_gpus=2), but on host {} NVML reports DriverNotLoaded: the driver is not loaded."),
    (None, v100_pairs(), 5, "init(num_gpus=5), but host {} has 4 x V100-16G for this job."),
    pytest.param("openmpi", v100_pairs(), 5, "init(num_gpus=5), but host {} has", marks=pytest.mark.mpi),
    pytest.param("mpich", no_driver(), 1, "init(num_gpus=1), but on host {}", marks=pytest.mark.mpi),
])  # fmt: skip
def test_gpus_that_are_asked_for_and_not_there(
    way: str | None, machine: machines.Machine, asked: int, text: str
) -> None:
    done = run(
        f"""
try:
    ray.init(num_gpus={asked})
except ray.errors.GpuDiscoveryError as error:
    assert isinstance(error, ray.errors.LaunchError)
    print(str(error).replace(os.uname().nodename, "{{}}"))
""",
        machine,
        way,
    )
    assert done.stdout.startswith(text), done.output()
    assert done.stderr == ""
    assert done.returncode == 0


# Several nodes


@pytest.mark.mpi
@pytest.mark.hosts
def test_a_mixed_pair_of_nodes(two_hosts: Lab) -> None:
    """host1 has eight H100, host2 four A100: types and numbers send calls where they can run."""
    source = (
        shown_on_hosts({"host1": h100x8(), "host2": a100x4()})
        + BEGIN
        + """
ray.init(num_cpus=2)
found = ray.cluster_resources()
assert (found["GPU"], found["accelerator_type:H100"], found["accelerator_type:A100"]) == (12, 8, 4)

@ray.remote(num_cpus=0, num_gpus=2)
def where():
    return os.uname().nodename, ray.get_gpus()[0].types[0], len(ray.get_gpu_ids())

for kind, host in (("H100", "host1"), ("A100-40G", "host2")):
    for _ in range(3):
        assert ray.get(where.options(accelerator_type=kind).remote())[0] == host
assert ray.get(where.options(num_gpus=8).remote()) == ("host1", "H100", 8)
assert ray.get(where.options(num_gpus=0.1, gpu_memory="50GB").remote())[:2] == ("host1", "H100")
fails(ray.errors.InfeasibleResourceError, "host1: 8 x H100-80G; host2: 4 x A100-40G", ray.get,
      where.options(num_gpus=5, accelerator_type="A100").remote())
print("done")
"""
    )
    with two_hosts.mpirun(source, ranks={"host1": 2, "host2": 2}) as program:
        completed = program.finish().expect()
    assert completed.stdout == "done\n"


def test_a_value_that_only_a_gpu_can_hold() -> None:
    """cupy is not installed here: what it pickles cannot be read, which is said in words where it is asked for."""
    run(
        """
class Array:
    def __reduce__(self):
        return __import__, ("cupy",)

ray.init(num_cpus=2)
make = ray.remote(lambda: Array())
use = ray.remote(lambda value: 1)
fails(ray.errors.DeviceUnavailableError, "x.get() with cupy", ray.get, make.remote())
fails(ray.errors.DeviceUnavailableError, "x.get() with cupy", ray.get, use.remote(make.remote()))
""",
        no_gpus(),
    ).expect(0)


def no_gpus() -> machines.Machine:
    return {"gpus": []}


@pytest.mark.mpi
def test_the_next_job_looks_again() -> None:
    """Of one program: what can be used may have changed, and what was stated is for one job."""
    run(
        """
for options, count in (({}, 4), ({"num_gpus": 0}, 0), ({"num_gpus": 2}, 2), ({}, 4)):
    ray.init(num_cpus=2, **options)
    assert ray.cluster_resources().get("GPU", 0) == count
    if count:
        assert ray.get(have.remote())[1] in ("0", "1", "2", "3")
    ray.shutdown()
""",
        v100_pairs(),
        "openmpi",
    ).expect(0)
