"""Batch scripts are made from requests, requests from profiles and options; Slurm's refusals are explained."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import time
from dataclasses import fields
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.cli import slurm as cli
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm import following, jobs, profiles, script
from mpi_runtime.slurm.commands import SlurmError, call, explain
from mpi_runtime.slurm.script import Request
from mpi_runtime.slurm.systems import devices
from mpi_runtime.slurm.systems import slurm as slurm_system

PROGRAM = ("dir/my app.py", "--size", "3 4")


def options(text: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)


def test_a_script_for_one_node_needs_no_mpi() -> None:
    text = script.text(Request(python="/env/bin/python"), PROGRAM)
    assert options(text) == [
        "--job-name=my_app", "--output=my_app-%j.out", "--open-mode=append", "--nodes=1", "--ntasks-per-node=1",
        "--exclusive", "--no-requeue",
    ]  # fmt: skip
    assert "\n/env/bin/python -m mpi_runtime --exit-file \"$left\" 'dir/my app.py' --size '3 4' &\n" in text
    assert 'left="$PWD/my_app-$SLURM_JOB_ID.exit"' in text


def test_a_job_with_a_range_of_nodes_has_a_rank_for_each_that_it_gets() -> None:
    request = Request(nodes="1-3", ranks_per_node=2, cpus_per_node=4, requeue=True, python="py")
    text = script.text(request, ("app.py",))
    assert "--nodes=1-3" in options(text)
    assert "--cpus-per-task=4" in options(text)
    assert "ntasks" not in " ".join(options(text)), "Slurm would give the least number of nodes"
    assert '\npy -m mpi_runtime run -n $((SLURM_JOB_NUM_NODES * 2)) -m mpi_runtime --exit-file "$left" app.py &' in text
    assert "probe=" in text, "it may have several nodes"
    assert (request.nodes_max, request.ranks) == (3, 6)
    assert "py -m mpi_runtime --exit-file" in script.text(Request(nodes="1-1", python="py"), ("app.py",))


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


def test_a_program_written_for_ray_needs_no_change() -> None:
    text = script.text(Request(nodes=2, as_ray=True, python="py"), ("app.py", "--as-ray"))
    assert '-m mpi_runtime --exit-file "$left" --as-ray app.py --as-ray' in text
    assert "--job-name=app" in options(text)


def test_ranks() -> None:
    assert [Request(nodes=n).ranks for n in (1, 2, 8)] == [1, 2, 8]
    request = Request(nodes=2, ranks_per_node=4, cpus_per_node=8, python="py")
    text = script.text(request, ("app.py",))
    assert "--ntasks-per-node=4" in options(text)
    assert "--cpus-per-task=2" in options(text)
    assert "py -m mpi_runtime run -n 8 -m mpi_runtime --exit-file" in text


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


def test_the_number_of_an_array_s_task_stands_for_itself() -> None:
    text = script.text(Request(array="0-9", python="py"), ("app.py", "{task}", "in {task}.x", "{other}"))
    assert """app.py "$SLURM_ARRAY_TASK_ID" 'in '"$SLURM_ARRAY_TASK_ID".x '{other}' &\n""" in text
    assert "app.py '{task}' &" in script.text(Request(), ("app.py", "{task}"))


def test_options_are_quoted_for_sbatch_where_they_need_it() -> None:
    given = (
        "--comment=a b",
        "--comment=a#b",
        r"--comment=back\slash",
        "-C a100",
        "--constraint a100",
        "--nodelist=n[1-2]",
    )
    found = options(script.text(Request(sbatch=given), PROGRAM))[-len(given) :]
    assert found == ["'--comment=a b'", "'--comment=a#b'", r"'--comment=back\\slash'", *given[3:]]


def test_the_doctor_is_run_by_all_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--doctor"], ["doctor"], ["-m", "mpi_runtime", "doctor"]):
        assert cli.submit(["-N2", "--dry-run", *words]) == 0
        text = capsys.readouterr().out
        assert '-m mpi_runtime run -n 2 -m mpi_runtime --exit-file "$left" -m mpi_runtime doctor &' in text
        assert "--job-name=doctor" in options(text)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"nodes": 0}, "nodes must be 1 or more, not 0"),
        ({"nodes": "3-1"}, "or a range such as '1-3', not '3-1'"),
        ({"nodes": "1-"}, "or a range such as '1-3', not '1-'"),
        ({"nodes": 1.5}, "nodes must be a whole number, not 1.5"),
        ({"nodes": True}, "nodes must be a whole number, not True"),
        ({"modules": "gcc"}, "modules must be a list of strings, not 'gcc'"),
        ({"environment": {"A-B": "1"}}, "'A-B' cannot be the name of a variable"),
        ({"environment": {"A": 1}}, "environment: A must be a string, as '1', not 1"),
        ({"time": 600}, "time must be a string, as Slurm writes it, not 600: a bare number is minutes to Slurm"),
        ({"time": "90s"}, "not '90s'; 90s is '0:90'"),
        ({"time": "soon"}, "time must be minutes, minutes:seconds"),
        ({"cpus_per_node": 9, "ranks_per_node": 2}, "cpus_per_node must be a multiple of ranks_per_node (2), not 9"),
        (
            {"nodes": 2, "sbatch": ["--signal=USR1@120"]},
            "daemons of mpirun on other nodes, which it kills. Use warn_s=120",
        ),
        ({"array": ""}, "array must be indices such as '0-9', '1,3,5' or '1-100%10', not ''"),
        ({"after": "afterok:7"}, "after must be ids of jobs, such as '4711' or '4711,4712', not 'afterok:7'"),
        ({"array": 3}, "array must be a string, not 3"),
        ({"partition": ["a", "b"]}, "partition must be a string, not ['a', 'b']"),
        ({"launcher": 3}, "launcher must be a string, not 3"),
        ({"python": None}, "python must be a string, not None"),
        ({"gpus_per_node": 1.5}, "gpus_per_node must be a whole number, or 'type:number', not 1.5"),
        ({"requeue": "yes"}, "requeue must be True or False, not 'yes'"),
        ({"environment": "A=1"}, "environment must be a table of variables, not 'A=1'"),
        ({"sbatch": ("--comment=a\nrm x",)}, "cannot be an option of a job: it has a character that ends the line"),
        ({"launcher": "aprun"}, "launcher must be 'mpirun' or 'srun ...', not 'aprun'"),
    ],
)
def test_wrong_requests(given: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(error)):
        Request(**given)
    with pytest.raises(ValueError, match="name a program to run"):
        script.text(Request(), ())


PROFILES = """
[default]
partition = "gpu"
modules = ["gcc/13"]
environment = {A = "1", B = "2"}

[long]
time = "2-00:00:00"

[wrong]
gpu-per-node = 4
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "slurm.toml"
    path.write_text(PROFILES)
    monkeypatch.setenv(profiles.FILE, str(path))
    return path


def test_profiles_are_what_submit_begins_with(file: Path) -> None:
    request = jobs.make_request(None, nodes=2, time=None, environment={"B": "3"})
    assert request == Request(nodes=2, partition="gpu", modules=("gcc/13",), environment={"A": "1", "B": "3"})
    long = jobs.make_request("long", modules=["own"], setup=["cd data"])
    both = {"A": "1", "B": "2"}
    assert long == Request(
        partition="gpu", modules=("gcc/13", "own"), setup=["cd data"], environment=both, time="2-00:00:00",  # type: ignore[arg-type]
    )  # fmt: skip
    assert profiles.read(file.with_name("absent"), None) == {}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("short", PROFILES, "there is no profile 'short' in .*; there are: default, long, wrong"),
        ("wrong", PROFILES, r"\[wrong\] has 'gpu-per-node', .*; did you mean 'gpus_per_node'\?"),
        ("a", "a = 1", r"a must be a table, \[a\], not 1"),
        ("a", "[a", "is not TOML"),
    ],
)
def test_wrong_profiles(name: str, text: str, error: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        jobs.make_request(name)


def test_a_file_of_profiles_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        profiles.read(tmp_path, None)
    (tmp_path / "slurm.toml").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not TOML: 'utf-8' codec"):
        profiles.read(tmp_path / "slurm.toml", None)


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()

    def check(*words: str, **options: Any) -> None:
        jobs.check_program(Request(**options), words, str(tmp_path))

    check("app.py")
    check("-m", "app")
    with pytest.raises(ValueError, match=f"there is no file 'sub/app.py' in {tmp_path}"):
        check("sub/app.py")
    with pytest.raises(ValueError, match=r"a program with arguments is a list, \['app.py', '--size', '3'\]"):
        check("app.py --size 3")
    check("elsewhere.py", setup=("cd sub",))  # nobody knows
    check("elsewhere.py", sbatch=("--chdir=sub",))


def test_where_profiles_are() -> None:
    assert profiles.path({"HOME": "/home/ada"}) == Path("/home/ada/.config/mpi-runtime/slurm.toml")
    assert profiles.path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/mpi-runtime/slurm.toml")
    with pytest.raises(ValueError, match="the file /absent does not exist"):
        profiles.read(Path("/absent"), "mine")


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match=r"submit\(\) has 'gpu_per_node', .*'gpus_per_node'"):
        jobs.submit("app.py", gpu_per_node=4)


def test_the_command_line_has_each_option(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "-N 2 --gpus-per-node 4 --time 1:00:00 --env B=3 --module m --dry-run"
    words += " -m pkg.main --time 5"
    assert cli.submit(words.split()) == 0
    text = capsys.readouterr().out
    assert {"--nodes=2", "--gpus-per-node=4", "--time=1:00:00", "--partition=gpu"} <= set(options(text))
    assert "module load m\ncheck 'module load m'\nexport A=1\nexport B=3\n" in text
    assert "-m pkg.main --time 5 &\n" in text
    flags = cli.submit_parser().format_help()
    known = {field.name.replace("_", "-") for field in fields(Request)} - {"modules", "environment"}
    assert [name for name in known if f"--{name}" not in flags] == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-N 2", "name a program to run"),
        ("-N 0 app.py", "nodes must be 1 or more"),
        ("--env A app.py", "--env takes NAME=VALUE, not 'A'"),
        ("--doctor app.py", "--doctor takes no program"),
        ("--time 1h app.py", "1h is '1:00:00'"),
        ("--profile none app.py", "there is no profile 'none'"),
    ],
)
def test_the_command_line_refuses(words: str, error: str, file: Path) -> None:
    with pytest.raises(LaunchError, match=error):
        cli.submit(words.split())


# Slurm's commands, played by scripts.


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


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("7", ()),
        ("7_3", (3,)),
        ("7_[4-6,9]", (4, 5, 6, 9)),
        ("7_[0-10:5,20%3]", (0, 5, 10, 20)),
        ("7_[1-10:3%2]", (1, 4, 7, 10)),
    ],
)
def test_tasks_of_an_array(name: str, numbers: tuple[int, ...]) -> None:
    status = jobs.Status(name, "PENDING", "", None, "", "app", "", "", "", "", None, None)
    assert jobs.task_numbers(status) == numbers


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


FACTS = (
    "JobId=5 JobName=my_app UserId=ada(1000) JobState={state} Reason={reason} ExitCode={code} "
    "RunTime={used} TimeLimit=01:00:00 EndTime=2026-11-21T23:00:00 StartTime=2026-11-21T22:00:00 "
    "NodeList=n[1-2] WorkDir={place} StdOut={place}/my_app-5.out Comment=a b c Power="
)


def known(place: Path, state: str, code: str = "0:0", reason: str = "None", used: str = "00:00:07") -> str:
    return f"echo '{FACTS.format(state=state, code=code, reason=reason, place=place, used=used)}'"


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


@pytest.mark.parametrize(
    ("limit", "note", "is_warned"),
    [
        ("0:10", "Slurm reads 0:10 as 0 min 10 s; 0:10:00 has hours and minutes", True),
        ("2:00", "Slurm reads 2:00 as 2 min 00 s; 2:00:00 has hours and minutes", False),
        ("2:00:00", "", False),
        ("10", "", False),
    ],
)
def test_a_time_of_two_parts_is_explained(
    limit: str, note: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.submit(f"--time {limit} --dry-run app.py".split()) == 0
    shown = capsys.readouterr()
    assert ("Slurm reads" in shown.out, shown.err != "") == (bool(note), is_warned)
    assert f"#SBATCH --time={limit}\n" in shown.out
    assert not note or f"\n# {note}\n" in shown.out
    assert not is_warned or shown.err == f"mpi-runtime submit: {note}\n"


@pytest.mark.parametrize(("text", "ends_early"), [("0", True), ("running 5 n1", False), ("requeue", False)])
def test_the_end_of_the_program_ends_a_pause(
    text: str, ends_early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        (tmp_path / "my_app-5.exit").write_text(f"{text}\n")

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    job: Any = SimpleNamespace(output=str(tmp_path / "my_app-5.out"), program_exit_code=None)
    assert following._rest(2.0, [job]) == ends_early
    assert clock == [following.POLL_S[0]] if ends_early else clock[0] >= 2.0


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
