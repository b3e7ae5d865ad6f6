"""Scripts that a shell runs, and jobs as commands of Slurm report them."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_runtime.slurm import following, jobs, script
from mpi_runtime.slurm.commands import SlurmError, call, explain
from mpi_runtime.slurm.script import Request
from mpi_runtime.slurm.systems import devices
from mpi_runtime.slurm.systems import slurm as slurm_system
from tests.unit.slurm.test_submit import FACTS, PROGRAM, known, options


def test_a_script_and_its_program_write_through_no_symbolic_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("app-7.exit", "app-7.exit.new"):
        (tmp_path / name).symlink_to(victim)
    text = script.text(Request(name="app", python=sys.executable), ("-c", "import sys; sys.exit(5)"))
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env={**os.environ, "SLURM_JOB_ID": "7"}, timeout=60)
    assert done.returncode == 5
    assert victim.read_text() == "precious"
    assert not (tmp_path / "app-7.exit").is_symlink()


def test_a_script_says_all_that_was_asked_for() -> None:
    request = Request(
        nodes=2, gpus_per_node="a100:4", cpus_per_node=5, memory="64G", time="1:00:00", name="a b", partition="gpu",
        account="x", qos="long", array="0-9", after="7,8", warn_s=60, requeue=True, modules=("gcc/13", "a b"),
        setup=("cd data",), environment={"A": "b c"}, sbatch=("--constraint=ib",),
        launcher="srun --mpi=pmix", python="py",
    )  # fmt: skip
    text = script.text(request, ("-m", "pkg.main"))
    assert options(text) == [
        "--job-name=a_b", "--output=a_b-%A_%a.out", "--open-mode=append", "--nodes=2", "--ntasks-per-node=1",
        "--cpus-per-task=5", "--gpus-per-node=a100:4", "--mem=64G", "--time=1:00:00", "--partition=gpu", "--account=x",
        "--qos=long", "--array=0-9", "--dependency=afterany:7:8", "--signal=B:URG@60", "--requeue", "--constraint=ib",
    ]  # fmt: skip
    assert "srun --overlap" in text
    assert "srun --overlap" not in script.text(Request(nodes=2), ("app.py",)), "nobody has asked for it"
    assert "module load gcc/13\ncheck 'module load gcc/13'\nmodule load 'a b'\n" in text
    assert "\nexport A=\"b c\"\nexport MPI_RUNTIME_WARN_S=60\ncd data\ncheck 'cd data'\n" in text
    assert 'left="$PWD/a_b-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.exit"' in text
    assert 'srun --mpi=pmix -n 2 py -m mpi_runtime --exit-file "$left" -m pkg.main &\n' in text
    syntax = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (syntax.returncode, syntax.stderr) == (0, "")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a b", "a b"),
        ("$PLACE/x", "/p q/x"),
        ("${PLACE}x:$PLACE", "/p qx:/p q"),
        ("~/x", "/home/ada/x"),
        ("~", "/home/ada"),
        ("a~", "a~"),
        (r"\$PLACE", "$PLACE"),
        ("5$", "5$"),
        ("$(date) `date` ${PLACE:-x}", "$(date) `date` ${PLACE:-x}"),
        ("\"quoted\" 'too'", "\"quoted\" 'too'"),
        (r"back\slash \" \`", r"back\slash \" \`"),
    ],
)
def test_variables_are_replaced_on_the_node_and_nothing_else(value: str, found: str) -> None:
    line = next(
        line for line in script.text(Request(environment={"A": value}), PROGRAM).splitlines() if "export A" in line
    )
    shell = subprocess.run(
        ["bash", "-c", f'{line}; printf %s "$A"'],
        env={"PLACE": "/p q", "HOME": "/home/ada", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == found


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def play(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_what_slurm_says_is_kept_and_explained(commands: Path) -> None:
    play(commands, "sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; echo x >&2; exit 1")
    with pytest.raises(SlurmError) as error:
        jobs.submit_script("#!/bin/sh\n")
    assert str(error.value) == (
        "sbatch says: invalid partition specified: gpu\nx\nThe partitions there are: sinfo -o '%R %l %G'"
    )
    assert explain("sbatch", "sbatch: error: odd") == "sbatch says: odd"
    play(commands, "sbatch", "exit 3")
    with pytest.raises(SlurmError, match="it ended with 3"):
        jobs.submit_script("#!/bin/sh\n")


def test_variables_of_the_user_change_neither_a_job_nor_an_answer(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS_PER_NODE", "PMIX_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")  # as in a job
    play(commands, "sbatch", f"env > {tmp_path}/sbatch; echo 7")
    play(commands, "scontrol", f"env > {tmp_path}/scontrol; echo JobId=7 JobState=PENDING")
    (tmp_path / "app.py").touch()
    job = jobs.submit("app.py", cwd=str(tmp_path), partition="gpu", time="5")
    found = (tmp_path / "sbatch").read_text()
    assert re.findall(r"^(SBATCH_\w+)", found, re.MULTILINE) == ["SBATCH_ACCOUNT"], "not what the script states"
    assert "SLURM_TIME_FORMAT=relative" in found, "it is handed on to the job"
    assert not re.search("SLURM_JOB|NTASKS|PMIX|CUDA", found)
    jobs.status(job)
    found = (tmp_path / "scontrol").read_text()
    assert "SLURM_TIME_FORMAT=standard\n" in found
    assert "SLURM_BITSTR_LEN=0\n" in found, "all indices of an array"


def test_programs_whose_names_are_no_utf_8(commands: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff app.py")
    (tmp_path / name).write_text("print('run')")
    play(commands, "sbatch", f'[ "$1" = --test-only ] || cat >{tmp_path}/script; echo 5')
    assert jobs.submit([name], cwd=str(tmp_path)) == "5"
    assert b" '\xff app.py' &\n" in (tmp_path / "script").read_bytes()


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(SlurmError, match="there is no no-such-command here"):
        call(["no-such-command"])


def test_a_command_outlives_the_end_that_it_brings_about(commands: Path) -> None:
    """Slurm sends SIGTERM to the job that it requeues while scontrol, which is part of that, has not ended."""
    play(commands, "scontrol", "kill -TERM $$\necho done")
    with pytest.raises(SlurmError, match="it ended with -15"):
        call(["scontrol", "requeue", "5"])
    assert call(["scontrol", "requeue", "5"], ends_us=True) == "done\n"


def test_status(commands: Path, tmp_path: Path) -> None:
    play(commands, "scontrol", known(tmp_path, "RUNNING"))
    now = jobs.status(5)
    assert (now.state, now.exit_code, now.nodes, now.reason) == ("RUNNING", None, "n[1-2]", "")
    line = "job 5 my_app: RUNNING, on n[1-2], 00:00:07 of 01:00:00, until 2026-11-21T23:00:00\n  output: "
    assert str(now).startswith(line)
    play(commands, "scontrol", known(tmp_path, "FAILED", "0:9", "NonZeroExitCode"))
    assert "FAILED (NonZeroExitCode), on n[1-2], exit code 137; the program did not run to its end" in str(
        jobs.status(5)
    )
    (tmp_path / "my_app-5.exit").write_text("3\n")
    assert jobs.status(5).program_exit_code == 3
    play(commands, "scontrol", known(tmp_path, "FAILED", "0:53", "JobLaunchFailure"))
    assert "the node cannot use its directory, or not write the file of its output" in str(jobs.status(5))
    play(commands, "scontrol", known(tmp_path, "FAILED", "0:9", "JobLaunchFailure"))
    assert "the program has ended with 3, signal 9 ended its batch script\n" in str(jobs.status(5))
    assert jobs.facts_of(FACTS)["Comment"] == "a b c"


def test_a_job_that_the_controller_has_forgotten_is_looked_up_in_the_accounting(commands: Path, tmp_path: Path) -> None:
    play(commands, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    with pytest.raises(SlurmError, match="Invalid job id"):
        jobs.status(5)
    play(
        commands,
        "sacct",
        f"echo '5|CANCELLED by 7|0:15|n1|2026-11-21T22:00:00|Unknown|00:00:07|01:00:00|my_app|{tmp_path}'",
    )
    now = jobs.status(5)
    assert (now.state, now.exit_code, now.nodes, now.end, now.has_ended) == ("CANCELLED", 143, "n1", "", True)
    assert (now.name, now.time_used, now.time_limit) == ("my_app", "00:00:07", "01:00:00")
    play(commands, "sacct", "exit 0")
    with pytest.raises(SlurmError, match="Invalid job id"):
        jobs.status(5)


@pytest.mark.parametrize(
    ("state", "slurm_code", "own_code", "result"),
    [
        ("COMPLETED", "0:0", "0", 0),
        ("COMPLETED", "0:0", None, 1),
        ("FAILED", "7:0", "7", 7),
        ("FAILED", "0:9", None, 137),
    ],
)
def test_following_ends_with_the_code_of_the_program(
    state: str, slurm_code: str, own_code: str | None, result: int, commands: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """That Slurm has COMPLETED proves nothing: a program that has left no code has not succeeded."""
    monkeypatch.setattr(following, "LATE_S", 0.0)
    (tmp_path / "my_app-5.out").write_text("line\n")
    if own_code is not None:
        (tmp_path / "my_app-5.exit").write_text(own_code)
    play(commands, "scontrol", known(tmp_path, state, slurm_code))
    out, log = StringIO(), StringIO()
    assert following.follow("5", out, log) == result
    assert out.getvalue() == "line\n"
    assert state in log.getvalue()


def waiting(commands: Path, place: Path) -> None:
    """A job that waits, runs, begins a line, ends it, and ends."""
    output = place / "my_app-5.out"
    steps = [
        (known(place, "PENDING", reason="Priority").replace("StartTime=2026-11-21T22:00:00", "StartTime=Unknown"), ""),
        (known(place, "PENDING", reason="Priority"), ""),
        (known(place, "RUNNING", used="00:00:01"), "line\n"),
        (known(place, "RUNNING", used="00:00:02"), "line\nhalf"),
        (known(place, "RUNNING", used="00:00:03"), "line\nhalf a line\n"),
        (known(place, "COMPLETED"), "line\nhalf a line\nrest"),
    ]
    count = f"n=$(cat {place}/asked 2>/dev/null || echo 0); echo $((n + 1)) > {place}/asked; case $n in"
    cases = [f"{number}) printf '{text}' > {output}; {said};;" for number, (said, text) in enumerate(steps)]
    play(commands, "scontrol", "\n".join([count, *cases, "esac"]))
    (place / "my_app-5.exit").write_text("0")


def test_a_controller_that_is_started_anew_is_waited_for(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_S", (0.0, 0.0))
    (tmp_path / "my_app-5.exit").write_text("0")
    down = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    play(
        commands,
        "scontrol",
        f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; {down}; }}; {known(tmp_path, 'COMPLETED')}",
    )
    assert following.follow("5", StringIO(), StringIO()) == 0
    monkeypatch.setattr(following, "PATIENCE_S", 0.0)
    play(commands, "scontrol", down)
    with pytest.raises(SlurmError, match="sinfo shows when it is back"):
        following.follow("5", StringIO(), StringIO())


WAITS = "mpi-runtime: job 5 my_app: PENDING (Priority), on n[1-2]"


STARTS = f"{WAITS}, expected to start 2026-11-21T22:00:00"


RUNS = "mpi-runtime: job 5 my_app: RUNNING, on n[1-2], 00:00:0{} of 01:00:00, until 2026-11-21T23:00:00"


ENDS = "mpi-runtime: job 5 my_app: COMPLETED, on n[1-2], exit code 0; the program has ended with 0"


def test_who_waits_is_told_of_changes(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_S", (0.0, 0.0))
    waiting(commands, tmp_path)
    out, log = StringIO(), StringIO()
    assert following.follow("5", out, log) == 0
    assert log.getvalue().splitlines() == [WAITS, STARTS, RUNS.format(1), ENDS]
    assert out.getvalue() == "line\nhalf a line\nrest"


def test_on_a_terminal_one_line_is_replaced_and_the_output_stays_whole(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_S", (0.0, 0.0))
    waiting(commands, tmp_path)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w") as terminal:
        assert following.follow("5", terminal, terminal) == 0
        text = b""
        while not text.endswith(ENDS.encode() + b"\r\n"):
            text += screen.read(1 << 16)
    written = text.decode().replace("\r\n", "\n")
    clear = "\r\x1b[K"
    lines = [clear + text[:59] for text in (WAITS, STARTS, RUNS.format(1), RUNS.format(3))]
    first, second, third, fourth = lines
    assert written == f"{first}{second}{clear}line\n{third}{clear}half a line\n{fourth}{clear}rest\n{ENDS}\n"


def test_a_file_system_that_shows_things_late_is_waited_for(
    commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(commands, "scontrol", known(tmp_path, "COMPLETED"))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        (tmp_path / "my_app-5.exit").write_text("0\n")

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    assert following.follow("5", StringIO(), StringIO()) == 0
    assert len(pauses) == 1


@pytest.mark.parametrize("name", devices.OF_JOB)
def test_a_script_on_whole_nodes_keeps_as_many_gpus_as_were_requested(name: str) -> None:
    """By whichever variable Slurm lists them."""
    (text,) = slurm_system.before(Request(gpus_per_node="a100:2"))
    env = {"PATH": os.environ["PATH"], name: "0,1,2,3"}
    done = subprocess.run(["bash", "-c", text + "\nenv"], env=env, capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert (found[name], found["SLURM_GPUS_ON_NODE"]) == ("0,1", "2")
    assert found["OMPI_MCA_mca_base_env_list"] == f";{name};SLURM_GPUS_ON_NODE"
    assert not {other for other in devices.OF_JOB if other != name} & found.keys()
