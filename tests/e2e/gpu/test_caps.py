"""What libraries may take of a GPU that calls share: on pretended cards whose memory processes really share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fake_nvml import machines
from tests.fake_nvml.machines import shown
from tests.helpers import ROOT, run_program

LIBRARIES = ROOT / "tests" / "fake_cuda" / "libraries"
MIB = 1 << 20
BEGIN = """
import os, sys, time
import numpy as np
import mpi_runtime as ray
from tests.e2e.shared import raised

MIB = 1 << 20
ray.init(num_cpus=4)

def taken(library, mib):
    if library == "cupy":
        import cupy
        return cupy.full((mib * MIB,), 1, np.uint8)
    import torch
    return torch.empty((mib * MIB,), dtype=torch.uint8, device="cuda")

@ray.remote(num_cpus=0, num_gpus=0.25)
class Sharer:
    def take(self, library, mib):
        self.x = taken(library, mib)
        return os.getpid()
    def jax(self):
        return os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE")
"""


def run(source: str, tmp_path: Path, **variables: str) -> None:
    """On one card of 64 MiB, of which each process takes 8 for its context."""
    machine = machines.v100_pairs()
    gpu = {**machine["gpus"][0], "memory_mib": 64}
    more = {"MPI_RUNTIME_GPU_RESERVE_MB": "8", "FAKE_CUDA_MEMORY": str(64 * MIB), "FAKE_CUDA_CONTEXT": str(8 * MIB)}
    env = shown({"gpus": [gpu]}, FAKE_CUDA_DIRECTORY=str(tmp_path), **{**more, **variables})
    env["PYTHONPATH"] = os.pathsep.join([str(LIBRARIES), str(env["PYTHONPATH"])])
    run_program(BEGIN + source, env=env).expect(0)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_share_is_what_a_process_gets_and_all_get_theirs(library: str, tmp_path: Path) -> None:
    """A quarter is 16 MiB, of which the context takes 8. Who wants more fails, and not its neighbours."""
    run(
        f"""
sharers = [Sharer.remote() for _ in range(4)]
ray.get(sharers[0].take.remote({library!r}, 1))
error = raised(ray.get, sharers[0].take.remote({library!r}, 12))
assert isinstance(error, ray.errors.GpuOutOfMemoryError) and "limit set to: 8,3" in str(error), error
assert len(set(ray.get([one.take.remote({library!r}, 7) for one in sharers]))) == 4
assert ray.get(sharers[0].jax.remote()) == ("0.1250", "false")
""",
        tmp_path,
    )


def test_a_process_that_is_used_again_has_what_the_next_call_is_promised(tmp_path: Path) -> None:
    run(
        """
@ray.remote(num_cpus=0)
def take(library, mib):
    x = taken(library, mib)
    return os.getpid(), os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")

for library in ("cupy", "torch"):
    first = ray.get(take.options(num_gpus=0.25).remote(library, 7))
    assert first[1] == "0.1250"
    half, fraction = ray.get(take.options(num_gpus=0.5).remote(library, 20))
    assert (half, fraction) == (first[0], "0.3750")
    error = raised(ray.get, take.options(num_gpus=0.25).remote(library, 9))
    assert isinstance(error, ray.errors.GpuOutOfMemoryError)
    assert ray.get(take.options(num_gpus=1).remote(library, 50))[1] is None
    by_memory = take.options(gpu_memory=10 * MIB)
    assert isinstance(raised(ray.get, by_memory.remote(library, 11)), ray.errors.GpuOutOfMemoryError)
    ray.get(by_memory.remote(library, 10))
""",
        tmp_path,
    )


def test_contexts_are_counted_beside_memory_that_is_asked_for(tmp_path: Path) -> None:
    """Three of 20 MiB do not fit onto 64, for each process takes 8 besides."""
    run(
        """
@ray.remote(num_cpus=0, gpu_memory=20 * MIB)
def take(seconds):
    x = taken("cupy", 20)
    begun = time.monotonic()
    time.sleep(seconds)
    return begun, time.monotonic()

spans = ray.get([take.remote(0.3) for _ in range(6)])
for begun, ended in spans:
    assert sum(one < ended and begun < other for one, other in spans) <= 3, spans
at_once = max(sum(one <= begun < other for one, other in spans) for begun, _ in spans)
assert at_once == 2, spans
error = raised(ray.get, take.options(gpu_memory=60 * MIB).remote(0))
assert isinstance(error, ray.errors.InfeasibleResourceError), error
assert "Each process takes 8 MiB of a GPU for itself, beside gpu_memory." in str(error), error
""",
        tmp_path,
    )


def test_what_the_user_tells_jax_is_left_alone(tmp_path: Path) -> None:
    run(
        """
assert ray.get(Sharer.remote().jax.remote()) == ("0.9", None)
""",
        tmp_path,
        XLA_PYTHON_CLIENT_MEM_FRACTION="0.9",
    )
