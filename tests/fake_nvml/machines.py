"""Machines with GPUs as `library.py` wants them described, and how a program is made to see one.

The figures are those that NVML tells of such machines, or near them.
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import IN_CI, ROOT

Machine = dict[str, Any]


def _gpu(number: int, name: str, memory_mib: int, bus: int, **more: Any) -> Machine:
    uuid = f"GPU-{number:08x}-aaaa-bbbb-{memory_mib & 0xFFFF:04x}-{number:012x}"  # another one in each kind of machine
    return {"name": name, "uuid": uuid, "bus": f"00000000:{bus:02X}:00.0", "memory_mib": memory_mib, **more}


def h100x8() -> Machine:
    """Eight H100 behind NVSwitch, four at each of two sockets."""
    buses = [0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF]
    gpus = [
        _gpu(number, "NVIDIA H100 80GB HBM3", 81559, buses[number], numa=number // 4, reserved_mib=551)
        for number in range(8)
    ]
    return {"gpus": gpus, "nvswitch": 18}


def a100x4(split: tuple[int, ...] = ()) -> Machine:
    """Four A100 with 40 GB, NVLink between all; some of them split by MIG into 3g, 3g and 1g."""
    gpus = []
    for number in range(4):
        gpu = _gpu(number, "NVIDIA A100-SXM4-40GB", 40960, 0x03 + 0x40 * number, numa=number, capability=[8, 0], mig=[])
        if number in split:
            gpu["mig"] = [
                {
                    "uuid": f"MIG-{number:08x}-dddd-eeee-ffff-{gi:012x}",
                    "name": f"NVIDIA A100-SXM4-40GB MIG {profile}",
                    "gi": gi,
                    "memory_mib": memory,
                }
                for gi, profile, memory in ((1, "3g.20gb", 19968), (2, "3g.20gb", 19968), (9, "1g.5gb", 4864))
            ]
            gpu["mig"].insert(2, None)
        gpus.append(gpu)
    return {"gpus": gpus, "nvlink": [[a, b, 4] for a in range(4) for b in range(a)]}


def v100_pairs() -> Machine:
    """Four V100 with NVLink only within two pairs: 0 with 3, and 1 with 2."""
    gpus = [_gpu(number, "Tesla V100-SXM2-16GB", 16384, 0x15 + number, numa=number // 2) for number in range(4)]
    return {"gpus": gpus, "nvlink": [[0, 3, 2], [1, 2, 2]]}


def mixed() -> Machine:
    """Two H100 and one L4 in one machine."""
    gpus = [_gpu(number, "NVIDIA H100 80GB HBM3", 81559, 0x20 + number) for number in range(2)]
    return {"gpus": [*gpus, _gpu(2, "NVIDIA L4", 23034, 0x40)]}


def no_driver() -> Machine:
    """A driver that is installed and not loaded."""
    return {"init": "DRIVER_NOT_LOADED", "gpus": []}


def shown(machine: Machine, **variables: str) -> dict[str, str | None]:
    """The environment in which programs find this machine, with these variables besides."""
    return {
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path(__file__).parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
        ),
        "FAKE_NVML_PYNVML": real_pynvml(),
        "FAKE_NVML_MACHINE": json.dumps(machine),
        "MPI_RUNTIME_FIND_GPUS": "always",
        "CUDA_VISIBLE_DEVICES": None,
        "CUDA_DEVICE_ORDER": None,
        **variables,
    }


def shown_on_hosts(described: dict[str, Machine]) -> str:
    """The first lines of a program that finds another machine on each host."""
    by_host = {
        host: {name: value for name, value in shown(machine).items() if value is not None and name != "PYTHONPATH"}
        for host, machine in described.items()
    }
    return (
        f"import os, sys\nos.environ.update({by_host!r}[os.uname().nodename])\n"
        f"sys.path.insert(1, {str(Path(__file__).parent)!r})\n"
    )


def real_pynvml() -> str:
    """Where pynvml is: one file, without anything compiled, so that other interpreters can load it too."""
    spec = importlib.util.find_spec("pynvml")
    if spec is not None and spec.origin is not None:
        return spec.origin
    reason = "pynvml is not installed: the extra `dev` brings it"
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)
