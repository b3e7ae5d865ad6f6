"""Errors of CUDA, told from all others by where their classes come from, by number and by text. Imports no library.

Most errors concern the call that raised them. After some, CUDA answers the process with the same error for good: its
context is dead, and only another process can use the device. What ran out of memory has not harmed the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_LIBRARIES = ("cupy", "cupy_backends", "torch", "numba", "jax", "jaxlib", "cuda", "pycuda")
"""Where classes of CUDA errors come from. torch raises plain `RuntimeError`s too."""
_NUMBERS = ("status", "error_code", "code")
"""Attributes in which cupy, torch and numba keep CUDA's number."""
_NO_MEMORY = 2
_CHAIN_MAX = 20
"""Errors that led to an error, and are looked at."""


class Fault(NamedTuple):
    """What has ended the use of a device by a process."""

    name: str
    """As the CUDA runtime calls it."""
    by_program: bool = False
    """Whether a mistake in a kernel does it too: then it says little about the device."""


_FAULTS = {
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable devices are busy or unavailable", False),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected|No CUDA GPUs are available", False),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error", False),
    220: ("cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error", False),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered", True),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated", True),
    709: ("cudaErrorContextIsDestroyed", "context is destroyed", False),
    710: ("cudaErrorAssert", "device-side assert triggered", True),
    714: ("cudaErrorHardwareStackError", "hardware stack error", True),
    715: ("cudaErrorIllegalInstruction", "an illegal instruction was encountered", True),
    716: ("cudaErrorMisalignedAddress", "misaligned address", True),
    717: ("cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space", True),
    718: ("cudaErrorInvalidPc", "invalid program counter", True),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure", True),
    721: ("cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error", False),
    999: ("cudaErrorUnknown", "CUDA error: unknown error|CUDA unknown error", False),
}
"""CUDA's numbers, which runtime and driver share: name, parts of texts that tell it, whether programs cause it."""
_DRIVER_NAMES = {
    46: "DEVICE_UNAVAILABLE", 100: "NO_DEVICE", 214: "ECC_UNCORRECTABLE", 220: "NVLINK_UNCORRECTABLE",
    700: "ILLEGAL_ADDRESS", 702: "LAUNCH_TIMEOUT", 709: "CONTEXT_IS_DESTROYED", 710: "ASSERT",
    714: "HARDWARE_STACK_ERROR", 715: "ILLEGAL_INSTRUCTION", 716: "MISALIGNED_ADDRESS", 717: "INVALID_ADDRESS_SPACE",
    718: "INVALID_PC", 719: "LAUNCH_FAILED", 721: "CONTAINED", 999: "UNKNOWN",
}  # fmt: skip
"""What the driver calls them, after `CUDA_ERROR_`."""


def fault(error: BaseException) -> Fault | None:
    """What has ended this process's use of its devices, if that is why the error was raised; else None.

    An error that user code raised while it handled such a one is told by it: the context is dead all the same.
    """
    for one in _chain(error):
        number = _number(one)
        found = _FAULTS.get(number) if number is not None else _by_text(one)
        if found is not None:
            return Fault(found[0], found[2])
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library has found too little memory on a device."""
    number = _number(error)
    if number is not None:
        return number == _NO_MEMORY
    if any(_is_of_library(kind) and kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    if not _may_be_of_cuda(error):
        return False
    text = str(error)
    signs = ("CUDA out of memory", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY")
    by_jax = type(error).__name__ in ("XlaRuntimeError", "JaxRuntimeError") and text.startswith("RESOURCE_EXHAUSTED")
    return by_jax or any(sign in text for sign in signs)


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if one is None or type(one).__module__.startswith("mpi_runtime"):
            return  # the error of another call says nothing about this process
        yield one
        one = one.__cause__ or one.__context__


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def _may_be_of_cuda(error: BaseException) -> bool:
    return type(error) is RuntimeError or any(_is_of_library(kind) for kind in type(error).__mro__)


def _number(error: BaseException) -> int | None:
    """CUDA's number of an error, if its library says it. Of other libraries a number may mean anything."""
    kinds = [kind for kind in type(error).__mro__ if _is_of_library(kind)]
    if not any(
        word in kind.__name__ for kind in kinds for word in ("CUDARuntime", "CUDADriver", "Accelerator", "Cuda")
    ):
        return None
    numbers = [getattr(error, name, None) for name in _NUMBERS]
    return next((int(number) for number in numbers if isinstance(number, int)), None)


def _by_text(error: BaseException) -> tuple[str, str, bool] | None:
    if not _may_be_of_cuda(error):
        return None
    text = str(error)
    if "CUDA" not in text and "cudaError" not in text:
        return None
    for number, found in _FAULTS.items():
        signs = (found[0], f"CUDA_ERROR_{_DRIVER_NAMES[number]}", *found[1].split("|"))
        if any(sign in text for sign in signs):
            return found
    return None
