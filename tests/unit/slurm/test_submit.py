"""Batch scripts are made from requests, requests from profiles and options; Slurm's refusals are explained."""

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_runtime.cli import slurm as cli
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm import following, jobs, profiles, script
from mpi_runtime.slurm.script import Request

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


FACTS = (
    "JobId=5 JobName=my_app UserId=ada(1000) JobState={state} Reason={reason} ExitCode={code} "
    "RunTime={used} TimeLimit=01:00:00 EndTime=2026-11-21T23:00:00 StartTime=2026-11-21T22:00:00 "
    "NodeList=n[1-2] WorkDir={place} StdOut={place}/my_app-5.out Comment=a b c Power="
)


def known(place: Path, state: str, code: str = "0:0", reason: str = "None", used: str = "00:00:07") -> str:
    return f"echo '{FACTS.format(state=state, code=code, reason=reason, place=place, used=used)}'"


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
