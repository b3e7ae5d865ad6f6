"""Resources: tasks say what they need, and are never started where it is not free.

A custom resource that only two tasks may have at a time; GPUs with their ids; half a GPU; more than there are. The GPUs
are phantoms: `num_gpus=4` is believed on a machine with none, which is how a GPU program is tried out on a laptop.
Amounts given to `init` are for each host.

    python examples/resources.py
    mpi-runtime run -n 4 examples/resources.py
"""

import os
import time

import mpi_runtime

os.environ["MPI_RUNTIME_FIND_GPUS"] = "never"  # pretended ones, where there are real ones too
mpi_runtime.init(num_cpus=4, num_gpus=4, resources={"camera": 2})

total = mpi_runtime.cluster_resources()
print("the job has", ", ".join(f"{name} {total[name]:g}" for name in ("CPU", "GPU", "camera")))


@mpi_runtime.remote(resources={"camera": 1})
def photograph() -> tuple[float, float]:
    """When the camera was taken, and when it was given back."""
    started = time.time()
    time.sleep(0.2)
    return started, time.time()


@mpi_runtime.remote(num_gpus=1)
def train() -> tuple[list[int], str]:
    """The ids of the devices that are this task's own, and what a CUDA library will see."""
    time.sleep(0.2)
    return mpi_runtime.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]


@mpi_runtime.remote(num_gpus=0.5)
class Model:
    """Shares a device with one other."""

    def device(self) -> list[int]:
        return mpi_runtime.get_gpu_ids()


@mpi_runtime.remote(num_gpus=3)
def train_on_three() -> list[int]:
    return mpi_runtime.get_gpu_ids()


shots = mpi_runtime.get([photograph.remote() for _ in range(6)])
at_once = max(sum(start <= moment < end for start, end in shots) for moment, _ in shots)
print(f"6 photographs on 2 cameras: at most {at_once} at once, {len(shots)} taken")
assert at_once <= 2

runs = mpi_runtime.get([train.remote() for _ in range(4)])
print("4 tasks with a GPU each had", ", ".join(f"id {ids[0]} ({visible})" for ids, visible in runs))
assert all(ids == [int(visible)] for ids, visible in runs)
assert all(0 <= ids[0] < 4 for ids, _ in runs)

models = [Model.remote() for _ in range(2)]
devices = [device for [device] in mpi_runtime.get([model.device.remote() for model in models])]
print(f"2 actors with half a GPU each share {devices}")

ids = mpi_runtime.get(train_on_three.remote())
print(f"a task with three whole GPUs had {ids}")
assert len(set(ids)) == 3
assert not set(ids) & set(devices)

try:
    mpi_runtime.get(train.options(num_gpus=128).remote())
except mpi_runtime.exceptions.InfeasibleResourceError as error:
    print(f"128 GPUs: {error}")
else:
    raise AssertionError("there are no 128 GPUs")
