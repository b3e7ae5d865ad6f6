"""The table of checks that every vendor has to pass, on machines of four devices; then what only one vendor has."""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

from mpi_runtime import config as configuration
from mpi_runtime.gpu import amd, finding, intel, ledger, nvidia, vendor
from mpi_runtime.gpu.device import MIB, UNIT, Device, Report
from mpi_runtime.gpu.ledger import Inventory
from mpi_runtime.gpu.vendor import AMD, INTEL, NVIDIA, VENDORS, Vendor
from mpi_runtime.gpu.visibility import not_told, visible
from tests.fake_nvml import machines
from tests.fake_nvml.library import Library
from tests.fake_sys import runtimes, trees
from tests.fake_sys.trees import GIB

KEYS = [one.key for one in VENDORS]
Shows = Callable[[int, Mapping[str, str]], list[int]]


class Kit(NamedTuple):
    """What the checks need of a vendor."""

    look: Callable[[str], Report]
    """The report of its machine of four; the argument says what is wrong with device 1: "", "hidden" or "silent"."""
    shows: Shows
    """What its runtime shows."""
    type: str
    memory: int


def _planted(look: Callable[[str, bool], Report], tree: trees.Tree, place: Path) -> Report:
    return look(trees.plant(place, tree), False)


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Kit]:
    machines.real_pynvml()  # or the test is skipped
    pynvml: ModuleType = importlib.import_module("pynvml")
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def of_nvidia(wrong: str) -> Report:
        machine = machines.v100_pairs()
        if wrong:
            name = "*" if wrong == "silent" else "nvmlDeviceGetHandleByIndex"
            machine["gpus"][1]["errors"] = {name: "GPU_IS_LOST" if wrong == "silent" else "NO_PERMISSION"}
        library: Any = pynvml
        library.nvmlLib = Library(machine)
        library._nvmlGetFunctionPointer_cache.clear()
        return nvidia.look()

    places = (tmp_path / str(number) for number in itertools.count())
    return {
        "nvidia": Kit(of_nvidia, runtimes.cuda, "V100", 16384 * MIB),
        "amd": Kit(lambda wrong: _planted(amd.look, trees.mi210(wrong), next(places)), runtimes.hip, "MI210", 64 * GIB),
        "intel": Kit(
            lambda wrong: _planted(intel.look, trees.max1100(wrong), next(places)),
            runtimes.level_zero,
            "Max-1100",
            48 * GIB,
        ),
    }


def numbers(report: Report, devices: Sequence[Device]) -> list[int]:
    """Which of the devices of the machine these are."""
    order = [device.uuid for device in report.devices]
    return [order.index(device.uuid) for device in devices]


def seen(report: Report, env: Mapping[str, str]) -> list[int]:
    return numbers(report, visible(report, env).devices)


# The table


@pytest.mark.parametrize("key", KEYS)
def test_found_with_what_is_known_of_each(kits: dict[str, Kit], key: str) -> None:
    report = kits[key].look("")
    assert (report.vendor, report.error, report.problems, report.missing) == (key, "", [], 0)
    assert len(report.devices) == len(report.cards) == 4
    assert len({device.uuid for device in report.devices}) == 4
    for number, device in enumerate(report.devices):
        assert kits[key].type in device.types
        assert device.memory == kits[key].memory
        assert device.numa == number // 2
        assert not device.is_instance
        assert not device.is_exclusive
    assert [device.bus for device in report.devices] == sorted(device.bus for device in report.devices)
    is_shown = key != "intel"
    assert [use.uuid for use in report.uses] == [device.uuid for device in report.devices] * is_shown
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report) == report, "the helper sends it"


MASKS: list[tuple[str, list[int], list[int], list[int]]] = [
    # The value of the vendor's variable, and what NVIDIA, AMD and Intel show then.
    ("0,1,2,3", [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]),
    ("0,2", [0, 2], [0, 2], [0, 2]),
    ("3,1", [1, 3], [1, 3], [1, 3]),  # in the order of the machine: `get_gpus()` has the ordinals
    ("2", [2], [2], [2]),
    ("0,9,2", [0], [0], [0, 2]),  # Level Zero skips what is not there
    ("9", [], [], []),
    ("0,0", [], [0], [0]),
    ("1,1,2", [], [1, 2], [1, 2]),
    ("0,-1,2", [0], [0], []),
    ("-1", [], [], []),
    ("NoDevFiles", [], [], []),
    ("x", [], [], []),
    ("02", [2], [], [2]),
    ("2abc", [2], [], []),
    (" 0 , 3 ", [0, 3], [], [0, 3]),
    ("", [], [0, 1, 2, 3], [0, 1, 2, 3]),
    ("9" * 5000, [], [], []),
]
UNKNOWN = {"0,9,2", "9", "x", "9" * 5000}
WRONG = {
    "nvidia": UNKNOWN | {"0,0", "1,1,2"},
    "amd": UNKNOWN | {"02", "2abc", " 0 , 3 "},
    "intel": UNKNOWN | {"2abc", "0,-1,2"},
}
"""Values for which the user gets a message."""


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("value", "by_cuda", "by_hip", "by_level_zero"), MASKS, ids=lambda value: str(value)[:12])
def test_what_the_variable_of_a_vendor_leaves(
    kits: dict[str, Kit], key: str, value: str, by_cuda: list[int], by_hip: list[int], by_level_zero: list[int]
) -> None:
    report = kits[key].look("")
    found = visible(report, {vendor.vendor(key).variable: value})
    expected = {"nvidia": by_cuda, "amd": by_hip, "intel": by_level_zero}[key]
    assert numbers(report, found.devices) == expected
    assert bool(found.problem) is (value in WRONG[key])


def left_by_a_mask(key: str, count: int, entries: Sequence[str]) -> list[int]:
    """What a mask leaves of devices that are all alike, from the vendor's documentation."""
    numbers = [int(entry) if entry.isdecimal() else None for entry in entries]
    if key == "intel":  # a text is an error, numbers without a device are skipped, the order is that of the hardware
        all_numbers = None not in numbers
        return sorted({number for number in numbers if number is not None and number < count}) if all_numbers else []
    found: list[int] = []
    for number in numbers:  # the list ends at the first entry that is wrong
        if number is None or number >= count:
            break
        if number in found and key == "nvidia":
            return []
        found += [number] if number not in found else []
    return found


@pytest.mark.parametrize("key", KEYS)
def test_random_masks(kits: dict[str, Kit], key: str) -> None:
    report, rng = kits[key].look(""), random.Random(key)
    for _ in range(500):
        entries = [rng.choice(("0", "1", "2", "3", "4", "17", "-1", "x", "")) for _ in range(rng.randint(1, 5))]
        value = ",".join(entries)
        expected = left_by_a_mask(key, 4, entries) if value or key == "nvidia" else [0, 1, 2, 3]
        found = visible(report, {vendor.vendor(key).variable: value})
        assert numbers(report, found.devices) == sorted(expected), value
        assert set(found.tokens) >= {device.uuid for device in found.devices}


def test_random_masks_of_tiles(tmp_path: Path) -> None:
    """Six cards of two tiles: with COMPOSITE a number is a card, and an entry may name a tile of it."""
    report, rng = look(tmp_path, trees.ponte_vecchio(), INTEL), random.Random(5)
    for _ in range(500):
        entries = [f"{rng.randint(0, 7)}{rng.choice(('', '', '.0', '.1', '.2'))}" for _ in range(rng.randint(1, 5))]
        cards: dict[int, set[int]] = {}
        for card, _, tile in (entry.partition(".") for entry in entries):
            if int(card) < 6 and int(tile or 0) < 2:
                cards.setdefault(int(card), set()).update({int(tile)} if tile else {0, 1})
        env = {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": ",".join(entries)}
        found = visible(report, env)
        names = [f"{card}" if len(tiles) == 2 else f"{card}.{tile}" for card, tiles in cards.items() for tile in tiles]
        assert sorted(found.tokens[device.uuid] for device in found.devices) == sorted(set(names)), env
        halves = [device.memory for device in found.devices]
        assert sum(halves) == sum(map(len, cards.values())) * 64 * GIB


@pytest.mark.parametrize("key", KEYS)
def test_a_task_counts_its_devices_in_the_order_of_get_gpus(kits: dict[str, Kit], key: str) -> None:
    """Whatever the environment of the rank: what is set for a task shows it these devices, the first of them first."""
    report = kits[key].look("")
    rng, one, shows = random.Random(7), vendor.vendor(key), kits[key].shows
    for _ in range(300):
        env: dict[str, str] = {}
        for name in one.narrowed_by:
            if rng.random() < 0.5:
                entries = rng.sample(range(4), rng.randint(1, 4))
                env[name] = ("level_zero:" if name == vendor.SELECTOR else "") + ",".join(map(str, entries))
        found = visible(report, env)
        if env.get(vendor.ROCR) not in (env.get("HIP_VISIBLE_DEVICES"), env.get("CUDA_VISIBLE_DEVICES")) or not env:
            assert seen(report, env) == sorted(shows(4, env)), env
        for count in range(len(found.devices) + 1):
            mine = rng.sample(found.devices, count)
            mine.sort(key=lambda device: device.place)
            task = vendor.variables(one, [found.tokens[device.uuid] for device in mine], found.more)
            assert shows(4, {**env, **task}) == numbers(report, mine), (env, task)


@pytest.mark.parametrize("key", KEYS)
def test_a_job_inside_a_task_finds_the_devices_of_the_task(kits: dict[str, Kit], key: str) -> None:
    report, one = kits[key].look(""), vendor.vendor(key)
    for rank in ({}, {one.of_batch: "3,1,2"}):
        outer = visible(report, rank)
        mine = outer.devices[1:3]
        task = {**rank, **vendor.variables(one, [outer.tokens[device.uuid] for device in mine], outer.more)}
        inner = visible(report, task)
        assert inner.devices == mine
        last = {**task, **vendor.variables(one, [inner.tokens[mine[1].uuid]], inner.more)}
        assert kits[key].shows(4, last) == numbers(report, mine[1:])


@pytest.mark.parametrize("key", KEYS)
def test_who_has_none_is_shown_none(kits: dict[str, Kit], key: str) -> None:
    assert kits[key].shows(4, vendor.variables(vendor.vendor(key), [])) == []


UUIDS: list[tuple[str, str, str]] = [
    ("nvidia", "GPU-00000003", "3"), ("nvidia", "GPU-00000002-aaaa,GPU-00000000", "02"), ("nvidia", "GPU-0000000", ""),
    ("amd", "GPU-000003", "3"), ("amd", "GPU-0000030000000000,GPU-00000100000000b0", "1"),
    ("amd", "gpu-0000020000,0", "02"), ("amd", "GPU-000", ""), ("amd", "GPU-00000300000000b0000", ""),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "left"), UUIDS)
def test_uuids_and_their_beginnings(kits: dict[str, Kit], key: str, value: str, left: str) -> None:
    """Of Intel there are none: Level Zero takes numbers only."""
    report = kits[key].look("")
    if value.startswith("GPU-0000030000000000"):
        value = "GPU-00000100000000b0"  # a whole one
    found = seen(report, {vendor.vendor(key).of_batch: value})
    assert "".join(map(str, found)) == left


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wrong", ["hidden", "silent"])
def test_a_device_that_does_not_answer_is_left_out(kits: dict[str, Kit], key: str, wrong: str) -> None:
    if key == "intel" and wrong == "silent":
        pytest.skip("a card whose files cannot be read is not there at all")
    report = kits[key].look(wrong)
    assert len(report.devices) == 3
    assert bool(report.problems) is (wrong == "silent")
    assert report.error == ""
    found = visible(report, {})
    tokens = [found.tokens[device.uuid] for device in report.devices]
    if key == "nvidia" or wrong == "silent":
        assert report.missing == 1
        assert tokens == [device.uuid for device in report.devices], "numbers are not sure"
    else:
        assert tokens == ["0", "1", "2"], "the runtimes of AMD and Intel do not count what they may not open"


@pytest.mark.parametrize("key", KEYS)
def test_sets_by_link_shares_and_memory(kits: dict[str, Kit], key: str) -> None:
    report = kits[key].look("")
    inventory = Inventory()
    inventory.add(report.devices, report.links, frozenset((1,)))
    inventory.add(report.devices, report.links, frozenset((2,)))
    assert len(inventory.devices) == 4, "two ranks that see a device"
    assert inventory.seen_by == [frozenset((1, 2))] * 4
    free, memory = [UNIT] * 4, [device.memory for device in inventory.devices]
    pair = ledger.choose(inventory, free, memory, 2 * UNIT)
    assert pair is not None
    # NVLink and XGMI join 0 with 3; without a link those of one NUMA node are nearest.
    assert [id for id, _, _ in pair] == ([0, 1] if key == "intel" else [0, 3])
    quarter = ledger.choose(inventory, free, memory, UNIT // 4)
    assert quarter == ((0, UNIT // 4, kits[key].memory // 4),)
    assert ledger.choose(inventory, free, memory, UNIT // 4, types=(kits[key].type,)) == quarter
    assert ledger.choose(inventory, free, memory, UNIT // 4, types=("T4",)) is None
    assert ledger.choose(inventory, free, memory, 0, memory=kits[key].memory + 1) is None
    device = msgspec.structs.replace(inventory.devices[0], reserve=512 * MIB)
    assert ledger.cap(device, UNIT // 4) == kits[key].memory // 4 - 512 * MIB


@pytest.mark.parametrize("key", KEYS)
def test_devices_of_other_jobs_are_not_taken(kits: dict[str, Kit], key: str) -> None:
    report, name = kits[key].look(""), vendor.vendor(key).of_batch
    said = not_told(report, {"SLURM_GPUS_ON_NODE": "2"})
    assert "given the job 2 of the 4 GPUs" in said
    assert name in said
    assert not_told(report, {"SLURM_GPUS_ON_NODE": "2", name: "0,1"}) == ""


def test_vendors_that_can_be_wished_for_are_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        assert configuration.find_gpus({configuration.FIND_GPUS: key}) == key
    assert configuration.find_gpus({configuration.FIND_GPUS: "apple"}) == "auto"
    assert [vendor.vendor(key) for key in KEYS] == list(VENDORS)
    assert vendor.vendor("") is NVIDIA


# AMD


def look(tmp_path: Path, tree: trees.Tree, one: Vendor = AMD, with_integrated: bool = False) -> Report:
    root = trees.plant(tmp_path / "root", tree)
    return amd.look(root, with_integrated) if one is AMD else intel.look(root, with_integrated)


def test_an_mi250x_is_two_devices(tmp_path: Path) -> None:
    report = look(tmp_path, trees.mi250x())
    assert len(report.devices) == 8
    assert report.devices[0].types == ("AMD-Instinct-MI250X", "gfx90a", "MI250X")
    assert (report.devices[0].capability, report.devices[0].cpus) == ((9, 0), tuple(range(48, 64)))
    inventory = Inventory()
    inventory.add(report.devices, report.links, None)
    free, memory = [UNIT] * 8, [device.memory for device in inventory.devices]
    free[0] = 0
    pair = ledger.choose(inventory, free, memory, 2 * UNIT)
    assert pair is not None
    assert [id for id, _, _ in pair] == [2, 3], "the halves of a card: four links, and one to others"


@pytest.mark.parametrize("with_own_ids", [True, False])
@pytest.mark.parametrize(("mode", "parts"), [("SPX", 1), ("DPX", 2), ("CPX", 8)])
def test_parts_of_an_mi300x(tmp_path: Path, mode: str, parts: int, with_own_ids: bool) -> None:
    report = look(tmp_path, trees.mi300x(mode, with_own_ids=with_own_ids))
    assert len({device.uuid for device in report.devices}) == 8 * parts
    assert len({device.bus for device in report.devices}) == 8
    assert {device.memory for device in report.devices} == {192 * GIB // parts}
    expected = ("AMD-Instinct-MI300X-OAM", "gfx942", "MI300X") if parts == 1 else ("gfx942", f"MI300X-{mode}")
    assert {device.types for device in report.devices} == {expected}
    found = visible(report, {"ROCR_VISIBLE_DEVICES": "9,8" if parts > 1 else "1,0"})
    assert [found.tokens[device.uuid] for device in found.devices] == ["1", "0"]
    near = {(link.first, link.second): link for link in report.links}[
        report.devices[0].uuid, report.devices[1].uuid
    ]  # fmt: skip
    assert (near.nvlinks, near.distance) == ((0, 0) if parts > 1 else (1, 40))


def test_a_part_is_the_same_for_who_sees_no_other(tmp_path: Path) -> None:
    """As ranks do that a batch system confines to one part each."""
    tree = trees.mi300x("CPX", cards=1, with_own_ids=False)
    everything = look(tmp_path, tree).devices
    for number in (0, 3):
        closed = {f"dev/dri/renderD{128 + other}" for other in range(8) if other != number}
        root = trees.plant(tmp_path / str(number), {path: text for path, text in tree.items() if path not in closed})
        assert amd.look(root, False).devices == [everything[number]]


def test_an_mi300a_is_not_taken_for_graphics(tmp_path: Path) -> None:
    report = look(tmp_path, trees.mi300a())
    assert [device.types[-1] for device in report.devices] == ["MI300A"] * 4
    assert {device.memory for device in report.devices} == {128 * GIB}
    assert [device.numa for device in report.devices] == [0, 1, 2, 3]


def test_graphics_within_a_processor_count_if_they_are_wished_for(tmp_path: Path) -> None:
    root = trees.plant(tmp_path, trees.ryzen())
    assert amd.look(root, False).devices == []
    (device,) = amd.look(root, True).devices
    assert device.uuid == "GPU-0b007000-0000:c4:00.0", "it has no serial number"
    assert finding.look("auto", root) == Report()
    assert finding.look("amd", root).devices == [device]


def test_memory_that_others_use(tmp_path: Path) -> None:
    tree = trees.mi210(used=20 * GIB) | {"sys/class/kfd/kfd/proc/4242/vram_1001": f"{20 * GIB}\n"}
    report = look(tmp_path, tree)
    assert report.uses[1].pids == (4242,)
    assert report.uses[1].memory == 20 * GIB
    assert all("others use 20480 MiB of its 65536" in problem for problem in report.problems)
    first = amd.measure(f"{tmp_path}/root/", [report.devices[0].uuid, "GPU-gone"])
    assert (first[0].use, first[0].memory_used, first[0].memory, first[0].temperature) == (37, 20 * GIB, 64 * GIB, 41)
    assert first[1].fault == "does not answer"


def test_errors_of_memory_are_measured(tmp_path: Path) -> None:
    tree = trees.mi210() | {"sys/bus/pci/devices/0000:21:00.0/ras/umc_err_count": "ue: 2\nce: 0\n"}
    root = trees.plant(tmp_path, tree)
    (first, *_) = amd.look(root, False).devices
    assert amd.measure(root, [first.uuid])[0].fault == "2 memory errors that could not be corrected"


@pytest.mark.parametrize(("env", "left"), [
    ({"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}, [2, 3]),  # Slurm writes one list into all
    ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
    ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"}, []),
    ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, []),
    ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
    ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "3"}, [3]),
    ({"CUDA_VISIBLE_DEVICES": "3"}, [3]), ({"ROCR_VISIBLE_DEVICES": "0x1,02"}, [1, 2]),
    ({"ROCR_VISIBLE_DEVICES": "3,3,1"}, [3]),
    ({"HIP_VISIBLE_DEVICES": "GPU-00000300000000b0"}, [3]),
])  # fmt: skip
def test_two_variables_of_amd_are_applied_one_after_the_other(
    tmp_path: Path, env: dict[str, str], left: list[int]
) -> None:
    assert seen(look(tmp_path, trees.mi210()), env) == left


def test_a_user_without_the_right_gets_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.plant(tmp_path, trees.mi210() | trees.max1100())
    monkeypatch.setattr(amd.os, "access", lambda path, mode: "renderD" not in path)
    assert "this user may not open" in amd.look(root, False).error
    assert "renderD128" in intel.look(root, False).error
    monkeypatch.setattr(amd.os, "access", lambda path, mode: "kfd" not in path)
    assert "dev/kfd" in amd.look(root, False).error


# Intel


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_ponte_vecchio_is_tiles_or_cards(tmp_path: Path, driver: str) -> None:
    report = look(tmp_path, trees.ponte_vecchio(driver), INTEL)
    assert len(report.cards) == 6
    flat = visible(report, {}).devices
    assert len(flat) == 12
    assert {device.memory for device in flat} == {64 * GIB}
    assert flat[0].types == ("Intel-GPU-Max-1550", "Max-1550")
    cards = visible(report, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}).devices
    assert [device.bus for device in cards] == trees.AURORA
    assert {device.memory for device in cards} == {128 * GIB}
    inventory = Inventory()
    inventory.add(flat, report.links, None)
    pair = ledger.choose(inventory, [0] + [UNIT] * 11, [device.memory for device in flat], 2 * UNIT)
    assert pair is not None
    assert [id for id, _, _ in pair] == [2, 3], "the tiles of one card"


@pytest.mark.parametrize(("mode", "mask", "tokens"), [
    ("FLAT", "0,3,11", ["0", "3", "11"]), ("COMBINED", "5", ["5"]), ("FLAT", "0.1,2", ["2"]), ("FLAT", "12", []),
    ("COMPOSITE", "0,3", ["0", "3"]), ("COMPOSITE", "0.1,3.0", ["0.1", "3.0"]), ("COMPOSITE", "2.0,2.1", ["2"]),
    ("COMPOSITE", "0.2,1", ["1"]), ("COMPOSITE", "6", []), ("COMPOSITE", "1.0,1", ["1"]), ("", "11", ["11"]),
])  # fmt: skip
def test_a_mask_means_tiles_or_cards(tmp_path: Path, mode: str, mask: str, tokens: list[str]) -> None:
    report = look(tmp_path, trees.ponte_vecchio(), INTEL)
    found = visible(report, {"ZE_FLAT_DEVICE_HIERARCHY": mode, "ZE_AFFINITY_MASK": mask})
    assert [found.tokens[device.uuid] for device in found.devices] == tokens
    assert {device.memory // GIB for device in found.devices} <= {
        64 if mode != "COMPOSITE" or "." in "".join(tokens) else 128
    }


@pytest.mark.parametrize(("selector", "left"), [
    ("level_zero:gpu", [0, 1, 2, 3]), ("*:*", [0, 1, 2, 3]), ("*:gpu", [0, 1, 2, 3]), ("level_zero:2,3", [2, 3]),
    ("opencl:gpu", []), ("level_zero:9", []), ("!level_zero:0", [1, 2, 3]), ("level_zero:*;!level_zero:3", [0, 1, 2]),
    ("level_zero:0.1", []), ("opencl:cpu;level_zero:1", [1]), ("LEVEL_ZERO:1", [1]),
])  # fmt: skip
def test_the_selector_of_sycl(tmp_path: Path, selector: str, left: list[int]) -> None:
    report = look(tmp_path, trees.max1100(), INTEL)
    found = visible(report, {"ONEAPI_DEVICE_SELECTOR": selector})
    assert numbers(report, found.devices) == left
    assert bool(found.problem) == (not left)
    assert found.more == {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}, "its numbers would be others in a task"


@pytest.mark.parametrize(("pci_order", "first"), [(None, "0"), ("1", "1")])
def test_graphics_in_the_processor_are_counted_and_not_given_out(
    tmp_path: Path, pci_order: str | None, first: str
) -> None:
    report = look(tmp_path, trees.ponte_vecchio(with_graphics=True), INTEL)
    assert len(report.devices) == 12
    found = visible(report, {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": pci_order} if pci_order else {})
    assert found.tokens[report.devices[0].uuid] == first
    all_of_them = look(tmp_path / "more", trees.ponte_vecchio(with_graphics=True), INTEL, with_integrated=True)
    assert len(all_of_them.devices) == 13


def test_a_notebook_starts_no_helper(tmp_path: Path) -> None:
    root = trees.plant(tmp_path, trees.notebook())
    assert vendor.vendors_with_signs(root) == []
    assert finding.look("auto", root) == Report()


def test_measures_of_intel(tmp_path: Path) -> None:
    root = trees.plant(tmp_path, trees.ponte_vecchio())
    report = intel.look(root, False)
    cards = visible(report, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}).devices
    for device in (report.devices[3], cards[2]):
        (measures,) = intel.measure(root, [device.uuid])
        assert (measures.uuid, measures.temperature, measures.use, measures.fault) == (device.uuid, 52, -1, "")
    assert intel.measure(root, ["GPU-x"])[0].fault == "does not answer"


# Several vendors on a host


def test_of_two_vendors_the_user_must_choose(tmp_path: Path) -> None:
    root = trees.plant(tmp_path, trees.mi210() | trees.ponte_vecchio())
    report = finding.look("auto", root)
    assert report.devices == []
    assert report.error == (
        "there are GPUs of several vendors, 4 of AMD and 12 of Intel, and a job uses those of one on each host. "
        "Set MPI_RUNTIME_FIND_GPUS=amd or MPI_RUNTIME_FIND_GPUS=intel"
    )
    assert len(finding.look("amd", root).devices) == 4
    assert len(finding.look("intel", root).devices) == 12


def test_graphics_beside_cards_are_not_a_second_vendor(tmp_path: Path) -> None:
    inside = {path: text for path, text in trees.ryzen().items() if "nodes" in path}
    report = finding.look("auto", trees.plant(tmp_path, trees.ponte_vecchio() | inside | {"dev/kfd": ""}))
    assert (report.vendor, len(report.devices), report.error) == ("intel", 12, "")


@pytest.mark.parametrize("key", ["amd", "intel"])
def test_a_machine_with_odd_files(tmp_path: Path, key: str) -> None:
    """A newer or broken driver: nothing of it is an error of ours."""
    tree = trees.mi210() if key == "amd" else trees.max1100()
    for path in sorted(tree):
        if path.endswith(("properties", "gpu_id", "device", "vendor", "numa_node", "local_cpulist")):
            broken = {**tree, path: "odd \xe9 -\n\n0x 7-\n"}
            report = look(tmp_path / str(len(list(tmp_path.glob("*")))), broken, vendor.vendor(key))
            assert 3 <= len(report.devices) <= 4, path
            visible(report, {})


@pytest.mark.parametrize(("seen", "kind"), [({"cuda"}, "cuda"), ({"xpu"}, "xpu"), (set(), None)])
def test_what_torch_calls_the_gpus(seen: set[str], kind: str | None) -> None:
    torch = ModuleType("torch")  # of a version with or without xpu
    for name in {"cuda", *seen}:
        part = ModuleType(name)
        part.is_available = lambda name=name: name in seen
        setattr(torch, name, part)
    assert vendor.kind_in_torch(torch) == kind
