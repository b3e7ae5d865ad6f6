"""What only a real card can show: that the driver, CUDA and cupy do what the described machines of other tests do.

`pytest -m device` runs these and the examples and arrays of `tests/e2e` on one card. They need nvidia-smi and cupy.
"""

import shutil
import subprocess

import pytest

from tests.helpers import run_program

BEGIN = """
import ctypes, os, time
import cupy
import mpi_runtime as ray
from mpi_runtime.errors import GpuExecutorDiedError, GpuOutOfMemoryError

ray.init(num_cpus=4)

def uuids():
    "Of the devices that CUDA shows, in the order of its ordinals, by the driver: cupy ends one at its first zero byte."
    cuda, texts = ctypes.CDLL("libcuda.so.1"), []
    assert cuda.cuInit(0) == 0
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        assert cuda.cuDeviceGet(ctypes.byref(device), ordinal) == cuda.cuDeviceGetUuid(raw, device) == 0
        texts.append(bytes(raw).hex())
    return ["GPU-" + "-".join((t[:8], t[8:12], t[12:16], t[16:20], t[20:])) for t in texts]

@ray.remote(num_cpus=0, num_gpus=1)
def compute():
    a = cupy.random.random((256, 256))
    error = float(abs(a @ cupy.linalg.inv(a) - cupy.eye(256)).max())
    return uuids(), [one.uuid for one in ray.get_gpus()], error, os.getpid()
"""


@pytest.fixture(autouse=True, scope="module")
def card() -> list[str]:
    """A line of nvidia-smi for each device: its UUID, name, and MiB of memory."""
    cupy = pytest.importorskip("cupy")
    if not shutil.which("nvidia-smi") or not cupy.cuda.is_available():
        pytest.skip("needs nvidia-smi, and a GPU that cupy can use")
    command = ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def said(source: str, **variables: str) -> list[str]:
    """The lines that a program prints which finds the real devices."""
    done = run_program(BEGIN + source, env={"MPI_RUNTIME_FIND_GPUS": "always", **variables}).expect(0)
    return done.stdout.splitlines()


def test_what_is_found_is_what_nvidia_smi_says(card: list[str]) -> None:
    """The names and UUIDs are the same; of the memory we count what is left of the driver's own part."""
    found = said('for g in ray.nodes()[0]["gpus"]: print(g["uuid"], g["name"], g["memory"] >> 20, sep=", ")')
    assert sorted(line.rpartition(", ")[0] for line in found) == sorted(line.rpartition(", ")[0] for line in card)
    totals = {line.partition(",")[0]: int(line.rpartition(", ")[2]) for line in card}
    for line in found:
        assert 0.9 * totals[line.partition(",")[0]] <= int(line.rpartition(", ")[2]) <= totals[line.partition(",")[0]]


def test_a_task_has_the_device_that_it_is_told(card: list[str]) -> None:
    shown, told, error, _ = eval(said("print(ray.get(compute.remote()))")[0])
    assert shown == told
    assert len(told) == 1
    assert error < 1e-6


def test_who_asks_for_none_sees_none(card: list[str]) -> None:
    assert said("print(ray.get(ray.remote(lambda: cupy.cuda.is_available()).remote()))") == ["False"]


def test_a_warm_process_is_used_again(card: list[str]) -> None:
    assert said("print(len({ray.get(compute.remote())[3] for _ in range(5)}))") == ["1"]


def test_memory_is_free_when_the_process_is_gone(card: list[str]) -> None:
    """The next one, which is started then, finds as much free as the first did."""
    lines = said("""
@ray.remote(num_cpus=0, num_gpus=1)
class Holder:
    def free(self):
        return cupy.cuda.runtime.memGetInfo()[0]
    def fill(self):
        self.array = cupy.zeros(self.free() // 2, dtype=cupy.uint8)
        cupy.cuda.Device().synchronize()
        return self.free()

free = []
for _ in range(3):
    holder = Holder.remote()
    free.append(ray.get(holder.free.remote()))
    assert ray.get(holder.fill.remote()) < 0.6 * free[0]
    ray.kill(holder)
print(min(free) / max(free))
""")
    assert float(lines[0]) > 0.98


def test_memory_that_runs_out(card: list[str]) -> None:
    lines = said("""
@ray.remote(num_cpus=0, num_gpus=1)
def too_much():
    return cupy.zeros(cupy.cuda.runtime.memGetInfo()[1] * 2, dtype=cupy.uint8).size

try:
    ray.get(too_much.remote())
except GpuOutOfMemoryError as error:
    print(isinstance(error, cupy.cuda.memory.OutOfMemoryError))
print(ray.get(compute.remote())[2] < 1e-6)
""")
    assert lines == ["True", "True"]


def test_a_dead_context_costs_one_process(card: list[str]) -> None:
    lines = said("""
@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def wrong():
    cupy.RawKernel('extern "C" __global__ void f(int* p) { p[threadIdx.x] = 1; }', "f")((1,), (32,), (8,))
    cupy.cuda.Device().synchronize()

before = ray.get(compute.remote())[3]
try:
    ray.get(wrong.remote())
except GpuExecutorDiedError as error:
    print("illegal" in str(error).lower())
after = ray.get(compute.remote())
print(after[2] < 1e-6, after[3] != before)
""")
    assert lines == ["True", "True True"]


def test_a_dead_context_that_nobody_told_of(card: list[str]) -> None:
    """The call that kills it catches the error, and the next one has an argument on the device."""
    lines = said("""
@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def break_it():
    try:
        cupy.RawKernel('extern "C" __global__ void f(int* p) { p[threadIdx.x] = 1; }', "f")((1,), (32,), (8,))
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return os.getpid()

@ray.remote(num_cpus=0, num_gpus=1)
def make():
    return cupy.arange(100_000)

@ray.remote(num_cpus=0, num_gpus=1)
def total(x):
    return int(x.sum()), os.getpid()

there = make.remote()
ray.wait([there])
for _ in range(3):
    broken = ray.get(break_it.remote())
    found, pid = ray.get(total.remote(there))
    print(found == 99_999 * 50_000, pid != broken)
""")
    assert lines == ["True True"] * 3


def test_shares_are_held_to_what_they_are_promised(card: list[str]) -> None:
    lines = said("""
@ray.remote(num_cpus=0, num_gpus=0.25)
def take(part):
    free, total = cupy.cuda.runtime.memGetInfo()
    try:
        return cupy.zeros(int(total * part), cupy.uint8).nbytes > 0
    except cupy.cuda.memory.OutOfMemoryError as error:
        return "limit set to" in str(error) and "limit"

print(ray.get([take.remote(0.2), take.remote(0.26)]))
""")
    assert lines == ["[True, 'limit']"]


def test_a_driver_that_uses_no_gpu_makes_no_context(card: list[str]) -> None:
    """Only the executor's process is on the device after the driver has read an array."""
    lines = said("""
import subprocess
def pids():
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.split()

@ray.remote(num_cpus=0, num_gpus=1)
class Model:
    def make(self):
        return cupy.arange(100_000)

model = Model.remote()
found = ray.get(model.make.remote())
print(type(found).__module__, len(pids()) <= 1)
""")
    assert lines == ["numpy True"]


PINNED = """
import signal
import numpy as np
ray.shutdown()
ray.init(num_cpus=4, object_store_memory=120_000_000)

@ray.remote(num_cpus=0, num_gpus=0.5)
class Pins:
    def make(self, n, add):
        import LIBRARY
        return LIBRARY.arange(n, **OPTIONS) * 2 + add
    def total(self, x):
        return int(x.sum())
    def pid(self):
        return os.getpid()

def check(pins, other):
    for number in range(12):
        n = 2_000_001 + 1000 * (number % 3)
        ref = pins.make.remote(n, number)
        wanted = np.arange(n) * 2 + number
        assert np.array_equal(ray.get(ref, device="cpu"), wanted)
        assert ray.get(other.total.remote(ref)) == ray.get(pins.total.remote(ref)) == wanted.sum()
        del ref
        if number % 4 == 3:
            refs = [ray.put(np.full(3_000_000, number + each)) for each in range(4)]
            assert all((ray.get(ref) == number + each).all() for each, ref in enumerate(refs))
            del refs

pins, other = Pins.remote(), Pins.remote()
check(pins, other)
for number in range(5):  # killed while the device writes into the object store, or near it
    pid = ray.get(pins.pid.remote())
    lost = [pins.make.remote(2_000_001, 1) for _ in range(20)]
    time.sleep(number * 0.005)
    os.kill(pid, signal.SIGKILL)
    del lost
    pins = Pins.remote()
    check(pins, other)
print("done")
"""


def test_an_object_store_of_which_much_is_pinned(card: list[str]) -> None:
    source = PINNED.replace("LIBRARY", "cupy").replace("OPTIONS", "{}")
    assert said(source, MPI_RUNTIME_GPU_PIN_MB="40") == ["done"]


TORCH = """
import torch
"""


@pytest.fixture
def torch() -> None:
    """Torch, if it can use the card."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch finds no GPU that it can use")


def test_torch_has_the_device_that_a_task_is_told(card: list[str], torch: None) -> None:
    lines = said(f"""{TORCH}
@ray.remote(num_cpus=0, num_gpus=1)
def compute():
    a = torch.rand(256, 256, device="cuda", dtype=torch.float64)
    error = (a @ torch.linalg.inv(a) - torch.eye(256, device="cuda", dtype=torch.float64)).abs().max().item()
    return torch.cuda.device_count(), error < 1e-6, torch.cuda.get_device_name(0) == ray.get_gpus()[0].name

print(ray.get(compute.remote()))
""")
    assert lines == ["(1, True, True)"]


def test_tensors_on_a_card(card: list[str], torch: None) -> None:
    lines = said(f"""{TORCH}
import numpy as np

@ray.remote(num_cpus=0, num_gpus=1)
def make(n):
    return torch.arange(n, device="cuda") * 2 + 1

@ray.remote(num_cpus=0, num_gpus=1)
def total(x):
    assert type(x) is torch.Tensor and x.is_cuda
    return int(x.sum())

for n in (0, 100, 500_000, 5_000_001):
    ref = make.remote(n)
    expected = np.arange(n) * 2 + 1
    assert ray.get(total.remote(ref)) == expected.sum()
    assert np.array_equal(ray.get(ref, device="cpu"), expected)
print("done")
""")
    assert lines == ["done"]


def test_torch_and_what_ends_its_context(card: list[str], torch: None) -> None:
    lines = said(f"""{TORCH}
@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def wrong():
    index = torch.tensor([1 << 40], device="cuda")
    torch.zeros(3, device="cuda")[index].cpu()

@ray.remote(num_cpus=0, num_gpus=1)
def right():
    return torch.zeros(3, device="cuda").sum().item()

try:
    ray.get(wrong.remote())
except GpuExecutorDiedError as error:
    print("GpuExecutorDiedError")
print(ray.get(right.remote()))
""")
    assert lines == ["GpuExecutorDiedError", "0.0"]


def test_torch_is_held_to_a_share(card: list[str], torch: None) -> None:
    lines = said(f"""{TORCH}
@ray.remote(num_cpus=0, num_gpus=0.25)
def take(part):
    free, total = torch.cuda.mem_get_info()
    return torch.empty(int(total * part), dtype=torch.uint8, device="cuda").numel() > 0

print(ray.get(take.remote(0.2)))
try:
    ray.get(take.remote(0.26))
except GpuOutOfMemoryError as error:
    print(isinstance(error, torch.OutOfMemoryError))
""")
    assert lines == ["True", "True"]


def test_torch_and_a_pinned_object_store(card: list[str], torch: None) -> None:
    source = PINNED.replace("LIBRARY", "torch").replace("OPTIONS", '{"device": "cuda"}')
    assert said(source, MPI_RUNTIME_GPU_PIN_MB="40") == ["done"]
