"""The variables in which batch systems list the GPUs of a job. Only this module names them here.

Slurm writes the list into those that its `gres.conf` names for the node, or into all of them (`gres_common.c`).
"""

from __future__ import annotations

from collections.abc import Mapping

from mpi_runtime.slurm.systems import variables

OF_JOB = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Of NVIDIA, AMD and Intel: the first that is set counts."""
ALL = (*OF_JOB, "GPU_DEVICE_ORDINAL")
"""All that Slurm may write. The last is read by OpenCL only."""


def named(env: Mapping[str, str]) -> str:
    """Return the name of the variable that lists the GPUs of a process; empty if no variable does."""
    return next((name for name in OF_JOB if name in env), "")


def listed(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that a variable lists for a process; None if no variable does."""
    name = named(env)
    return variables.ids(env[name]) if name else None
