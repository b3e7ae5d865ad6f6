"""What an executor makes of errors of CUDA: whether it can go on, and what it can say of memory that ran out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpi_runtime import errors
from mpi_runtime.gpu.device import MIB, Device
from mpi_runtime.gpu.ledger import STATED, UNIT

if TYPE_CHECKING:
    from mpi_runtime.gpu.faults import Fault
    from mpi_runtime.processes.client import Client
    from mpi_runtime.processes.executor import Executor


def fault(devices: Sequence[Device], error: BaseException) -> Fault | None:
    """Why this process can use its devices no more, if that is what an error says."""
    from mpi_runtime.gpu import faults  # not at the top: only a failing call with GPUs pays for it

    found = faults.fault(error)
    is_believed = devices and devices[0].uuid.startswith(STATED)
    return None if found is not None and found.name == "cudaErrorNoDevice" and is_believed else found


def note(executor: Executor, client: Client, error: BaseException) -> str:
    """If a call has found too little memory on a device: who has what of it, in words. Else nothing."""
    if isinstance(error, errors.MpiRuntimeError) or not errors.is_gpu_out_of_memory(error):
        return ""
    try:
        table = client.questions.query("nodes", client.host.to_bytes(16, "big"))[0]["gpus"]
    except Exception as reason:  # the job ends: the error is what matters
        return f"(What else is on the device cannot be told: {reason})"
    known = {entry["id"]: entry for entry in table}
    lines = [_line(executor, device, known[id]) for id, device in zip(executor.gpus, executor.devices, strict=True)]
    return "\n".join([*lines, _advice(executor)])


def _line(executor: Executor, device: Device, entry: dict[str, Any]) -> str:
    """One device: what it has, what this call was promised of it, what others were."""
    units, memory = executor.promised
    own = memory or device.memory * min(units, UNIT) // UNIT
    size = f" of {device.memory // MIB} MiB" if device.memory else ""
    promised = f", {own // MIB} MiB" if own else ""
    others = [
        f"{one['name'] or 'an idle process'} (pid {one['pid']}) has {one['share']:g}"
        + (f", {one['memory'] // MIB} MiB" if one["memory"] else "")
        for one in entry["used_by"]
        if one["pid"] != os.getpid()
    ]
    return (
        f"GPU {entry['id']} ({device.uuid}){size} on {executor.hostname}: this call was promised "
        f"{min(units, UNIT) / UNIT:g} of it{promised}; {'; '.join(others) or 'nobody else has any of it'}; "
        f"{entry['free']:g} is promised to nobody."
    )


def _advice(executor: Executor) -> str:
    """What to do about it."""
    if 0 < executor.promised[0] < UNIT or executor.promised[1]:
        return (
            "A share is a promise, not a fence: others may have taken more than theirs. Ask for more with num_gpus or "
            'gpu_memory="...GB", limit what the library takes (docs/gpus.md), or work on smaller parts.'
        )
    return (
        "The device was this call's alone, but for what earlier calls of this process have left in the library's pool: "
        "free it (cupy: get_default_memory_pool().free_all_blocks(); torch: cuda.empty_cache()), set max_calls=1, work "
        'on smaller parts, or ask for a larger device with accelerator_type or gpu_memory="...GB".'
    )
