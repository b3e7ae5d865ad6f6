"""Errors of CUDA are known by where their classes come from, by number and by text; no library is loaded for it."""

import sys
from typing import Any

import pytest

from mpi_runtime.errors import GpuOutOfMemoryError, TaskError, make_task_error
from mpi_runtime.gpu.faults import Fault, fault, is_out_of_memory


def raised(module: str, name: str, text: str, base: type[Exception] = RuntimeError, **fields: Any) -> Exception:
    """An error of a class that says it comes from a library."""
    error: Exception = type(name, (base,), {"__module__": module, **fields})(text)
    return error


def cupy(status: int, text: str) -> Exception:
    return raised("cupy_backends.cuda.api.runtime", "CUDARuntimeError", text, status=status)


ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
DEAD: list[tuple[Exception, str, bool]] = [
    (cupy(700, "cudaErrorIllegalAddress: an illegal memory access was encountered"), "cudaErrorIllegalAddress", True),
    (cupy(214, "cudaErrorECCUncorrectable: ..."), "cudaErrorECCUncorrectable", False),
    (cupy(46, "cudaErrorDevicesUnavailable: ..."), "cudaErrorDevicesUnavailable", False),
    (cupy(999, "cudaErrorUnknown: unknown error"), "cudaErrorUnknown", False),
    (raised("cupy_backends.cuda.api.driver", "CUDADriverError", "...", status=719), "cudaErrorLaunchFailure", True),
    (raised("torch", "AcceleratorError", ILLEGAL), "cudaErrorIllegalAddress", True),
    (raised("torch", "AcceleratorError", "a text of its own", error_code=710), "cudaErrorAssert", True),
    (RuntimeError(ILLEGAL), "cudaErrorIllegalAddress", True),
    (RuntimeError("CUDA error: device-side assert triggered"), "cudaErrorAssert", True),
    (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "cudaErrorECCUncorrectable", False),
    (RuntimeError("CUDA error: unknown error"), "cudaErrorUnknown", False),
    (RuntimeError("No CUDA GPUs are available"), "cudaErrorNoDevice", False),
    (raised("numba.cuda.cudadrv.driver", "CudaAPIError", "[700] Call to cuMemcpyDtoH results in "
     "CUDA_ERROR_ILLEGAL_ADDRESS", Exception, code=700), "cudaErrorIllegalAddress", True),
    (raised("jaxlib.xla_extension", "XlaRuntimeError", "INTERNAL: CUDA_ERROR_LAUNCH_FAILED: ..."),
     "cudaErrorLaunchFailure", True),
]  # fmt: skip
ALIVE: list[Exception] = [
    cupy(1, "cudaErrorInvalidValue: invalid argument"),
    cupy(400, "cudaErrorInvalidResourceHandle: invalid resource handle"),
    cupy(2, "cudaErrorMemoryAllocation: out of memory"),
    RuntimeError("an illegal memory access was encountered"),
    RuntimeError("CUDA error: invalid device ordinal"),
    ValueError("CUDA error: an illegal memory access was encountered"),
    raised("requests", "HTTPError", "700", code=700, status=700),
    raised("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
]
FULL: list[Exception] = [
    raised("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 8 bytes", MemoryError),
    raised("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
    raised("torch.cuda", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 8.00 GiB"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity)"),
    cupy(2, "cudaErrorMemoryAllocation: out of memory"),
    raised("jaxlib.xla_extension", "XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
]


@pytest.mark.parametrize(("error", "name", "by_program"), DEAD, ids=lambda value: str(value)[:40])
def test_after_these_a_process_can_use_no_gpu(error: Exception, name: str, by_program: bool) -> None:
    assert fault(error) == Fault(name, by_program)
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
        assert fault(error) == Fault("cudaErrorIllegalAddress", True)


def test_the_error_of_another_call_says_nothing_about_this_process() -> None:
    other = make_task_error(RuntimeError(ILLEGAL), "g", 1, 2, "n1")
    assert isinstance(other, RuntimeError)
    assert fault(other) is None
    wrapped = ValueError("no batch")
    wrapped.__cause__ = other
    assert fault(wrapped) is None


def test_no_library_is_loaded() -> None:
    assert not {"cupy", "torch", "numba", "jax"} & set(sys.modules)
