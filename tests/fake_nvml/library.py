"""A stand-in for libnvidia-ml: the real pynvml calls it as it calls the C library, and gets what a description says.

A description (`machines.py` has some; JSON in a variable for other processes, or in a file that it names):

    {"init": "DRIVER_NOT_LOADED",               nvmlInit fails so; or
     "delay_s": 60,                             takes so long
     "missing": ["nvmlDeviceGetName", ...],     the library is too old to have these
     "nvswitch": 18,                            links of each GPU to a switch
     "nvlink": [[0, 3, 2], ...],                or: between two GPUs so many
     "gpus": [{"name": ..., "uuid": ..., "bus": ..., "memory_mib": ..., "reserved_mib": ..., "used_mib": ...,
               "numa": ..., "cpus": [0, 1, ...], "capability": [9, 0],
               "use": 93, "temperature": 61, "ecc_errors": 2, "rows": [0, 0, 1, 0] (to be replaced),
               "persistence": 1, "pids": [4242, ...], "mode": 0, 2 (prohibited) or 3 (exclusive process),
               "errors": {"nvmlDeviceGetName": "GPU_IS_LOST", ...},         "*" is every call
               "mig": [{"uuid": ..., "name": ..., "gi": ..., "memory_mib": ...}, null, ...]}]}
"""

import ctypes
import time
from typing import Any

MIB = 1 << 20
CODES = {
    "INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3, "NO_PERMISSION": 4, "NOT_FOUND": 6, "INSUFFICIENT_SIZE": 7,
    "DRIVER_NOT_LOADED": 9, "LIBRARY_NOT_FOUND": 12, "GPU_IS_LOST": 15, "LIB_RM_VERSION_MISMATCH": 18,
    "ARGUMENT_VERSION_MISMATCH": 25, "UNKNOWN": 999,
}  # fmt: skip


class RefusedError(Exception):
    """A call that ends with an error."""


def to_int(argument: Any) -> int:
    """A number as pynvml passes it: bare, or as a C number."""
    return int(getattr(argument, "value", argument))


class Library:
    """What `pynvml.nvmlLib` is to be. Its functions take what pynvml gives to C, and return NVML's codes."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.machine = machine
        self.calls: list[str] = []
        """The names of functions that were called."""

    def __getattr__(self, name: str) -> Any:
        if name in self.machine.get("missing", ()):
            raise AttributeError(name)
        function = getattr(type(self), f"_{name.removesuffix('_v2').removesuffix('_v3')}", None)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            try:
                if arguments and not isinstance(arguments[0], int) and isinstance(arguments[0], ctypes._Pointer):
                    number = ctypes.cast(arguments[0], ctypes.c_void_p).value or 0
                    gpu = self.machine["gpus"][number // 100 - 1]
                    self._refuse(gpu, name)
                    arguments = (gpu if number % 100 == 0 else gpu["mig"][number % 100 - 1], *arguments[1:])
                function(self, *arguments)
            except RefusedError as error:
                return CODES[str(error)]
            return 0

        return call

    def _refuse(self, gpu: dict[str, Any], name: str) -> None:
        errors = gpu.get("errors", {})
        wrong = errors.get("*") or errors.get(name.removesuffix("_v2").removesuffix("_v3"))
        if wrong:
            raise RefusedError(wrong)

    def _out(self, reference: Any, value: int) -> None:
        reference._obj.value = value

    def _handle(self, reference: Any, number: int) -> None:
        ctypes.c_void_p.from_address(ctypes.addressof(reference._obj)).value = number

    def _bus(self, reference: Any, bus: str) -> None:
        reference._obj.busId = bus.encode()

    def _nvmlInitWithFlags(self, flags: int) -> None:
        time.sleep(self.machine.get("delay_s", 0))
        if "init" in self.machine:
            raise RefusedError(self.machine["init"])

    def _nvmlShutdown(self) -> None:
        pass

    def _nvmlDeviceGetCount(self, count: Any) -> None:
        self._out(count, len(self.machine["gpus"]))

    def _nvmlDeviceGetHandleByIndex(self, index: Any, handle: Any) -> None:
        if to_int(index) >= len(self.machine["gpus"]):
            raise RefusedError("INVALID_ARGUMENT")
        self._refuse(self.machine["gpus"][to_int(index)], "nvmlDeviceGetHandleByIndex")
        self._handle(handle, (to_int(index) + 1) * 100)

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> None:
        for number, gpu in enumerate(self.machine["gpus"]):
            for place, one in enumerate((gpu, *gpu.get("mig", ()))):
                if one is not None and one["uuid"].encode() == uuid.value:
                    self._handle(handle, (number + 1) * 100 + place)
                    return
        raise RefusedError("NOT_FOUND")

    def _nvmlDeviceGetUtilizationRates(self, gpu: dict[str, Any], rates: Any) -> None:
        if "use" not in gpu:
            raise RefusedError("NOT_SUPPORTED")
        rates._obj.gpu = gpu["use"]

    def _nvmlDeviceGetTemperature(self, gpu: dict[str, Any], _: Any, degrees: Any) -> None:
        if "temperature" not in gpu:
            raise RefusedError("NOT_SUPPORTED")
        self._out(degrees, gpu["temperature"])

    def _nvmlDeviceGetTotalEccErrors(self, gpu: dict[str, Any], kind: Any, counter: Any, count: Any) -> None:
        self._out(count, gpu.get("ecc_errors", 0))

    def _nvmlDeviceGetRemappedRows(self, gpu: dict[str, Any], right: Any, wrong: Any, waits: Any, failed: Any) -> None:
        for reference, value in zip((right, wrong, waits, failed), gpu.get("rows", (0, 0, 0, 0)), strict=True):
            self._out(reference, value)

    def _nvmlDeviceGetName(self, gpu: dict[str, Any], buffer: Any, _: Any) -> None:
        buffer.value = gpu["name"].encode()

    def _nvmlDeviceGetUUID(self, gpu: dict[str, Any], buffer: Any, _: Any) -> None:
        buffer.value = gpu["uuid"].encode()

    def _nvmlDeviceGetPciInfo(self, gpu: dict[str, Any], info: Any) -> None:
        self._bus(info, gpu["bus"])

    def _nvmlDeviceGetMemoryInfo(self, gpu: dict[str, Any], info: Any) -> None:
        total, reserved, used = (gpu.get(f"{key}_mib", 0) * MIB for key in ("memory", "reserved", "used"))
        info._obj.total, info._obj.used = total, used
        info._obj.free = total - used - reserved
        if hasattr(info._obj, "reserved"):
            if gpu.get("is_old"):
                raise RefusedError("NOT_SUPPORTED")
            if info._obj.version != ctypes.sizeof(info._obj) | 2 << 24:
                raise RefusedError("ARGUMENT_VERSION_MISMATCH")
            info._obj.reserved = reserved

    def _nvmlDeviceGetComputeRunningProcesses(self, gpu: dict[str, Any], count: Any, processes: Any) -> None:
        pids = gpu.get("pids", [])
        self._out(count, len(pids))
        if processes is None and pids:
            raise RefusedError("INSUFFICIENT_SIZE")
        for place, pid in enumerate(pids):
            processes[place].pid = pid

    def _nvmlDeviceGetCudaComputeCapability(self, gpu: dict[str, Any], major: Any, minor: Any) -> None:
        for reference, value in zip((major, minor), gpu.get("capability", (9, 0)), strict=True):
            self._out(reference, value)

    def _nvmlDeviceGetComputeMode(self, gpu: dict[str, Any], mode: Any) -> None:
        self._out(mode, gpu.get("mode", 0))

    def _nvmlDeviceGetNumaNodeId(self, gpu: dict[str, Any], node: Any) -> None:
        if "numa" not in gpu:
            raise RefusedError("NOT_SUPPORTED")
        self._out(node, gpu["numa"])

    def _nvmlDeviceGetCpuAffinity(self, gpu: dict[str, Any], count: Any, words: Any) -> None:
        if "cpus" not in gpu:
            raise RefusedError("NOT_SUPPORTED")
        for place in range(to_int(count)):
            words._obj[place] = sum(1 << cpu % 64 for cpu in gpu["cpus"] if cpu // 64 == place)

    def _nvmlDeviceGetTopologyCommonAncestor(self, gpu: dict[str, Any], other: Any, level: Any) -> None:
        number = ctypes.cast(other, ctypes.c_void_p).value or 0
        near = gpu.get("numa") == self.machine["gpus"][number // 100 - 1].get("numa")
        self._out(level, 40 if near else 50)

    def _links(self, gpu: dict[str, Any]) -> list[str]:
        """For each link the address of its other end."""
        gpus = self.machine["gpus"]
        ends = ["00000000:F0:00.0"] * self.machine.get("nvswitch", 0)
        for first, second, count in self.machine.get("nvlink", ()):
            for one, other in ((first, second), (second, first)):
                ends += [gpus[other]["bus"]] * count * (gpus[one] is gpu)
        return ends

    def _nvmlDeviceGetNvLinkState(self, gpu: dict[str, Any], link: Any, is_active: Any) -> None:
        if not self._links(gpu):
            raise RefusedError("NOT_SUPPORTED")
        self._out(is_active, to_int(link) < len(self._links(gpu)))

    def _nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: dict[str, Any], link: Any, info: Any) -> None:
        self._bus(info, self._links(gpu)[to_int(link)])

    def _nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: dict[str, Any], link: Any, kind: Any) -> None:
        end = self._links(gpu)[to_int(link)]
        self._out(kind, 0 if any(other["bus"] == end for other in self.machine["gpus"]) else 2)

    def _nvmlDeviceGetPersistenceMode(self, gpu: dict[str, Any], mode: Any) -> None:
        self._out(mode, gpu.get("persistence", 1))

    def _nvmlDeviceGetMigMode(self, gpu: dict[str, Any], current: Any, pending: Any) -> None:
        if "mig" not in gpu:
            raise RefusedError("NOT_SUPPORTED")
        self._out(current, bool(gpu["mig"]))
        self._out(pending, bool(gpu["mig"]))

    def _nvmlDeviceGetMaxMigDeviceCount(self, gpu: dict[str, Any], count: Any) -> None:
        self._out(count, 7)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: dict[str, Any], place: Any, handle: Any) -> None:
        number = to_int(place)
        if number >= len(gpu["mig"]) or gpu["mig"][number] is None:
            raise RefusedError("NOT_FOUND")
        self._handle(handle, (self.machine["gpus"].index(gpu) + 1) * 100 + number + 1)

    def _nvmlDeviceGetGpuInstanceId(self, instance: dict[str, Any], id: Any) -> None:
        self._out(id, instance["gi"])

    def _nvmlDeviceGetComputeInstanceId(self, instance: dict[str, Any], id: Any) -> None:
        self._out(id, instance.get("ci", 0))
