"""What is said of GPUs: records, as they go from the process that looks to the scheduler and to executors."""

from msgspec import Struct

MIB = 1 << 20
VISIBLE = "CUDA_VISIBLE_DEVICES"
STATED = "stated-"
"""How the identities of devices begin that were stated and not found; a number follows."""
UNIT = 10_000
"""One whole device; less is a share of it."""

DEVICE, PROGRAM, BUSY, NODE, NOBODY = "device", "program", "busy", "node", "nobody"
"""Who may be the cause when a process can use its devices no more: a device; a mistake in a program as well; others who
use the device; the driver of the whole node; neither of them."""


class Device(Struct, array_like=True, frozen=True, gc=False):
    """What can be given to a task: a GPU, or one instance of a GPU that is split by MIG."""

    uuid: str
    """Its identity, everywhere and in every numbering: "GPU-..." or "MIG-..."."""
    name: str = ""
    """As the driver says it."""
    types: tuple[str, ...] = ()
    """What `accelerator_type` may call it: "A100", "A100-40G"."""
    memory: int = 0
    """Bytes that programs can use; 0: unknown."""
    bus: str = ""
    """PCI address of the card."""
    card: str = ""
    """UUID of the GPU that it is, or is an instance of."""
    instance: tuple[int, int] = (-1, -1)
    """Of MIG: the numbers of the GPU instance and of the compute instance."""
    numa: int = -1
    """The NUMA node that it is attached to; -1: unknown."""
    cpus: tuple[int, ...] = ()
    """Processors of the host that are near to it; none: unknown."""
    is_exclusive: bool = False
    """Whether only one process at a time may use it (compute mode EXCLUSIVE_PROCESS)."""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability."""
    reserve: int = 0
    """Bytes that each process takes which uses it, whatever its programs do: the context, and what libraries load."""

    @property
    def is_instance(self) -> bool:
        """Whether it is an instance of MIG."""
        return self.instance[0] >= 0

    @property
    def place(self) -> tuple[str, tuple[int, int], str]:
        """Devices of a host are numbered in this order: it is the same on all its ranks."""
        return self.bus, self.instance, self.uuid


class Card(Struct, array_like=True, frozen=True, gc=False):
    """A GPU that CUDA counts, in the order of PCI addresses, whether or not it can be given to tasks."""

    uuid: str
    name: str
    bus: str


class Link(Struct, array_like=True, frozen=True, gc=False):
    """How two devices are connected."""

    first: str
    second: str
    """Their UUIDs."""
    nvlinks: int
    """How many links of NVLink lie between them, directly or by a switch."""
    distance: int
    """Over PCI, as NVML counts: 10 one switch, 20 several, 30 the host bridge, 40 the NUMA node, 50 the system."""


class Use(Struct, array_like=True, frozen=True, gc=False):
    """What of a device was in use when it was looked at, whoever uses it."""

    uuid: str
    memory: int
    """Bytes."""
    pids: tuple[int, ...]
    """Processes that compute on it, as the host numbers them: in a container none may have such a number."""


class Report(Struct, array_like=True, gc=False):
    """What a look at the driver has found."""

    devices: list[Device] = []
    cards: list[Card] = []
    links: list[Link] = []
    uses: list[Use] = []
    problems: list[str] = []
    """What is wrong with single devices, in words."""
    error: str = ""
    """Why nothing could be found out, in words."""
    missing: int = 0
    """How many GPUs NVML counts that do not answer, or are hidden: whether CUDA counts them nobody can tell."""
