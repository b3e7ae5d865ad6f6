"""What libraries are told of their limits: those that are loaded at once, others when they are imported."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_runtime.gpu import caps
from mpi_runtime.gpu.device import MIB, Device
from mpi_runtime.gpu.ledger import UNIT, cap, part

LIBRARY = """
from types import SimpleNamespace
told = []
class cuda:
    is_initialized = staticmethod(lambda: False)
    _lazy_call = staticmethod(lambda call: call())
    set_per_process_memory_fraction = staticmethod(lambda fraction, device: told.append((fraction, device)))
def get_default_memory_pool():
    return SimpleNamespace(set_limit=lambda size: told.append(size))
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("cupy", "torch"):
        (tmp_path / f"{name}.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in ("cupy", "torch"):
        sys.modules.pop(name, None)


def test_libraries_that_are_imported_later_are_told_then(libraries: None) -> None:
    environment: dict[str, str] = {}
    caps.set_cap(25, 100, environment)
    import cupy
    import torch

    assert (cupy.told, torch.told) == ([25], [(0.25, 0)])
    assert type(cupy.__spec__.loader).__name__ == "SourceFileLoader", "as if nobody had looked"
    assert environment == {caps.FRACTION: "0.2500", caps.PREALLOCATE: "false"}
    caps.set_cap(50, 100, environment)
    assert (cupy.told, torch.told) == ([25, 50], [(0.25, 0), (0.5, 0)])
    caps.set_cap(0, 100, environment)
    assert (cupy.told[-1], torch.told[-1], environment) == (0, (1.0, 0), {}), "nothing holds them any more"


@pytest.mark.parametrize("is_compiled", [True, False])
def test_torch_for_intel_has_its_limit_on_xpu(libraries: None, tmp_path: Path, is_compiled: bool) -> None:
    """Other builds have `torch.xpu` as well, and no use for it."""
    with (tmp_path / "torch.py").open("a") as file:
        file.write(f"class xpu(cuda):\n    _is_compiled = staticmethod(lambda: {is_compiled})\n")
        file.write("cuda = None\n" if is_compiled else "xpu._lazy_call = None\n")
    environment: dict[str, str] = {}
    caps.set_cap(25, 100, environment)
    import torch

    caps.set_cap(0, 100, environment)
    assert torch.told == [(0.25, 0), (1.0, 0)]


def test_who_was_never_held_is_left_alone(libraries: None) -> None:
    before = list(sys.meta_path)
    environment = {"A": "b"}
    caps.set_cap(0, 100, environment)
    assert (sys.meta_path, environment) == (before, {"A": "b"})


def test_the_users_own_word_for_jax_stays(libraries: None) -> None:
    environment = {caps.FRACTION: ".9"}
    caps.set_cap(25, 100, environment)
    assert environment == {caps.FRACTION: ".9"}


@pytest.mark.parametrize(("units", "memory", "taken", "held_to"), [
    (UNIT // 4, 0, 20_000, 20_000 - 512), (UNIT // 4, 10_000, 10_512, 10_000), (0, 10_000, 10_512, 10_000),
    (UNIT // 1000, 0, 80 + 512, 80), (UNIT, 0, 80_000, 0),
])  # fmt: skip
def test_the_context_is_part_of_a_share_and_beside_what_is_asked_for(
    units: int, memory: int, taken: int, held_to: int
) -> None:
    device = Device("GPU-a", memory=80_000 * MIB, reserve=512 * MIB)
    assert part(device, units, memory * MIB) == taken * MIB
    assert cap(device, units, memory * MIB) == held_to * MIB
