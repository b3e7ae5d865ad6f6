"""Errors of CUDA are known by where their classes come from, by number and by text; no library is loaded for it."""

import sys
from typing import Any

import pytest

from mpi_runtime.errors import DeviceUnavailableError, GpuOutOfMemoryError, TaskError
from mpi_runtime.errors.remote import make_task_error
from mpi_runtime.gpu.device import BUSY, DEVICE, NOBODY, NODE, PROGRAM
from mpi_runtime.gpu.faults import FAULTS, Fault, fault, is_absent, is_out_of_memory


def raised(module: str, name: str, text: str, base: type[Exception] = RuntimeError, **fields: Any) -> Exception:
    """An error of a class that says it comes from a library."""
    error: Exception = type(name, (base,), {"__module__": module, **fields})(text)
    return error


def cupy(status: int, text: str) -> Exception:
    return raised("cupy_backends.cuda.api.runtime", "CUDARuntimeError", text, status=status)


ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
DEAD: list[tuple[Exception, int, str]] = [
    (cupy(700, "cudaErrorIllegalAddress: an illegal memory access was encountered"), 700, PROGRAM),
    (cupy(214, "cudaErrorECCUncorrectable: ..."), 214, DEVICE),
    (cupy(46, "cudaErrorDevicesUnavailable: ..."), 46, BUSY),
    (cupy(999, "cudaErrorUnknown: unknown error"), 999, DEVICE),
    (raised("cupy_backends.cuda.api.driver", "CUDADriverError", "...", status=719), 719, PROGRAM),
    (raised("torch", "AcceleratorError", ILLEGAL), 700, PROGRAM),
    (raised("torch", "AcceleratorError", "a text of its own", error_code=710), 710, PROGRAM),
    (RuntimeError(ILLEGAL), 700, PROGRAM),
    (RuntimeError("CUDA error: device-side assert triggered"), 710, PROGRAM),
    (RuntimeError("CUDA error: uncorrectable ECC error encountered"), 214, DEVICE),
    (RuntimeError("CUDA error: unknown error"), 999, DEVICE),
    (RuntimeError("No CUDA GPUs are available"), 100, DEVICE),
    (raised("numba.cuda.cudadrv.driver", "CudaAPIError", "[700] Call to cuMemcpyDtoH results in "
     "CUDA_ERROR_ILLEGAL_ADDRESS", Exception, code=700), 700, PROGRAM),
    (raised("jaxlib.xla_extension", "XlaRuntimeError", "INTERNAL: CUDA_ERROR_LAUNCH_FAILED: ..."),
     719, PROGRAM),
    (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), 46, BUSY),
    (RuntimeError("CUDA error: system not yet initialized"), 802, NODE),
    (cupy(226, "cudaErrorContained: ..."), 226, DEVICE),
    (cupy(721, "cudaErrorTensorMemoryLeak: ..."), 721, PROGRAM),
    (cupy(802, "cudaErrorSystemNotReady: system not yet initialized"), 802, NODE),
    (cupy(806, "cudaErrorMpsRpcFailure: ..."), 806, NOBODY),
    (cupy(911, "cudaErrorExternalDevice: ..."), 911, NOBODY),
]  # fmt: skip
OF_OTHERS: list[tuple[Exception, Fault]] = [
    (RuntimeError("HIP error: an illegal memory access was encountered"),
     Fault("hipErrorIllegalAddress", PROGRAM, 700)),
    (raised("torch", "AcceleratorError", "HIP error: unspecified launch failure"),
     Fault("hipErrorLaunchFailure", PROGRAM, 719)),
    (cupy(714, "hipErrorUnknown: 714"), Fault("cudaErrorHardwareStackError", PROGRAM, 714)),
    (cupy(214, "hipErrorECCNotCorrectable: ..."), Fault("hipErrorECCNotCorrectable", DEVICE, 214)),
    (RuntimeError("HIP error: device-side assert triggered"), Fault("hipErrorAssert", PROGRAM, 710)),
    (RuntimeError("HIP error: unknown error"), Fault("hipErrorUnknown", DEVICE, 999)),
    (RuntimeError("No HIP GPUs are available"), Fault("cudaErrorNoDevice", DEVICE, 100)),
    (RuntimeError("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
     Fault("UR_RESULT_ERROR_DEVICE_LOST", PROGRAM)),
]  # fmt: skip
"""HIP has CUDA's numbers and texts, and other names."""
ALIVE: list[Exception] = [
    cupy(1, "cudaErrorInvalidValue: invalid argument"),
    cupy(400, "cudaErrorInvalidResourceHandle: invalid resource handle"),
    cupy(2, "cudaErrorMemoryAllocation: out of memory"),
    RuntimeError("an illegal memory access was encountered"),
    RuntimeError("CUDA error: invalid device ordinal"),
    RuntimeError("HIP error: invalid device ordinal"),
    ValueError("UR_RESULT_ERROR_DEVICE_LOST"),
    ValueError("CUDA error: an illegal memory access was encountered"),
    raised("requests", "HTTPError", "700", code=700, status=700),
    raised("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
]
FULL: list[Exception] = [
    raised("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 8 bytes", MemoryError),
    raised("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
    raised("torch.cuda", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("HIP error: out of memory"),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB (GPU 0; 63.98 GiB total capacity)"),
    raised("torch", "OutOfMemoryError", "XPU out of memory. Tried to allocate 192.00 MiB."),
    RuntimeError("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity)"),
    cupy(2, "cudaErrorMemoryAllocation: out of memory"),
    raised("jaxlib.xla_extension", "XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
]


@pytest.mark.parametrize(("error", "number", "blame"), DEAD, ids=lambda value: str(value)[:40])
def test_after_these_a_process_can_use_no_gpu(error: Exception, number: int, blame: str) -> None:
    assert fault(error) == Fault(FAULTS[number][0], blame, number)
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(("error", "expected"), OF_OTHERS, ids=lambda value: str(value)[:40])
def test_errors_of_other_vendors(error: Exception, expected: Fault) -> None:
    assert fault(error) == expected
    assert not is_out_of_memory(error)


@pytest.mark.parametrize("error", ALIVE, ids=lambda error: f"{type(error).__name__}: {error}"[:40])
def test_after_these_it_can(error: Exception) -> None:
    assert fault(error) is None


@pytest.mark.parametrize("error", FULL, ids=lambda error: f"{type(error).__name__}: {error}"[:40])
def test_these_say_that_memory_ran_out(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert fault(error) is None
    told = make_task_error(error, "f", 1, 2, "n1", note="who has what")
    assert isinstance(told, GpuOutOfMemoryError)
    assert isinstance(told, type(error)), "and what the library raised"
    assert str(told).endswith("\nwho has what")


@pytest.mark.parametrize("error", [MemoryError("out of memory"), RuntimeError("out of memory"), OSError("CUDA")])
def test_memory_of_the_host_is_another_matter(error: Exception) -> None:
    assert not is_out_of_memory(error)
    told = make_task_error(error, "f", 1, 2, "n1")
    assert isinstance(told, type(error))
    assert isinstance(told, TaskError)
    assert not isinstance(told, GpuOutOfMemoryError)


def test_what_was_raised_while_it_was_handled_tells_it_too() -> None:
    for name in ("__cause__", "__context__"):
        error = ValueError("no batch")
        setattr(error, name, RuntimeError(ILLEGAL))
        assert fault(error) == Fault("cudaErrorIllegalAddress", PROGRAM, 700)


def test_the_error_of_another_call_says_nothing_about_this_process() -> None:
    other = make_task_error(RuntimeError(ILLEGAL), "g", 1, 2, "n1")
    assert isinstance(other, RuntimeError)
    assert fault(other) is None
    wrapped = ValueError("no batch")
    wrapped.__cause__ = other
    assert fault(wrapped) is None


def test_what_was_said_while_an_argument_was_read_tells_it_too() -> None:
    unread = DeviceUnavailableError("The value is a cupy array")
    unread.__cause__ = cupy(700, "cudaErrorIllegalAddress: ...")
    assert fault(unread) == Fault("cudaErrorIllegalAddress", PROGRAM, 700)


@pytest.mark.parametrize("error", [
    cupy(35, "cudaErrorInsufficientDriver: ..."), cupy(100, "cudaErrorNoDevice: ..."),
    RuntimeError("No CUDA GPUs are available"), RuntimeError("Found no NVIDIA driver on your system."),
    RuntimeError("No HIP GPUs are available"), RuntimeError("No XPU devices are available."),
    cupy(100, "hipErrorNoDevice: no ROCm-capable device is detected"),
], ids=str)  # fmt: skip
def test_that_there_is_no_device_is_another_matter_than_that_one_fails(error: Exception) -> None:
    assert is_absent(error)


@pytest.mark.parametrize("error", [one for one, number, _ in DEAD if number != 100] + ALIVE + FULL, ids=repr)
def test_a_device_that_fails_is_not_absent(error: Exception) -> None:
    assert not is_absent(error)


def test_no_library_is_loaded() -> None:
    assert not {"cupy", "torch", "numba", "jax"} & set(sys.modules)
