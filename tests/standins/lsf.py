"""The commands of LSF: `python -m tests.standins.lsf bsub ...`.

After IBM's reference of LSF 10.1 (bsub, bjobs -o and -json, bkill, brequeue, bhosts, lsid), and answers of bjobs -json
that users of Summit have published (fields are text, RUN_TIME has "second(s)", RUNTIMELIMIT minutes). Commands that
fail end with 255.
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

from tests.standins import core
from tests.standins.core import Job, refuse

SIGNALS = {
    core.END: [signal.SIGINT, signal.SIGTERM],
    core.OVERTIME: [signal.SIGUSR2, signal.SIGINT, signal.SIGTERM],
}
FAILED = 255


def around(job: Job, folder: Path) -> tuple[dict[str, str], str]:
    """The environment and the directory of a job."""
    nodes = core.NODES[: job.nodes]
    env = {
        **job.env, "LSB_JOBID": str(job.number), "LSB_JOBINDEX": str(job.index or 0), "LSB_JOBNAME": job.name,
        "LSB_HOSTS": " ".join(node for node in nodes for _ in range(job.cpus)),
        "LSB_MCPU_HOSTS": " ".join(f"{node} {job.cpus}" for node in nodes), "LS_SUBCWD": job.cwd,
    }  # fmt: skip
    if job.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(job.gpus)))
    return env, job.cwd


def bsub(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Submit the script on standard input."""
    text = sys.stdin.read()
    for line in re.findall(r"^#BSUB (.*)$", text, re.MULTILINE):
        words = [*words, *shlex.split(line)]
    parser = argparse.ArgumentParser(prog="bsub", exit_on_error=False, allow_abbrev=False)
    for flag in ("-J", "-L", "-o", "-n", "-W", "-q", "-P", "-w", "-Q", "-gpu"):
        parser.add_argument(flag)
    parser.add_argument("-R", action="append", default=[])
    for flag in ("-r", "-rn", "-H"):
        parser.add_argument(flag, action="store_true")
    try:
        given = parser.parse_args(words)
    except (argparse.ArgumentError, SystemExit):
        refuse("Bad option. Job not submitted.", FAILED)
    named = re.fullmatch(r"([^\[]*)(?:\[(.*)\](?:%(\d+))?)?", given.J or "")
    assert named
    job = Job(0, text, cwd, env, name=named[1], queue=given.q or "work")
    if job.queue not in core.QUEUES:
        refuse(f"{job.queue}: No such queue. Job not submitted.", FAILED)
    for one in given.R:
        if not re.fullmatch(r"span\[ptile=\d+\]|rusage\[mem=\w+\]", one):
            refuse("Bad resource requirement syntax. Job not submitted.", FAILED)
        if tile := re.fullmatch(r"span\[ptile=(\d+)\]", one):
            job.cpus = int(tile[1])
    job.nodes = -(-int(given.n or 1) // job.cpus)
    if given.gpu:
        job.gpus = int(given.gpu.removeprefix("num="))
    if given.W:
        hours, _, minutes = given.W.rpartition(":")
        job.limit_s = 60.0 * (60 * int(hours or 0) + int(minutes))
        if job.limit_s > core.QUEUES[job.queue]:
            refuse("RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.", FAILED)
    job.after = [int(number) for number in re.findall(r"ended\((\d+)\)", given.w or "")]
    if any(not core.of(number) for number in job.after):
        refuse("Dependency condition invalid or never satisfied. Job not submitted.", FAILED)
    job.again = [int(code) for code in (given.Q or "").split()]
    job.at_a_time = int(named[3]) if named[3] else None
    job.state = core.HELD if given.H else core.WAITS
    indices = None
    if named[2]:
        parts = [re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part) for part in named[2].split(",")]
        ranges = [range(int(p[1]), int(p[2] or p[1]) + 1, int(p[3] or 1)) for p in parts if p]
        indices = [index for one in ranges for index in one]
    number = core.submit(job, indices)
    print(f"Job <{number}> is submitted to queue <{job.queue}>.")


def _find(name: str) -> list[Job]:
    found = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", name)
    if not found:
        refuse(f"{name}: Illegal job ID.", FAILED)
    return core.of(int(found[1]), int(found[2]) if found[2] else None)


def bjobs(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show jobs: fields that the caller names, as JSON or as text."""
    parser = argparse.ArgumentParser(prog="bjobs", allow_abbrev=False)
    for flag in ("-a", "-json", "-noheader"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-o", required=True)
    parser.add_argument("job")
    given = parser.parse_args(words)
    jobs = _find(given.job)
    wanted, _, delimiter = given.o.partition(" delimiter=")
    names = wanted.upper().split()
    records = [{name: _facts(job)[name] for name in names} for job in jobs]
    if given.json:
        shown = records or [{"JOBID": given.job, "ERROR": f"Job <{given.job}> is not found"}]
        print(json.dumps({"COMMAND": "bjobs", "JOBS": len(shown), "RECORDS": shown}, indent=2))
    else:
        for one in records:
            print((delimiter.strip("'") or " ").join(one.values()))
    if not jobs:
        refuse(f"Job <{given.job}> is not found", FAILED)


def _facts(job: Job) -> dict[str, str]:
    used_s = (job.ended or time.time()) - job.started if job.started is not None else 0
    ended = "DONE" if job.code == 0 and not job.ended_by else "EXIT"
    stat = {core.WAITS: "PEND", core.HELD: "PSUSP", core.RUNS: "RUN", core.ENDED: ended}[job.state]
    reasons = {"full": "Job slot limit reached: 2 hosts;", "never": "Not enough hosts to meet the job's spanning "
               "requirement;", "dependency": "Job dependency condition not satisfied;"}  # fmt: skip
    by = {core.END: "TERM_OWNER: job killed by owner", core.OVERTIME: "TERM_RUNLIMIT: job killed after reaching LSF "
          "run time limit", "": ""}  # fmt: skip
    minute = "%b %d %H:%M"
    left_s = job.limit_s - used_s if job.limit_s is not None and job.state == core.RUNS else None
    return {
        "JOBID": str(job.number),
        "JOBINDEX": str(job.index or 0),
        "STAT": stat,
        "JOB_NAME": job.name if job.index is None else f"{job.name}[{job.index}]",
        "EXEC_HOST": ":".join(f"{job.cpus}*{node}" for node in core.NODES[: job.nodes]) if job.started else "",
        "SUB_CWD": job.cwd,
        "EXIT_CODE": str(128 - job.code if job.code < 0 else job.code) if job.code else "",
        "EXIT_REASON": by[job.ended_by],
        "PEND_REASON": reasons.get(job.why, "New job is waiting for scheduling;") if stat == "PEND" else "",
        "START_TIME": time.strftime(minute, time.localtime(job.started)) if job.started else "",
        "FINISH_TIME": time.strftime(minute, time.localtime(job.ended)) + " L" if job.ended else "",
        "RUN_TIME": f"{used_s:.0f} second(s)",
        "RUNTIMELIMIT": f"{job.limit_s / 60:.1f}" if job.limit_s is not None else "",
        "TIME_LEFT": "-" if left_s is None else f"{max(0, left_s) // 3600:.0f}:{max(0, left_s) // 60 % 60:.0f} L",
    }


def bkill(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Cancel a job, an array, or a task of one."""
    jobs = _find(words[0])
    if not jobs:
        refuse(f"Job <{words[0]}>: No matching job found", FAILED)
    if all(one.state == core.ENDED for one in jobs):
        refuse(f"Job <{words[0]}>: Job has already finished", FAILED)
    for job in jobs:
        if job.state != core.ENDED:
            core.cancel(job)
    print(f"Job <{words[0]}> is being terminated")


def bhosts(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show the hosts."""
    print("HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV")
    for node in core.NODES:
        print(f"{node:18} ok              -          {core.CPUS}      0      0      0      0      0")


def lsid(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show the cluster."""
    print("IBM Spectrum LSF Standard 10.1.0.12\nMy cluster name is farm\nMy master name is login")


COMMANDS = {"bsub": bsub, "bjobs": bjobs, "bkill": bkill, "bhosts": bhosts, "lsid": lsid}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](sys.argv[2:], dict(os.environ), os.getcwd())
