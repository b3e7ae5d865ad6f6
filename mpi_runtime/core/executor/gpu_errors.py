"""Errors of CUDA in an executor: whether the process can continue, and which processes use up the memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mpi_runtime import config as configuration
from mpi_runtime import errors
from mpi_runtime.gpu.device import MIB, NODE, STATED, UNIT, Device
from mpi_runtime.scheduler.protocol.entries import GpuEntry

if TYPE_CHECKING:
    from mpi_runtime.gpu.faults import Fault
    from mpi_runtime.scheduler.protocol.amounts import Request


class Granted(NamedTuple):
    """The devices of an executor, and how much of them."""

    gpu_ids: Sequence[int]
    devices: Sequence[Device]
    shown: Mapping[str, str]
    """The variables that show them to this process."""
    units: int
    """Units of each device that are granted to the running call or the actor."""
    memory: int
    """Bytes of each device that are granted; 0: the request names none."""
    hostname: str


def fault(granted: Granted, error: BaseException) -> Fault | None:
    """Return why this process can no longer use its devices, if the error or CUDA shows that; else None."""
    from mpi_runtime.gpu import cuda_context, faults  # not at the top: only a failing call with GPUs needs them

    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return None  # a cancelled call, which should not wait for the device
    cuda = cuda_context.driver()
    found = faults.fault(error) or faults.of_number(cuda_context.error(cuda))
    if found is None:
        return None
    if found.number == faults.NO_DEVICE and not _shows_ours(granted):
        return None
    if found.blame == NODE and cuda_context.start_error(cuda) != found.number:
        return None  # CUDA works here: the error is from a process that the program has forked, for instance
    return found


def hold(devices: Sequence[Device], asked: Request) -> None:
    """Limit the libraries of this process to the granted part of a device. Several devices are granted as a whole."""
    if len(devices) == 1:
        from mpi_runtime.gpu import caps, ledger  # not at the top: only calls with GPUs need it

        device = devices[0]
        caps.set_cap(ledger.cap(device, asked.gpu, asked.gpu_memory), device.memory, configuration.own_environment())


def _shows_ours(granted: Granted) -> bool:
    """Whether this process is shown the devices that were found and granted. The user may have stated others."""
    is_stated = bool(granted.devices) and granted.devices[0].uuid.startswith(STATED)
    now = configuration.environment()
    return not is_stated and all(now.get(name) == text for name, text in granted.shown.items())


def note(error: BaseException, granted: Granted, in_use: Callable[[], list[GpuEntry]]) -> str:
    """Return which processes use a device on which a call found too little memory; empty for other errors.

    `in_use` asks the scheduler about the devices of this node.
    """
    if isinstance(error, errors.MpiRuntimeError) or not errors.is_gpu_out_of_memory(error):
        return ""
    try:
        table = in_use()
    except Exception as reason:  # the job may be ending; the error itself matters more
        return f"(What else uses the device is unknown: {reason})"
    known = {entry.id: entry for entry in table}
    lines = [_line(granted, device, known[id]) for id, device in zip(granted.gpu_ids, granted.devices, strict=True)]
    return "\n".join([*lines, _advice(granted)])


def _line(granted: Granted, device: Device, entry: GpuEntry) -> str:
    """Return the line about one device: its memory, and the grants of this call and of others."""
    units, memory = granted.units, granted.memory
    own = memory or device.memory * min(units, UNIT) // UNIT
    size = f" of {device.memory // MIB} MiB" if device.memory else ""
    promised = f", {own // MIB} MiB" if own else ""
    others = [
        f"{one.name or 'an idle process'} (pid {one.pid}) has {one.share:g}"
        + (f", {one.memory // MIB} MiB" if one.memory else "")
        for one in entry.used_by
        if one.pid != os.getpid()
    ]
    return (
        f"GPU {entry.id} ({device.uuid}){size} on {granted.hostname}: this call was granted "
        f"{min(units, UNIT) / UNIT:g} of it{promised}; {'; '.join(others) or 'no other call has any of it'}; "
        f"{entry.free:g} is free."
    )


def _advice(granted: Granted) -> str:
    if 0 < granted.units < UNIT or granted.memory:
        return (
            "A share is a promise, not a fence: others may have taken more than theirs. Ask for more with num_gpus or "
            'gpu_memory="...GB", limit what the library takes (docs/gpus.md), or work on smaller parts.'
        )
    return (
        "Only this call had the device. Earlier calls of this process may have left memory in the library's pool: "
        "free it (cupy: get_default_memory_pool().free_all_blocks(); torch: cuda.empty_cache()), set max_calls=1, work "
        'on smaller parts, or ask for a larger device with accelerator_type or gpu_memory="...GB".'
    )
