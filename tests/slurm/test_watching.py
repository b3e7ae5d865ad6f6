"""What the live page and `top` show of the time of a real job, and of the calls that will not end in it."""

from __future__ import annotations

import json
import re
from datetime import datetime

from tests.slurm.cluster import Cluster

APP = """
import os, time
import mpi_runtime as ray

@ray.remote
def work(number):
    time.sleep(0.4)

with ray.init(num_cpus=1):
    refs = [work.remote(number) for number in range(5000)]
    while not os.path.exists("gate"):
        time.sleep(0.1)
    os._exit(0)  # all these calls are not awaited
"""
LOOK = """
import json, time
from mpi_runtime.cli.running_job import in_lines
from mpi_runtime.cli.watching import Watching
from mpi_runtime.core.head import inspecting

while not inspecting.jobs():
    time.sleep(0.1)
seen = Watching(inspecting.jobs()[0])
while not seen.facts.open_at_end():
    time.sleep(0.3)
    assert seen.sample()
(answers,) = [one for one in seen.document()["blocks"] if one["id"] == "answers"]
(wall,) = [one for one in seen.document()["blocks"] if one["kind"] == "wall"]
print("LOOK", json.dumps([in_lines(seen.facts), answers["cards"][3], wall]), flush=True)
"""


def test_the_time_of_the_job_and_what_will_not_end_in_it(slurm: Cluster) -> None:
    directory = slurm.directory()
    (directory / "look.py").write_text(LOOK)
    script = "#!/bin/bash\nmpi-runtime run -n 1 app.py &\npython look.py\nwait\n"
    job = slurm.sbatch(script, "-N1", "-n1", "--time=3", app=APP, cwd=directory)
    text = slurm.wait_for_output(job, "LOOK")
    end_s = datetime.fromisoformat(slurm.facts(job)["EndTime"]).timestamp()
    (directory / "gate").touch()
    lines, card, wall = json.loads(re.findall(r"LOOK (.*)", text)[0])
    assert abs(wall["end"] - end_s) < 5, "the page has the end that Slurm has"
    assert card["q"] == "When is it done?"
    assert card["bad"]
    assert card["rows"][1][0] == "work, open at the end"
    (line,) = [one for one in lines if "the job's time ends" in one]
    clock = datetime.fromtimestamp(wall["end"]).strftime("%H:%M:%S")
    assert re.fullmatch(rf"the job's time ends {clock}, in .*; about .+ calls will be open then: .+ of work", line), (
        line
    )
    slurm.wait(job)
