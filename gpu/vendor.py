"""What is known of each vendor: its variables and their values, and the signs of its driver. Nothing else names these.

`MPI_RUNTIME_FIND_GPUS` may be the `key` of a vendor. Runtimes of a vendor apply several variables one after the other,
the number in the later one being a position in what the earlier one leaves. A batch system sets the earlier one, we set
the later one, as Ray 2.60 does, and never both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType

from msgspec import Struct

ORDER = "CUDA_DEVICE_ORDER"
ROCR = "ROCR_VISIBLE_DEVICES"
MASK, HIERARCHY, PCI_ORDER = "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"
SELECTOR = "ONEAPI_DEVICE_SELECTOR"
NOTHING = ("", "-1", "NoDevFiles", "none", "void")
"""Entries of variables that end a list, or show no device, on purpose. NoDevFiles is Slurm's."""
DRM = "sys/class/drm"
"""Below the root of the machine, with an entry for each card whose driver is in the kernel's graphics."""


class Vendor(Struct, frozen=True, gc=False):
    """A maker of GPUs."""

    key: str
    name: str
    variable: str
    """Shows a task its devices."""
    nothing: str
    """Its value that shows none."""
    of_batch: str
    """The variable in which batch systems list the devices of a job."""
    narrowed_by: tuple[str, ...]
    """All variables that restrict what a process sees, in the order in which its runtimes apply them."""
    signs: tuple[str, ...]
    """Paths below the root of a machine: if there is a driver, one of them exists."""
    link: str
    """The word for the vendor's own links between devices, in tables."""


NVIDIA = Vendor(
    "nvidia",
    "NVIDIA",
    variable="CUDA_VISIBLE_DEVICES",
    nothing="",
    of_batch="CUDA_VISIBLE_DEVICES",
    narrowed_by=("CUDA_VISIBLE_DEVICES",),
    signs=("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"),  # the last is WSL's
    link="NV",
)
AMD = Vendor(
    "amd",
    "AMD",
    variable="HIP_VISIBLE_DEVICES",
    nothing="-1",  # HIP takes an empty value for none at all, and shows all devices
    of_batch=ROCR,
    narrowed_by=(ROCR, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    signs=("sys/class/kfd/kfd/topology/nodes",),
    link="XGMI",
)
INTEL = Vendor(
    "intel",
    "Intel",
    variable=MASK,
    nothing="9999",  # an empty value shows all devices; numbers of devices that are not there are skipped
    of_batch=MASK,
    narrowed_by=(MASK, SELECTOR),
    signs=("sys/module/xe", "sys/module/i915"),
    link="XE",
)
VENDORS = (NVIDIA, AMD, INTEL)
SHOWN_BY = tuple(dict.fromkeys(name for one in VENDORS for name in one.narrowed_by))
"""Variables that say which devices a process sees. They must reach the ranks that a launcher starts for it."""


def vendor(key: str) -> Vendor:
    """Return a vendor by its key. NVIDIA for any other text: variables for a machine of which nothing is known."""
    return next((one for one in VENDORS if one.key == key), NVIDIA)


def vendors_with_signs(root: str = "/") -> list[str]:
    """Return the keys of the vendors whose driver seems to be there. A machine without GPUs pays for six paths."""
    found = [one for one in VENDORS if any(os.path.exists(root + sign) for sign in one.signs)]
    return [one.key for one in found if one is not INTEL or any(map(is_on_a_slot, intel_addresses(root)))]


def intel_addresses(root: str) -> dict[str, str]:
    """Return the PCI addresses of the cards of Intel, each with its name in the kernel's graphics."""
    found = {}
    for name in sorted(names_in(f"{root}{DRM}")):
        if name.startswith("card") and name[4:].isdecimal() and text(f"{root}{DRM}/{name}/device/vendor") == "0x8086":
            found[os.path.basename(os.path.realpath(f"{root}{DRM}/{name}/device"))] = name
    return found


def is_on_a_slot(address: str) -> bool:
    """Whether a PCI address is that of a card. Graphics within a processor of Intel are on bus 0."""
    return address.split(":")[-2:-1] != ["00"]


def variables(one: Vendor, tokens: Sequence[str], more: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the environment variables that show a process these devices and no others.

    `tokens` are their names in the vendor's variable, `more` further variables that this machine needs.
    """
    shown = {one.variable: ",".join(tokens) if tokens else one.nothing}
    if one is NVIDIA and any(token.isdecimal() for token in tokens):
        shown[ORDER] = "PCI_BUS_ID"
    return {**shown, **(more or {})}


def names_in(path: str) -> list[str]:
    """Return the names in a directory; none if it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def text(path: str) -> str:
    """Return the content of a file of the kernel; empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def kind_in_torch(torch: ModuleType) -> str | None:
    """What torch calls the GPUs that this process sees: "cuda" (of NVIDIA and AMD) or "xpu" (of Intel); None: none."""
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind
    return None
