"""Answers of PBS, LSF and Flux as users and manuals have shown them, shortened, with other names.

PBS: qstat -F json of Polaris (PBS 2022.1.1). LSF: bjobs -json of clients of LSF 10.1 (Roddy, Balsam of Summit). Flux:
the fields that flux-jobs(1) lists; a pending job lacks most of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.slurm import jobs
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.systems import flux, lives

HELD = {
    "Job_Name": "sound", "job_state": "H", "comment": "job held, too many failed attempts to run", "Exit_status": -3,
    "stime": "Fri Feb 10 17:02:23 2023", "run_count": 21, "Resource_List": {"walltime": "08:00:00", "nodect": 1},
    "Variable_List": {"PBS_O_WORKDIR": "/lus/pipelines"},
}  # fmt: skip
QUEUED = {
    "Job_Name": 12, "job_state": "Q", "comment": "Not Running: Job is requesting an exclusive node and node is in use",
    "Resource_List": {"walltime": "01:00:00"}, "estimated": {"start_time": "Sat Dec  3 21:00:00 2022"},
}  # fmt: skip
RUNNING = {
    "Job_Name": "core", "job_state": "R", "exec_host": "x3006c0s31b1n0/0+x3006c0s37b0n0/0*2",
    "stime": "Tue Nov  7 18:12:33 2023", "Resource_List": {"walltime": "24:00:00"},
    "resources_used": {"walltime": "22:28:30"}, "comment": "Job run at Tue Nov 07 at 18:12",
}  # fmt: skip
ENDED = {**RUNNING, "job_state": "F", "resources_used": {"walltime": "24:00:05"}}
BJOB = {
    "JOBID": "22005", "JOBINDEX": "0", "JOB_NAME": "ls -l", "STAT": "DONE", "EXIT_CODE": "", "EXIT_REASON": "",
    "PEND_REASON": "", "EXEC_HOST": "cn019:cn019", "START_TIME": "Dec 28 19:56", "FINISH_TIME": "Dec 28 19:56 L",
    "RUN_TIME": "16038 second(s)", "RUNTIMELIMIT": "1440.0", "SUB_CWD": "$HOME",
}  # fmt: skip
FLUX = {"id": 7, "name": "app", "cwd": "/g", "duration": 3600.0, "urgency": 16, "t_submit": 1.0}
RAN = {"t_run": 1700000000.0, "t_inactive": 1700000060.0, "nodelist": "tuolumne[1001-1002]", "state": "INACTIVE"}


def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, command: str, answer: Any) -> jobs.Status:
    answer_with(tmp_path, monkeypatch, command, answer)
    return jobs.status(7, system)


def answer_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, answer: Any) -> None:
    (tmp_path / "answer").write_text(json.dumps(answer))
    (tmp_path / command).write_text(f"#!/bin/sh\nexec /bin/cat {tmp_path}/answer\n")
    (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("system", "command", "answer"),
    [
        ("pbs", "qstat", {"Jobs": {
            "6.host": ENDED, "7.host": RUNNING, "8.host": {**QUEUED, "Job_Name": "core"}, "9.host": HELD,
        }}),
        ("lsf", "bjobs", {"RECORDS": [
            {**BJOB, "JOBID": "7", "JOB_NAME": "core", "STAT": "RUN"}, {**BJOB, "JOBID": "6", "JOB_NAME": "core"},
            {**BJOB, "JOBID": "8", "JOB_NAME": "core", "STAT": "PEND"}, {**BJOB, "JOBID": "9", "STAT": "PEND"},
        ]}),
        ("flux", "flux", {"jobs": [
            {**FLUX, "name": "core", "state": "RUN", "t_run": 1.0}, {**FLUX, "id": 8, "name": "core", "state": "SCHED"},
        ]}),
        ("oar", "oarstat", {
            "6": {"name": "core", "state": "Terminated", "exit_code": 0}, "7": {"name": "core", "state": "Running"},
            "8": {"name": "core", "state": "Waiting"}, "9": {"name": "other", "state": "Waiting"},
        }),
    ],
)  # fmt: skip
def test_jobs_of_a_name_that_have_not_ended(
    system: str, command: str, answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(tmp_path, monkeypatch, command, answer)
    assert jobs.living("core", system) == {"7": "RUNNING", "8": "PENDING"}


@pytest.mark.parametrize(
    ("system", "command"), [("pbs", "qstat"), ("lsf", "bjobs"), ("flux", "flux"), ("oar", "oarstat")]
)
def test_there_is_no_job_of_a_name(system: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(tmp_path, monkeypatch, command, {"RECORDS": []} if system == "lsf" else {})
    assert jobs.living("core", system) == {}


@pytest.mark.parametrize(
    ("facts", "state", "reason", "code", "more"),
    [
        (HELD, "PENDING", "job held, too many failed attempts to run", None, {"advice": "it waits for another job, or "
         "is held: qrls 7"}),
        (QUEUED, "PENDING", "Job is requesting an exclusive node and node is in use", None,
         {"start": "2022-12-03T21:00:00", "name": "12"}),
        (RUNNING, "RUNNING", "", None, {"nodes": "x3006c0s31b1n0,x3006c0s37b0n0", "end": "2023-11-08T18:12:33"}),
        ({**ENDED, "Exit_status": 0}, "COMPLETED", "", 0, {"time_used": "24:00:05"}),
        ({**ENDED, "Exit_status": 1}, "FAILED", "", 1, {}),
        ({**ENDED, "Exit_status": 137}, "FAILED", "", 137, {}),
        ({**ENDED, "Exit_status": 265}, "TIMEOUT", "", 137, {}),
        ({**ENDED, "Exit_status": 271}, "TIMEOUT", "", 143, {}),
        ({**ENDED, "Exit_status": -29}, "TIMEOUT", "", 29, {}),
        ({**ENDED, "Exit_status": 271, "resources_used": {"walltime": "01:00:00"}}, "CANCELLED", "", 143, {}),
        ({"Job_Name": "a", "job_state": "F"}, "CANCELLED", "", None, {}),
    ],
)  # fmt: skip
def test_pbs(
    facts: Any, state: str, reason: str, code: int | None, more: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    answer = {"pbs_version": "2022.1.1.20220926110806", "Jobs": {"7.polaris-pbs-01.hsn.cm": facts}}
    now = status(tmp_path, monkeypatch, "pbs", "qstat", answer)
    assert (now.job, now.state, now.exit_code) == ("7", state, code)
    assert now.reason == reason
    assert {name: getattr(now, name) for name in more} == more


@pytest.mark.parametrize(
    ("more", "state", "reason", "code"),
    [
        ({}, "COMPLETED", "", 0),
        ({"STAT": "EXIT", "EXIT_CODE": "3"}, "FAILED", "", 3),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_OWNER: job killed by owner"}, "CANCELLED",
         "TERM_OWNER: job killed by owner", 0),
        ({"STAT": "EXIT", "EXIT_CODE": "140", "EXIT_REASON": "TERM_RUNLIMIT: job killed after reaching LSF run time "
          "limit"}, "TIMEOUT", "TERM_RUNLIMIT: job killed after reaching LSF run time limit", 140),
        ({"STAT": "PEND", "PEND_REASON": "New job is waiting for scheduling;"}, "PENDING",
         "New job is waiting for scheduling", None),
        ({"STAT": "PSUSP", "EXEC_HOST": ""}, "PENDING", "", None),
        ({"STAT": "SSUSP"}, "SUSPENDED", "", None),
    ],
)  # fmt: skip
def test_lsf(
    more: dict[str, str], state: str, reason: str, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{**BJOB, **more}]}
    now = status(tmp_path, monkeypatch, "lsf", "bjobs", answer)
    assert (now.job, now.state, now.reason, now.exit_code) == ("22005", state, reason, code)
    assert now.time_limit == "24:00:00"
    assert now.output == str(Path.home().resolve() / "ls -l-22005.out")


WRAPPERS = {
    "qstat": ("Unknown option: x\nUnknown option: t\nUnknown option: F\nUsage:\n    qstat [-f] [-a|-i|-r]", 2),
    "qsub": ("Usage:\n    qsub [-a start_time] [-A account] [-b y|n] [-e err_path] [-I] [-l", 2),
    "pbsnodes": ("Unknown option: F\nUsage:\n    pbsnodes [-a] [node_id...]", 2),
}
"""What the commands of slurm-wlm-torque 22.05.8 answered here to those of PBS."""


def test_commands_of_pbs_that_are_wrappers_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (text, code) in WRAPPERS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match=r"Slurm's wrappers .*--system slurm"):
        jobs.status(7, "pbs")
    (tmp_path / "app.py").touch()
    with pytest.raises(SlurmError, match=r"Slurm's wrappers .*--system slurm"):
        jobs.submit("app.py", system="pbs", cwd=str(tmp_path))
    (tmp_path / "sbatch").symlink_to("/bin/true")
    assert jobs.make_request().system == "slurm", "the wrappers need Slurm's commands beside them"


def test_a_job_that_lsf_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "places", {})
    monkeypatch.chdir(tmp_path)
    answer = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "7", "ERROR": "Job <7> is not found"}]}
    with pytest.raises(SlurmError, match="LSF does not know the job 7"):
        status(tmp_path, monkeypatch, "lsf", "bjobs", answer)


@pytest.mark.parametrize(
    ("more", "state", "reason", "code"),
    [
        ({"state": "SCHED"}, "PENDING", "", None),
        ({"state": "SCHED", "annotations": {"sched": {"reason_pending": "full"}}}, "PENDING", "full", None),
        ({"state": "DEPEND", "dependencies": ["after-finish=f1"]}, "PENDING", "dependency", None),
        ({"state": "SCHED", "urgency": 0}, "PENDING", "hold", None),
        ({**RAN, "state": "RUN"}, "RUNNING", "", None),
        ({**RAN, "result": "COMPLETED", "returncode": 0, "exception": {"occurred": False}}, "COMPLETED", "", 0),
        ({**RAN, "result": "FAILED", "returncode": 3}, "FAILED", "", 3),
        ({**RAN, "result": "FAILED", "returncode": -9}, "FAILED", "", 137),
        ({**RAN, "result": "TIMEOUT", "returncode": 142, "exception": {"occurred": True, "type": "timeout",
          "note": "resource allocation expired"}}, "TIMEOUT", "resource allocation expired", 142),
        ({"state": "INACTIVE", "result": "CANCELED", "returncode": -128}, "CANCELLED", "", 128),
    ],
)  # fmt: skip
def test_flux(
    more: dict[str, object], state: str, reason: str, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = status(tmp_path, monkeypatch, "flux", "flux", {**FLUX, **more})
    assert (now.job, now.state, now.reason, now.exit_code, now.time_limit) == ("7", state, reason, code, "01:00:00")
    assert now.nodes == ("tuolumne1001,tuolumne1002" if "nodelist" in more else "")


def test_ids_as_flux_prints_them() -> None:
    assert flux.decimal("ƒ2") == flux.decimal("f2") == "1"
    assert flux.decimal("ƒ21") == "58"
    assert flux.decimal("4711") == "4711"
    assert flux.decimal("ƒ0l") == "ƒ0l", "two letters that are not used"
