"""`run --restarts N`: a program that was killed is started again, with its journal.

What tells whether it was killed is the file that it leaves (`slurm/exit_file.py`), not the launcher's exit code: a
launcher that loses a host has been seen to return 0. A program that has come to its end, by an error of its own too, is
not started again.

1. Start the launcher, and pass on SIGINT and SIGTERM. After one of these nothing is started again.
2. If it ends and the program has left no exit code, ask each host of --hosts for a sign of life.
3. Start again on those that have given one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from mpi_runtime.errors import LaunchError
from mpi_runtime.host.process_tree import die_with_parent
from mpi_runtime.slurm import exit_file

HOST_LIMIT_S = 10
"""How long a host may take to give a sign of life."""
PAUSE_S = 1.0
"""Between two starts: what is left of the first has time to go."""
_AGENTS = ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
"""Variables that name what launchers use in the place of ssh."""


def run(
    command: Callable[[str | None], list[str]], hosts: str | None, env: Mapping[str, str], file: Path, restarts: int
) -> int:
    """Start a program up to `restarts` times again, and return its exit code.

    Args:
        command: makes the command for these hosts.
        hosts: as `--hosts` has them.
        env: the environment of the command.
        file: where the program leaves its exit code. All hosts see it.
        restarts: how often it is started again.
    """
    received: list[int] = []
    number, code = 0, 1
    try:
        for number in range(restarts + 1):
            file.unlink(missing_ok=True)
            code = _run_once(command(hosts), env, received)
            own = exit_file.read(file)
            if own is not None:
                return own
            if received:
                return 128 + received[0]
            if number == restarts:
                break
            hosts = _alive(hosts, env)
            if hosts == "":
                print("mpi-runtime run: none of the hosts answers", file=sys.stderr)
                break
            where = f" on {hosts}" if hosts else ""
            print(
                f"mpi-runtime run: the program was ended before its end (the launcher's code is {code}); restart "
                f"{number + 1} of {restarts}{where}",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(PAUSE_S)
    finally:
        file.unlink(missing_ok=True)
    print(f"mpi-runtime run: the program did not end in {number + 1} starts", file=sys.stderr)
    return code if code > 0 else 1


def _run_once(command: list[str], env: Mapping[str, str], received: list[int]) -> int:
    """Run a command to its end, passing on signals: its exit code."""
    process = subprocess.Popen(command, env=dict(env), preexec_fn=die_with_parent)

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _alive(hosts: str | None, env: Mapping[str, str]) -> str | None:
    """Those of the hosts that give a sign of life, all asked at a time; None: no hosts were named."""
    if hosts is None:
        return None
    places = [place.strip() for place in hosts.split(",") if place.strip()]
    asked = [(place, _ask(place.partition(":")[0], env)) for place in places]
    return ",".join(place for place, process in asked if process is None or _answers(process))


def _ask(host: str, env: Mapping[str, str]) -> "subprocess.Popen[bytes] | None":
    """Ask a host; None: it is this one."""
    if host in ("localhost", os.uname().nodename):
        return None
    agent = next((env[name] for name in _AGENTS if env.get(name)), "")
    options = [] if agent else ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={HOST_LIMIT_S}"]
    try:
        return subprocess.Popen(
            [agent or "ssh", *options, host, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise LaunchError(f"{agent or 'ssh'} cannot be started to see whether {host} answers: {error}") from error


def _answers(process: "subprocess.Popen[bytes]") -> bool:
    try:
        return process.wait(HOST_LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
