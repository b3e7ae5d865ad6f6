"""Numbers, names and texts of errors are those of CUDA's own bindings, whose import starts a process."""

import sys
from importlib.util import find_spec
from typing import Any

import pytest

from mpi_runtime.gpu import cuda_context
from mpi_runtime.gpu.faults import DRIVER_NAMES, FAULTS, Fault, fault
from tests.fake_cuda import memory
from tests.helpers import IN_CI


@pytest.fixture
def bindings() -> Any:
    """NVIDIA's own, of the CUDA that the extra `dev` brings. They need no driver for this."""
    must_be_there = IN_CI and sys.version_info >= (3, 11)
    if find_spec("cuda.bindings" if find_spec("cuda") else "cuda") is None and not must_be_there:
        pytest.skip("cuda-bindings is not installed: the extra `dev` brings it for Python 3.11 and newer")
    from cuda import bindings
    from cuda.bindings import driver, runtime

    assert driver
    assert runtime
    return bindings


def test_numbers_names_and_texts_are_those_of_cuda(bindings: Any) -> None:
    driver, runtime = bindings.driver, bindings.runtime
    for number, (name, text, _) in FAULTS.items():
        error = runtime.cudaError_t(number)
        assert error.name == name
        assert driver.CUresult(number).name == f"CUDA_ERROR_{DRIVER_NAMES[number]}"
        said = f"CUDA error: {runtime.cudaGetErrorString(error)[1].decode()}"
        assert any(part in said for part in text.split("|")), said
        assert fault(RuntimeError(said)) == Fault(name, FAULTS[number][2], number)
    assert DRIVER_NAMES.keys() == FAULTS.keys()


def test_numbers_of_what_pins_memory_are_those_of_cuda(bindings: Any) -> None:
    """Ours, and those of the pretended GPU on which it is tested."""
    driver = bindings.driver
    results, attributes = driver.CUresult, driver.CUdevice_attribute
    assert results.CUDA_ERROR_INVALID_CONTEXT == cuda_context.NO_CONTEXT
    assert driver.CU_MEMHOSTREGISTER_PORTABLE == cuda_context.PORTABLE
    assert driver.CU_MEMHOSTREGISTER_READ_ONLY == memory.READ_ONLY
    assert attributes.CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED == memory.CAN_REGISTER
    assert results.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED == 712
    assert results.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED == 713
    assert results.CUDA_ERROR_NOT_SUPPORTED == 801
