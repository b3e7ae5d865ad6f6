"""What is used on each host of a job, for those who look: CPUs, memory, GPUs, executors; nothing while nobody looks."""

import json
from pathlib import Path

import pytest

from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting
from mpi_runtime.show import metrics
from tests import helpers
from tests.fake_nvml.machines import h100x8, shown, shown_on_hosts, v100_pairs
from tests.fake_sys import trees
from tests.hosts.lab import Lab

JOB = """
import os, sys, time
import mpi_runtime as ray

@ray.remote
def work(gate):
    while not os.path.exists(gate):
        sum(range(100_000))
        time.sleep(0.01)  # some of a CPU, while others wait for it

@ray.remote
class Holder:
    def __init__(self):
        self.held = bytearray(b"1") * (200 << 20)

with ray.init(num_cpus=2):
    holder = Holder.options(name="holder").remote()
    refs = [work.remote(sys.argv[1])]
    ray.get(holder.__ray_ready__.remote())
    print("up", flush=True)
    ray.get(refs)
"""


@pytest.mark.parametrize("ranks", [None, pytest.param(3, marks=pytest.mark.mpi)])
def test_a_host_with_gpus(tmp_path: Path, ranks: int | None) -> None:
    gate, machine = tmp_path / "gate", h100x8()
    machine["gpus"] = machine["gpus"][:2]
    machine["gpus"][0] |= {"use": 93, "temperature": 61, "used_mib": 40_000}
    machine["gpus"][1] |= {"use": 3, "temperature": 40, "ecc_errors": 2, "rows": [0, 1, 1, 0]}
    with helpers.start_program(JOB, str(gate), ranks=ranks, env=shown(machine)) as program:
        program.wait_for_line("up")
        assert not _helpers(program), "nobody has looked"
        (pid,) = [one for one in inspecting.jobs() if one in program.processes()]
        job = Watching(pid)

        def look() -> bool:
            job.sample()
            found = next(iter(job.facts.measured.values()), None)
            return found is not None and found.cpu >= 0 and bool(found.gpus) and len(job.facts.sizes) == 2

        helpers.wait_until(look, 60, "the measures")
        ((name, found),) = job.facts.measured.items()
        assert 0 < found.cpu <= 1
        assert 1 << 28 < found.memory_used < found.memory
        first, second = found.gpus
        assert (first.use, first.temperature, first.memory_used, first.fault) == (93, 61, 40_000 << 20, "")
        assert second.fault == (
            "2 memory errors that could not be corrected; its memory has rows that the next reset replaces"
        )
        assert found.gpu_use == pytest.approx(0.48)
        (actor,) = job.facts.actors.rows
        assert job.facts.sizes[name, actor.pid or 0] > 200 << 20, "that of the actor"
        blocks = {one["id"]: one for one in job.document()["blocks"]}
        (row,) = blocks["nodes"]["rows"]
        shown_now = dict(zip([one["t"] for one in blocks["nodes"]["columns"]], row[1:], strict=True))
        assert shown_now["GPU use"][2] == "48%"
        assert (shown_now["state"], shown_now["hottest GPU"]) == ("problem", "61 °C")
        gpus = next(one for one in job.detail("nodes", row[0]) if one.get("id") == "gpus")
        assert [one[6] for one in gpus["rows"]] == ["", second.fault]
        text = metrics.text(job.facts)
        assert f'mpi_runtime_gpu_temperature_celsius{{node="{name}",gpu="{first.uuid}"}} 61\n' in text
        assert len(_helpers(program)) == 1
        gate.touch()
        program.finish().expect(0)
        assert not job.sample(), "it has ended, and has been watched to its end"


@pytest.mark.parametrize("key", ["amd", "intel"])
def test_the_live_page_has_gpus_of_other_vendors(key: str, tmp_path: Path) -> None:
    """AMD's driver shows their use and memory; Intel's neither, and only the temperature."""
    gate, tree = tmp_path / "gate", trees.mi210() if key == "amd" else trees.max1100()
    with helpers.start_program(JOB, str(gate), env=trees.shown(tmp_path / "machine", tree)) as program:
        program.wait_for_line("up")
        (pid,) = [one for one in inspecting.jobs() if one in program.processes()]
        job = Watching(pid)

        def look() -> bool:
            job.sample()
            return any(found.gpus for found in job.facts.measured.values())

        helpers.wait_until(look, 60, "the measures")
        (found,) = job.facts.measured.values()
        assert [gpu.fault for gpu in found.gpus] == [""] * 4
        blocks = {one["id"]: one for one in job.document()["blocks"]}
        (row,) = blocks["nodes"]["rows"]
        shown_now = dict(zip([one["t"] for one in blocks["nodes"]["columns"]], row[1:], strict=True))
        assert shown_now["GPUs given"][:2] == [0, 4]
        assert shown_now["hottest GPU"] == {"amd": "41 °C", "intel": "52 °C"}[key]
        gpus = next(one for one in job.detail("nodes", row[0]) if one.get("id") == "gpus")
        titles = [one["t"] for one in gpus["columns"]]
        rows = [dict(zip(titles, one[1:], strict=True)) for one in gpus["rows"]]
        assert len(rows) == 4
        assert [(one["use"] or [0, 0, ""])[2] for one in rows] == [{"amd": "37 %", "intel": ""}[key]] * 4
        assert [bool(one["memory"]) for one in rows] == [key == "amd"] * 4
        gate.touch()
        program.finish().expect(0)
        assert not job.sample(), "it has ended"


def _helpers(program: helpers.Program) -> list[int]:
    """The processes that measure GPUs."""
    return [pid for pid in program.processes() if b"measure_often" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.mpi
@pytest.mark.hosts
@pytest.mark.parametrize("mpi", ["mpich"])
def test_each_host_measures_itself(mpi: str, two_hosts: Lab) -> None:
    machines = {"host1": h100x8(), "host2": v100_pairs()}
    for number, machine in enumerate(machines.values()):
        for gpu in machine["gpus"]:
            gpu["use"] = 10 + number
    program = (
        shown_on_hosts(machines)
        + """
import json, time
import mpi_runtime as ray
from mpi_runtime.core.head import inspecting
from mpi_runtime.scheduler.protocol.window_questions import MeasuredHosts

with ray.init(num_cpus=1):
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        nodes = inspecting.ask(os.getpid(), MeasuredHosts()).nodes
        if len(nodes) == 2 and all(one.gpus and one.cpu >= 0 for one in nodes.values()):
            break
        time.sleep(0.2)
    print(json.dumps({name: [gpu.use for gpu in one.gpus] for name, one in nodes.items()}))
"""
    )
    with two_hosts.mpirun(program, ranks={"host1": 2, "host2": 2}, mpi=mpi) as started:
        said = started.finish(timeout=100).expect(0).stdout
    assert json.loads(said) == {"host1": [10] * 8, "host2": [11] * 4}
