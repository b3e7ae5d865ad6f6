"""What NVML tells of described machines, through the real pynvml; and what CUDA_VISIBLE_DEVICES leaves of it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpi_runtime.gpu import nvidia, vendor
from mpi_runtime.gpu.device import MIB, Device, Report
from mpi_runtime.gpu.nvidia import types_of
from mpi_runtime.gpu.topology import pair_weight
from mpi_runtime.gpu.visibility import not_told, stated_tokens, trap, visible
from tests.fake_nvml import machines
from tests.fake_nvml.library import Library


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The real one; what a test puts into the place of the C library goes again."""
    machines.real_pynvml()  # or the test is skipped
    module = importlib.import_module("pynvml")
    monkeypatch.setattr(module, "nvmlLib", None)
    monkeypatch.setattr(module, "_nvmlGetFunctionPointer_cache", {})
    return module


def look(pynvml: Any, machine: machines.Machine) -> Report:
    pynvml.nvmlLib = Library(machine)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return nvidia.look()


def test_eight_that_a_switch_links(pynvml: ModuleType) -> None:
    report = look(pynvml, machines.h100x8())
    assert (report.error, report.problems) == ("", [])
    assert len(report.devices) == len(report.cards) == 8
    first = report.devices[0]
    assert first.uuid.startswith("GPU-00000000")
    assert first.types == ("H100", "H100-80G")
    assert first.memory == (81559 - 551) * MIB, "what the driver keeps for itself is nobody's"
    assert (first.capability, first.numa, first.is_exclusive, first.is_instance) == ((9, 0), 0, False, False)
    assert len(report.links) == 28
    assert {link.nvlinks for link in report.links} == {18}
    assert {link.distance for link in report.links} == {40, 50}


def test_processors_that_are_near(pynvml: ModuleType) -> None:
    machine = machines.v100_pairs()
    machine["gpus"][0]["cpus"] = [0, 1, 63, 64, 130]
    report = look(pynvml, machine)
    assert [device.cpus for device in report.devices] == [(0, 1, 63, 64, 130), (), (), ()]


def test_links_between_some(pynvml: ModuleType) -> None:
    report = look(pynvml, machines.v100_pairs())
    linked = {(link.first[4:12], link.second[4:12]) for link in report.links if link.nvlinks}
    assert linked == {("00000000", "00000003"), ("00000001", "00000002")}
    assert pair_weight(report.links[0].nvlinks, report.links[0].distance) == 20


def test_a_split_gpu_is_its_instances(pynvml: ModuleType) -> None:
    report = look(pynvml, machines.a100x4(split=(1,)))
    assert len(report.cards) == 4
    assert [device.is_instance for device in report.devices] == [False, True, True, True, False, False]
    instance = report.devices[1]
    assert instance.uuid.startswith("MIG-00000001")
    assert instance.card == report.cards[1].uuid
    assert (instance.instance, instance.types, instance.memory) == ((1, 0), ("A100-MIG-3g.20gb",), 19968 * MIB)
    assert not [link for link in report.links if "MIG" in link.first + link.second]


def test_what_is_wrong_with_one_is_said_and_the_others_are_there(pynvml: ModuleType) -> None:
    machine = machines.h100x8()
    gpus = machine["gpus"]
    gpus[0]["errors"] = {"nvmlDeviceGetHandleByIndex": "NO_PERMISSION"}  # a control group keeps it from us
    gpus[1]["errors"] = {"*": "GPU_IS_LOST"}
    gpus[2]["mode"], gpus[3]["mode"] = 2, 3
    gpus[4]["used_mib"] = 70_000
    gpus[5]["used_mib"] = 500
    gpus[6]["is_old"] = True
    gpus[7]["mig"] = [None]
    report = look(pynvml, machine)
    assert [device.uuid[4:12] for device in report.devices] == [f"0000000{number}" for number in (3, 4, 5, 6)]
    lost, prohibited, used, empty = report.problems
    assert lost == "GPU 1 does not answer (GpuIsLost) and is left out"
    assert prohibited.startswith("GPU 2 (GPU-00000002")
    assert prohibited.endswith("is left out: its compute mode is PROHIBITED")
    assert used.endswith(": others use 70000 MiB of its 81008")
    assert empty.endswith("it is in MIG mode and has no instance")
    assert [device.is_exclusive for device in report.devices] == [True, False, False, False]
    assert report.devices[3].memory == 81559 * MIB, "an older driver tells no more"


@pytest.mark.parametrize(("code", "text"), [
    ("DRIVER_NOT_LOADED", "NVML reports DriverNotLoaded: the driver is not loaded"),
    ("LIB_RM_VERSION_MISMATCH", "the machine has not been started again since"),
    ("UNKNOWN", "NVML reports Unknown: it cannot be used"),
])  # fmt: skip
def test_a_broken_driver_is_an_error_in_words(pynvml: ModuleType, code: str, text: str) -> None:
    report = look(pynvml, {"init": code, "gpus": []})
    assert text in report.error
    assert report.devices == []


def test_without_pynvml_nothing_is_found_and_nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia.look() == Report()


def test_signs_of_a_driver(tmp_path: Any) -> None:
    assert vendor.vendors_with_signs(f"{tmp_path}/") == []
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert vendor.vendors_with_signs(f"{tmp_path}/") == ["nvidia"]


@pytest.mark.parametrize(("name", "gigabytes", "types"), [
    ("NVIDIA H100 80GB HBM3", 79.6, ("H100", "H100-80G")), ("NVIDIA H100 NVL", 93.6, ("H100", "H100-94G")),
    ("NVIDIA A100-SXM4-40GB", 39.4, ("A100", "A100-40G")), ("NVIDIA A100 80GB PCIe", 79.2, ("A100", "A100-80G")),
    ("Tesla V100-SXM2-16GB", 15.8, ("V100", "V100-16G")), ("NVIDIA H200", 140, ("H200",)), ("Tesla T4", 15, ("T4",)),
    ("NVIDIA L40S", 45, ("L40S",)), ("NVIDIA GeForce RTX 4090", 24, ("RTX-4090",)), ("NVIDIA A10G", 22, ("A10G",)),
    ("NVIDIA RTX 6000 Ada Generation", 48, ("RTX-6000-ADA",)), ("NVIDIA GH200 480GB", 95, ("GH200",)), ("", 1, ()),
])  # fmt: skip
def test_types(name: str, gigabytes: float, types: tuple[str, ...]) -> None:
    assert types_of(name, int(gigabytes * 1024 * MIB)) == types


# CUDA_VISIBLE_DEVICES


@pytest.fixture
def four(pynvml: ModuleType) -> Report:
    return look(pynvml, machines.a100x4(split=(1,)))


ALL = "0 1a 1b 1c 2 3"


@pytest.mark.parametrize(("value", "names", "problem"), [
    (None, ALL, ""),
    ("", "", ""), ("-1", "", ""), ("NoDevFiles", "", ""), ("none", "", ""),
    ("0,2,3", "0 2 3", ""), ("3,0", "0 3", ""), ("02", "2", ""), (" 0 , 3 ", "0 3", ""),
    ("2abc", "2", ""),  # CUDA reads numbers as far as they go
    ("1", "1a 1b 1c", ""),
    ("0,2,-1,3", "0 2", ""),
    ("0,9,2", "0", "there is no device '9'"), ("9" * 5000, "", "there is no device '999"),
    ("x", "", "there is no device 'x'"),
    ("GPU-00000003", "3", ""), ("GPU-00000002-aaaa,GPU-00000000", "0 2", ""),
    ("GPU-0000000", "", "there is no device 'GPU-0000000'"),  # of four
    ("MIG-00000001-dddd-eeee-ffff-000000000002", "1b", ""),
    ("MIG-GPU-00000001-aaaa-bbbb-a000-000000000001/9/0", "1c", ""),
    ("MIG-GPU-00000001-aaaa-bbbb-a000-000000000001/5/0", "", "there is no device 'MIG-GPU"),
    ("0,0", "", "names a device twice"), ("2,GPU-00000002", "", "names a device twice"),
])  # fmt: skip
def test_what_the_variable_leaves(four: Report, value: str | None, names: str, problem: str) -> None:
    found = visible(four, {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert " ".join(name_of(device) for device in found.devices) == names
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)
    assert all(found.tokens[device.uuid] == device.uuid for device in found.devices), "one is split: no number is sure"


@pytest.mark.parametrize("value", [None, "0,1,2,3", "3,2,0,1", "GPU-00000003,GPU-00000001", "1"])
@pytest.mark.parametrize("wrong", ["", "GPU_IS_LOST", "NO_PERMISSION"])
def test_devices_are_numbers_where_the_numbering_is_sure(pynvml: ModuleType, value: str | None, wrong: str) -> None:
    """With one card lost, or hidden by a control group, CUDA may count otherwise than we."""
    machine = machines.v100_pairs()
    if wrong:
        machine["gpus"][1]["errors"] = {"*" if wrong == "GPU_IS_LOST" else "nvmlDeviceGetHandleByIndex": wrong}
    report = look(pynvml, machine)
    assert report.missing == bool(wrong)
    found = visible(report, {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    for device in found.devices:
        number = str(int(device.uuid[4:12]))
        assert found.tokens[device.uuid] == (device.uuid if wrong else number)


def test_an_old_library_lacks_functions(pynvml: ModuleType) -> None:
    """Which are missed as what a device cannot answer, and not all of it as if there were no GPU."""
    machine = machines.h100x8()
    machine["missing"] = [
        "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNumaNodeId",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPersistenceMode",
    ]  # fmt: skip
    report = look(pynvml, machine)
    assert (report.error, report.problems, len(report.devices)) == ("", [], 8)
    assert {link.nvlinks for link in report.links} == {18}


def test_links_to_hidden_gpus_are_no_links_by_a_switch(pynvml: ModuleType) -> None:
    machine = machines.v100_pairs()  # 0 with 3, 1 with 2
    for number in (2, 3):
        machine["gpus"][number]["errors"] = {"nvmlDeviceGetHandleByIndex": "NO_PERMISSION"}
    (link,) = look(pynvml, machine).links
    assert link.nvlinks == 0


def test_as_many_links_as_the_library_knows(pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "NVML_NVLINK_MAX_LINKS", 36)  # 18 in older ones
    report = look(pynvml, {**machines.h100x8(), "nvswitch": 36})
    assert {link.nvlinks for link in report.links} == {36}


def test_the_node_of_the_slot_is_the_kernel_s(
    pynvml: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML tells the node of the device's own memory where that is one, as on Grace Hopper."""
    monkeypatch.setattr(nvidia, "PCI_DEVICES", str(tmp_path))
    for bus, node in (("0000:1b:00.0", "3"), ("0000:43:00.0", "-1")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "numa_node").write_text(node)
    assert [device.numa for device in look(pynvml, machines.h100x8()).devices[:3]] == [3, 0, 0]


@pytest.mark.parametrize(("persistence", "is_said"), [(0, True), (1, False)])
def test_a_driver_that_has_to_start_its_devices_first(
    pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch, persistence: int, is_said: bool
) -> None:
    monkeypatch.setattr(nvidia, "SLOW_S", 0.01)
    machine = {**machines.v100_pairs(), "delay_s": 0.05}
    for gpu in machine["gpus"]:
        gpu["persistence"] = persistence
    problems = look(pynvml, machine).problems
    assert [("persistence mode is off" in line) for line in problems] == [True] * is_said


def name_of(device: Device) -> str:
    part = {(1, 0): "a", (2, 0): "b", (9, 0): "c"}.get(device.instance, "")
    return f"{int(device.card[4:12])}{part}"


def test_numbers_of_different_models_are_not_guessed(pynvml: ModuleType) -> None:
    report = look(pynvml, machines.mixed())
    found = visible(report, {"CUDA_VISIBLE_DEVICES": "2"})
    assert found.devices == []
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID" in found.problem
    sure = visible(report, {"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [device.types for device in sure.devices] == [("L4",)]
    assert len(visible(report, {}).devices) == 3


def test_variables_for_executors() -> None:
    assert vendor.variables(vendor.NVIDIA, []) == {"CUDA_VISIBLE_DEVICES": ""}
    assert vendor.variables(vendor.NVIDIA, ["GPU-a", "GPU-b"]) == {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert vendor.variables(vendor.NVIDIA, ["2"]) == {"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("value", "tokens"), [(None, ["0", "1"]), ("4,7", ["4", "7"]), ("4,7,9", ["4", "7"]), ("4", ["0", "1"])]
)
def test_stated_devices_have_the_names_that_the_user_gave(value: str | None, tokens: list[str]) -> None:
    assert stated_tokens(vendor.NVIDIA, {} if value is None else {"CUDA_VISIBLE_DEVICES": value}, 2) == tokens


def test_slurm_gives_gpus_to_tasks_that_mpirun_does_not_start() -> None:
    assert "--gpus-per-node" in trap({"SLURM_GPUS_PER_TASK": "1"}, "openmpi")
    assert trap({"SLURM_GPUS_PER_TASK": "1"}, "slurm-pmix") == trap({}, "mpich") == ""


@pytest.mark.parametrize(("variables", "is_known"), [
    ({"SLURM_GPUS_ON_NODE": "2"}, False),
    ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "1,2"}, True),
    ({"SLURM_GPUS_ON_NODE": "4"}, True), ({"SLURM_GPUS_ON_NODE": "9" * 5000}, True),
    ({}, True),
])  # fmt: skip
def test_gpus_of_other_jobs_are_not_taken_for_ours(four: Report, variables: dict[str, str], is_known: bool) -> None:
    said = not_told(four, variables)
    assert (said == "") is is_known
    assert is_known or "given the job 2 of the 4 GPUs to be seen" in said
