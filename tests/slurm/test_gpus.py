"""GPUs as Slurm gives them out: each way of binding tasks to them, two jobs that share a node, and the known traps.

Nodes, jobs, launchers and variables are real, the GPUs are described (`tests/fake_nvml`): four on each node, as Slurm
is told. Nothing confines a process to the devices of its job here but CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mpi_runtime.slurm import nodelist
from tests.fake_nvml import machines
from tests.fake_nvml.machines import a100x4, shown, v100_pairs
from tests.helpers import mpi_python
from tests.slurm.cluster import MEET, Cluster, Ended

APP = """
import json, os, sys, time
import mpi_runtime as ray

ray.init(num_cpus=1)

@ray.remote(num_cpus=0, num_gpus=1)
class Place:
    def here(self):
        return os.uname().nodename, os.environ["CUDA_VISIBLE_DEVICES"]

@ray.remote(num_cpus=0, num_gpus=1)
def have():
    begun = time.monotonic()
    time.sleep(0.2)
    return os.uname().nodename, os.environ["CUDA_VISIBLE_DEVICES"], begun, time.monotonic()

count = int(ray.cluster_resources().get("GPU", 0))
actors = [Place.remote() for _ in range(count)]
held = ray.get([actor.here.remote() for actor in actors])
if len(sys.argv) > 1:  # hold them until the other job has its own
    meet(*sys.argv[1:])
for actor in actors:
    ray.kill(actor)
tasks = ray.get([have.remote() for _ in range(2 * count)])
try:
    several = len(ray.get(have.options(num_gpus=2).remote())[1].split(","))
except ray.errors.InfeasibleResourceError as error:
    several = str(error)
ranks = {node["NodeManagerHostname"]: [gpu["ranks"] for gpu in node["gpus"]] for node in ray.nodes()}
print(json.dumps({"count": count, "held": held, "tasks": tasks, "several": several, "ranks": ranks}), flush=True)
"""


def others(machine: machines.Machine) -> machines.Machine:
    """The same kind of machine, with other devices."""
    gpus = [{**gpu, "uuid": gpu["uuid"].replace("GPU-0", "GPU-1")} for gpu in machine["gpus"]]
    return {**machine, "gpus": gpus}


MACHINES = {"n1": a100x4(), "n2": v100_pairs(), "n3": others(v100_pairs())}


@dataclass
class Step:
    """One program that a job has run."""

    owned: dict[str, set[str]]
    """The numbers of the GPUs that the job has on each node, as Slurm's controller has them."""
    said: dict[str, Any]
    text: str
    """The warnings."""

    def devices(self) -> set[tuple[str, str]]:
        """What actors had that were there at the same time, by host and number: each something of its own."""
        held = [(host, number(name)) for host, name in self.said["held"]]
        assert len(set(held)) == len(held) == self.said["count"], self.text
        return set(held)

    def check(self, count: int) -> None:
        """Every call had a device of its job to itself; there were so many devices."""
        assert self.said["count"] == count, self.text
        devices = self.devices()
        assert all(name in self.owned[host] for host, name in devices), (self.owned, self.text)
        times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for host, name, begun, ended in self.said["tasks"]:
            assert (host, number(name)) in devices
            times.setdefault((host, number(name)), []).append((begun, ended))
        assert len(self.said["tasks"]) == 2 * count
        for spans in times.values():
            assert all(one[1] <= next_one[0] for one, next_one in pairwise(sorted(spans))), "two at a time"


def number(name: str) -> str:
    """By which Slurm knows a GPU that CUDA_VISIBLE_DEVICES names so: the UUIDs end with it here."""
    return str(int(name[-12:], 16)) if name.startswith("GPU-") else name


def write(place: Path) -> None:
    """The program, with the machine that each node is to be; all else is as Slurm and the launcher have left it."""
    variables = {host: shown(machine) for host, machine in MACHINES.items()}
    mine = {
        host: {name: value for name, value in one.items() if value is not None and name != "PYTHONPATH"}
        for host, one in variables.items()
    }
    begin = (
        f"import os, sys\nos.environ.update({mine!r}[os.uname().nodename])\n"
        f"sys.path.insert(1, {str(Path(machines.__file__).parent)!r})\n"
    )
    (place / "app.py").write_text(begin + MEET + APP)


def script(steps: dict[str, str]) -> str:
    """A batch script that says what the job owns, and runs these command lines."""
    lines = [f"echo '== {name}'; {line} 2>&1 || echo failed with $?" for name, line in steps.items()]
    return "\n".join(["#!/bin/bash", "scontrol show job -d $SLURM_JOB_ID", *lines, "echo '== end'", ""])


def read(ended: Ended) -> dict[str, Step]:
    """What the steps of a job have said."""
    owned = {
        host: number_set(found)
        for hosts, found in re.findall(r"Nodes=(\S+) .*GRES=gpu\S*\(IDX:([\d,-]+)\)", ended.stdout)
        for host in nodelist.expand(hosts)
    }
    assert owned, ended.stdout
    marks = list(re.finditer("^== (.*)\n", ended.stdout, re.MULTILINE))
    found = {}
    for one, after in pairwise(marks):
        text = ended.stdout[one.end() : after.start()]
        said = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert len(said) == 1, f"one program of all ranks: {one[1]}: {text}"
        # Launchers may have something to say too: srun waits, and says so, until the step before has been cleared away.
        warnings = [line for line in text.splitlines() if " mpi_runtime: " in line]
        found[one[1]] = Step(owned, said[0], "\n".join(warnings))
    return found


def number_set(text: str) -> set[str]:
    """The numbers in a list as Slurm writes it: 0-1,3."""
    spans = [(part.partition("-")[0], part.rpartition("-")[2]) for part in text.split(",")]
    return {str(number) for first, last in spans for number in range(int(first), int(last) + 1)}


def test_each_way_of_binding(slurm: Cluster) -> None:
    place = slurm.directory()
    write(place)
    run = "python app.py"
    share = ("--ntasks-per-node=2", "--cpus-per-task=1", "--gpus-per-node=4")
    two_nodes = slurm.sbatch(script({
        "none": f"srun --mpi=pmix --gpus-per-node=4 --gpu-bind=none {run}",
        "single": f"srun --mpi=pmix --gpus-per-node=4 --gpu-bind=single:2 {run}",
        "two for each": f"srun --mpi=pmix --gpus-per-task=2 {run}",
        "mpirun": f"mpirun --bind-to none {run}",
        "mpich": f"srun --mpi=pmi2 --gpus-per-node=4 {mpi_python('mpich')} app.py",
    }), "-N2", "--nodelist=n[1,3]", *share, cwd=place)  # fmt: skip
    one_for_each = slurm.sbatch(script({
        "one for each": f"srun --mpi=pmix --gpus-per-task=1 {run}",
        "one for each, mpirun": f"mpirun --bind-to none {run}",
    }), "-N1", "--nodelist=n2", "-n4", "--cpus-per-task=1", "--gpus-per-task=1", cwd=place)  # fmt: skip
    steps = read(slurm.wait(two_nodes).expect()) | read(slurm.wait(one_for_each).expect())
    # Rank 0 runs no tasks: what it alone sees is not counted. `single:2` shows both ranks of a node the same GPU.
    counts = {
        "none": 8, "single": 2, "two for each": 6, "mpirun": 8, "mpich": 8, "one for each": 3,
        "one for each, mpirun": 4,
    }  # fmt: skip
    for name, step in steps.items():
        count = counts.pop(name)
        step.check(count)
        trapped = "--gpus-per-task, which does not reach ranks that mpirun starts" in step.text
        assert trapped == (name == "one for each, mpirun" and not slurm.is_new), step
        is_part = count < sum(map(len, step.owned.values()))
        assert ("calls can use" in step.text) == is_part, step
        assert bool(step.text) == (trapped or is_part), step
    assert not counts
    several = {name: step.said["several"] for name, step in steps.items()}
    assert {name for name, found in several.items() if found == 2} == set(steps) - {"single", "one for each"}
    assert "a task has those of one rank" in several["one for each"]
    assert [len(ranks) for ranks in steps["single"].said["ranks"]["n3"]] == [2], "one GPU for two ranks"


def test_two_jobs_that_share_a_node(slurm: Cluster) -> None:
    """Each has two of four GPUs at the same time. With `--gpu-bind=none` nothing tells which, and none is used."""
    place = slurm.directory()
    write(place)
    files = "first", "second"
    jobs = [
        slurm.sbatch(script({
            "shared": f"{line} {' '.join(names)}",
            "unknown": "srun --mpi=pmix --gpu-bind=none python app.py",
        }), "-N1", "--nodelist=n2", "--ntasks-per-node=2", "--cpus-per-task=1", "--gpus-per-node=2", cwd=place)
        for line, names in (
            ("srun --mpi=pmix --gpus-per-node=2 python app.py", files),
            ("mpirun --bind-to none python app.py", files[::-1]),
        )
    ]  # fmt: skip
    ended = [read(slurm.wait(job).expect()) for job in jobs]
    for steps in ended:
        steps["shared"].check(2)
        assert not steps["shared"].text
        if slurm.is_new:
            steps["unknown"].check(2)
            continue
        assert steps["unknown"].said["count"] == 0
        assert "Slurm has given the job 2 of the 4 GPUs to be seen" in steps["unknown"].text
        assert "Start without --gpu-bind=none" in steps["unknown"].text
    one, other = (steps["shared"].devices() for steps in ended)
    assert not one & other
