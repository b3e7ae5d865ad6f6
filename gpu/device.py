"""Records of GPUs. The process that looks for GPUs makes them; the scheduler and the executors get them."""

from msgspec import Struct

MIB = 1 << 20
FOREIGN_USE_MIN = 1 << 30
FOREIGN_USE_PARTS = 20
"""A device is reported as in use by others if both 1 GiB and a twentieth of its memory are exceeded."""
STATED = "stated-"
"""Prefix of the UUIDs of devices that were stated by the user (`num_gpus`) and not found; a number follows."""
UNIT = 10_000
"""Units in one whole device. Fewer units are a share of it."""

DEVICE, PROGRAM, BUSY, NODE, NOBODY = "device", "program", "busy", "node", "nobody"
"""The possible causes when a process can no longer use its devices: the device; the device or a mistake in the
program; other processes that use the device; the driver of the whole node; none of these."""


class Device(Struct, array_like=True, frozen=True, gc=False):
    """What a task can be granted: a GPU, or a part of one: an instance of MIG, a compute partition, a tile."""

    uuid: str
    """Identifies the device in all processes: "GPU-..." or "MIG-...". A part may end with its number: "GPU-....1"."""
    name: str = ""
    """The driver's name for it."""
    types: tuple[str, ...] = ()
    """The names that `accelerator_type` accepts for it: "A100", "A100-40G"."""
    memory: int = 0
    """Bytes that programs can use; 0: unknown."""
    bus: str = ""
    """PCI address of the card."""
    card: str = ""
    """UUID of the GPU; for a part, of the GPU that it is part of."""
    instance: tuple[int, int] = (-1, -1)
    """For MIG: the numbers of the GPU instance and of the compute instance."""
    numa: int = -1
    """The NUMA node that it is attached to; -1: unknown."""
    cpus: tuple[int, ...] = ()
    """Processors of the host that are near to it; empty: unknown."""
    is_exclusive: bool = False
    """Whether only one process at a time may use it (compute mode EXCLUSIVE_PROCESS)."""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability; for AMD, the first two numbers of the architecture."""
    reserve: int = 0
    """Bytes that every process takes that uses the device: the CUDA context, and what libraries load."""

    @property
    def is_instance(self) -> bool:
        """Whether it is an instance of MIG."""
        return self.instance[0] >= 0

    @property
    def place(self) -> tuple[str, tuple[int, int], str]:
        """The sort key by which the devices of a host are numbered; the order is the same on all of its ranks."""
        return self.bus, self.instance, self.uuid


class Card(Struct, array_like=True, frozen=True, gc=False):
    """A GPU that its vendor's runtime counts, in the order of its numbers, whether or not it can be given to tasks."""

    uuid: str
    name: str
    bus: str


class Link(Struct, array_like=True, frozen=True, gc=False):
    """How two devices are connected."""

    first: str
    second: str
    """Their UUIDs."""
    nvlinks: int
    """How many links of the vendor's own (NVLink, XGMI) lie between them, directly or through a switch."""
    distance: int
    """NVML's level of the path over PCI: 10 one switch, 20 several, 30 host bridge, 40 NUMA node, 50 system."""


class Use(Struct, array_like=True, frozen=True, gc=False):
    """How much of a device was in use when its driver was asked, by processes of any job."""

    uuid: str
    memory: int
    """Bytes."""
    pids: tuple[int, ...]
    """Processes that compute on it, with the host's numbers; inside a container these numbers may mean nothing."""


class Measures(Struct, array_like=True, frozen=True, gc=False):
    """What was measured at a GPU. -1: its driver does not show this."""

    uuid: str
    use: int = -1
    """Percent of the last second or less in which it computed."""
    memory_used: int = -1
    memory: int = -1
    """Bytes, of all processes."""
    temperature: int = -1
    """Degrees Celsius."""
    fault: str = ""
    """What is wrong with it, in words."""


class Report(Struct, array_like=True, gc=False):
    """What the driver has answered about the GPUs of this host."""

    devices: list[Device] = []
    cards: list[Card] = []
    links: list[Link] = []
    uses: list[Use] = []
    problems: list[str] = []
    """What is wrong with single devices, in words."""
    error: str = ""
    """Why the driver could not be asked, in words; empty if it could."""
    missing: int = 0
    """How many GPUs do not answer or are hidden, of which it is unknown whether the vendor's runtime counts them."""
    vendor: str = ""
    """The key of the vendor of all of them (`vendor.py`); empty: none was found."""


def foreign_use(number: int, uuid: str, used: int, total: int) -> str:
    """Return a message if others use much of a device's memory at the start; else empty."""
    if used <= max(FOREIGN_USE_MIN, total // FOREIGN_USE_PARTS):
        return ""
    return f"GPU {number} ({uuid}): others use {used // MIB} MiB of its {total // MIB}"


class Visible(Struct, gc=False):
    """The devices that a process may use."""

    devices: list[Device]
    tokens: dict[str, str]
    """The name of each device in its vendor's variable, by its UUID."""
    problem: str = ""
    """What is wrong with a variable, in words."""
    more: dict[str, str] = {}
    """Further variables that processes need to see just their devices."""
