"""What becomes of calls, processes and devices when CUDA fails.

The machines are described (`tests/fake_nvml`), the errors are raised by stand-ins that have nothing but them
(`tests/fake_errors`); all else is real.
"""

from __future__ import annotations

import json
import os
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
from tests.e2e.shared import raised

DIRECTORY = os.environ["DIRECTORY"]

def times(name):
    "How often this was called, in all processes."
    with open(os.path.join(DIRECTORY, name), "a") as file:
        file.write(str(os.getpid()) + "\\n")
    return calls(name)

def calls(name):
    path = os.path.join(DIRECTORY, name)
    return len(open(path).read().split()) if os.path.exists(path) else 0
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
    assert "this call was granted 0.25 of it, 4096 MiB; Holder (pid " in text, text
    assert ") has 0.5, 8192 MiB; 0.25 is free." in text, text
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
assert "this call was granted 1 of it, 16384 MiB; no other call has any of it; 0 is free." in text, text
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
assert "max_retries" not in text and ".\\nwork() failed: pid=" in text, text
assert "an illegal memory access was encountered" in text and "raise CUDARuntimeError(700)" in text, text
assert times("b") == 2
dead = int(open(os.path.join(DIRECTORY, "b")).read().split()[0])
assert dead not in ray.get([touch.remote() for _ in range(8)])
assert not os.path.exists(f"/proc/{dead}")

error = raised(ray.get, work.remote("c", 9))
assert "It was run 4 times; max_retries is 3." in str(error)
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
    assert all(" work is run again (" in line for line in done.stderr.splitlines())


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
    while calls("bad") < 2:  # else all might run here
        time.sleep(0.01)
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
    (line,) = [line for line in done.stderr.splitlines() if " work is run again (" not in line]
    assert " mpi_runtime: host " in line
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
    while not os.path.exists(os.path.join(DIRECTORY, "quarantined")):
        time.sleep(0.01)

busy = Busy.remote()
(kept,) = ray.get(busy.go.remote(0))
waiting, later, pair = both.remote(), ray.remote(lambda _: 1).options(num_gpus=2).remote(slow.remote()), Pair.remote()
called = pair.f.remote()
error = raised(ray.get, fail.remote())
assert isinstance(error, ray.errors.GpuExecutorDiedError), error
times("quarantined")
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

@ray.remote(num_gpus=1, num_cpus=0)
class Have:
    def which(self):
        return os.environ["CUDA_VISIBLE_DEVICES"][:12]

actors = [Have.remote() for _ in range(3)]  # all that there are, at a time
assert sorted(ray.get([actor.which.remote() for actor in actors])) == ["GPU-00000000", "GPU-00000001", "GPU-00000003"]
del actors
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


# On pretended GPUs, whose contexts die (`tests/fake_cuda`)

ON_FAKES = """
import json, os, sys, time
import numpy as np
import mpi_runtime as ray
from tests.e2e.shared import raised
from tests.fake_cuda import memory

ray.init(num_cpus=4)

@ray.remote(num_cpus=0, num_gpus=1)
def make(n):
    import cupy
    return cupy.arange(n)

@ray.remote(num_cpus=0, num_gpus=1)
def pid(x=None):
    return os.getpid()

@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def break_it(how):
    import cupy
    cupy.arange(3)
    if how != "plain":
        memory.fault(700)
    if how == "blas":
        raise type("CUBLASError", (RuntimeError,), {"__module__": "cupy_backends.cuda.libs.cublas"})("EXECUTION_FAILED")
    if how in ("value", "plain"):
        raise ValueError("no batch")
    return os.getpid()
"""
LIBRARIES = ROOT / "tests" / "fake_cuda" / "libraries"


def run_on_fakes(source: str, machine: machines.Machine, **variables: str) -> Completed:
    env = shown(machine, **variables)
    env["PYTHONPATH"] = os.pathsep.join([str(LIBRARIES), str(env["PYTHONPATH"])])
    return run_program(ON_FAKES + source, env=env).expect(0)


def one_gpu() -> machines.Machine:
    machine = v100_pairs()
    return {**machine, "gpus": machine["gpus"][:1], "nvlink": []}


def test_a_dead_context_that_an_argument_meets(tmp_path: Path) -> None:
    """The call before has killed it and said nothing. Reading the array fails; another process runs the call."""
    done = run_on_fakes(
        """
ref = ray.put(np.arange(3))
there = make.remote(100_000)
ray.wait([there])
for _ in range(3):
    bad = ray.get(break_it.remote("silently"))
    found = ray.get(pid.remote(there))
    assert found != bad
    assert not os.path.exists(f"/proc/{bad}")
assert ray.cluster_resources()["GPU"] == 1
""",
        one_gpu(),
    )
    assert all(" pid is run again (" in line for line in done.stderr.splitlines())


def test_errors_that_carry_no_number_of_cuda(tmp_path: Path) -> None:
    """CUDA is asked whether the context lives: of cuBLAS's own error, and of one of the program."""
    run_on_fakes(
        """
for how in ("blas", "value"):
    error = raised(ray.get, break_it.remote(how))
    assert isinstance(error, ray.errors.GpuExecutorDiedError), error
    assert "CUDA answered cudaErrorIllegalAddress in break_it on GPU 0" in str(error), error
alive = ray.get(pid.remote())
error = raised(ray.get, break_it.remote("plain"))
assert isinstance(error, ValueError) and not isinstance(error, ray.errors.GpuExecutorDiedError), error
assert ray.get(pid.remote()) == alive
""",
        one_gpu(),
    )


def test_cuda_that_does_not_start_is_said_once_and_blamed_on_the_node() -> None:
    """As when the fabric manager is down: every call would fail there, as fast as it can."""
    done = run_on_fakes(
        """
refs = [make.remote(10) for _ in range(20)]
kinds = {type(raised(ray.get, ref)).__name__ for ref in refs}
assert kinds == {"InfeasibleResourceError"}, kinds
error = raised(ray.get, refs[-1])
assert "CUDA does not start: cudaErrorSystemNotReady." in str(error), error
""",
        v100_pairs(),
        FAKE_CUDA_START="802",
    )
    (line,) = [line for line in done.stderr.splitlines() if " is run again (" not in line]
    assert "CUDA does not start on this node: cudaErrorSystemNotReady. None of its 4 GPU(s) is used any more." in line


def test_a_library_that_takes_every_error_for_no_gpu_is_not_believed() -> None:
    """cupy's `is_available` says False for good where the card will not start: what it says is the card's error."""
    run_on_fakes(
        """
there = make.remote(100_000)
ray.wait([there])

@ray.remote(num_cpus=0, num_gpus=1, max_retries=0, runtime_env={"env_vars": {"FAKE_CUDA_START": "3"}})
def given(x): ...

error = raised(ray.get, given.remote(there))
assert "cudaErrorInitializationError" in str(error), error
assert isinstance(error, ray.errors.GpuExecutorDiedError), error
""",
        v100_pairs(),
    )


def test_devices_that_the_user_names_are_no_fault_of_ours() -> None:
    """100 is then the answer to what he wrote: the call fails with it, and nothing is concluded."""
    done = run_on_fakes(
        """
wrong = make.options(runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": "GPU-of-another-machine"}}, max_retries=0)
for _ in range(3):
    error = raised(ray.get, wrong.remote(10))
    assert "cudaErrorNoDevice" in str(error) and not isinstance(error, ray.errors.GpuExecutorDiedError), error

@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def hide():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import cupy
    cupy.arange(3)

for _ in range(3):
    error = raised(ray.get, hide.remote())
    assert not isinstance(error, ray.errors.GpuExecutorDiedError), error
assert ray.cluster_resources()["GPU"] == 1
""",
        one_gpu(),
    )
    assert done.stderr == ""


def test_a_device_that_others_use_up_is_kept() -> None:
    done = run_on_fakes(
        """
busy = make.options(runtime_env={"env_vars": {"FAKE_CUDA_BUSY": "1"}}, max_retries=0)
for _ in range(4):
    error = raised(ray.get, busy.remote(10))
    assert isinstance(error, ray.errors.GpuExecutorDiedError) and "others use it up" in str(error), error
assert ray.get(make.remote(3), device="cpu").tolist() == [0, 1, 2]
""",
        one_gpu(),
    )
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["in its group", "in a group of its own", "by a parent of its own"])
def test_memory_that_forked_children_hold_is_waited_for(how: str, tmp_path: Path) -> None:
    """As loaders of data are forked: they have inherited the files of the GPU. The next process finds it empty."""
    done = run_on_fakes(
        f"""
import signal, subprocess
HOW = {how!r}

@ray.remote(num_cpus=0, num_gpus=1)
class Model:
    def fill(self):
        import cupy
        self.x = cupy.full((700,), 1, np.uint8)
        child = os.fork()
        if child:
            return os.getpid()
        if HOW != "in its group":
            os.setsid()
        if HOW == "by a parent of its own" and os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        ballast = bytearray(200 << 20)  # so that its end takes a while
        for at in range(0, len(ballast), 4096):
            ballast[at] = 1
        open(os.path.join({str(tmp_path)!r}, "ready"), "a").write("x")
        time.sleep(60)

for _ in range(3):
    model = Model.remote()
    ray.get(model.fill.remote())
    while not os.path.exists(os.path.join({str(tmp_path)!r}, "ready")):
        time.sleep(0.01)
    os.unlink(os.path.join({str(tmp_path)!r}, "ready"))
    ray.kill(model)
    del model
ray.get(pid.remote())
""",
        one_gpu(),
        FAKE_CUDA_DIRECTORY=str(tmp_path / "devices"),
        FAKE_CUDA_MEMORY="1000",
    )
    assert done.stderr == ""
