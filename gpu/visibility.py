"""Which devices a process may use: what NVML lists, as CUDA_VISIBLE_DEVICES and the launcher narrow it. Pure.

NVML takes no notice of the variable, CUDA does: its rules are those of the appendix on environment variables in the
CUDA programming guide. Tasks are shown devices by number, in the order of PCI addresses, for many programs know nothing
else; by UUID where the numbering is not sure: for instances of MIG, and where NVML counts a GPU that does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from mpi_runtime.gpu.device import VISIBLE, Card, Device, Report

NOTHING = ("", "-1", "NoDevFiles", "none", "void")
"""What is written to show no device. NoDevFiles is Slurm's word."""
ORDER = "CUDA_DEVICE_ORDER"


class Visible(Struct, gc=False):
    """What a process may use."""

    devices: list[Device]
    tokens: dict[str, str]
    """What to name each by in CUDA_VISIBLE_DEVICES, by its UUID."""
    problem: str = ""
    """What is wrong with the variable, in words."""


def visible(report: Report, environment: Mapping[str, str]) -> Visible:
    """The devices that this environment leaves of those that were found."""
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
            taken = f"those before it are taken ({len(found)})" if found else "no GPU is used"
            problem = f"{VISIBLE}={value}: there is no device {entry!r} for this process; as CUDA does it, {taken}"
            break
        devices, is_number = card_or_devices
        if is_number and not _numbers_are_sure(report, environment):
            return Visible([], {}, (
                f"{VISIBLE}={value} names GPUs by number, they are of different models, and {ORDER} is not PCI_BUS_ID: "
                f"which are meant depends on which CUDA finds fastest. No GPU is used. Set {ORDER}=PCI_BUS_ID, or name "
                "them by UUID"
            ))  # fmt: skip
        if any(device.uuid in found for device in devices):
            return Visible([], {}, f"{VISIBLE}={value} names a device twice: CUDA then shows none, and none is used")
        for device in devices:
            found[device.uuid] = tokens[device.uuid]
    return Visible([device for device in report.devices if device.uuid in found], found, problem)


def _tokens(report: Report) -> dict[str, str]:
    """What names each device to CUDA."""
    is_sure = not report.missing and not any(device.is_instance for device in report.devices)
    numbers = {card.uuid: str(number) for number, card in enumerate(report.cards)}
    return {device.uuid: numbers[device.card] if is_sure else device.uuid for device in report.devices}


def _digits(entry: str) -> str:
    """The number with which an entry begins; CUDA reads no further."""
    match = re.match(r"\d+", entry)
    return match[0] if match else ""


def _named(entry: str, report: Report) -> tuple[list[Device], bool] | None:
    """The devices that an entry stands for, and whether it is a number; None: it stands for nothing."""
    if _digits(entry):
        number = int(_digits(entry))
        return (_of_card(report.cards[number], report), True) if number < len(report.cards) else None
    old = re.fullmatch(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)", entry)
    if old:
        instance = (int(old[2]), int(old[3]))
        found = [one for one in report.devices if one.card == old[1] and one.instance == instance]
    elif entry.startswith("MIG-"):
        found = [one for one in report.devices if one.uuid.startswith(entry)]
    elif entry.startswith("GPU-"):
        cards = [card for card in report.cards if card.uuid.startswith(entry)]
        return (_of_card(cards[0], report), False) if len(cards) == 1 else None
    else:
        return None
    return (found, False) if len(found) == 1 else None


def _of_card(card: Card, report: Report) -> list[Device]:
    """A whole GPU, or all instances of one that is split: which of them is meant the variable cannot say."""
    return [device for device in report.devices if device.card == card.uuid]


def _numbers_are_sure(report: Report, environment: Mapping[str, str]) -> bool:
    """Whether CUDA counts in the order of PCI addresses. By itself it puts the fastest first."""
    return environment.get(ORDER) == "PCI_BUS_ID" or len({card.name for card in report.cards}) <= 1


def stated_tokens(environment: Mapping[str, str], count: int) -> list[str]:
    """What names devices of which nothing is known: the entries of the user's variable, else numbers from 0 on."""
    value = environment.get(VISIBLE)
    entries = [entry.strip() for entry in value.split(",")] if value else []
    return entries[:count] if len(entries) >= count else [str(number) for number in range(count)]


def not_told(report: Report, environment: Mapping[str, str]) -> str:
    """Why nobody can know which of the devices are the job's, in words; empty if it is known.

    `srun --gpu-bind=none` leaves the variable unset (seen with Slurm 22.05). Where no control group hides the devices
    of other jobs a process then sees all of the node.
    """
    granted = environment.get("SLURM_GPUS_ON_NODE", "")
    there = min(len(report.cards), len(report.devices))  # of MIG both have been given out as GPUs
    if VISIBLE in environment or not granted.isdecimal() or there <= int(granted):
        return ""
    return (
        f"Slurm has given the job {granted} of the {there} GPUs to be seen, and {VISIBLE}, which would tell which, is "
        "not set: others may belong to other jobs. No GPU is used. Start without --gpu-bind=none, or set the variable"
    )


def trap(environment: Mapping[str, str], launcher: str) -> str:
    """What is known to go wrong with this launcher, in words; empty if nothing is.

    Args:
        environment: of a rank.
        launcher: its kind, as `host/launch.py` names it.
    """
    if launcher in ("openmpi", "mpich") and "SLURM_GPUS_PER_TASK" in environment:
        return (
            "Slurm was asked for --gpus-per-task, which does not reach ranks that mpirun starts: they may all see the "
            "same GPU. Use --gpus-per-node, or start the program with srun"
        )
    return ""
