"""OAR: scripts for requests, variables of a job, and answers of OAR 2.5.9, shortened."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.slurm import jobs, script
from mpi_runtime.slurm.allocation import from_environment
from mpi_runtime.slurm.commands import SlurmError
from mpi_runtime.slurm.request import Request
from mpi_runtime.slurm.systems import oar

FACTS = {
    "Job_Id": 7, "array_id": 7, "array_index": 1, "name": "app", "state": "Waiting", "exit_code": None, "startTime": 0,
    "stopTime": 0, "walltime": 120, "scheduledStart": 1795944581, "dependencies": [], "events": [],
    "message": "R=2,W=0:2:0,J=B,N=app (Karma=0.000,quota_ok)", "initial_request": "oarsub -n app",
    "assigned_network_address": [], "launchingDirectory": "/home/u",
}  # fmt: skip
RAN = {"startTime": 1795944321, "stopTime": 1795944329, "assigned_network_address": ["n1", "n2"], "state": "Terminated"}
KILLED = {**RAN, "state": "Error", "exit_code": None}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for commands. Those that end a job write their words into a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cat", "sh"):
        (folder / name).symlink_to(f"/bin/{name}")
    play(folder, "oardel", 'echo "$*" >>deleted')
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def play(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def answer(folder: Path, *found: dict[str, Any]) -> None:
    """Have oarstat know these jobs, by the id of their array."""
    (folder / "known").write_text(json.dumps({str(one["Job_Id"]): one for one in found}) if found else "")
    array = found[0]["array_id"] if found else 0
    play(folder, "oarstat", f'[ "$3 $4" != "--array {array}" ] || cat {folder}/known')


@pytest.mark.parametrize(
    ("more", "state", "reason", "code"),
    [
        ({}, "PENDING", "", None),
        ({"dependencies": [6]}, "PENDING", "dependency", None),
        ({"state": "Hold"}, "PENDING", "hold", None),
        ({"state": "Launching"}, "PENDING", "", None),
        ({**RAN, "state": "Running"}, "RUNNING", "", None),
        ({**RAN, "exit_code": 0}, "COMPLETED", "", 0),
        ({**RAN, "exit_code": 768}, "FAILED", "", 3),
        ({**RAN, "exit_code": 9}, "FAILED", "", 137),
        ({**RAN, "exit_code": 143 << 8}, "CANCELLED", "", 143),
        ({**KILLED, "events": [{"type": "FRAG_JOB_REQUEST"}, {"type": "WALLTIME"}, {"type": "SEND_KILL_JOB"}]},
         "TIMEOUT", "", None),
        ({**KILLED, "events": [{"type": "FRAG_JOB_REQUEST"}, {"type": "SWITCH_INTO_ERROR_STATE"}]}, "CANCELLED", "",
         None),
        ({**KILLED, "events": [{"type": "PING_CHECKER_NODE_SUSPECTED"}, {"type": "SWITCH_INTO_ERROR_STATE"}]}, "FAILED",
         "PING_CHECKER_NODE_SUSPECTED", None),
    ],
)  # fmt: skip
def test_states(more: dict[str, Any], state: str, reason: str, code: int | None, commands: Path) -> None:
    answer(commands, {**FACTS, **more})
    now = jobs.status(7, "oar")
    assert (now.job, now.state, now.reason, now.exit_code) == ("7", state, reason, code)
    assert now.output == "/home/u/app-7.out"
    assert now.nodes == ",".join(more.get("assigned_network_address", []))


def test_a_job_in_its_later_lives_and_the_tasks_of_an_array(commands: Path) -> None:
    array = {**FACTS, "initial_request": "oarsub --array 2 -n app"}
    first = [{**array, "Job_Id": 7 + index, "array_index": index + 1, **RAN, "exit_code": 99 << 8} for index in (0, 1)]
    answer(commands, *first, {**array, "Job_Id": 10, "array_index": 2})
    assert [(one.job, one.state) for one in jobs.statuses(7, "oar")] == [("7_1", "FAILED"), ("7_2", "PENDING")]
    jobs.cancel("7", "oar")
    assert Path("deleted").read_text() == "10\n"
    answer(commands, {**FACTS, **RAN, "exit_code": 99 << 8}, {**FACTS, "Job_Id": 12, **RAN, "state": "Running"})
    assert jobs.status(7, "oar").state == "RUNNING"
    jobs.end("7", "oar")
    assert Path("deleted").read_text() == "10\n-s TERM 12\n"
    answer(commands)
    with pytest.raises(SlurmError, match="OAR does not know the job 8"):
        jobs.status(8, "oar")


def test_a_script_and_the_environment_that_only_its_owner_reads(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(commands, {**FACTS, "array_id": 5, "Job_Id": 5}, {**FACTS, "array_id": 5, "Job_Id": 6, "array_index": 2})
    monkeypatch.setenv("BASH_FUNC_module%%", "() {  echo loads $2\n}")
    monkeypatch.setenv("A_SECRET", "it's")
    monkeypatch.setenv("OAR_JOB_ID", "3")
    monkeypatch.setenv("OAR_NODEFILE", "/absent")
    play(commands, "oarsub", 'echo "$*" >words; echo OAR_JOB_ID=7')
    options: dict[str, Any] = {"nodes": 2, "cpus_per_node": 4, "time": "1:30:00", "warn_s": 60, "partition": "fast"}
    request = Request(system="oar", after="5", account="us", qsub=("-p", "mem > 64"), modules=("x",), **options)
    assert jobs.submit_script(script.text(request, ("app.py",)), str(tmp_path), "oar") == "7"
    words = Path("words").read_text()
    assert words.startswith(
        "-n app -t idempotent -O /dev/null -E /dev/null -l nodes=2/core=4,walltime=01:30:00 -q fast "
    )
    assert "--project us --checkpoint 60 --signal 10 -a 5 -a 6 -p mem > 64 -d " in words
    assert "SECRET" not in words
    path = tmp_path / "app-7.job"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "OAR_JOB_ID=3" not in text
    before = text.partition("#!")[0]
    said = subprocess.run(
        ["/bin/bash", "-c", f"{before}\nmodule load x; echo $A_SECRET"], capture_output=True, text=True
    )
    assert said.stdout == "loads x\nit's\n"


def test_a_refusal_leaves_no_file(commands: Path, tmp_path: Path) -> None:
    play(commands, "oarsub", "echo OAR_JOB_ID=-5; echo There are not enough resources for your request >&2; exit 8")
    with pytest.raises(SlurmError, match=r"not enough resources(.|\n)*oarnodes"):
        jobs.submit_script(script.text(Request(system="oar"), ("app.py",)), str(tmp_path), "oar")
    assert not list(tmp_path.glob("app-*"))


def test_what_a_job_knows(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn1\nn2\nn2\n")
    env = {"OAR_JOB_ID": "9", "OAR_ARRAY_ID": "7", "OAR_ARRAY_INDEX": "1", "OAR_NODEFILE": str(nodes)}
    own = from_environment({**env, "OAR_JOB_WALLTIME_SECONDS": "120"})
    assert (own.system, own.job, own.nodes, own.cpus, own.array_task) == ("oar", "7", ("n1", "n2"), (2, 2), None)
    assert own.end_s == nodes.stat().st_mtime + 120
    assert from_environment({**env, "OAR_ARRAY_INDEX": "3"}).array_task == 3
    assert from_environment({**env, "MPI_RUNTIME_LIFE": "7 2"}).restarts == 2
    assert oar.question(own)[1](json.dumps({"7": {**FACTS, **RAN}}), 0.0) == 1795944321 + 120


def life(tmp_path: Path, *, job: str, state: str, begins: str) -> subprocess.CompletedProcess[str]:
    """Run a script whose program leaves this state; the job has had an hour, unless `begins` is other shell."""
    text = script.text(Request(system="oar", time="2:00:00"), ("app.py",))
    launch = re.search(r"^(.*) &$", text, re.MULTILINE)
    assert launch is not None
    text = text.replace(launch[0], f'(echo {state} >"$left") &').replace("restarts=0\n", f"restarts=0\n{begins}\n", 1)
    env = {"OAR_JOB_ID": job, "OAR_ARRAY_ID": "7", "PATH": "/usr/bin:/bin"}
    return subprocess.run(["bash"], input=text, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)


def test_lives_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "app-7.job").touch()
    assert life(tmp_path, job="7", state="requeue", begins="SECONDS=3600").returncode == 99
    assert (tmp_path / "app-7.exit").read_text() == "requeue 1\n"
    assert (tmp_path / "app-7.job").exists(), "the next life needs it"
    assert life(tmp_path, job="9", state="requeue", begins="SECONDS=3600").returncode == 99
    assert (tmp_path / "app-7.exit").read_text() == "requeue 2\n"
    assert life(tmp_path, job="11", state="99", begins="").returncode == 98, "99 would queue it again"
    assert (tmp_path / "app-7.exit").read_text() == "99\n"
    assert not (tmp_path / "app-7.job").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"array": "0-3"}, "array must be like '1-9' for OAR, which counts from 1, not '0-3'"),
        ({"array": "1-9%2"}, "array must be like"),
        ({"memory": "4G"}, "OAR has no memory of jobs"),
        ({"gpus_per_node": 1, "cpus_per_node": 2}, "OAR gives cores with GPUs"),
        ({"qos": "x"}, "OAR has no qualities of service"),
    ],
)
def test_what_oar_does_not_have(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        script.text(Request(system="oar", **options), ("app.py",))


def test_the_largest_node(commands: Path) -> None:
    cores = {str(n): {"network_address": f"n{1 + n // 3}", "type": "default"} for n in range(8)}
    (commands / "nodes").write_text(json.dumps({**cores, "9": {"network_address": "", "type": "licence"}}))
    play(commands, "oarnodes", f"cat {commands}/nodes")
    assert oar.largest_node(None) == 3
