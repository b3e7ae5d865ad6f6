"""Runs commands whose ends an earlier version has recorded in `commands-3.11/`: none of them runs again.

Its first argument is the directory of the journal, its second that of the marks of commands.
"""

import os
import sys

import mpi_runtime as ray
from mpi_runtime import batch

os.chdir(sys.argv[2])
ray.init(num_cpus=2, journal=sys.argv[1])
refs = [
    batch.command("echo plain >> marks"),
    batch.command("echo {word} {number} >> marks", word="two words", number=3, num_cpus=2, memory="10MB", priority=1),
    batch.command(
        "echo options >> marks",
        name="named",
        group="few",
        group_limit=1,
        time_limit="1m",
        expect=2,
        grace="1s",
        retries=2,
        retry_codes=[3],
        env={"COLOUR": "red"},
        output_limit="1MB",
        keep_workdir=True,
    ),
    batch.command("echo either >> marks", alternatives=[{"num_cpus": 2}, {"num_gpus": 1}], pin=True, shell="bash"),
    *batch.array("echo {seed} >> marks", seed=[1, 2], name="seeds", on_failure="continue", success_codes=[0, 1]),
]
print([ray.get(ref).is_success for ref in refs])
