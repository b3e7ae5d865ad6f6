"""The line that has another launcher start the ranks of a command, on the hosts and with the devices that were granted.

The launcher runs on the host of rank 0, as the program of the command. Each rank that it starts is a shell with the
line of the command. Its environment has a name by which agents find what a killed launcher leaves on their hosts.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from mpi_runtime.batch.file.model import Command
from mpi_runtime.batch.file.text import SELF
from mpi_runtime.extend import EACH_TEXT, OF_PLACES, TEXTS_OF_WHEEL, child_environment, settings_for_mpi

SLURM, OPEN_MPI, HYDRA, INTEL = "srun", "Open MPI", "hydra", "Intel MPI"
VERSION_LIMIT_S = 20.0
_BINDING = "binding_policy"
"""How the name of the setting ends by which ranks are not bound. It holds for other hosts too."""
_EVERYWHERE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables that ranks on all hosts get. Open MPI's mpirun hands on few by itself."""


class Where(msgspec.Struct, array_like=True, frozen=True):
    """The place of a rank."""

    host: str
    """The name of its host, as `gethostname` returns it."""
    node: str
    """The name by which launchers know the host."""
    devices: Mapping[str, str]
    """The variables that show its command its GPUs on this host; empty: nothing restricts it."""


class LaunchProblemError(Exception):
    """The launcher of a command cannot be used here."""


def environment_of(env: Mapping[str, str], cpus: int) -> dict[str, str]:
    """The environment of a launcher: without the place and texts of its member, and without slots of this host."""
    settings = {name: value for name, value in settings_for_mpi(cpus).items() if not name.endswith(_BINDING)}
    settings |= {**EACH_TEXT, **TEXTS_OF_WHEEL}
    kept = {name: value for name, value in env.items() if settings.get(name) != value and name not in OF_PLACES}
    return child_environment(kept)


def line_of(program: Command, places: Sequence[Where], hostfile: str, env: Mapping[str, str], name: str) -> str:
    """The line that starts the ranks of a command at these places, which `hostfile` names too.

    `env` is the environment of the launcher, `name` the variable in it by which agents find the processes.

    Raises:
        LaunchProblemError: there is no such launcher on this host, or it is not known.
    """
    if program.launcher == SELF:
        return program.text
    first = shlex.split(program.launcher)[0]
    path = shutil.which(first, path=env.get("PATH"))
    if path is None:
        raise LaunchProblemError(f"its launcher {first!r} is not in the PATH of the host {places[0].host}")
    words = _options(program, kind_of(path, env), len(places), hostfile, [one.node for one in places])
    threads = [name for name in env if name.endswith("_NUM_THREADS")]
    variables = {name: env[name] for name in (name, *_EVERYWHERE, *threads, *program.env) if name in env}
    settings = [f"{name}={text}" for name, text in variables.items()]
    line = _devices(places) + program.text
    return f"exec {program.launcher} {shlex.join([*words, 'env', *settings, program.shell, '-c', line])}"


def kind_of(path: str, env: Mapping[str, str]) -> str:
    """Which options a launcher understands.

    Raises:
        LaunchProblemError: nobody knows.
    """
    if os.path.basename(path) == "srun":
        return SLURM
    try:
        words = [path, "--version"]
        done = subprocess.run(
            words, capture_output=True, text=True, env=dict(env), timeout=VERSION_LIMIT_S, stdin=-3, check=False
        )
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchProblemError(f"its launcher {path} does not answer --version: {error}") from None
    if any(name in text for name in ("Open MPI", "OpenRTE", "PRRTE", "prterun")):
        return OPEN_MPI
    if "HYDRA" in text:
        return HYDRA
    if "Intel(R) MPI" in text:
        return INTEL
    raise LaunchProblemError(
        f"its launcher {path} is neither that of Open MPI, of MPICH nor of Intel MPI: its --version prints "
        f"{text.strip()[:100]!r}. Write its whole line as the command, with {{ranks}} and {{hostfile}}, and set "
        "launcher to 'self'"
    )


def _options(program: Command, kind: str, ranks: int, hostfile: str, nodes: Sequence[str]) -> list[str]:
    """Options for the number of ranks and their hosts. Bound ranks of several commands would share processors."""
    count = ["-n", str(ranks)]
    if kind == SLURM:
        # The list names a host for each rank. Slurm 26.05 refuses `--nodes` beside it, and none needs that.
        words = [f"--nodelist={','.join(nodes)}", "--distribution=arbitrary", "--input=0"]
        cpus = f"--cpus-per-task={max(1, int(program.num_cpus))}"
        ours = {"--cpus-per-task": cpus, "--cpu-bind": "--cpu-bind=none", "--mem": "--mem=0"}  # 0: that of the job
        return [*count, *words, *(word for option, word in ours.items() if option not in program.launcher)]
    if kind == HYDRA:
        return [*count, "-f", hostfile]
    if kind == INTEL:
        return [*count, "-f", hostfile, *([] if "I_MPI_PIN" in program.launcher else ["-genv", "I_MPI_PIN", "0"])]
    return [*count, "--hostfile", hostfile, *([] if "--bind-to" in program.launcher else ["--bind-to", "none"])]


def _devices(places: Sequence[Where]) -> str:
    """The beginning of a line: each host has its own devices."""
    cases = ""
    for host, shown in {one.host: one.devices for one in places if one.devices}.items():
        cases += (
            f"{shlex.quote(host)}) export {' '.join(f'{name}={shlex.quote(text)}' for name, text in shown.items())};; "
        )
    return f'case "$(uname -n)" in {cases}esac\n' if cases else ""
