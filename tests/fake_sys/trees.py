"""Trees that stand for the /sys and /dev of machines with GPUs of AMD and Intel. None was copied from a machine.

Where the facts are from:

- names and fields of `kfd/topology/nodes/*`, `mem_banks`, `io_links`: `node_show`, `mem_show` and `iolink_show` of the
  kernel's `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`; a node that a control group hides cannot be read (`EPERM`)
- heap types 1 and 2, link types 2 (PCI Express) and 11 (XGMI): `kfd_crat.h`; bandwidth of XGMI, 50 000 MB/s for each
  link: `amdgpu_amdkfd_get_xgmi_bandwidth_mbytes`
- compute partitions: the partition's number in bits 31 to 28 of `location_id`, and memory divided among them:
  the patch "Add partition id field to location_id" and `amdgpu_amdkfd_xcp_memory_size`; older kernels repeat
  `unique_id` in all partitions, newer ones have one for each ("xcp->unique_id")
- `gfx_target_version` 90010 is gfx90a, 90402 gfx942; numbers of PCI devices: Ray's `amd_gpu.py`, amdgpu's list
- `kfd/proc/<pid>/vram_<gpu_id>`: the kernel's documentation of amdkfd's sysfs
- Intel's `class/drm/card*/device/{vendor,device}`, `tile*/physical_vram_size_bytes` of xe, `gt/gt*` and
  `lmem_total_bytes` of i915: compute-runtime's `sysman_kmd_interface`; the last is not in mainline kernels
- graphics within a processor of Intel at 0000:00:02.0; addresses of Aurora's cards: the user guide of ALCF

Links between cards of an MI250X node are simpler here than on real ones: one between each two.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

GIB = 1 << 30
Tree = dict[str, str]
"""Content by path; a path that ends with @ is a link."""
BOOT = "0b007000-0000-4000-8000-000000000000"


def _kfd(cpus: int, gpus: list[dict[str, Any]], links: dict[tuple[int, int], int]) -> Tree:
    """A node of KFD for each processor, then one for each GPU."""
    tree: Tree = {"dev/kfd": "", "proc/sys/kernel/random/boot_id": BOOT}
    base = "sys/class/kfd/kfd/topology/nodes"
    for number in range(cpus):
        tree[f"{base}/{number}/properties"] = "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n"
        tree[f"{base}/{number}/gpu_id"] = "0\n"
    for number, gpu in enumerate(gpus):
        node, minor = f"{base}/{cpus + number}", 128 + number
        bus = gpu["bus"]
        place = int(bus[5:7], 16) << 8 | int(bus[8:10], 16) << 3 | gpu.get("part", 0) << 28
        facts = {
            "cpu_cores_count": 0, "simd_count": 440, "gfx_target_version": gpu["version"], "vendor_id": 4098,
            "device_id": gpu["device"], "location_id": place, "domain": int(bus[:4], 16), "drm_render_minor": minor,
            "unique_id": gpu.get("unique", 0),
        }  # fmt: skip
        tree[f"{node}/properties"] = "".join(f"{name} {value}\n" for name, value in facts.items())
        tree[f"{node}/gpu_id"] = f"{1000 + number}\n"
        tree[f"{node}/name"] = gpu.get("name", "ip discovery") + "\n"
        bank = {"heap_type": 1, "size_in_bytes": gpu["memory"], "flags": 0, "width": 8192, "mem_clk_max": 1600}
        tree[f"{node}/mem_banks/0/properties"] = "".join(f"{name} {value}\n" for name, value in bank.items())
        tree[f"{node}/io_links/0/properties"] = "type 2\nnode_to 0\nweight 20\nmax_bandwidth 32000\n"
        for other in range(len(gpus)):
            if other != number and (count := links.get((min(number, other), max(number, other)), 0)):
                text = f"type 11\nnode_to {cpus + other}\nweight 15\nmax_bandwidth {50_000 * count}\n"
                tree[f"{node}/io_links/{1 + other}/properties"] = text
        tree[f"dev/dri/renderD{minor}"] = ""
        tree |= _pci(bus, gpu.get("numa", 0))
        tree[f"sys/bus/pci/devices/{bus}/mem_info_vram_used"] = f"{gpu.get('used', 0)}\n"
        tree[f"sys/bus/pci/devices/{bus}/mem_info_vram_total"] = f"{gpu['memory']}\n"
        tree[f"sys/bus/pci/devices/{bus}/gpu_busy_percent"] = "37\n"
        tree[f"sys/bus/pci/devices/{bus}/hwmon/hwmon3/temp1_input"] = "41000\n"
        if "mode" in gpu:
            tree[f"sys/bus/pci/devices/{bus}/current_compute_partition"] = f"{gpu['mode']}\n"
    return tree


def _pci(bus: str, numa: int) -> Tree:
    cpus = f"{16 * numa}-{16 * numa + 15}"
    place = f"sys/bus/pci/devices/{bus}"
    return {f"{place}/numa_node": f"{numa}\n", f"{place}/local_cpulist": f"{cpus}\n"}


FRONTIER = ["c1", "c6", "c9", "ce", "d1", "d6", "d9", "de"]


def mi250x() -> Tree:
    """Four MI250X, which are eight devices: four links within a card, one between others."""
    gpus = [
        {
            "bus": f"0000:{bus}:00.0", "version": 90010, "device": 0x7408, "memory": 64 * GIB,
            "unique": 0xA100 + number, "numa": (3, 1, 0, 2)[number // 2],
        }
        for number, bus in enumerate(FRONTIER)
    ]  # fmt: skip
    links = {(a, b): 4 if a // 2 == b // 2 else 1 for a in range(8) for b in range(a + 1, 8)}
    return _kfd(4, gpus, links)


def mi210(wrong: str = "", **more: Any) -> Tree:
    """Four MI210: 0 is linked with 3, and 1 with 2. Something may be wrong with number 1."""
    gpus = [
        {
            "bus": f"0000:{0x21 + number:02x}:00.0", "version": 90010, "device": 0x740F, "memory": 64 * GIB,
            "unique": 0xB0 + (number << 40), "numa": number // 2, **more,
        }
        for number in range(4)
    ]  # fmt: skip
    tree = _kfd(2, gpus, {(0, 3): 2, (1, 2): 2})
    if wrong == "hidden":  # a container without its file
        del tree["dev/dri/renderD129"]
    elif wrong == "silent":
        node = "sys/class/kfd/kfd/topology/nodes/3"
        del tree[f"{node}/properties"]
        tree[f"{node}/properties/"] = ""  # a directory: reading it is an error
    return tree


def mi300x(mode: str = "SPX", cards: int = 8, with_own_ids: bool = True) -> Tree:
    """Eight MI300X on two sockets, each of them split by a compute partition."""
    parts = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}[mode]
    gpus = [
        {
            "bus": f"{card // 4:04x}:{0x05 + 0x20 * (card % 4):02x}:00.0", "version": 90402, "device": 0x74A1,
            "memory": 192 * GIB // parts, "part": part, "mode": mode, "numa": card // 4,
            "unique": 0xC000 + 16 * card + part * with_own_ids,
        }
        for card in range(cards)
        for part in range(parts)
    ]  # fmt: skip
    links = {(a, b): 1 for a in range(len(gpus)) for b in range(a + 1, len(gpus)) if a // parts != b // parts}
    return _kfd(2, gpus, links)


def mi300a() -> Tree:
    """Four MI300A: processors and GPUs share memory, and each GPU is a node of its own."""
    gpus = [
        {
            "bus": f"000{number}:01:00.0", "version": 90402, "device": 0x74A0, "memory": 128 * GIB,
            "unique": 0xD0 + number, "numa": number, "mode": "SPX",
        }
        for number in range(4)
    ]  # fmt: skip
    return _kfd(4, gpus, {(a, b): 2 for a in range(4) for b in range(a + 1, 4)})


def ryzen() -> Tree:
    """A notebook: graphics within a processor, which KFD lists as well."""
    gpu = {"bus": "0000:c4:00.0", "version": 110003, "device": 0x15BF, "memory": GIB // 2}
    return _kfd(1, [gpu], {})


AURORA = [f"000{domain}:{bus}:00.0" for domain in (0, 1) for bus in ("18", "42", "6c")]


def _drm(cards: list[dict[str, Any]]) -> Tree:
    tree: Tree = {"proc/sys/kernel/random/boot_id": BOOT}
    for number, card in enumerate(cards):
        bus, driver = card["bus"], card.get("driver", "i915")
        place, pci, minor = f"sys/class/drm/card{number}", f"sys/bus/pci/devices/{bus}", 128 + number
        tree |= _pci(bus, card.get("numa", 0))
        tree[f"{place}/device@"] = f"../../../bus/pci/devices/{bus}"
        tree[f"{pci}/vendor"], tree[f"{pci}/device"] = "0x8086\n", f"0x{card['device']:04x}\n"
        tree[f"{pci}/drm/renderD{minor}/dev"] = f"226:{minor}\n"
        tree[f"{pci}/hwmon/hwmon1/temp1_input"] = "52000\n"
        tree[f"sys/module/{driver}/initstate"] = "live\n"
        if not card.get("wrong"):
            tree[f"dev/dri/renderD{minor}"] = ""
        tiles, memory = card.get("tiles", 1), card.get("memory", 0)
        for tile in range(tiles):
            if driver == "xe":
                tree[f"{pci}/tile{tile}/physical_vram_size_bytes"] = f"{memory // tiles}\n"
            else:
                tree[f"{place}/gt/gt{tile}/id"] = f"{tile}\n"
        if driver == "i915" and memory:
            tree[f"{place}/lmem_total_bytes"] = f"{memory}\n"
    return tree


def ponte_vecchio(driver: str = "i915", with_graphics: bool = False) -> Tree:
    """A node of Aurora: six Max 1550 of two tiles each; perhaps with graphics in its processor, as in workstations."""
    inside = [{"bus": "0000:00:02.0", "device": 0x4680, "driver": driver}] if with_graphics else []
    cards = [
        {"bus": bus, "device": 0x0BD6, "tiles": 2, "memory": 128 * GIB, "driver": driver, "numa": number // 3}
        for number, bus in enumerate(AURORA)
    ]
    return _drm([*inside, *cards])


def max1100(wrong: str = "") -> Tree:
    """Four Max 1100, of one tile each. Number 1 may be hidden."""
    return _drm([
        {
            "bus": f"0000:{0x29 + number:02x}:00.0", "device": 0x0BDA, "memory": 48 * GIB, "numa": number // 2,
            "wrong": wrong if number == 1 else "",
        }
        for number in range(4)
    ])  # fmt: skip


def notebook() -> Tree:
    """Graphics within a processor, and nothing else."""
    return _drm([{"bus": "0000:00:02.0", "device": 0x46A6}])


def plant(root: Path, tree: Tree) -> str:
    """Write a tree, and return the root as the package has it, with a slash at the end."""
    for path, content in tree.items():
        target = root / path.rstrip("@")
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("@"):
            (root / path[:-1]).parent.joinpath(content).mkdir(parents=True, exist_ok=True)
            os.symlink(content, target)
        else:
            target.write_text(content)
    return f"{root}/"


NAMES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ONEAPI_DEVICE_SELECTOR",
)  # fmt: skip


def shown(root: Path, tree: Tree, **variables: str) -> dict[str, str | None]:
    """The environment in which programs find this machine, with these variables besides."""
    return {
        **dict.fromkeys(NAMES),
        "_MPI_RUNTIME_MACHINE_ROOT": plant(root, tree),
        "MPI_RUNTIME_FIND_GPUS": "auto",
        **variables,
    }
