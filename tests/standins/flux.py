"""The commands of Flux: `python -m tests.standins.flux flux ...`.

After the manual pages flux-batch(1), flux-jobs(1), flux-job(1), flux-cancel(1), flux-hostlist(1) and flux-resource(1)
of flux-core. `flux jobs --json` shows keys only once they are known, as its page says. Commands that fail end with 1.
In a batch job the commands refer to the Flux of the job, which has no jobs, unless `--parent` is stated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mpi_runtime.slurm.systems.flux import _LETTERS
from tests.standins import core
from tests.standins.core import Job, refuse

SIGNALS = {core.END: [signal.SIGTERM], core.OVERTIME: [signal.SIGTERM]}
FAILED, USAGE = 1, 2
_FAR = 1 << 40
"""Ids of Flux are large: they have the time in them."""
_DURATION = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def around(job: Job, folder: Path) -> tuple[dict[str, str], str]:
    """The environment and the directory of a job: the first program of a Flux has no FLUX_JOB_ID."""
    env = {**job.env, "FLUX_URI": f"local:///tmp/flux-{job.number}/local-0"}
    if job.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(job.gpus)))
    return env, job.cwd


def f58(number: int) -> str:
    """The form in which Flux prints ids."""
    letters = ""
    while number:
        number, rest = divmod(number, 58)
        letters = _LETTERS[rest] + letters
    return f"ƒ{letters}"


def _here() -> int:
    """The job around this process; 0: none."""
    return int(os.environ.get(core.MARK, "0"))


def _find(command: str, name: str) -> Job:
    known = core.of(int(name) - _FAR) if name.isdecimal() else []
    if not known or (_here() and "--parent" not in sys.argv):
        refuse(f"{command}: ERROR: JobID {name} unknown", FAILED)
    return known[0]


def batch(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Submit the script on standard input."""
    text = sys.stdin.read()
    for line in reversed(re.findall(r"^# flux: (.*)$", text, re.MULTILINE)):
        words = [*shlex.split(line), *words]
    parser = argparse.ArgumentParser(prog="flux batch", allow_abbrev=False)
    for flags in (("--nodes", "-N"), ("--nslots", "-n"), ("--cores-per-slot", "-c"), ("--gpus-per-slot", "-g")):
        parser.add_argument(*flags, type=int)
    for flag in ("--job-name", "--output", "--time-limit", "--queue", "--bank"):
        parser.add_argument(flag)
    parser.add_argument("--dependency", action="append", default=[])
    parser.add_argument("--exclusive", action="store_true")
    parser.add_argument("--urgency", default="16")
    given = parser.parse_args(words)  # ends with 2, as Flux does
    if given.nodes is None and given.nslots is None:
        refuse("flux-batch: ERROR: Number of slots to allocate must be specified", FAILED)
    job = Job(0, text, cwd, env, name=given.job_name or "flux", queue=given.queue or "work", nodes=given.nodes or 1)
    if job.queue not in core.QUEUES:
        refuse(f"flux-batch: ERROR: [Errno 22] Invalid queue '{job.queue}' specified", FAILED)
    slots = -(-(given.nslots or job.nodes) // job.nodes)
    job.cpus = core.CPUS if given.exclusive else slots * (given.cores_per_slot or 1)
    job.gpus = slots * (given.gpus_per_slot or 0)
    if job.nodes > len(core.NODES) or job.cpus > core.CPUS or job.gpus > core.GPUS:
        refuse("flux-batch: ERROR: [Errno 22] unsatisfiable request", FAILED)
    if given.time_limit:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", given.time_limit)
        if not found:
            refuse("flux-batch: ERROR: invalid Flux standard duration", FAILED)
        job.limit_s = float(found[1]) * _DURATION[found[2]]
        if job.limit_s > core.QUEUES[job.queue]:
            refuse("flux-batch: ERROR: [Errno 22] requested duration exceeds policy limit of queue", FAILED)
    for one in given.dependency:
        name = one.removeprefix("afterany:")
        if name == one or not core.of(int(name) - _FAR):
            refuse(f"flux-batch: ERROR: [Errno 22] dependency: afterany: id={name}: job not found", FAILED)
        job.after.append(int(name) - _FAR)
    job.state = core.HELD if given.urgency in ("0", "hold") else core.WAITS
    print(f58(_FAR + core.submit(job)))


def jobs(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show one job as JSON."""
    if words[:2] != ["-a", "--json"] or len(words) != 3:
        refuse("usage: flux jobs [OPTIONS] [JOBID ...]", USAGE)
    job = _find("flux-jobs", words[2])
    states = {core.WAITS: "SCHED", core.HELD: "SCHED", core.RUNS: "RUN", core.ENDED: "INACTIVE"}
    facts: dict[str, Any] = {
        "id": _FAR + job.number, "name": job.name, "cwd": job.cwd, "state": states[job.state], "queue": job.queue,
        "duration": job.limit_s or 0.0, "t_submit": job.submitted, "urgency": 0 if job.state == core.HELD else 16,
    }  # fmt: skip
    if job.why == "dependency" and job.state == core.WAITS:
        facts |= {"state": "DEPEND", "dependencies": [f"after-finish={_FAR + number}" for number in job.after]}
    if job.why == "full" and job.state == core.WAITS:
        facts["annotations"] = {"sched": {"reason_pending": "insufficient resources"}}
    if job.started is not None:
        names = core.NODES[: job.nodes]
        facts |= {"t_run": job.started, "nodelist": ",".join(names), "nnodes": job.nodes}
    if job.state == core.ENDED:
        result = {core.END: "CANCELED", core.OVERTIME: "TIMEOUT", "": "FAILED" if job.code else "COMPLETED"}
        types = {core.END: "cancel", core.OVERTIME: "timeout", "": ""}
        facts |= {"result": result[job.ended_by], "returncode": -128 if job.code is None else job.code}
        facts["t_inactive"] = job.ended or time.time()
        note = "resource allocation expired" if job.ended_by == core.OVERTIME else ""
        facts["exception"] = {"occurred": bool(job.ended_by), "type": types[job.ended_by], "note": note}
    print(json.dumps(facts))


def cancel(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Cancel jobs."""
    for name in words:
        job = _find("flux-cancel", name)
        if job.state == core.ENDED:
            refuse(f"flux-cancel: ERROR: {name}: job is inactive", FAILED)
        core.cancel(job)


def job(words: list[str], env: dict[str, str], cwd: str) -> None:
    """`flux job timeleft`, and `flux job id`."""
    if words[0] == "timeleft":
        if not _here():
            refuse("flux-job: ERROR: no enclosing instance found", FAILED)
        (own,) = core.of(_here())
        left_s = (own.started or 0) + own.limit_s - time.time() if own.limit_s else None
        print("infinity" if left_s is None else f"{max(0, int(left_s))}")
    elif words[:2] == ["id", "--to=dec"]:
        number = 0
        for letter in words[2][1:]:
            number = 58 * number + _LETTERS.index(letter)
        print(number)
    else:
        refuse("flux-job: unknown command", USAGE)


def getattr_(words: list[str], env: dict[str, str], cwd: str) -> None:
    """`flux getattr jobid`."""
    if words != ["jobid"] or not _here():
        refuse(f"flux-getattr: {words[0]}: No such file or directory", FAILED)
    print(f58(_FAR + _here()))


def hostlist(words: list[str], env: dict[str, str], cwd: str) -> None:
    """`flux hostlist --local --expand`."""
    if words != ["--local", "--expand"]:
        refuse("flux-hostlist: unknown option", USAGE)
    print(" ".join(core.NODES[: core.of(_here())[0].nodes]))


def resource(words: list[str], env: dict[str, str], cwd: str) -> None:
    """`flux resource list -n -o "{nnodes} {ncores}"`."""
    if words != ["list", "-n", "-o", "{nnodes} {ncores}"]:
        refuse("flux-resource: unknown command", USAGE)
    print(f"{len(core.NODES)} {len(core.NODES) * core.CPUS}\n0 0\n0 0")


COMMANDS = {"batch": batch, "jobs": jobs, "cancel": cancel, "job": job, "getattr": getattr_, "hostlist": hostlist,
            "resource": resource}  # fmt: skip

if __name__ == "__main__":
    given = [word for word in sys.argv[2:] if word != "--parent"]
    if not given or given[0] not in COMMANDS:
        refuse(f"flux: '{given[:1]}' is not a flux command.  See 'flux --help'", FAILED)
    COMMANDS[given[0]](given[1:], dict(os.environ), os.getcwd())
