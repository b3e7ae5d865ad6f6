"""What is to be done before the time of a job ends: called once, at the first sign of the end."""

import os
import signal
import time
from pathlib import Path

import pytest

from mpi_runtime import slurm
from tests.helpers import run_program, start_program

APP = """
import sys, time
import mpi_runtime as ray
from mpi_runtime import slurm

ray.init(num_cpus=1)

@ray.remote
def answer():
    return 42

def save():
    print("saved", ray.get(answer.remote()), flush=True)

def fail():
    raise ValueError("not my day")

slurm.before_walltime(1, save)
slurm.before_walltime(2, fail)
print("working", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.05)
print("done", flush=True)
"""
NEVER = {"SLURM_JOB_ID": None, "SLURM_JOB_END_TIME": None}


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_calls_all_once_the_earliest_first_and_the_program_goes_on(number: int) -> None:
    with start_program(APP, "1.5", env=NEVER) as program:
        program.wait_for_line("working")
        program.signal(number)
        program.wait_for_line("saved")
        program.signal(number)
        completed = program.finish().expect(0)
    assert completed.stdout == "working\nsaved 42\ndone\n"
    assert completed.stderr.count("ValueError: not my day") == 1


def test_sigterm_ends_the_program_after_the_callbacks() -> None:
    with start_program(APP, "60", env=NEVER) as program:
        program.wait_for_line("working")
        program.signal(signal.SIGTERM)
        assert program.finish().expect(-signal.SIGTERM).stdout == "working\nsaved 42\n"


def test_the_known_end_calls_what_is_due() -> None:
    """Where Slurm does not answer, what it had said at the start counts."""
    known = {"SLURM_JOB_ID": "5", "SLURM_JOB_END_TIME": str(int(time.time()) + 3), "PATH": "/nowhere"}
    completed = run_program(APP, "4", env=known).expect(0)
    assert completed.stdout == "working\nsaved 42\ndone\n"


@pytest.mark.parametrize("change_s", [-3592.0, 3600.0])
def test_an_end_that_is_changed_meanwhile_counts(tmp_path: Path, change_s: float) -> None:
    """The batch system is asked again before the old end is near, and before a callback is called too early."""
    ends = tmp_path / "end"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho JobId=5 EndTime=$(cat {ends})\n")
    scontrol.chmod(0o755)
    end_s = time.time() + (3600 if change_s < 0 else 6)

    def set_end(end_s: float) -> None:
        ends.with_suffix(".new").write_text(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end_s)))
        ends.with_suffix(".new").replace(ends)

    set_end(end_s)
    known = {"SLURM_JOB_ID": "5", "SLURM_JOB_END_TIME": str(int(end_s)), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    often = "from mpi_runtime.slurm import walltime\nwalltime.ASK_S, walltime.ASK_MIN_S = 1.0, 0.5\nslurm.before"
    app = APP.replace("slurm.before", often, 1)
    with start_program(app, "9", env=known) as program:
        program.wait_for_line("working")
        set_end(end_s + change_s)
        said = program.finish().expect(0).stdout
    assert said == ("working\nsaved 42\ndone\n" if change_s < 0 else "working\ndone\n")


def test_wrong_uses() -> None:
    for seconds in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds must be a finite number"):
            slurm.before_walltime(seconds, print)
    with pytest.raises(slurm.SlurmError, match="this is not a batch job"):
        slurm.requeue()
    assert slurm.end_time() is None
    completed = run_program(
        "import threading\nfrom mpi_runtime import slurm\n"
        "thread = threading.Thread(target=slurm.before_walltime, args=(1, print))\nthread.start()\nthread.join()"
    ).expect(0)
    assert "before_walltime() must be called in the main thread" in completed.stderr
