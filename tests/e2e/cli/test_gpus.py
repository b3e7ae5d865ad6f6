"""`mpi-runtime gpus`: what tasks on this host would use."""

import json
import os
import sys
from pathlib import Path

from tests.fake_nvml import machines
from tests.helpers import Completed, start_command


def gpus(*words: str, **environment: str | None) -> Completed:
    with start_command([sys.executable, "-m", "mpi_runtime", "gpus", *words], env=environment) as program:
        return program.finish()


def shown(machine: machines.Machine, **variables: str) -> dict[str, str | None]:
    return machines.shown(machine, **variables)


UUID = "GPU-00000003-aaaa-bbbb-a000-000000000003"


def test_for_people() -> None:
    done = gpus(**shown(machines.a100x4(split=(1,)), CUDA_VISIBLE_DEVICES="3,1")).expect(0)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:4] == ["GPUs", "for", "tasks", "on"]
    assert [line[1] for line in lines[2:6]] == ["A100-MIG-3g.20gb", "A100-MIG-3g.20gb", "A100-MIG-1g.5gb", "A100-40G"]
    assert lines[5] == ["3", "A100-40G", "40.0", "GiB", "0.0", "GiB", "00000000:C3:00.0", "3", "8.0", UUID, "-"]
    assert done.stderr == ""


def test_links_and_for_programs() -> None:
    done = gpus(**shown(machines.v100_pairs())).expect(0)
    assert [line.split() for line in done.stdout.splitlines()[-5:]] == [
        ["0", "1", "2", "3"],
        ["0", "X", "NODE", "SYS", "NV2"],
        ["1", "NODE", "X", "NV2", "SYS"],
        ["2", "SYS", "NV2", "X", "NODE"],
        ["3", "NV2", "SYS", "NODE", "X"],
    ]
    facts = json.loads(gpus("--json", **shown(machines.v100_pairs())).expect(0).stdout)
    assert [(one["id"], one["types"], one["token"]) for one in facts["gpus"]][3] == (
        3, ["V100", "V100-16G"], "3",
    )  # fmt: skip
    assert len(facts["links"]) == 6


def test_who_uses_what() -> None:
    machine = machines.v100_pairs()
    machine["gpus"][1] |= {"used_mib": 512, "pids": [os.getpid(), 2**22 + 1]}  # there is no process with the second
    done = gpus(**shown(machine)).expect(0)
    row = next(line for line in done.stdout.splitlines() if line.startswith("  1 "))
    assert "  0.5 GiB  " in row
    name = Path("/proc/self/comm").read_text().strip()
    assert row.endswith(f"  {os.getpid()} ({name}), {2**22 + 1}")
    facts = json.loads(gpus("--json", **shown(machine)).expect(0).stdout)
    assert facts["uses"][1] == {"uuid": facts["gpus"][1]["uuid"], "memory": 512 << 20, "pids": [os.getpid(), 2**22 + 1]}


def test_where_there_is_none() -> None:
    done = gpus(MPI_RUNTIME_FIND_GPUS="never").expect(0)
    assert "MPI_RUNTIME_FIND_GPUS=never: GPUs were not searched." in done.stdout
    hidden = gpus(**shown(machines.v100_pairs(), CUDA_VISIBLE_DEVICES="")).expect(0)
    assert "The driver has 4; CUDA_VISIBLE_DEVICES shows none of them" in hidden.stdout
    broken = gpus(**shown(machines.no_driver())).expect(1)
    assert broken.stderr == "mpi-runtime gpus: NVML reports DriverNotLoaded: the driver is not loaded.\n"
