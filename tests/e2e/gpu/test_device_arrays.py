"""Arrays of cupy and torch as arguments and results: real processes and MPI, pretended GPUs (`tests/fake_cuda`)."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.gpu_copies import verdict
from tests.fake_cuda import memory
from tests.fake_nvml.machines import a100x4, h100x8, shown, shown_on_hosts
from tests.fake_sys import trees
from tests.helpers import ROOT, Completed, run_program
from tests.hosts.lab import Lab

WAYS = [None, pytest.param("mpich", marks=pytest.mark.mpi)]
LIBRARIES = Path(memory.__file__).parent / "libraries"

BEGIN = """
import os, sys
import numpy as np
import mpi_runtime as ray
from tests.fake_cuda import memory

SIZES = [0, 100, 500_000, 5_000_001]  # nothing, in a message, in the arena, in many chunks

@ray.remote(num_cpus=0, num_gpus=1)
def make(n, library="cupy"):
    if library == "torch":
        import torch
        return torch.tensor(np.arange(n), device="cuda")
    import cupy
    with cupy.cuda.Stream(non_blocking=True):
        return cupy.arange(n) * 2 + 1  # which is not computed yet

@ray.remote(num_cpus=0, num_gpus=1)
def total(x, library="cupy"):
    import importlib
    module = importlib.import_module(library)
    assert type(x) is (module.ndarray if library == "cupy" else module.Tensor)
    return int(x.sum().get() if library == "cupy" else x.cpu().numpy().sum())

@ray.remote(num_cpus=0, num_gpus=1)
class Holder:
    def begin(self):
        memory.counts.clear()

    def keep(self, x):
        self.x = x
        return type(x).__module__, dict(memory.counts)

    def kept(self):
        return self.x, {"again": [self.x]}

    def put(self):
        return [ray.put(self.x), ray.put({"x": self.x})]

    def work(self):
        self.x = self.x + 1

@ray.remote(num_cpus=0)
def on_host(refs):
    x, = ray.get(refs, device="cpu")
    assert "cupy" not in sys.modules and "torch" not in sys.modules
    return type(x).__module__, int(x.sum())

@ray.remote(num_cpus=0)
def given(x):
    return type(x).__module__

def fails(error, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except error as raised:
        assert text in str(raised), str(raised)
    else:
        raise AssertionError("it did not fail")

def expected(n):
    return np.arange(n) * 2 + 1
"""


def pretended(**variables: str) -> dict[str, str | None]:
    """The environment of programs for which there are eight GPUs, and libraries that can use them."""
    env = shown(h100x8(), **variables)
    return {**env, "PYTHONPATH": os.pathsep.join([str(LIBRARIES), str(env["PYTHONPATH"])])}


def run(source: str, way: str | None = None, **variables: str) -> Completed:
    source = f"{BEGIN}{source}\nprint('done')"
    return run_program(source, ranks=4 if way else None, mpi=way, env=pretended(**variables)).expect(0)


@pytest.mark.parametrize("way", WAYS)
def test_between_tasks_actors_and_a_driver_without_gpu(way: str | None) -> None:
    done = run(
        """
ray.init(num_cpus=4)
host = os.uname().nodename
for n in SIZES:
    ref = make.remote(n)
    assert ray.get(total.remote(ref)) == expected(n).sum()
    found = ray.get(ref, device="cpu")
    assert type(found) is np.ndarray and np.array_equal(found, expected(n)) and not found.flags.writeable
    both = ray.get([ref, make.remote(n)], device="cpu", timeout=60)
    assert all(np.array_equal(one, expected(n)) for one in both)
    assert ray.get(on_host.remote([ref])) == ("numpy", expected(n).sum())
    assert ray.get(given.remote(ray.get(ref, device="cpu"))) == "numpy"

holder = Holder.remote()
ray.get(holder.keep.remote(make.remote(500_000)))
holder.begin.remote()
kind, counts = ray.get(holder.keep.remote(make.remote(5_000_001)))
pieces = -(-5_000_001 * 8 // (4 << 20))
assert (kind, counts) == ("cupy", {"up": pieces, "pinned copies": pieces}), "the buffers were there already"
holder.work.remote()
x, more = ray.get(holder.kept.remote(), device="cpu")
assert x is more["again"][0] and np.array_equal(x, expected(5_000_001) + 1)
plain, inside = ray.get(holder.put.remote())
assert np.array_equal(ray.get(plain, device="cpu"), x)
assert np.array_equal(ray.get(inside, device="cpu")["x"], x)
assert ray.get(total.remote(plain)) == x.sum()

for n in SIZES[1:]:
    found = ray.get([make.remote(n), make.remote(n, "torch")])
    assert [type(one) for one in found] == [np.ndarray] * 2, "a driver that uses no GPU does not begin to by reading"
    assert np.array_equal(found[0], expected(n))
    assert type(make.remote(n).future().result()) is np.ndarray
assert "cupy" not in sys.modules
fails(ray.errors.DeviceUnavailableError, 'use get(ref, device="cpu")', ray.get, plain, device="gpu")
fails(ray.errors.DeviceUnavailableError, f"a cupy array on {host}:GPU ", ray.get, given.remote(inside))
fails(ValueError, "get(device='cuda')", ray.get, plain, device="cuda")
assert ray.get(ray.put([1, np.ones(3)]), device="cpu")[1].sum() == 3, "other values are as they are"
""",
        way,
    )
    assert done.stdout == "done\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpi_runtime: the driver reads a cupy array on ")
    assert 'get(ref, device="gpu") returns it on a GPU' in line


def test_tensors_of_a_torch_for_intel(tmp_path: Path) -> None:
    """Which knows devices by another name, and has nothing of torch.cuda."""
    source = (
        BEGIN.replace('device="cuda"', 'device="xpu"')
        + """
ray.init(num_cpus=4)
for n in SIZES:
    ref = make.remote(n, "torch")
    assert ray.get(total.remote(ref, "torch")) == np.arange(n).sum()
    assert np.array_equal(ray.get(ref, device="cpu"), np.arange(n))

@ray.remote(num_cpus=0, num_gpus=1)
def where(x):
    return x.is_cuda, x.is_xpu, x.device.type, ray.get_gpus()[0].types[-1], os.environ["ZE_AFFINITY_MASK"]

assert ray.get(where.remote(make.remote(7, "torch"))) == (False, True, "xpu", "Max-1100", "0")

@ray.remote(num_cpus=0, num_gpus=0.25)
def limited():
    import torch
    torch.xpu.init()
    return dict(memory._State.limits)

assert ray.get(limited.remote()) == {0: 48 * 2**28 - 512 * 2**20}
print("done")
"""
    )
    env = pretended() | trees.shown(tmp_path / "machine", trees.max1100())
    more = {"FAKE_TORCH_KIND": "xpu", "FAKE_CUDA_VARIABLE": "ZE_AFFINITY_MASK", "FAKE_NVML_MACHINE": ""}
    sizes = {"FAKE_CUDA_DEVICES": "4", "FAKE_CUDA_MEMORY": str(48 * trees.GIB)}
    assert run_program(source, env={**env, **more, **sizes}).expect(0).stdout == "done\n"


ON_ANY_CARD = """
import cupy
ray.init(num_cpus=4)
for n in SIZES:
    mine = cupy.arange(n) * 2 + 1
    ref = ray.put(mine)
    assert type(ray.get(ref)) is cupy.ndarray and np.array_equal(ray.get(ref).get(), expected(n))
    assert type(ray.get(ref, device="cpu")) is np.ndarray
    assert ray.get(total.remote(mine)) == ray.get(total.remote(ref)) == expected(n).sum()
    found = ray.get(make.remote(n))
    assert type(found) is cupy.ndarray and np.array_equal(found.get(), expected(n))
    assert np.array_equal(ray.get(make.remote(n), device="cpu"), expected(n))
    assert ray.get(on_host.remote([ref])) == ("numpy", expected(n).sum())
fails(ray.errors.DeviceUnavailableError, ":GPU 0; use get", ray.get, given.remote(mine))
for view in (mine[5:-3], mine[::-3], mine[:4000000].reshape(2000, 2000).T, mine[:4000000].reshape(2000, 2000)[:, 7:99]):
    assert np.array_equal(ray.get(ray.put(view)).get(), view.get())
    assert np.array_equal(ray.get(ray.put(view), device="cpu"), view.get())
class Mine(cupy.ndarray):
    pass
found = ray.get(ray.put(cupy.arange(3).view(Mine)))
assert type(found) is Mine and found.get().tolist() == [0, 1, 2]
"""


def test_a_driver_that_begins_to_use_a_gpu_when_it_is_told_to() -> None:
    done = run(
        """
ray.init(num_cpus=4)
ref = make.remote(10)
assert type(ray.get(ref)) is np.ndarray and "cupy" not in sys.modules
found = ray.get([ref, ref], device="gpu")
import cupy
assert all(type(one) is cupy.ndarray and np.array_equal(one.get(), expected(10)) for one in found)
assert type(ray.get(ref)) is cupy.ndarray, "now it uses one"
assert type(ray.get(ref, device="cpu")) is np.ndarray
""",
        FAKE_CUDA_DEVICES="1",
    )
    assert len(done.stderr.splitlines()) == 1


def test_a_driver_with_a_gpu() -> None:
    run(ON_ANY_CARD + "assert not memory.counts['own pickles']", FAKE_CUDA_DEVICES="1")


@pytest.mark.device
@pytest.mark.parametrize("way", [None, pytest.param("openmpi", marks=pytest.mark.mpi)])
def test_a_driver_with_a_real_gpu(way: str | None) -> None:
    """The same program with the real cupy, where it is installed and can use a GPU."""
    asked = subprocess.run(
        [sys.executable, "-c", "import cupy; assert cupy.cuda.is_available()"], capture_output=True, check=False
    )
    if asked.returncode:
        pytest.skip("needs cupy and a GPU that it can use")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {"PYTHONPATH": path, "MPI_RUNTIME_FIND_GPUS": "auto"}
    done = run_program(BEGIN + ON_ANY_CARD + "print('done')", ranks=3 if way else None, mpi=way, env=env).expect(0)
    assert done.stdout == "done\n"


@pytest.mark.parametrize("way", WAYS)
def test_an_object_store_of_which_much_is_pinned(way: str | None) -> None:
    """Devices read and write values there themselves; values that come after have their own bytes, also when who has
    pinned the memory is killed."""
    done = run(
        """
ray.init(num_cpus=4, object_store_memory=120_000_000)

@ray.remote(num_cpus=0, num_gpus=1)
class Pins:
    def make(self, n, add):
        import cupy
        return cupy.arange(n) * 2 + add
    def total(self, x):
        return int(x.sum().get())
    def straight(self):
        return memory.counts["straight"], sum(held.size for held in memory.registered.values())

def check(pins, rounds):
    for number in range(rounds):
        n = 2_000_001 + 1000 * (number % 3)
        ref = pins.make.remote(n, number)
        wanted = np.arange(n) * 2 + number
        assert np.array_equal(ray.get(ref, device="cpu"), wanted)
        assert ray.get(other.total.remote(ref)) == wanted.sum()
        assert ray.get(pins.total.remote(ref)) == wanted.sum()
        del ref
        if number % 4 == 3:  # there is room for these only if memory that is spare is given back
            refs = [ray.put(np.full(3_000_000, number + each)) for each in range(4)]
            assert all((ray.get(ref) == number + each).all() for each, ref in enumerate(refs))
            del refs

pins, other = Pins.remote(), Pins.remote()
check(pins, 7)  # what is pinned was used since the last time that it had to be given back
for one in (pins, other):
    straight, size = ray.get(one.straight.remote())
    assert straight > 3 and 16_000_000 < size <= 40 << 20, (straight, size)
ray.kill(pins)
check(Pins.remote(), 8)
""",
        way,
        MPI_RUNTIME_GPU_PIN_MB="40",
    )
    assert done.stdout == "done\n"


@pytest.mark.parametrize("way", [None, pytest.param("openmpi", marks=pytest.mark.mpi)])
def test_tensors(way: str | None) -> None:
    run(
        """
ray.init(num_cpus=4)
for n in SIZES:
    ref = make.remote(n, "torch")
    assert ray.get(total.remote(ref, "torch")) == np.arange(n).sum()
    assert np.array_equal(ray.get(ref, device="cpu"), np.arange(n))
    assert ray.get(on_host.remote([ref])) == ("numpy", np.arange(n).sum())
assert "torch" not in sys.modules
fails(ray.errors.DeviceUnavailableError, "a torch array on ", ray.get, ref, device="gpu")
fails(ray.errors.DeviceUnavailableError, "a torch array on ", ray.get, given.remote(ref))
""",
        way,
    )


@pytest.mark.hosts
def test_from_one_node_to_another(two_hosts: Lab) -> None:
    """By MPI, from an H100 of host1 to an A100 of host2, and to a process there that has no GPU."""
    source = f"""{shown_on_hosts({"host1": h100x8(), "host2": a100x4()})}
sys.path.insert(1, {str(LIBRARIES)!r})
{BEGIN}
ray.init(num_cpus=2)
there, here = make.options(accelerator_type="H100"), total.options(accelerator_type="A100-40G")
for n in SIZES:
    ref = there.remote(n)
    assert ray.get(here.remote(ref)) == expected(n).sum()
    assert ray.get(on_host.options(num_cpus=1).remote([ref])) == ("numpy", expected(n).sum())
fails(ray.errors.DeviceUnavailableError, "a cupy array on host1:GPU ", ray.get, given.remote(ref))
print("done")
"""
    with two_hosts.mpirun(source, ranks={"host1": 2, "host2": 2}, mpi="mpich") as program:
        assert program.finish().expect().stdout == "done\n"


def test_by_all_ways_of_returning() -> None:
    run(
        """
ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=0.5, num_returns=2)
def two(n):
    import cupy
    return cupy.arange(n), {"n": cupy.arange(n) + 1}

@ray.remote(num_cpus=0, num_gpus=0.5, num_returns="streaming")
def items(n):
    import cupy
    for number in range(3):
        yield cupy.full((n,), number)

@ray.remote(num_cpus=0, num_gpus=0.5)
def one(n):
    import cupy
    return cupy.full((100_000,), n)

@ray.remote(num_cpus=0, num_gpus=0.5)
def sums(n):
    return [int(x.sum().get()) for x in one.map(range(n))]

for n in (10, 300_000):
    first, second = ray.get(two.remote(n), device="cpu")
    assert first[-1] == n - 1 and second["n"][-1] == n
    assert [ray.get(ref, device="cpu")[-1] for ref in items.remote(n)] == [0, 1, 2]
assert ray.get(sums.remote(20)) == [100_000 * n for n in range(20)]
"""
    )


def test_what_fails_on_a_device_is_told() -> None:
    """Where pinned memory is refused it goes without; where there is no memory, the library's own error comes."""
    run(
        """
ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=1, runtime_env={"env_vars": {"FAKE_CUDA_NO_PINNED": "1"}})
def without_pinned(x):
    assert memory.counts["up"] and not memory.counts["pinned copies"]
    return x + 1

assert np.array_equal(ray.get(without_pinned.remote(make.remote(5_000_001)), device="cpu"), expected(5_000_001) + 1)
small = total.options(runtime_env={"env_vars": {"FAKE_CUDA_MEMORY": "1000000"}})
fails(ray.errors.TaskError, "Out of memory allocating 40,000,008 bytes", ray.get, small.remote(make.remote(5_000_001)))
"""
    )


def test_the_benchmark_says_what_it_skips() -> None:
    """And runs through, on pretended GPUs, whose figures mean nothing."""
    benchmark = ROOT / "benchmarks" / "gpu_copies.py"
    none = run_program(benchmark, "--quick", env=shown({"gpus": []})).expect(0)
    assert none.stdout == "skipped: everything. There is no GPU here\n"
    if find_spec("cupy") is None:
        done = run_program(benchmark, "--quick", env=shown(h100x8())).expect(0)
        assert done.stdout == "skipped: everything. Missing: cupy: No module named 'cupy'\n"
    done = run_program(benchmark, "--quick", env=pretended()).expect(0)
    lines = done.stdout.splitlines()
    assert lines[0] == "NVIDIA H100 80GB HBM3; staged from 64 KiB on by chunks of 4 MiB"
    ways = [" ".join(re.sub(r"\(.*\)|[\d.]+ GB/s", "", line).split()) for line in lines[2:-1]]
    common = ["put, get", "put, get in turn", "put, get, pinned", "put, get in turn, pinned"]
    assert ways == [
        *(f"1 MiB {way}" for way in ("pageable", "staged by 1 MiB", "registered", *common)),
        *(f"4 MiB {way}" for way in ("pageable", "staged by 1 MiB", "staged by 4 MiB", "registered", *common)),
    ]
    assert re.fullmatch(r"MPI_RUNTIME_GPU_PIN_MB=2048 makes .* times as fast.* should be o(n|ff) by default", lines[-1])


def test_which_default_the_benchmark_finds_right() -> None:
    assert verdict([(10, 50), (12, 40), (10, 9.6)]).endswith("3.33: it should be on by default")
    assert verdict([(10, 50), (12, 40), (10, 9)]).endswith("it should be off by default"), "one way is slower"
    assert verdict([(10, 11), (12, 12)]).endswith("it should be off by default"), "it gains too little"
    assert verdict([(0, 0)]) == "nothing was measured"


def test_the_programs_of_the_page_about_gpus() -> None:
    """docs/gpus.md, on four pretended A100: what asks for GPUs, and where arrays are read."""
    begin, arrays = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "gpus.md").read_text(), re.DOTALL)
    kinds = []
    for line in arrays.splitlines():
        call, _, comment = line.partition("  # ")
        kinds.append(comment)
        arrays = arrays.replace(line, f"found.append({call})" if call.startswith("ray.get") else call)
    source = f"""{begin}
import numpy, sys
@ray.remote(num_gpus=1)
def make_matrix():
    import cupy
    return cupy.arange(6).reshape(2, 3)

@ray.remote(num_gpus=1)
def devices():
    return ray.get_gpu_ids(), [gpu.types for gpu in ray.get_gpus()]

assert ray.get([train.remote([1]), score.remote([2])]) == [None, None]
model = Model.remote()
assert ray.cluster_resources()["accelerator_type:A100"] == 4
numbers, types = ray.get(devices.remote())
assert len(numbers) == 1 and "A100" in types[0], (numbers, types)
found = []
{arrays}
assert [type(one).__module__ for one in found] == ["builtins", "numpy", "numpy", "cupy"], found
assert found[1].tolist() == found[2].tolist() == found[3].get().tolist() == [[0, 1, 2], [3, 4, 5]]
print("done")
"""
    env = {**pretended(FAKE_CUDA_DEVICES="1"), **shown(a100x4())}
    env["PYTHONPATH"] = os.pathsep.join([str(LIBRARIES), str(env["PYTHONPATH"])])
    done = run_program(source, env=env).expect(0)
    assert done.stdout == "done\n"
    assert "a numpy.ndarray" in kinds[2]


REAL_TORCH = """
import contextlib, types, torch
import numpy as np
from mpi_runtime.gpu import arrays, staging
from mpi_runtime.core.objects import serialize

# Tensors in memory, taken for such on a device.
done = types.SimpleNamespace(synchronize=lambda: None)
torch.cuda.current_stream = torch.cuda.synchronize = lambda device: done
torch.cuda.stream = lambda stream: contextlib.nullcontext()
torch.cuda.is_available = lambda: True
empty = torch.empty
torch.empty = lambda *args, device=None, pin_memory=False, **more: empty(*args, **more)
torch.Tensor.is_cuda = True
torch.Tensor.device = types.SimpleNamespace(type="cuda", index=0)

def sent(tensor, *read):
    serialized = serialize.dumps([tensor])
    assert type(serialized).__name__ == "_PartlyOnDevice"
    return serialize.loads(serialized.inline(), *read)[0]

def bits(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8).tolist()

for name in "bfloat16 float8_e4m3fn complex64 bool int8 uint16 float64 float16".split():
    for shape in ((), (0, 3), (3, 4)):
        tensor = torch.rand(shape).mul(9).to(getattr(torch, name))
        found = sent(tensor)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape) and bits(found) == bits(tensor)
        if name != "float8_e4m3fn":
            expected = (tensor.float() if name == "bfloat16" else tensor).numpy()
            on_host = sent(tensor, serialize.loads_on_host)
            assert on_host.dtype == expected.dtype and np.array_equal(on_host, expected)
tensor = torch.rand(40, 50)
for view in (tensor.t(), tensor[:, 3:7], torch.rand(4, dtype=torch.complex64).conj(),
             torch.rand(4, dtype=torch.complex64).conj().imag, torch.rand(3_000_001)):
    assert torch.equal(sent(view), view)
wanted = torch.rand(3, requires_grad=True)
assert sent(wanted).requires_grad and sent(wanted * 2).requires_grad and not sent(tensor).requires_grad
layer = torch.nn.Linear(3, 4)
found = sent(layer)
assert type(found.weight) is torch.nn.Parameter and torch.equal(found.weight, layer.weight)
print("done")
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_real_torch_does_what_is_asked_of_tensors() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", REAL_TORCH], capture_output=True, text=True, env=env, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.skipif(find_spec("cupy") is None, reason="cupy is not installed")
def test_the_real_cupy_is_recognised_without_a_driver() -> None:
    """And it has what is used of it. Its arrays can be made without a driver, but not be copied."""
    program = """
import pickle, traceback, cupy
from mpi_runtime import errors
from mpi_runtime.gpu import arrays
from mpi_runtime.core.objects import device_arrays, serialize

class Mine(cupy.ndarray):
    pass

memory = cupy.cuda.UnownedMemory(0x70000000, 1 << 20, None, device_id=0)
for kind in ("f4", "c16", "?"):
    array = cupy.ndarray((3, 4), dtype=kind, memptr=cupy.cuda.MemoryPointer(memory, 64))
    assert device_arrays.Pickler.dispatch_table[cupy.ndarray] is device_arrays._reduce
    assert device_arrays.Pickler.dispatch_table[Mine] is device_arrays._reduce
    assert arrays.known_class(type(array)) is cupy.ndarray
    try:
        serialize.dumps([array])
    except cupy.cuda.runtime.CUDARuntimeError as error:
        assert "_CupyWay(array)" in "".join(traceback.format_exception(error)), "all before went well"
    arrays._CupyWay.__init__ = lambda self, array: setattr(self, "nbytes", array.nbytes)
    facts, way, ordinal = arrays.find(array.T)
    assert facts == ("cupy", array.dtype, (4, 3), "F", None) and ordinal == 0
    data = pickle.dumps((facts, 0))
    try:
        device_arrays.make_on_device(facts, "n1:GPU 3", b"")
    except errors.DeviceUnavailableError as error:
        assert "cupy array on n1:GPU 3" in str(error)
    else:
        raise AssertionError
    assert serialize.loads(serialize.dumps(__import__("numpy").ones(3)).inline()).sum() == 3
runtime = cupy.cuda.runtime
assert (runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost) == (1, 2)
assert "dst, intptr_t src, size_t size, int kind, intptr_t stream" in runtime.memcpyAsync.__doc__
for owner, name in ((cupy.cuda, "alloc_pinned_memory"), (cupy.cuda, "get_current_stream"), (runtime, "getDeviceCount"),
                    (cupy.cuda.Device, "synchronize"), (cupy.cuda.Stream, "synchronize"), (cupy, "empty"),
                    (cupy, "ascontiguousarray"), (cupy, "from_dlpack"), (cupy.get_default_memory_pool(), "set_limit")):
    assert callable(getattr(owner, name))
try:
    array.view(Mine)
except cupy.cuda.runtime.CUDARuntimeError:
    pass  # of what comes after it was understood
print("done")
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
