"""What becomes of calls, processes and devices when CUDA fails.

The machines are described (`tests/fake_nvml`), the errors are raised by stand-ins that have nothing but them
(`tests/fake_errors`); all else is real.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fake_nvml import machines
from tests.fake_nvml.machines import a100x4, no_driver, shown, v100_pairs
from tests.helpers import ROOT, Completed, run_program

BEGIN = f"""
import json, os, sys, time
sys.path.append({str(ROOT / "tests" / "fake_errors")!r})
import mpi_runtime as ray
from cupy.cuda.memory import OutOfMemoryError
from cupy_backends.cuda.api.runtime import CUDARuntimeError
import torch

DIRECTORY = os.environ["DIRECTORY"]

def times(name):
    "How often this was called, in all processes."
    with open(os.path.join(DIRECTORY, name), "a") as file:
        file.write(str(os.getpid()) + "\\n")
    return len(open(os.path.join(DIRECTORY, name)).read().split())

def raised(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")
"""


def run(source: str, machine: machines.Machine | Path, way: str | None = None, **variables: str) -> Completed:
    """Run a program where it finds this machine: by itself, or on four ranks."""
    described = shown({} if isinstance(machine, Path) else machine, **variables)
    if isinstance(machine, Path):
        described["FAKE_NVML_MACHINE"] = str(machine)
    return run_program(BEGIN + source, ranks=4 if way else None, mpi=way, env=described)


def test_memory_that_runs_out(tmp_path: Path) -> None:
    """The error is the library's, and ours, and says who has what of the device. The process goes on."""
    run(
        """
ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=0.5)
class Holder:
    def ready(self): ...

holder = Holder.remote()
ray.get(holder.ready.remote())

@ray.remote(num_cpus=0, num_gpus=0.25)
def grab(which):
    if which == "cupy":
        raise OutOfMemoryError(8 << 30, 1 << 30)
    if which == "torch":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")
    return os.getpid()

alive = ray.get(grab.remote(""))
for which, kind in (("cupy", OutOfMemoryError), ("torch", torch.OutOfMemoryError)):
    error = raised(ray.get, grab.remote(which))
    assert isinstance(error, kind) and isinstance(error, ray.errors.GpuOutOfMemoryError), error
    assert isinstance(error, ray.errors.TaskError) and isinstance(error.cause, kind)
    text = str(error)
    assert "GPU 0 (GPU-00000000" in text and "of 16384 MiB on" in text, text
    assert "this call was promised 0.25 of it, 4096 MiB; Holder (pid " in text, text
    assert ") has 0.5, 8192 MiB; 0.25 is promised to nobody." in text, text
    assert "A share is a promise, not a fence" in text
assert ray.get(grab.remote("")) == alive, "nothing is wrong with the process"

@ray.remote
def use(value):
    return value

error = raised(ray.get, use.remote(grab.remote("cupy")))
assert isinstance(error, OutOfMemoryError) and isinstance(error, ray.errors.GpuOutOfMemoryError)

@ray.remote(num_cpus=0, num_gpus=1)
class Model:
    def step(self):
        raise OutOfMemoryError(8 << 30, 1 << 30)
    def pid(self):
        return os.getpid()

model = Model.remote()
pid = ray.get(model.pid.remote())
text = str(raised(ray.get, model.step.remote()))
assert "this call was promised 1 of it, 16384 MiB; nobody else has any of it; 0 is promised to nobody." in text, text
assert "max_calls=1" in text
assert ray.get(model.pid.remote()) == pid
""",
        v100_pairs(),
        DIRECTORY=str(tmp_path),
    ).expect(0)


@pytest.mark.parametrize("way", [None, pytest.param("openmpi", marks=pytest.mark.mpi)])
def test_a_dead_context_is_never_met_twice(way: str | None, tmp_path: Path) -> None:
    """The process ends; the call is run again as after a crash; the next one finds another process."""
    done = run(
        """
ray.init(num_cpus=4)
before = ray.cluster_resources()["GPU"]

@ray.remote(num_cpus=0, num_gpus=1)
def work(name, errors):
    if times(name) <= errors:
        raise CUDARuntimeError(700)
    return os.getpid()

@ray.remote(num_cpus=0, num_gpus=1)
def touch():
    return os.getpid()

first = ray.get(work.remote("a", 2))
assert times("a") == 4, "twice in vain, once well, and now"

warm = ray.get(touch.remote())
error = raised(ray.get, work.options(max_retries=0).remote("b", 9))
assert isinstance(error, ray.errors.GpuExecutorDiedError), error
assert isinstance(error, ray.errors.WorkerCrashedError)
text = str(error)
assert "work did not end: its executor (pid " in text, text
assert "ended because CUDA answered cudaErrorIllegalAddress in work on GPU " in text, text
assert "It was run 1 time(s); max_retries is 0.\\nwork() failed: pid=" in text, text
assert "an illegal memory access was encountered" in text and "raise CUDARuntimeError(700)" in text, text
assert times("b") == 2
dead = int(open(os.path.join(DIRECTORY, "b")).read().split()[0])
assert dead not in ray.get([touch.remote() for _ in range(8)])
assert not os.path.exists(f"/proc/{dead}")

error = raised(ray.get, work.remote("c", 9))
assert "It was run 4 time(s); max_retries is 3." in str(error)
assert ray.cluster_resources()["GPU"] == before, "one function that fails everywhere is to blame, not the devices"

@ray.remote(num_cpus=1)
def on_no_gpu():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

assert not isinstance(raised(ray.get, on_no_gpu.remote()), ray.errors.GpuExecutorDiedError)
print("done")
""",
        v100_pairs(),
        way,
        DIRECTORY=str(tmp_path),
    ).expect(0)
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_actor_with_a_dead_context_is_created_again(concurrency: int, tmp_path: Path) -> None:
    run(
        f"""
ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=2, max_restarts=1, max_concurrency={concurrency})
class Model:
    def pid(self):
        return os.getpid()
    def step(self):
        try:
            raise RuntimeError("CUDA error: device-side assert triggered")
        except RuntimeError as error:
            raise ValueError("step failed") from error

model = Model.remote()
pid = ray.get(model.pid.remote())
error = raised(ray.get, model.step.remote())
assert isinstance(error, ray.errors.ActorUnavailableError), error
assert "CUDA answered cudaErrorAssert in Model.step on GPU " in str(error), error
again = ray.get(model.pid.remote())
assert again != pid
error = raised(ray.get, model.step.remote())
assert isinstance(error, ray.errors.ActorDiedError), error
assert "cudaErrorAssert in Model.step" in str(error) and "ValueError: step failed" in str(error), error
assert ray.cluster_resources()["GPU"] == 4
""",
        v100_pairs(),
        DIRECTORY=str(tmp_path),
    ).expect(0)


@pytest.mark.parametrize("way", [None, pytest.param("mpich", marks=pytest.mark.mpi)])
def test_a_device_that_fails_again_is_quarantined(way: str | None, tmp_path: Path) -> None:
    """Two fresh processes fail on it: it is given to nobody, its calls run elsewhere, and everybody can see it."""
    done = run(
        """
ray.init(num_cpus=4, num_gpus=2)

@ray.remote(num_cpus=0, num_gpus=1, max_retries=4)
def work():
    if ray.get_gpu_ids() == [0]:
        times("bad")
        raise CUDARuntimeError(214)
    time.sleep(0.3)
    return ray.get_gpu_ids()

@ray.remote(num_cpus=0, num_gpus=2)
def both(): ...

ray.get(both.remote())
assert ray.get([work.remote() for _ in range(4)]) == [[1]] * 4
assert times("bad") == 3, "two, and this"
assert ray.cluster_resources()["GPU"] == 1
assert ray.cluster_resources()["accelerator_type:V100"] == 1
assert ray.cluster_resources()["gpu_memory"] == 16384 << 20
while ray.available_resources().get("GPU") != 1:
    time.sleep(0.01)
bad, good = ray.nodes()[0]["gpus"]
assert bad["quarantined"] == "two fresh executors failed, the last with cudaErrorECCUncorrectable in work", bad
assert (bad["free"], bad["memory_free"], bad["used_by"]) == (0, 0, []), bad
assert (good["quarantined"], good["free"]) == ("", 1)
assert "GPU 0 (GPU-00000000" in ray.nodes()[0]["gpu_problems"][-1]
error = raised(ray.get, both.remote())
assert isinstance(error, ray.errors.InfeasibleResourceError), error
assert "1 x V100-16G (1 quarantined)" in str(error), error
print("done")
""",
        v100_pairs(),
        way,
        DIRECTORY=str(tmp_path),
    ).expect(0)
    assert done.stdout == "done\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpi_runtime: host ")
    assert ": GPU 0 (GPU-00000000-aaaa-bbbb-4000-000000000000) quarantined: two fresh executors failed" in line
    assert line.endswith("; 1 of 2 remain.")


def test_what_waits_for_a_device_that_is_quarantined(tmp_path: Path) -> None:
    """A call that waits for it fails as if it were made now; what can run without it runs on."""
    run(
        """
ray.init(num_cpus=4, num_gpus=2)

@ray.remote(num_cpus=0, num_gpus=1)
class Busy:
    def go(self, seconds):
        time.sleep(seconds)
        return ray.get_gpu_ids()

@ray.remote(num_cpus=0, num_gpus=2)
def both():
    return 1

@ray.remote(num_cpus=0, num_gpus=2)
class Pair:
    def f(self): ...

@ray.remote(num_cpus=0, num_gpus=1, max_retries=1)
def fail():
    raise CUDARuntimeError(999)

@ray.remote
def slow():
    time.sleep(1.5)

busy = Busy.remote()
(kept,) = ray.get(busy.go.remote(0))
waiting, later, pair = both.remote(), ray.remote(lambda _: 1).options(num_gpus=2).remote(slow.remote()), Pair.remote()
called = pair.f.remote()
error = raised(ray.get, fail.remote())
assert isinstance(error, ray.errors.GpuExecutorDiedError), error
for ref, kind in ((waiting, ray.errors.InfeasibleResourceError), (later, ray.errors.InfeasibleResourceError),
                  (called, ray.errors.ActorDiedError)):
    error = raised(ray.get, ref)
    assert isinstance(error, kind) and "quarantined" in str(error), error
assert ray.get(busy.go.remote(0)) == [kept], "the other one is none the worse"
assert ray.cluster_resources()["GPU"] == 1
""",
        a100x4(),
        DIRECTORY=str(tmp_path),
    ).expect(0)


def test_a_device_that_falls_off_the_bus_between_two_jobs(tmp_path: Path) -> None:
    """Of one program: the next job looks anew, warns, and works with the rest."""
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(v100_pairs()))
    done = run(
        f"""
ray.init(num_cpus=2)
assert ray.cluster_resources()["GPU"] == 4
ray.shutdown()
machine = json.load(open({str(file)!r}))
machine["gpus"][2]["errors"] = {{"*": "GPU_IS_LOST"}}
json.dump(machine, open({str(file)!r}, "w"))
ray.init(num_cpus=2)
assert ray.cluster_resources()["GPU"] == 3
have = ray.remote(lambda: os.environ["CUDA_VISIBLE_DEVICES"][:12]).options(num_gpus=1)
time.sleep(0.1)
assert "GPU-00000002" not in ray.get([have.remote() for _ in range(6)])
ray.shutdown()
""",
        file,
        DIRECTORY=str(tmp_path),
    ).expect(0)
    (line,) = done.stderr.splitlines()
    assert "GPU 2 does not answer (GpuIsLost) and is left out" in line


@pytest.mark.parametrize(("machine", "value", "asked", "text"), [
    (v100_pairs(), "", 2, "host {} has no GPU for this job (CUDA_VISIBLE_DEVICES= leaves 0 of its 4 GPUs)."),
    (v100_pairs(), "-1", 2, "host {} has no GPU for this job (CUDA_VISIBLE_DEVICES=-1 leaves 0 of its 4 GPUs)."),
    (v100_pairs(), "0,1", 3,
     "host {} has 2 x V100-16G for this job (CUDA_VISIBLE_DEVICES=0,1 leaves 2 of its 4 GPUs)."),
    (no_driver(), "", 2, "on host {} NVML reports DriverNotLoaded"),
])  # fmt: skip
def test_gpus_that_the_variable_hides_are_not_believed(
    machine: machines.Machine, value: str, asked: int, text: str, tmp_path: Path
) -> None:
    done = run(
        f"""
error = raised(lambda: ray.init(num_gpus={asked}))
assert isinstance(error, ray.errors.GpuDiscoveryError), error
print(str(error).replace(os.uname().nodename, "{{}}"))
""",
        machine,
        DIRECTORY=str(tmp_path),
        CUDA_VISIBLE_DEVICES=value,
    ).expect(0)
    assert done.stdout.startswith(f"init(num_gpus={asked}), but {text}")
