"""Recognises errors of CUDA, HIP and Level Zero by module, number and text, and classifies them. Imports no library.

Most errors concern only the call that raised them. After some, CUDA returns the same error to the process for ever:
its context is dead, and only another process can use the device. Running out of memory does not harm the context. HIP
has CUDA's numbers for the errors that both have, other names, and the same texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpi_runtime.gpu.device import BUSY, DEVICE, NOBODY, NODE, PROGRAM

_LIBRARIES = ("cupy", "cupy_backends", "torch", "numba", "jax", "jaxlib", "cuda", "pycuda")
"""Packages whose classes of errors can be CUDA errors. torch raises plain `RuntimeError`s too."""
_NUMBERS = ("status", "error_code", "code")
"""Attributes in which cupy, torch and numba keep CUDA's number."""
_NO_MEMORY = 2
NO_DEVICE = 100
_CHAIN_MAX = 20
"""How many errors of a `__cause__` or `__context__` chain are looked at."""
_NOT_READ = "DeviceUnavailableError"
"""Our error for an array that could not be made in this process. Its cause is an error of a library in this process."""
_ABSENT = (35, NO_DEVICE)
"""CUDA's numbers for: no driver, or one that is too old; no device for the process."""
_ABSENT_TEXTS = (
    "cudaErrorInsufficientDriver", "cudaErrorNoDevice", "no CUDA-capable device is detected", "no NVIDIA driver",
    "No CUDA GPUs are available", "Attempting to deserialize object on a CUDA device",
    "hipErrorInsufficientDriver", "hipErrorNoDevice", "no ROCm-capable device is detected", "No HIP GPUs are available",
    "No XPU devices are available",
)  # fmt: skip


class Fault(NamedTuple):
    """An error after which a process can no longer use its devices."""

    name: str
    """Its name in the vendor's runtime."""
    blame: str = DEVICE
    """The possible cause; see `device.py`."""
    number: int = 0
    """CUDA's number for it; 0: it has none."""


FAULTS = {
    3: ("cudaErrorInitializationError", "initialization error", NODE),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable", BUSY),
    NO_DEVICE: ("cudaErrorNoDevice", "no CUDA-capable device is detected", DEVICE),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error", DEVICE),
    220: ("cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error", DEVICE),
    226: ("cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error", DEVICE),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered", PROGRAM),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated", PROGRAM),
    709: ("cudaErrorContextIsDestroyed", "context is destroyed", DEVICE),
    710: ("cudaErrorAssert", "device-side assert triggered", PROGRAM),
    714: ("cudaErrorHardwareStackError", "hardware stack error", PROGRAM),
    715: ("cudaErrorIllegalInstruction", "an illegal instruction was encountered", PROGRAM),
    716: ("cudaErrorMisalignedAddress", "misaligned address", PROGRAM),
    717: ("cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space", PROGRAM),
    718: ("cudaErrorInvalidPc", "invalid program counter", PROGRAM),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure", PROGRAM),
    721: ("cudaErrorTensorMemoryLeak", "tensor memory not completely freed", PROGRAM),
    802: ("cudaErrorSystemNotReady", "system not yet initialized", NODE),
    803: ("cudaErrorSystemDriverMismatch", "system has unsupported display driver / cuda driver combination", NODE),
    805: ("cudaErrorMpsConnectionFailed", "MPS client failed to connect to the MPS control daemon", NODE),
    806: ("cudaErrorMpsRpcFailure", "the remote procedural call between the MPS server and", NOBODY),
    807: ("cudaErrorMpsServerNotReady", "MPS server is not ready to accept new MPS client requests", NODE),
    808: ("cudaErrorMpsMaxClientsReached", "the hardware resources required to create MPS client", BUSY),
    809: ("cudaErrorMpsMaxConnectionsReached", "the hardware resources required to support device connections", BUSY),
    810: ("cudaErrorMpsClientTerminated", "the MPS client has been terminated by the server", NOBODY),
    911: ("cudaErrorExternalDevice", "an async error has occured in external entity outside of CUDA", NOBODY),
    919: ("cudaErrorFabricNotReady", "GPU fabric is not ready within the probe wait budget", NODE),
    999: ("cudaErrorUnknown", "CUDA error: unknown error|CUDA unknown error|HIP error: unknown error", DEVICE),
}  # fmt: skip
"""By CUDA's number, which runtime and driver share: name, parts of message texts ("|" between), possible cause."""
DRIVER_NAMES = {
    3: "NOT_INITIALIZED", 46: "DEVICE_UNAVAILABLE", 100: "NO_DEVICE", 214: "ECC_UNCORRECTABLE",
    220: "NVLINK_UNCORRECTABLE", 226: "CONTAINED", 700: "ILLEGAL_ADDRESS", 702: "LAUNCH_TIMEOUT",
    709: "CONTEXT_IS_DESTROYED", 710: "ASSERT", 714: "HARDWARE_STACK_ERROR", 715: "ILLEGAL_INSTRUCTION",
    716: "MISALIGNED_ADDRESS", 717: "INVALID_ADDRESS_SPACE", 718: "INVALID_PC", 719: "LAUNCH_FAILED",
    721: "TENSOR_MEMORY_LEAK", 802: "SYSTEM_NOT_READY", 803: "SYSTEM_DRIVER_MISMATCH", 805: "MPS_CONNECTION_FAILED",
    806: "MPS_RPC_FAILURE", 807: "MPS_SERVER_NOT_READY", 808: "MPS_MAX_CLIENTS_REACHED",
    809: "MPS_MAX_CONNECTIONS_REACHED", 810: "MPS_CLIENT_TERMINATED", 911: "EXTERNAL_DEVICE", 919: "FABRIC_NOT_READY",
    999: "UNKNOWN",
}  # fmt: skip
"""The driver's names for them, without `CUDA_ERROR_`."""
HIP_NAMES = {
    3: "hipErrorNotInitialized", 100: "hipErrorNoDevice", 214: "hipErrorECCNotCorrectable",
    700: "hipErrorIllegalAddress", 702: "hipErrorLaunchTimeOut", 709: "hipErrorContextIsDestroyed",
    710: "hipErrorAssert", 719: "hipErrorLaunchFailure", 999: "hipErrorUnknown",
}  # fmt: skip
"""HIP's names for those that it has."""
_HIP = ("HIP error", "hipError")
"""One of these is in the text of an error of HIP."""
_LOST = ("UR_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_DEVICE_LOST")
"""How SYCL and Level Zero say that a device was reset, for instance after a kernel that did not end."""


def of_number(number: int) -> Fault | None:
    """Return the fault with this CUDA number; None if CUDA still works in the process after the error."""
    found = FAULTS.get(number)
    return Fault(found[0], found[2], number) if found is not None else None


def fault(error: BaseException) -> Fault | None:
    """Return the fault that led to this error, if any.

    This searches the chain of causes too: if user code raised another error while it handled a CUDA error, the context
    is just as dead.
    """
    for one in _chain(error):
        number = _number(one)
        found = of_number(_by_text(one) if number is None else number)
        if found is not None:
            is_of_hip = any(sign in str(one) for sign in _HIP)
            return found._replace(name=HIP_NAMES.get(found.number, found.name)) if is_of_hip else found
        if _may_be_of_cuda(one) and (name := next((sign for sign in _LOST if sign in str(one)), "")):
            return Fault(name, PROGRAM)
    return None


def is_absent(error: BaseException) -> bool:
    """Whether the error says that this process has no device or no driver, rather than one that has failed."""
    if not _may_be_of_cuda(error):
        return False
    number = _number(error)
    return number in _ABSENT if number is not None else any(text in str(error) for text in _ABSENT_TEXTS)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that a device had too little free memory."""
    number = _number(error)
    if number is not None:
        return number == _NO_MEMORY
    if any(_is_of_library(kind) and kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    if not _may_be_of_cuda(error):
        return False
    text = str(error)
    signs = (
        *(f"{name} {words}" for name in ("CUDA", "HIP", "XPU") for words in ("out of memory", "error: out of memory")),
        "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    )  # fmt: skip
    by_jax = type(error).__name__ in ("XlaRuntimeError", "JaxRuntimeError") and text.startswith("RESOURCE_EXHAUSTED")
    return by_jax or any(sign in text for sign in signs)


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if one is None or (type(one).__module__.startswith("mpi_runtime") and type(one).__name__ != _NOT_READ):
            return  # the error of another call says nothing about this process
        yield one
        one = one.__cause__ or one.__context__


def _is_of_library(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in _LIBRARIES  # it may be None


def _may_be_of_cuda(error: BaseException) -> bool:
    return type(error) is RuntimeError or any(_is_of_library(kind) for kind in type(error).__mro__)


def _number(error: BaseException) -> int | None:
    """Return CUDA's number for an error if its class is known to hold one."""
    kinds = [kind for kind in type(error).__mro__ if _is_of_library(kind)]
    if not any(
        word in kind.__name__ for kind in kinds for word in ("CUDARuntime", "CUDADriver", "Accelerator", "Cuda")
    ):
        return None
    numbers = [getattr(error, name, None) for name in _NUMBERS]
    return next((int(number) for number in numbers if isinstance(number, int)), None)


def _by_text(error: BaseException) -> int:
    """Return CUDA's number for an error that names it only in its text; 0: the text names no fault."""
    if not _may_be_of_cuda(error):
        return 0
    text = str(error)
    if not any(sign in text for sign in ("CUDA", "cudaError", "HIP GPUs", *_HIP)):
        return 0
    for number, found in FAULTS.items():
        signs = (found[0], f"CUDA_ERROR_{DRIVER_NAMES[number]}", HIP_NAMES.get(number, found[0]), *found[1].split("|"))
        if any(sign in text for sign in signs):
            return number
    is_absent = any(sign in text for sign in ("No CUDA GPUs", "No HIP GPUs", "no ROCm-capable device"))
    return NO_DEVICE if is_absent else 0
