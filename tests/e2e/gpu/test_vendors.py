"""Programs on machines with GPUs of AMD and Intel: found, counted, given out, and what a process sees of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.gpu.test_programs import BEGIN
from tests.fake_nvml import machines
from tests.fake_sys import trees
from tests.helpers import ROOT, Completed, run_program
from tests.hosts.lab import Lab

VARIABLE = {"amd": "HIP_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
NONE = {"amd": "-1", "intel": "9999"}
MEMORY = {"amd": 64, "intel": 48}
TYPES = {"amd": ["AMD-Instinct-MI210", "gfx90a", "MI210"], "intel": ["Intel-GPU-Max-1100", "Max-1100"]}


def four(key: str) -> trees.Tree:
    return trees.mi210() if key == "amd" else trees.max1100()


def run(
    source: str, tmp_path: Path, tree: trees.Tree, key: str = "amd", way: str | None = None, **variables: str
) -> Completed:
    """Run a program where it finds this machine: by itself, or on four ranks."""
    begin = BEGIN.replace("CUDA_VISIBLE_DEVICES", VARIABLE[key])
    env = trees.shown(tmp_path / "machine", tree, **variables)
    return run_program(begin + source, ranks=4 if way else None, mpi=way, env=env)


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("amd", None),
        ("intel", None),
        pytest.param("amd", "openmpi", marks=pytest.mark.mpi),
        pytest.param("intel", "mpich", marks=pytest.mark.mpi),
    ],
)
def test_four_gpus(key: str, way: str | None, tmp_path: Path) -> None:
    done = run(
        f"""
ray.init(num_cpus=4)
found = ray.cluster_resources()
assert found["GPU"] == 4 and found["gpu_memory"] == 4 * {MEMORY[key]} * 2**30
for name in {TYPES[key]}:
    assert found["accelerator_type:" + name] == 4, found
(node,) = ray.nodes()
workers = [rank for rank in node["ranks"] if rank or len(node["ranks"]) == 1]
assert all(gpu["ranks"] == workers for gpu in node["gpus"]) and node["gpu_problems"] == []
ones = ray.get([have.remote(0.5) for _ in range(4)])
assert sorted(ids for ids, *_ in ones) == [[n] for n in range(4)]
assert all(shown == str(id) and types == [{TYPES[key][0]!r}] for (id,), shown, types, _ in ones)
ids, shown, _, _ = ray.get(have.options(num_gpus=2).remote())
assert ids == {[0, 3] if key == "amd" else [0, 1]} and shown == ",".join(map(str, ids))
halves = ray.get([have.options(num_gpus=0.5).remote(0.3) for _ in range(2)])
assert halves[0][0] == halves[1][0], "shares go where shares are"
by_memory = ray.get([have.options(num_gpus=0, gpu_memory="40GB").remote(0.3) for _ in range(2)])
assert by_memory[0][0] != by_memory[1][0], "two of 40 GB do not fit onto one of 48 or 64 GiB"
assert ray.get(ray.remote(visible).remote()) == {NONE[key]!r}, "who asks for none sees none"
@ray.remote(num_gpus=1)
class Model:
    def have(self):
        return ray.get_gpu_ids(), visible()
model = Model.remote()
(mine,), shown = ray.get(model.have.remote())
assert shown == str(mine) and ray.available_resources()["GPU"] == 3
fails(ray.errors.InfeasibleResourceError, "GPUs by node", ray.get, have.options(accelerator_type="H100").remote())
print("done")
""",
        tmp_path,
        four(key),
        key,
        way,
    ).expect(0)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.mpi
@pytest.mark.parametrize("key", VARIABLE)
def test_ranks_that_are_bound_to_their_own(key: str, tmp_path: Path) -> None:
    """As `srun --gpus-per-task=1` binds them, with the variable that Slurm has for the vendor."""
    slurms = {"amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}[key]
    done = run(
        f"""
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
os.environ[{slurms!r}] = str(max(0, rank - 1))
ray.init(num_cpus=4)
assert ray.cluster_resources()["GPU"] == 3
assert [gpu["ranks"] for gpu in ray.nodes()[0]["gpus"]] == [[1], [2], [3]]

@ray.remote(num_cpus=0, num_gpus=1)
def where():
    meet(3)
    return ray.get_gpu_ids()[0], os.environ[{slurms!r}], visible(), ray.get_runtime_context().get_rank()

found = sorted(ray.get([where.remote() for _ in range(3)]))
# HIP counts what ROCr leaves, and ROCr's list stays as it was; Level Zero has one list.
assert found == [(n, str(n), {"'0'" if key == "amd" else "str(n)"}, n + 1) for n in range(3)], found
fails(ray.errors.InfeasibleResourceError, "srun --gpus-per-node=N", ray.get, where.options(num_gpus=2).remote())
print("done")
""",
        tmp_path,
        four(key),
        key,
        "openmpi",
    ).expect(0)
    assert done.stdout == "done\n"


@pytest.mark.parametrize(("key", "tree", "count", "kind"), [
    ("amd", trees.mi250x(), 8, "MI250X"), ("amd", trees.mi300x("CPX", cards=2), 16, "MI300X-CPX"),
    ("amd", trees.mi300a(), 4, "MI300A"), ("intel", trees.ponte_vecchio(), 12, "Max-1550"),
    ("intel", trees.ponte_vecchio("xe", with_graphics=True), 12, "Max-1550"),
])  # fmt: skip
def test_odd_shapes(key: str, tree: trees.Tree, count: int, kind: str, tmp_path: Path) -> None:
    run(
        f"""
ray.init(num_cpus=4)
assert ray.cluster_resources()["GPU"] == {count}
ids, shown, types, _ = ray.get(have.options(num_gpus=2, accelerator_type={kind!r}).remote())
assert shown == ",".join(map(str, ids)), (ids, shown)
gpus = ray.nodes()[0]["gpus"]
assert len(gpus) == {count} and len({{gpu["uuid"] for gpu in gpus}}) == {count}
""",
        tmp_path,
        tree,
        key,
    ).expect(0)


def test_cards_of_two_tiles(tmp_path: Path) -> None:
    run(
        """
ray.init(num_cpus=4)
assert ray.cluster_resources()["GPU"] == 6
assert ray.get(have.options(num_gpus=2).remote())[:2] == ([0, 1], "0,1")
""",
        tmp_path,
        trees.ponte_vecchio(),
        "intel",
        ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE",
    ).expect(0)


def test_a_selector_of_the_user_is_kept_to(tmp_path: Path) -> None:
    run(
        """
ray.init(num_cpus=4)
assert ray.cluster_resources()["GPU"] == 2
one = lambda: (visible(), os.environ["ONEAPI_DEVICE_SELECTOR"])
found = ray.get([ray.remote(num_gpus=1, num_cpus=0)(one).remote() for _ in range(2)])
assert set(found) <= {("2", "level_zero:gpu"), ("3", "level_zero:gpu")}, found
""",
        tmp_path,
        trees.max1100(),
        "intel",
        ONEAPI_DEVICE_SELECTOR="level_zero:2,3",
    ).expect(0)


def test_a_scheduler_within_a_call_has_the_devices_of_the_call(tmp_path: Path) -> None:
    run(
        """
ray.init(num_cpus=4)

@ray.remote(num_gpus=2, num_cpus=2, own_scheduler=True)
def outer():
    inner = have.options(num_gpus=1)
    return visible(), sorted(shown for _, shown, *_ in ray.get([inner.remote(0.3) for _ in range(2)]))

assert ray.get(outer.remote()) == ("1,2", ["1", "2"])
""",
        tmp_path,
        trees.mi210(),
        ROCR_VISIBLE_DEVICES="0,1,2",
    ).expect(0)


@pytest.mark.parametrize(("key", "text", "name"), [
    ("amd", "HIP error: an illegal memory access was encountered", "hipErrorIllegalAddress"),
    ("intel", "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "UR_RESULT_ERROR_DEVICE_LOST"),
])  # fmt: skip
def test_a_process_that_has_lost_its_device_ends(key: str, text: str, name: str, tmp_path: Path) -> None:
    """The call runs again in another one, and fails in the end; the device is assigned to others."""
    run(
        f"""
ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=1)
def lose(place):
    with open(os.path.join(place, str(os.getpid())), "w"):
        raise RuntimeError({text!r})

place = tempfile.mkdtemp()
fails(ray.errors.GpuExecutorDiedError, {name!r}, ray.get, lose.options(max_retries=1).remote(place))
assert len(os.listdir(place)) == 2, "each in a process of its own"
assert len(ray.get(have.options(num_gpus=4).remote())[0]) == 4, "the function is blamed"

@ray.remote(num_cpus=0, num_gpus=1)
def full():
    raise RuntimeError("{"HIP" if key == "amd" else "XPU"} out of memory. Tried to allocate 2.00 GiB")

fails(ray.errors.GpuOutOfMemoryError, "this call was granted 1 of it", ray.get, full.remote())
""",
        tmp_path,
        four(key),
        key,
    ).expect(0)


def test_of_two_vendors_the_user_must_choose(tmp_path: Path) -> None:
    tree = trees.mi210() | trees.ponte_vecchio()
    source = "ray.init(num_cpus=4)\nprint(ray.cluster_resources().get('GPU', 0))\n"
    done = run(source, tmp_path, tree).expect(0)
    assert done.stdout == "0\n"
    (line,) = done.stderr.splitlines()
    assert "GPUs of several vendors, 4 of AMD and 12 of Intel" in line
    assert "Set MPI_RUNTIME_FIND_GPUS=amd or MPI_RUNTIME_FIND_GPUS=intel" in line
    for key, count in (("amd", "4.0"), ("intel", "12.0")):
        done = run(source, tmp_path / key, tree, MPI_RUNTIME_FIND_GPUS=key).expect(0)
        assert (done.stdout, done.stderr) == (f"{count}\n", "")
    source = "fails(ray.errors.GpuDiscoveryError, 'MPI_RUNTIME_FIND_GPUS=amd', lambda: ray.init(num_gpus=1))"
    run(source, tmp_path / "again", tree).expect(0)


def test_cards_of_nvidia_beside_others(tmp_path: Path) -> None:
    """By the real pynvml; the variable of the vendor that was not chosen stays as it was."""
    env = machines.shown(machines.v100_pairs()) | trees.shown(tmp_path / "machine", trees.mi210())
    source = "ray.init(num_cpus=4)\nprint(ray.cluster_resources().get('GPU', 0), ray.get(have.remote())[1:3])\n"
    for wish, told in (("always", "4 of NVIDIA and 4 of AMD"), ("nvidia", ""), ("amd", "")):
        begin = BEGIN if wish != "amd" else BEGIN.replace("CUDA_VISIBLE_DEVICES", VARIABLE["amd"])
        text = source if not told else "ray.init(num_cpus=4)\nprint('none')\n"
        done = run_program(begin + text, env={**env, "MPI_RUNTIME_FIND_GPUS": wish}).expect(0)
        assert told in done.stderr
        expected = {"always": "none", "nvidia": "4.0 ('0', ['V100'])", "amd": "4.0 ('0', ['AMD-Instinct-MI210'])"}
        assert done.stdout == f"{expected[wish]}\n"


@pytest.mark.mpi
@pytest.mark.hosts
def test_hosts_with_devices_of_different_vendors(two_hosts: Lab) -> None:
    """Types send calls where they can run, and each host shows its devices by the variable of their vendor."""
    source = (
        f"""
import os, sys, tempfile
from pathlib import Path
sys.path.insert(1, {str(ROOT)!r})
from tests.fake_sys import trees
machine = {{"host1": trees.mi210, "host2": trees.max1100}}[os.uname().nodename]()
place = tempfile.mkdtemp()  # hosts have a /tmp of their own
os.environ.update({{name: text for name, text in trees.shown(Path(place), machine).items() if text is not None}})
"""
        + """
import mpi_runtime as ray
ray.init(num_cpus=2)
assert ray.cluster_resources()["GPU"] == 8

@ray.remote(num_cpus=0, num_gpus=2)
def where():
    shown = {name: os.environ.get(name) for name in ("HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")}
    return os.uname().nodename, shown

for kind, host, shown in (
    ("MI210", "host1", {"HIP_VISIBLE_DEVICES": "0,3", "ZE_AFFINITY_MASK": None}),
    ("Max-1100", "host2", {"HIP_VISIBLE_DEVICES": None, "ZE_AFFINITY_MASK": "0,1"}),
):
    found = ray.get(where.options(accelerator_type=kind).remote())
    assert found == (host, shown), found
print("done")
"""
    )
    with two_hosts.mpirun(source, ranks={"host1": 2, "host2": 2}) as program:
        assert program.finish().expect().stdout == "done\n"


def test_what_is_stated_has_the_variable_of_the_vendor_that_is_wished_for(tmp_path: Path) -> None:
    """A program for AMD on a notebook."""
    run(
        """
ray.init(num_cpus=4, num_gpus=2)
one = ray.remote(num_gpus=1)(visible)
assert set(ray.get([one.remote() for _ in range(4)])) <= {"0", "1"}
""",
        tmp_path,
        {},
        MPI_RUNTIME_FIND_GPUS="amd",
    ).expect(0)


@pytest.mark.parametrize("key", VARIABLE)
def test_the_command_that_lists_them(key: str, tmp_path: Path) -> None:
    env = {name: text for name, text in trees.shown(tmp_path / "machine", four(key)).items() if text is not None}
    program = "import sys\nfrom mpi_runtime.cli.gpus import gpus\nsys.exit(gpus(sys.argv[1:]))\n"
    done = run_program(program, env=env).expect(0)
    assert f"in {VARIABLE[key]}" in done.stdout
    assert f"{MEMORY[key]}.0 GiB" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("  0 "))
    assert row[4:6] == (["0.0", "GiB"] if key == "amd" else ["-", "0000:29:00.0"])
    if key == "amd":
        assert "Links (XGMI: how many of XGMI" in done.stdout
        assert "XGMI2" in done.stdout
    hidden = run_program(program, env={**env, VARIABLE[key]: NONE[key]}).expect(0)
    assert f"The driver has 4; {VARIABLE[key]} shows none of them to this process." in hidden.stdout
    as_json = run_program(program.replace("sys.argv[1:]", "['--json']"), env=env).expect(0)
    assert [gpu["token"] for gpu in json.loads(as_json.stdout)["gpus"]] == ["0", "1", "2", "3"]
    assert os.linesep in done.stdout
