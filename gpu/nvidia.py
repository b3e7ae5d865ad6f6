"""Finds NVIDIA's devices through the driver's NVML, in a process of its own.

NVML may hang, and it loads a library that should not be in a process with MPI. So this runs in a helper process only
(`finding.py`). `pynvml` (the package nvidia-ml-py) is imported here and nowhere else. NVML makes no CUDA context and
takes no device memory.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from mpi_runtime.gpu.device import MIB, Card, Device, Link, Measures, Report, Use, foreign_use
from mpi_runtime.gpu.vendor import NVIDIA

Handle = object
"""Of a device, as NVML gives it out and takes it back."""
NVLINKS_MAX = 18
"""The largest number of NVLink links of a device (H100), if pynvml does not know it."""
SLOW_S = 5.0
"""Seconds. The driver takes less to start if its devices are initialised already."""
SWITCH, NVLINK_SWITCH = "switch", 2
"""Our word for a switch at the other end of a link, and NVML's number (NVML_NVLINK_DEVICE_TYPE_SWITCH)."""
CPU_WORDS = 32
"""Words of 64 bits in the mask of processors: enough for 2048 of them."""
MEMORY_STEPS_GB = (8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 120, 141, 144, 180, 192, 288)
"""Sizes of memory as they are sold; NVML reports a little more or less."""
PCI_DEVICES = "/sys/bus/pci/devices"
_HIDDEN = ("NoPermission",)
"""NVML's errors for a device that a control group hides from this process."""
_NO_DRIVER = {
    "LibraryNotFound": "its library libnvidia-ml.so.1 is not there",
    "DriverNotLoaded": "the driver is not loaded",
    "LibRmVersionMismatch": "the driver and its library are of different versions: the driver was updated, and the "
    "machine has not been started again since",
    "NoPermission": "this user may not use it",
}


def look() -> Report:
    """Return what the driver shows to this process. Without pynvml the report is empty and names no error."""
    try:
        import pynvml
    except ImportError:
        return Report()
    started_s = time.monotonic()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        name = _name(error)
        return Report(error=f"NVML reports {name}: {_NO_DRIVER.get(name, 'it cannot be used')}")
    report = Report(vendor=NVIDIA.key)
    handles: list[tuple[Device, Handle]] = []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return Report(error=f"NVML cannot count its devices: {_name(error)}")
    for index in range(count):
        _look_at_one(pynvml, index, report, handles)
    report.missing = count - len(report.cards)
    report.cards.sort(key=lambda card: card.bus)
    report.devices.sort(key=lambda device: device.place)
    _look_at_links(pynvml, report, [(device, handle) for device, handle in handles if not device.is_instance])
    modes = (_ask(pynvml, pynvml.nvmlDeviceGetPersistenceMode, handle) for _, handle in handles)
    if time.monotonic() - started_s > SLOW_S and pynvml.NVML_FEATURE_DISABLED in modes:
        report.problems.append(
            f"NVML took {time.monotonic() - started_s:.0f} s to answer: persistence mode is off, so the driver starts "
            "the GPUs again for each job that finds them unused. Have it switched on (nvidia-persistenced, or "
            "nvidia-smi -pm 1)"
        )
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return report


def _look_at_one(nvml: ModuleType, index: int, report: Report, handles: list[tuple[Device, Handle]]) -> None:
    """Add one GPU to the report. One that does not answer is left out; the others are not affected."""
    try:
        _look_at(nvml, index, report, handles)
    except nvml.NVMLError as error:
        if _name(error) not in _HIDDEN:
            report.problems.append(f"GPU {index} does not answer ({_name(error)}) and is left out")


def _look_at(nvml: ModuleType, index: int, report: Report, handles: list[tuple[Device, Handle]]) -> None:
    """Add one GPU to the report, or the MIG instances into which it is split."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
    bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    mode = _ask(nvml, nvml.nvmlDeviceGetComputeMode, handle, default=nvml.NVML_COMPUTEMODE_DEFAULT)
    whole = Device(
        uuid,
        name,
        bus=bus,
        card=uuid,
        numa=_numa(nvml, handle, bus),
        cpus=_cpus(nvml, handle),
        is_exclusive=mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        capability=tuple(_ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle, default=(0, 0))),
    )
    is_split = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle, default=[0])[0] == nvml.NVML_DEVICE_MIG_ENABLE
    report.cards.append(Card(uuid, name, bus))
    handles.append((whole, handle))
    if mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
        report.problems.append(f"GPU {index} ({uuid}) is left out: its compute mode is PROHIBITED")
    elif is_split:
        instances = _instances(nvml, handle)
        found = [_instance(nvml, one, whole) for one in instances]
        report.devices += found
        for device, one in zip(found, instances, strict=True):
            report.uses.append(Use(device.uuid, _memory(nvml, one)[1], _pids(nvml, one)))
        if not found:
            report.problems.append(f"GPU {index} ({uuid}) is left out: it is in MIG mode and has no instance")
    else:
        total, used = _memory(nvml, handle)
        report.uses.append(Use(uuid, used, _pids(nvml, handle)))
        report.devices.append(msgspec.structs.replace(whole, memory=total, types=types_of(name, total)))
        if problem := foreign_use(index, uuid, used, total):
            report.problems.append(problem)


def _instances(nvml: ModuleType, handle: Handle) -> list[Handle]:
    """Return the handles of a GPU's MIG instances; there may be empty places between them."""
    places = _ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle, default=0)
    found = (_ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place) for place in range(places))
    return [one for one in found if one is not None]


def _instance(nvml: ModuleType, handle: Handle, whole: Device) -> Device:
    name = _text(nvml.nvmlDeviceGetName(handle))
    return msgspec.structs.replace(
        whole,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=name,
        types=types_of(name, 0),
        memory=_memory(nvml, handle)[0],
        instance=(nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)),
    )


def _memory(nvml: ModuleType, handle: Handle) -> tuple[int, int]:
    """Return the bytes that programs can use, and those in use; only the newer call knows the driver's own share."""
    newer = _ask(nvml, lambda one: nvml.nvmlDeviceGetMemoryInfo(one, version=nvml.nvmlMemory_v2), handle)
    if newer is not None:
        return newer.total - newer.reserved, newer.used
    older = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return (0, 0) if older is None else (older.total, 0)


def _pids(nvml: ModuleType, handle: Handle) -> tuple[int, ...]:
    return tuple(one.pid for one in _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle, default=()))


def _numa(nvml: ModuleType, handle: Handle, bus: str) -> int:
    """Return the NUMA node of the device's PCI slot, as the kernel has it; if it has none, NVML's answer; else -1.

    The kernel is asked first because NVML may name the NUMA node of the device's own memory.
    """
    domain, _, rest = bus.lower().partition(":")  # NVML writes eight digits for the domain, the kernel four
    with contextlib.suppress(OSError, ValueError), open(f"{PCI_DEVICES}/{domain[-4:]}:{rest}/numa_node") as file:
        number = int(file.read())
        if number >= 0:
            return number
    found = _ask(nvml, getattr(nvml, "nvmlDeviceGetNumaNodeId", lambda _: None), handle)
    return -1 if found is None else int(found)


def _cpus(nvml: ModuleType, handle: Handle) -> tuple[int, ...]:
    """Return the processors that are near to a device. NVML gives a mask of 64-bit words for the whole machine."""
    words = _ask(nvml, nvml.nvmlDeviceGetCpuAffinity, handle, CPU_WORDS, default=())
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def _look_at_links(nvml: ModuleType, report: Report, handles: list[tuple[Device, Handle]]) -> None:
    lanes = {device.uuid: _lanes(nvml, handle, {card.bus for card in report.cards}) for device, handle in handles}
    for position, (first, handle) in enumerate(handles):
        for second, other in handles[position + 1 :]:
            direct = sum(bus == second.bus for bus in lanes[first.uuid])
            by_switch = min(lanes[one.uuid].count(SWITCH) for one in (first, second))
            distance = _ask(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, handle, other, default=50)
            report.links.append(Link(first.uuid, second.uuid, direct or by_switch, distance))


def _lanes(nvml: ModuleType, handle: Handle, buses: set[str]) -> list[str]:
    """Return the other end of each NVLink link that is up: `SWITCH`, or the PCI address of a (maybe hidden) device."""
    found = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", NVLINKS_MAX)):
        if not _ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link, default=0):
            continue
        kind = _ask(nvml, getattr(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", lambda *_: None), handle, link)
        remote = _ask(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        bus = _text(remote.busId) if remote is not None else ""
        is_switch = kind == NVLINK_SWITCH or (kind is None and bus not in buses)  # an old driver gives only addresses
        found.append(SWITCH if is_switch else bus)
    return found


def _ask(nvml: ModuleType, call: Callable[..., Any], *arguments: object, default: object = None) -> Any:
    """Return NVML's answer; the default if this device, driver or container does not support the question.

    Errors that mean that the device is lost are raised.
    """
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if _name(error) in ("GpuIsLost", "Uninitialized"):
            raise
        return default
    except getattr(nvml, "NVMLLibraryMismatchError", ()):  # not an NVMLError; an old driver's library lacks functions
        return default


def _name(error: Exception) -> str:
    return type(error).__name__.removeprefix("NVMLError_")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


# Measures, while somebody looks at the job


def measure(uuids: Sequence[str]) -> list[Measures]:
    """Return what is measured now at these GPUs."""
    import pynvml

    pynvml.nvmlInit()  # counted: only the first one takes time
    return [_measure(pynvml, uuid) for uuid in uuids]


def _measure(nvml: ModuleType, uuid: str) -> Measures:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
        total, used = _memory(nvml, handle)
        degrees = _ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU, default=-1)
        kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        errors = _ask(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, *kinds, default=0)
        rows = _ask(nvml, getattr(nvml, "nvmlDeviceGetRemappedRows", lambda _: None), handle) or (0, 0, 0, 0)
    except nvml.NVMLError as error:
        return Measures(uuid, fault=f"does not answer ({_name(error)})")
    faults = [f"{errors} memory errors that could not be corrected"] if errors else []
    faults += ["its memory has rows that could not be replaced"] if rows[3] else []
    faults += ["its memory has rows that the next reset replaces"] if rows[2] else []
    return Measures(uuid, -1 if rates is None else rates.gpu, used, total, degrees, "; ".join(faults))


# Names


def types_of(name: str, memory: int) -> tuple[str, ...]:
    """Return the names that `accelerator_type` accepts for a device.

    The first is the model, as in Ray. If the model is sold with several sizes of memory, a second name has the size,
    unless `memory`, in bytes, is 0. `name` is the driver's: "NVIDIA A100-SXM4-40GB".
    """
    text, _, profile = name.partition(" MIG ")
    words = re.split(r"[\s-]+", re.sub(r"\b(NVIDIA|Tesla|GeForce|Quadro|Generation)\b", " ", text).strip())
    kept = []
    for word in words:
        if re.fullmatch(r"\d+GB|SXM\d*|PCIE?|HBM\w*|NVL|OAM", word, re.IGNORECASE):
            break
        kept.append(word.upper())
    model = "-".join(kept)
    if profile:
        return (f"{model}-MIG-{profile}",)
    if model in ("A100", "V100", "H100", "P100") and memory:
        gigabytes = min(MEMORY_STEPS_GB, key=lambda step: abs(step * 1024 * MIB - memory))
        return model, f"{model}-{gigabytes}G"
    return (model,) if model else ()
