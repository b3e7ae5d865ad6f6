"""`mpi-runtime doctor --report`: what a problem report needs, as one block of text."""

import os
import re
import resource
import sys
from importlib import metadata

import pytest

from mpi_runtime.cli.main import main
from tests.helpers import mpi_python, run_program, start_command
from tests.hosts.namespaces import missing

ROWS = [
    "mpi-runtime", "Python", "system", "packages", "MPI", "launcher", "started by", "batch job",
    "CPUs", "memory", "/dev/shm", "limits", "GPUs", "settings",
]  # fmt: skip


def rows(text: str) -> dict[str, str]:
    return dict(re.split(r": +", line, maxsplit=1) for line in text.splitlines())


def test_it_names_versions_limits_and_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPI_RUNTIME_LABELS", "zone=a")
    monkeypatch.setenv("OMPI_MCA_btl", "^tcp")
    monkeypatch.setenv("SECRET", "x")
    assert main(["doctor", "--report"]) == 0
    said = rows(capsys.readouterr().out)
    assert list(said) == ROWS
    assert said["mpi-runtime"] == metadata.version("mpi-runtime")
    assert said["Python"] == f"{sys.version.split()[0]} ({sys.executable})"
    assert f"msgspec {metadata.version('msgspec')}" in said["packages"]
    assert "pytest" not in said["packages"], "what only developers need says nothing"
    assert said["started by"] == "none, ranks: 1"
    assert said["CPUs"].endswith(f"of {os.cpu_count()}, counted as {len(os.sched_getaffinity(0))}")
    assert f"descriptors {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}" in said["limits"]
    assert {"MPI_RUNTIME_LABELS=zone=a", "OMPI_MCA_btl=^tcp"} <= {*said["settings"].split()}
    assert "SECRET" not in said["settings"]


@pytest.mark.mpi
@pytest.mark.parametrize("launch", [[], ["run", "-n", "2", "-m", "mpi_runtime"]])
def test_a_setting_with_which_mpi_cannot_start_is_named(launch: list[str]) -> None:
    words = [str(mpi_python("openmpi")), "-m", "mpi_runtime", *launch, "doctor"]
    with start_command(words, env={"OMPI_MCA_pml": "nonsense", "OMPI_MCA_osc": "^ucx"}) as program:
        done = program.finish().expect(1)
    assert "wrong: MPI_Init fails with OMPI_MCA_pml=nonsense in the environment, and starts without\n" in done.stdout
    assert "  fix: unset OMPI_MCA_pml\n" in done.stdout


@pytest.mark.mpi
@pytest.mark.hosts
@pytest.mark.parametrize(
    ("places", "mpi"),
    [
        (["/dev/shm"], "openmpi"), (["/tmp"], "openmpi"), (["/dev/shm", "/tmp"], "openmpi"), ([], "openmpi"),
        (["/dev/shm", "/tmp"], "mpich"), ([], "mpich"),
    ],
)  # fmt: skip
def test_ranks_with_directories_of_their_own_are_named_before_mpi_fails(places: list[str], mpi: str) -> None:
    if reason := missing(("unshare", "mount"), "util-linux"):
        pytest.skip(reason)
    mounts = "; ".join(f"mount -t tmpfs none {place}" for place in places) or "true"
    own = ["unshare", "--mount", "sh", "-c", f'{mounts}; exec "$@"', "sh"]
    words = [str(mpi_python(mpi)), "-m", "mpi_runtime", "doctor"]
    launcher = mpi_python(mpi).with_name("mpiexec")
    other = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /dev/shm; mount -t tmpfs none /tmp; exec "$@"',
        "sh",
    ]
    of_another_launch = "import time; print('here', flush=True); time.sleep(1000)"
    with start_command([*other, sys.executable, "-c", of_another_launch, "doctor"]) as another:
        another.wait_for_line("here")
        with start_command([str(launcher), "-n", "2", *own, *words]) as program:
            done = program.finish().expect(int(bool(places)))
        another.kill()
    shown = " and a ".join(places)
    assert (f"each rank has a {shown} of its own" in done.stdout) == bool(places), done.output()
    assert done.stdout.count("wrong: ") == bool(places)


@pytest.mark.mpi
def test_run_names_a_setting_with_which_mpi_cannot_start() -> None:
    code = "import mpi_runtime; mpi_runtime.init()"
    words = [str(mpi_python("openmpi")), "-m", "mpi_runtime", "run", "-n", "2", "-c", code]
    with start_command(words, env={"OMPI_MCA_pml": "nonsense", "OMPI_MCA_osc": "^ucx"}) as program:
        done = program.finish().expect(2)
    what = "MPI_Init fails with OMPI_MCA_pml=nonsense in the environment, and starts without; unset OMPI_MCA_pml"
    assert done.stderr.splitlines() == [f"mpi-runtime run: {what}"], "no rank is started"


def test_settings_that_are_probably_mistakes_get_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPI_RUNTIME_NUMCPUS", "3")
    monkeypatch.setenv("MPI_RUNTIME_NUM_CPUS", "9999")
    assert main(["doctor"]) == 0, "they may be on purpose"
    said = capsys.readouterr().out
    assert "note: MPI_RUNTIME_NUMCPUS is set, and this runtime does not read it" in said
    assert "did you mean 'MPI_RUNTIME_NUM_CPUS'?" in said
    assert "note: MPI_RUNTIME_NUM_CPUS is 9999, and rank 0 may use" in said


@pytest.mark.mpi
@pytest.mark.parametrize(("mpi", "name"), [("openmpi", "Open MPI v"), ("mpich", "MPICH Version: ")])
def test_under_a_launcher_one_rank_prints_it(mpi: str, name: str) -> None:
    ended = run_program("import sys; from mpi_runtime.cli.main import main; sys.exit(main(['doctor', '--report']))",
                        ranks=2, mpi=mpi)  # fmt: skip
    said = rows(ended.expect(0).stdout)
    assert list(said) == ROWS, "once, not once for each rank"
    assert said["MPI"].startswith(name)
    assert said["started by"] == f"{mpi}, ranks: 2"
    assert "OMPI_MCA_num_procs" not in said["settings"], "what the launcher itself has set"
