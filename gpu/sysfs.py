"""Reads facts about devices from the files of the kernel, below a root that tests put elsewhere."""

from __future__ import annotations

import contextlib

from mpi_runtime.gpu.device import Device, Measures
from mpi_runtime.gpu.vendor import names_in, text

SAME_CARD, SAME_NUMA, FAR = 0, 40, 50
"""Levels of a path between devices, as NVML has them."""


def pci(root: str, address: str) -> str:
    """Return the directory of a PCI device."""
    return f"{root}sys/bus/pci/devices/{address}"


def number(path: str, default: int) -> int:
    """Return the number in a file, or the default if the file has no number."""
    with contextlib.suppress(ValueError):
        return int(text(path), 0)
    return default


def properties(path: str, missing_ok: bool = False) -> dict[str, int]:
    """Return the numbers in a file with a name and a number on each line.

    Raises:
        OSError: the file cannot be read, unless `missing_ok`.
    """
    found = {}
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except OSError:
        if missing_ok:
            return {}
        raise
    for line in lines:
        name, _, value = line.partition(" ")
        with contextlib.suppress(ValueError):
            found[name] = int(value, 0)
    return found


def processors(listed: str) -> tuple[int, ...]:
    """Read a list of processors, `0-7,64-71`; empty if it makes no sense."""
    found: list[int] = []
    for part in filter(None, listed.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def host(root: str) -> str:
    """Return what tells this host from others, and is the same in all its containers."""
    return text(f"{root}proc/sys/kernel/random/boot_id")[:8] or "host"


def distance(one: Device, other: Device) -> int:
    """Return the level of the path over PCI between two devices, as far as it is known: by their NUMA nodes."""
    if one.bus == other.bus:
        return SAME_CARD
    return SAME_NUMA if one.numa == other.numa and one.numa >= 0 else FAR


def temperature(place: str) -> int:
    """Return the degrees Celsius of the first sensor of a PCI device; -1 if it has none."""
    for name in sorted(names_in(f"{place}/hwmon")):
        for sensor in ("temp1_input", "temp2_input"):
            if (found := number(f"{place}/hwmon/{name}/{sensor}", -1)) >= 0:
                return found // 1000
    return -1


def silent(uuid: str) -> Measures:
    """Return the measures of a device that is no longer there."""
    return Measures(uuid, fault="does not answer")
