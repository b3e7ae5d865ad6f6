"""The commands of PBS: `python -m tests.standins.pbs qsub ...`.

After the manual pages qsub(1B), qstat(1B), qdel(1B), qrerun(1B) and pbsnodes(8B) of OpenPBS, and `req_rerun.c`; exit
codes are the lower byte of the errors in its `pbs_error.h`. The JSON has the fields of an answer that a user of
Polaris has published (pbs_version 2022.1.1). A name `history` in the queue's directory is `job_history_enable`.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.standins import core
from tests.standins.core import Job, refuse

SERVER = "head"
SIGNALS = {core.END: [signal.SIGTERM], core.OVERTIME: [signal.SIGTERM]}
UNKNOWN, PERMISSION, BAD_VALUE, NO_QUEUE, NO_RESOURCE, LIMITS, BAD_STATE, FINISHED = (
    153,
    159,
    166,
    170,
    187,
    188,
    168,
    35,
)
_RESOURCES = {"ncpus", "mpiprocs", "ngpus", "mem"}


def around(job: Job, folder: Path) -> tuple[dict[str, str], str]:
    """The environment and the directory of a job. PBS begins in the home directory."""
    nodes = core.NODES[: job.nodes]
    file = folder / f"{job.key}.nodes"
    file.write_text("".join(f"{node}\n" * job.tasks for node in nodes))
    name = f"{job.number}" if job.index is None else f"{job.number}[{job.index}]"
    env = {
        **job.env, "PBS_JOBID": f"{name}.{SERVER}", "PBS_NODEFILE": str(file), "PBS_O_WORKDIR": job.cwd,
        "PBS_ENVIRONMENT": "PBS_BATCH", "NCPUS": str(job.cpus), "PBS_JOBNAME": job.name,
    }  # fmt: skip
    if job.index is not None:
        env["PBS_ARRAY_INDEX"] = str(job.index)
    if job.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(job.gpus)))
    return env, env["HOME"]


def qsub(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Submit the script on standard input."""
    text = sys.stdin.read()
    for line in re.findall(r"^#PBS (.*)$", text, re.MULTILINE):
        words = [*shlex.split(line), *words]  # the command line counts more, and comes last
    parser = argparse.ArgumentParser(prog="qsub", exit_on_error=False)
    for flag in ("-N", "-S", "-j", "-o", "-r", "-q", "-A", "-J"):
        parser.add_argument(flag)
    parser.add_argument("-V", action="store_true")
    parser.add_argument("-l", action="append", default=[])
    parser.add_argument("-W", action="append", default=[])
    try:
        given = parser.parse_args(words)
    except (argparse.ArgumentError, SystemExit):
        refuse("usage: qsub [-a date_time] [-A account_string] ...", 2)
    job = Job(0, text, cwd, env if given.V else {"HOME": env["HOME"], "PATH": "/usr/bin:/bin"}, name=given.N or "STDIN")
    wanted = dict(one.partition("=")[::2] for one in given.l)
    if walltime := wanted.get("walltime"):
        if not re.fullmatch(r"\d+(:\d\d){0,2}", walltime):
            refuse("qsub: Illegal attribute or resource value for Resource_List.walltime", BAD_VALUE)
        job.limit_s = float(sum(int(part) * 60**power for power, part in enumerate(reversed(walltime.split(":")))))
    count, _, chunk = wanted.get("select", "1:ncpus=1").partition(":")
    each = dict(one.partition("=")[::2] for one in chunk.split(":"))
    if unknown := set(each) - _RESOURCES:
        refuse(f"qsub: Unknown resource Resource_List.{min(unknown)}", NO_RESOURCE)
    job.nodes, job.cpus = int(count), int(each.get("ncpus", 1))
    job.tasks, job.gpus = int(each.get("mpiprocs", 1)), int(each.get("ngpus", 0))
    job.queue = given.q or job.queue
    if job.queue not in core.QUEUES:
        refuse("qsub: Unknown queue", NO_QUEUE)
    if (job.limit_s or 0) > core.QUEUES[job.queue]:
        refuse("qsub: Job violates queue and/or server resource limits", LIMITS)
    for one in given.W:
        found = re.fullmatch(r"depend=afterany((?::\d+[^:]*)+)", one)
        if not found:
            refuse("qsub: Illegal attribute or resource value for depend", BAD_VALUE)
        job.after = [int(re.match(r"\d+", name)[0]) for name in found[1].split(":")[1:]]  # type: ignore[index]
        if any(not core.of(number) for number in job.after):
            refuse("qsub: Request invalid for state of job", BAD_STATE)
    indices = None
    if given.J:
        found = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?", given.J)
        if not found or int(found[1]) >= int(found[2]):  # `-J 1-1` is refused
            refuse("qsub: illegal -J value", BAD_VALUE)
        indices = range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))
        job.at_a_time = int(found[4]) if found[4] else None
    number = core.submit(job, indices)
    print(f"{number}[].{SERVER}" if given.J else f"{number}.{SERVER}")


def _find(command: str, name: str, *, ended: bool) -> list[Job]:
    found = re.fullmatch(r"(\d+)(\[(\d*)\])?(\..*)?", name)
    if not found:
        refuse(f"{command}: illegally formed job identifier: {name}", 1)
    jobs = core.of(int(found[1]), int(found[3]) if found[3] else None)
    is_array = bool(jobs) and jobs[0].index is not None
    full = f"{found[1]}{found[2] or ''}.{SERVER}"
    if not jobs or is_array != (found[2] is not None):
        refuse(f"{command}: Unknown Job Id {full}", UNKNOWN)
    if all(one.state == core.ENDED for one in jobs):
        if not (core.place() / "history").exists():
            refuse(f"{command}: Unknown Job Id {full}", UNKNOWN)
        if not ended:
            refuse(f"{command}: {full} Job has finished, use -x or -H to obtain historical job information", FINISHED)
    return jobs


def qstat(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show jobs, as JSON or as text."""
    parser = argparse.ArgumentParser(prog="qstat")
    for flag in ("-x", "-t", "-f", "-B"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-F", choices=["json"])
    parser.add_argument("jobs", nargs="*")
    given = parser.parse_args(words)
    answer: dict[str, Any] = {"timestamp": int(time.time()), "pbs_version": "2022.1.1", "pbs_server": SERVER}
    if given.jobs:
        jobs = _find("qstat", given.jobs[0], ended=given.x)
        answer["Jobs"] = {
            _name(one): _facts(one) for one in jobs if given.t or one.index is None or "[]" not in given.jobs[0]
        }
    if given.F:
        print(json.dumps(answer, indent=4))
        return
    for name, facts in answer.get("Jobs", {}).items():
        print(f"Job Id: {name}")
        for key, value in facts.items():
            for inner, text in value.items() if isinstance(value, dict) else [("", value)]:
                print(f"    {key}{'.' + inner if inner else ''} = {text}")


def _name(job: Job) -> str:
    return f"{job.number}.{SERVER}" if job.index is None else f"{job.number}[{job.index}].{SERVER}"


def _facts(job: Job) -> dict[str, Any]:
    letters = {core.WAITS: "H" if job.why == "dependency" else "Q", core.HELD: "H", core.RUNS: "R", core.ENDED: "F"}
    facts: dict[str, Any] = {
        "Job_Name": job.name,
        "Job_Owner": f"me@{core.NODES[0]}",
        "job_state": "X" if job.state == core.ENDED and job.index is not None else letters[job.state],
        "queue": job.queue,
        "Resource_List": {"ncpus": job.cpus * job.nodes, "nodect": job.nodes, "place": "scatter"},
        "Variable_List": {"PBS_O_HOME": job.env["HOME"], "PBS_O_WORKDIR": job.cwd},
    }
    if job.limit_s is not None:
        facts["Resource_List"]["walltime"] = _span(job.limit_s)
    if job.started is not None:
        facts["stime"] = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(job.started))
        facts["exec_host"] = "+".join(f"{node}/0*{job.cpus}" for node in core.NODES[: job.nodes])
        facts["resources_used"] = {"walltime": _span((job.ended or time.time()) - job.started)}
    if job.code is not None:
        facts["Exit_status"] = 256 - job.code if job.code < 0 else job.code
    comments = {"full": "Not Running: Insufficient amount of resource: ncpus",
                "never": "Can Never Run: Insufficient amount of resource: ncpus"}  # fmt: skip
    if job.state == core.WAITS and job.why in comments:
        facts["comment"] = comments[job.why]
    return facts


def _span(for_s: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(for_s))


def qdel(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Cancel jobs."""
    for name in words:
        for job in _find("qdel", name, ended=False):
            if job.state != core.ENDED:
                core.cancel(job)


def qrerun(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Refuse, since this user is neither manager nor operator."""
    for name in words:
        refuse(f"qrerun: Unauthorized Request  {_name(_find('qrerun', name, ended=False)[0])}", PERMISSION)


def pbsnodes(words: list[str], env: dict[str, str], cwd: str) -> None:
    """Show the nodes."""
    if words != ["-a", "-F", "json"]:
        refuse("usage: pbsnodes -a[v] [-S[j][L]] [-F json|dsv]", 1)
    about = {
        "state": "free",
        "resources_available": {"host": "", "ncpus": core.CPUS, "ngpus": core.GPUS, "mem": "16gb"},
    }
    print(json.dumps({"pbs_server": SERVER, "nodes": dict.fromkeys(core.NODES, about)}))


COMMANDS = {"qsub": qsub, "qstat": qstat, "qdel": qdel, "qrerun": qrerun, "pbsnodes": pbsnodes}

if __name__ == "__main__":
    import os

    COMMANDS[sys.argv[1]](sys.argv[2:], dict(os.environ), os.getcwd())
