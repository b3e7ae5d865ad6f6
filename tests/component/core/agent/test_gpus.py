"""The helper process that asks the driver: started where there seems to be one, and waited for only so long."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import config as configuration
from mpi_runtime.core.agent import gpus as gpu_finder
from mpi_runtime.core.agent.gpus import Finder, Gpus
from mpi_runtime.gpu import vendor
from mpi_runtime.gpu.device import Report
from tests.fake_nvml import machines


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where a helper finds the stand-in, with a machine of four to be shown; a test may show another."""
    show(monkeypatch, machines.v100_pairs())
    return [str(Path(machines.__file__).parent), *sys.path]


def show(monkeypatch: pytest.MonkeyPatch, machine: machines.Machine, **variables: str) -> None:
    for name, value in machines.shown(machine, **variables).items():
        if name != "PYTHONPATH" and value is not None:
            monkeypatch.setenv(name, value)


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a process was started")


@pytest.mark.parametrize(("wish", "has_signs"), [("auto", False), ("never", True)])
def test_where_nothing_looks_like_a_driver_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, wish: str, has_signs: bool
) -> None:
    monkeypatch.setattr(gpu_finder, "start_helper", refuse)
    monkeypatch.setattr(vendor, "vendors_with_signs", lambda _: ["nvidia"] if has_signs else [])
    monkeypatch.setenv(configuration.FIND_GPUS, wish)
    assert Finder(sys.path).report(1.0) == Report()
    gpus = Gpus(Finder(sys.path), 1.0, None, "none")
    assert (gpus.stated, gpus.report) == (0, Report())
    assert Gpus(Finder(sys.path), 1.0, 3, "none").stated == 3, "without a sign of a driver what is stated is believed"


def test_the_helper_answers(path: list[str]) -> None:
    gpus = Gpus(Finder(path), 30.0, None, "none")
    uuids = [device.uuid for device in gpus.report.devices]
    assert len(uuids) == 4
    assert gpus.variables(uuids[1:3]) == {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpus.variables([]) == {"CUDA_VISIBLE_DEVICES": ""}
    assert [device.name for device in gpus.devices(uuids[:1])] == ["Tesla V100-SXM2-16GB"]
    assert "pynvml" not in sys.modules or not hasattr(sys.modules["pynvml"], "Library"), "it was imported elsewhere"


def test_a_driver_that_hangs_is_not_waited_for(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, {**machines.v100_pairs(), "delay_s": 1000})
    gpus = Gpus(Finder(path), 0.5, 2, "none")
    assert gpus.report.error.startswith("NVML did not answer within 0.5 s. Without persistence mode")
    assert gpus.stated == 0, "what is stated is not believed of a driver that does not answer"


def test_a_helper_that_crashes_is_an_error_in_words(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_MACHINE", "no description")
    assert "and no answer" in Finder(path).report(30.0).error


def test_devices_by_number(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, machines.v100_pairs(), CUDA_VISIBLE_DEVICES="3,1")
    gpus = Gpus(Finder(path), 30.0, None, "none")
    first, second = (device.uuid for device in gpus.report.devices)
    assert gpus.variables([first, second]) == {"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_stated_devices_have_the_users_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(configuration.FIND_GPUS, "never")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    gpus = Gpus(Finder(sys.path), 1.0, 2, "none")
    assert gpus.variables(["stated-0001"]) == {"CUDA_VISIBLE_DEVICES": "6"}


def test_who_wants_no_gpus_does_not_wait(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, {**machines.v100_pairs(), "delay_s": 1000})
    assert Gpus(Finder(path), 1000.0, 0, "none").report == Report()


def test_where_slurm_does_not_say_which_none_is_used(path: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, machines.v100_pairs(), SLURM_GPUS_ON_NODE="2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = Gpus(Finder(path), 30.0, 2, "slurm-pmix")
    assert (gpus.report.devices, gpus.stated) == ([], 0), "what is stated are not the first two either"
    assert "Start without --gpu-bind=none" in gpus.report.error
