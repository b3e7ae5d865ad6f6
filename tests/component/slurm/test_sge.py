"""Grid Engine: scripts for requests, and its answers, shortened from those of Grid Engine 8.1.9."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.slurm import jobs, script
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.systems import sge_jobs

ENVIRONMENTS = {"smp": "$pe_slots", "two": "2", "four": "4"}
DETAIL = """<?xml version='1.0'?>
<x><JB_cwd>{place}</JB_cwd><CE_name>h_rt</CE_name><CE_doubleval>100.000000</CE_doubleval>
<MES_message>queue instance &quot;all.q@n2&quot; dropped because it is full</MES_message></x>"""
ROW = (
    "<job_list><JB_job_number>7</JB_job_number><JB_name>app</JB_name><state>{state}</state>{more}<slots>1</slots>"
    "</job_list>"
)
STARTED = "<JAT_start_time>2026-11-28T18:38:09</JAT_start_time><queue_name>all.q@n2</queue_name>"
ACCOUNT = """==============================================================
qname        all.q
hostname     n2
jobname      app
jobnumber    7
taskid       undefined
start_time   Sat Nov 28 18:38:09 2026
end_time     Sat Nov 28 18:38:{end} 2026
failed       {failed}
exit_status  {code}
category     -l h_rt=20
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for commands; qconf knows three parallel environments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(folder))  # Slurm may be installed in the others
    monkeypatch.setattr(sge_jobs, "ACCOUNT_LIMIT_S", 0.0)
    cases = " ".join(f"'-sp {name}') echo 'allocation_rule {rule}';;" for name, rule in ENVIRONMENTS.items())
    play(folder, "qconf", f'case "$*" in -spl) echo {" ".join(ENVIRONMENTS)};; {cases} esac')
    return folder


def play(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def answers(folder: Path, row: str = "", account: str = "") -> None:
    listed, detail, ended = (folder / name for name in ("listed", "detail", "ended"))
    listed.write_text(f"<job_info><queue_info>{row}</queue_info></job_info>")
    detail.write_text(DETAIL.format(place=folder))
    ended.write_text(account)
    play(folder, "qstat", f'[ "$1" = -j ] && exec cat {detail}; cat {listed}')
    play(folder, "qacct", f"cat {ended}" if account else "echo 'error: job id 7 not found' >&2; exit 1")


def test_a_script_says_all_that_was_asked_for() -> None:
    request = Request(
        system="sge", nodes=2, cpus_per_node=4, pe="four", memory="4G", time="1:00:00", name="a b", partition="all.q",
        account="x", array="1-9:2%3", after="7,8", warn_s=60, qsub=("-l", "gpu=1"), python="py",
    )  # fmt: skip
    text = script.text(request, ("app.py", "{task}"))
    assert re.findall(r"^#\$ (.*)$", text, re.MULTILINE) == [
        "-N a_b", "-S /bin/bash", "-cwd", "-V", "-j y", "-o a_b-$JOB_ID_$TASK_ID.out", "-notify", "-r n", "-pe four 8",
        "-l h_rt=3600", "-l mem_free=4G", "-q all.q", "-P x", "-t 1-9:2", "-hold_jid 7,8", "-tc 3", "-l gpu=1",
    ]  # fmt: skip
    assert 'left="$PWD/a_b-${JOB_ID}_$SGE_TASK_ID.exit"' in text
    assert "sleep 3540 &" in text
    assert """setsid py -m mpi_runtime run -n 2 -m mpi_runtime --exit-file "$left" app.py "$SGE_TASK_ID" &\n""" in text
    assert not re.search("SLURM|scontrol|srun", text)
    syntax = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (syntax.returncode, syntax.stderr) == (0, "")


@pytest.mark.parametrize(("own", "code"), [("3", 3), ("99", 98), ("100", 98), ("requeue", 99)])
def test_codes_that_mean_something_to_grid_engine(own: str, code: int, tmp_path: Path) -> None:
    play(tmp_path, "py", f'while [ "$1" != --exit-file ]; do shift; done; echo {own} >"$2"')
    text = script.text(Request(system="sge", name="app", python=str(tmp_path / "py")), ("app.py",))
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env={**os.environ, "JOB_ID": "7"}, timeout=60)
    assert done.returncode == code


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (None, None)),
        ({"cpus_per_node": 3}, ("smp", 3)),
        ({"nodes": 2}, ("four", 4)),
        ({"nodes": 2, "cpus_per_node": 2}, ("two", 2)),
        ({"nodes": 2, "pe": "two"}, ("two", 2)),
        ({"nodes": 3, "cpus_per_node": 8, "pe": "smp"}, ("smp", 8)),
    ],
)
def test_the_parallel_environment(given: dict[str, Any], found: tuple[str | None, int | None], commands: Path) -> None:
    request = jobs.make_request(**given)
    assert request.system == "sge", "sbatch is not there, and qconf is"
    assert (request.pe, request.cpus_per_node) == found


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"nodes": "1-2"}, "no ranges of nodes"),
        ({"qos": "long"}, "no qualities of service"),
        ({"array": "0-3"}, "array must be like '1-9'"),
        ({"warn_s": 60}, "no signal before an unknown end: state time"),
        ({"launcher": "srun"}, "no srun"),
        ({"gpus_per_node": 1}, "--qsub=gpu=1"),
        ({"name": "1a"}, "no name that begins with a digit"),
    ],
)
def test_what_grid_engine_does_not_have(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        script.text(Request(system="sge", **given), ("app.py",))
    with pytest.raises(ValueError, match="pe and qsub are for other systems"):
        script.text(Request(pe="two"), ("app.py",))
    with pytest.raises(ValueError, match="system must be one of slurm, sge, pbs, lsf, flux, oar, not 'nqs'"):
        script.text(Request(system="nqs"), ("app.py",))


@pytest.mark.parametrize(
    ("letters", "more", "state", "reason"),
    [
        ("qw", "", "PENDING", 'queue instance "all.q@n2" dropped because it is full'),
        ("Rq", "", "PENDING", 'queue instance "all.q@n2" dropped because it is full'),
        ("hqw", "", "PENDING", "hold"),
        ("Eqw", "", "PENDING", "error"),
        ("Rr", STARTED, "RUNNING", ""),
        ("dr", STARTED, "RUNNING", "deleted"),
    ],
)
def test_states(letters: str, more: str, state: str, reason: str, commands: Path) -> None:
    answers(commands, ROW.format(state=letters, more=more))
    (commands / "app-7.exit").write_text("running 5 n2\n")
    now = jobs.status(7)
    assert (now.state, now.reason, now.program_exit_code) == (state, reason, None)
    assert now.output == str(commands / "app-7.out")
    if state == "RUNNING":
        assert (now.nodes, now.end, now.time_limit) == ("n2", "2026-11-28T18:39:49", "00:01:40")


@pytest.mark.parametrize(
    ("failed", "code", "end", "state"),
    [
        ("0", "0", 12, "COMPLETED"),
        ("0", "2", 12, "FAILED"),
        ("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137                  (Killed)", 33, "TIMEOUT"),
        ("100 : assumedly after job", "137                  (Killed)", 12, "CANCELLED"),
        ("0", "143", 12, "CANCELLED"),
        ("0", "143", 30, "TIMEOUT"),
    ],
)
def test_ends(failed: str, code: str, end: int, state: str, commands: Path) -> None:
    again = ACCOUNT.format(end=10, failed="25  : rescheduling", code="99")
    answers(commands, account=again + ACCOUNT.format(end=end, failed=failed, code=code))
    now = jobs.status(7)
    assert (now.state, now.exit_code) == (state, int(code.split()[0]))
    assert now.has_ended


def test_a_job_that_nobody_knows(commands: Path) -> None:
    answers(commands)
    sge_jobs._places.pop("7", None)
    with pytest.raises(SlurmError, match="Grid Engine does not know the job 7"):
        jobs.status(7)


def test_the_profile_names_the_batch_system(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the commands of several are installed."""
    play(commands, "sbatch", "exit 1")
    assert jobs.make_request().system == "slurm"
    file = tmp_path / "slurm.toml"
    monkeypatch.setenv("MPI_RUNTIME_PROFILES", str(file))
    file.write_text('[default]\nsystem = "sge"')
    answers(commands, ROW.format(state="r", more=STARTED))
    assert jobs.make_request().system == "sge"
    assert jobs.status(7).state == "RUNNING"
    assert jobs.cancel_command() == "qdel"
    file.write_text('[default]\nsystem = "nqs"')
    with pytest.raises(SlurmError, match="system must be one of slurm, sge, pbs, lsf, flux, oar, not 'nqs'"):
        jobs.status(7)
