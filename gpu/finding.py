"""Runs in helper processes: asks the drivers of all vendors which devices there are, and what is measured at them.

Drivers may hang, and their libraries should not be in a process with MPI.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence

import msgspec

from mpi_runtime.gpu import amd, intel, nvidia
from mpi_runtime.gpu.device import Measures, Report
from mpi_runtime.gpu.vendor import AMD, INTEL, NVIDIA, VENDORS, vendor, vendors_with_signs

UNUSED_S = 60.0
"""Seconds without a question after which the helper that measures ends."""


def main(descriptor: int, wish: str, root: str) -> None:
    """Run the helper process that looks for devices: write the report to this descriptor and end."""
    _end_with_parent()
    data = msgspec.msgpack.encode(look(wish, root))
    with open(descriptor, "wb") as file:
        file.write(data)
    os._exit(0)  # without the exit handlers of libraries: they may hang if the driver is broken


def look(wish: str, root: str) -> Report:
    """Return the devices of one vendor.

    `wish` is "auto", "always" (all vendors, also without a sign of them) or the key of a vendor, whose integrated
    graphics count then too. `root` is that of the machine.
    """
    signs = vendors_with_signs(root)
    if wish in [one.key for one in VENDORS]:
        return _look_for(wish, root, with_integrated=True)
    keys = [one.key for one in VENDORS] if wish == "always" else signs
    reports = [_look_for(key, root, with_integrated=False) for key in keys]
    usable = [one for one in reports if one.devices]
    if len(usable) > 1:
        return Report(error=_choose(usable))
    for report in usable:
        others = (one.error for one in reports if one.error and one.vendor in signs)
        report.problems += others
        return report
    known = [one for one in reports if one.cards or one.problems] or [one for one in reports if one.error]
    return known[0] if known else Report()


def _look_for(key: str, root: str, with_integrated: bool) -> Report:
    if key == AMD.key:
        return amd.look(root, with_integrated)
    if key == INTEL.key:
        return intel.look(root, with_integrated)
    report = nvidia.look()
    report.vendor = NVIDIA.key
    return report


def _choose(reports: Sequence[Report]) -> str:
    """Return the error for a machine with devices of several vendors: a call could not use them together."""
    have = " and ".join(f"{len(one.devices)} of {vendor(one.vendor).name}" for one in reports)
    keys = " or ".join(f"MPI_RUNTIME_FIND_GPUS={one.vendor}" for one in reports)
    return f"there are GPUs of several vendors, {have}, and a job uses those of one on each host. Set {keys}"


def measure_often(questions: int, answers: int, key: str, uuids: Sequence[str], root: str) -> None:
    """Run another helper: answer each byte of one pipe with a line of JSON on the other, the measures of these GPUs.

    It ends when the pipe is closed, or if nobody asks for `UNUSED_S`.
    """
    _end_with_parent()
    while select.select([questions], [], [], UNUSED_S)[0] and os.read(questions, 64):
        with open(answers, "wb", closefd=False) as file:
            file.write(msgspec.json.encode(_measures(key, uuids, root)) + b"\n")
    os._exit(0)


def _measures(key: str, uuids: Sequence[str], root: str) -> list[Measures]:
    if key == AMD.key:
        return amd.measure(root, uuids)
    return intel.measure(root, uuids) if key == INTEL.key else nvidia.measure(uuids)


def _end_with_parent() -> None:
    """In case the driver hangs and our parent is killed."""
    import ctypes  # pynvml needs it too

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
