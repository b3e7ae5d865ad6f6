"""Which devices a process may use: those that a driver lists, restricted by variables and the launcher. Pure.

NVML ignores `CUDA_VISIBLE_DEVICES`; CUDA obeys it, by the rules in the appendix on environment variables of the CUDA
programming guide. The rules of other vendors are in `masks.py`. Tasks get devices by number, because many programs
understand nothing else. They get them by UUID if the numbering is uncertain: for MIG instances, and if the driver
counts a GPU that does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mpi_runtime.gpu import masks
from mpi_runtime.gpu.device import Card, Device, Report, Visible
from mpi_runtime.gpu.vendor import AMD, INTEL, NOTHING, NVIDIA, ORDER, Vendor, vendor

VISIBLE = NVIDIA.variable


def visible(report: Report, environment: Mapping[str, str]) -> Visible:
    """Return those of the devices that this environment allows, by the rules of their vendor."""
    if report.vendor == AMD.key:
        return masks.of_amd(report, environment)
    return masks.of_intel(report, environment) if report.vendor == INTEL.key else of_nvidia(report, environment)


def of_nvidia(report: Report, environment: Mapping[str, str]) -> Visible:
    """Return those of the devices that this environment allows, by CUDA's rules."""
    value = environment.get(VISIBLE)
    tokens = _tokens(report)
    if value is None:
        return Visible(list(report.devices), tokens)
    entries = [entry.strip() for entry in value.split(",")]
    found: dict[str, str] = {}
    problem = ""
    for entry in entries:
        if entry in NOTHING:
            break
        card_or_devices = _named(entry, report)
        if card_or_devices is None:
            used = f"only the devices before it are used ({len(found)})" if found else "no GPU is used"
            problem = f"{VISIBLE}={value}: there is no device {entry!r} for this process; as in CUDA, {used}"
            break
        devices, is_number = card_or_devices
        if is_number and not _numbers_are_sure(report, environment):
            return Visible([], {}, (
                f"{VISIBLE}={value} names GPUs by number, they are of different models, and {ORDER} is not PCI_BUS_ID: "
                f"CUDA then numbers them by speed, which is not known here. No GPU is used. Set {ORDER}=PCI_BUS_ID, or "
                "name them by UUID"
            ))  # fmt: skip
        if any(device.uuid in found for device in devices):
            return Visible([], {}, f"{VISIBLE}={value} names a device twice: CUDA then shows none. No GPU is used")
        for device in devices:
            found[device.uuid] = tokens[device.uuid]
    return Visible([device for device in report.devices if device.uuid in found], found, problem)


def _tokens(report: Report) -> dict[str, str]:
    """Return CUDA's name for each device, by its UUID."""
    is_sure = not report.missing and not any(device.is_instance for device in report.devices)
    numbers = {card.uuid: str(number) for number, card in enumerate(report.cards)}
    return {device.uuid: numbers[device.card] if is_sure else device.uuid for device in report.devices}


def _named(entry: str, report: Report) -> tuple[list[Device], bool] | None:
    """Return the devices that an entry names, and whether it is a number; None if it names no device."""
    if found := re.match(r"\d+", entry):  # CUDA reads no further
        number = int(found[0]) if len(found[0]) < 10 else len(report.cards)
        return (_of_card(report.cards[number], report), True) if number < len(report.cards) else None
    old = re.fullmatch(r"MIG-(GPU-[^/]+)/(\d{1,9})/(\d{1,9})", entry)
    if old:
        instance = (int(old[2]), int(old[3]))
        named = [one for one in report.devices if one.card == old[1] and one.instance == instance]
    elif entry.startswith("MIG-"):
        named = [one for one in report.devices if one.uuid.startswith(entry)]
    elif entry.startswith("GPU-"):
        cards = [card for card in report.cards if card.uuid.startswith(entry)]
        return (_of_card(cards[0], report), False) if len(cards) == 1 else None
    else:
        return None
    return (named, False) if len(named) == 1 else None


def _of_card(card: Card, report: Report) -> list[Device]:
    """Return a whole GPU, or all MIG instances of a split one: a card's number or UUID does not say which instance."""
    return [device for device in report.devices if device.card == card.uuid]


def _numbers_are_sure(report: Report, environment: Mapping[str, str]) -> bool:
    """Whether CUDA numbers devices in the order of PCI addresses. Its default is the fastest first."""
    return environment.get(ORDER) == "PCI_BUS_ID" or len({card.name for card in report.cards}) <= 1


def stated_tokens(one: Vendor, environment: Mapping[str, str], count: int) -> list[str]:
    """Return names for stated devices, which were not probed: entries of the user's variable, else 0, 1, ..."""
    value = environment.get(one.variable)
    entries = [entry.strip() for entry in value.split(",")] if value else []
    return entries[:count] if len(entries) >= count else [str(number) for number in range(count)]


def restrictions(report: Report, environment: Mapping[str, str]) -> str:
    """Return the variables that restrict which devices this process sees, as text; empty if there are none."""
    names = vendor(report.vendor).narrowed_by
    return " ".join(f"{name}={environment[name]}" for name in names if name in environment)


def not_told(report: Report, environment: Mapping[str, str]) -> str:
    """Return a message if it is unknown which devices of the node belong to the job; empty if it is known.

    `srun --gpu-bind=none` leaves the variable unset (seen with Slurm 22.05). If no control group hides the devices of
    other jobs, a process then sees all devices of the node.
    """
    granted = environment.get("SLURM_GPUS_ON_NODE", "")
    there = min(len(report.cards), len(report.devices))  # with parts of GPUs, Slurm's GPUs may be cards or parts
    is_told = bool(restrictions(report, environment))
    if is_told or not granted.isdecimal() or len(granted) > 9 or there <= int(granted):
        return ""
    return (
        f"Slurm has given the job {granted} of the {there} GPUs to be seen, and {vendor(report.vendor).of_batch}, "
        "which would name them, is not set: the others may belong to other jobs. No GPU is used. Start without "
        "--gpu-bind=none, or set the variable"
    )


def trap(environment: Mapping[str, str], launcher: str) -> str:
    """Return a message about a known problem of a kind of launcher in the environment of a rank; empty: no problem."""
    if launcher in ("openmpi", "mpich") and "SLURM_GPUS_PER_TASK" in environment:
        return (
            "Slurm was asked for --gpus-per-task, which does not reach ranks that mpirun starts: they may all see the "
            "same GPU. Use --gpus-per-node, or start the program with srun"
        )
    return ""
