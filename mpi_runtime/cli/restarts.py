"""`run --restarts N`: starts a killed program again, with its journal.

The exit file (`slurm/exit_file.py`) shows whether the program or its job was killed. The launcher's exit code does not:
it was seen to be 0 after the loss of a host. A program that has ended by itself, also by an error, is not restarted.

1. Start the launcher, and pass on SIGINT and SIGTERM. After one of these there is no restart.
2. If it ends and the program has left no exit code, probe each host of --hosts.
3. Restart on the hosts that have answered.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import repeat
from pathlib import Path

from mpi_runtime.core.host.mpiexec import with_places
from mpi_runtime.core.host.process_tree import adopt_orphans, children, die_with_parent, is_alive, kill_group
from mpi_runtime.errors import LaunchError
from mpi_runtime.slurm import exit_file

HOST_LIMIT_S = 10
"""How long a host may take to answer."""
REST_S = 1.0
"""Between two starts: time for the rest of the first to end."""
PAUSE_S = 0.05
LOOK_S = 1.0
"""Seconds between checks whether the program has ended and its launcher has not."""
LAUNCHER_LIMIT_S = 15.0
"""How long a launcher may run after the program has succeeded: longer than the ranks wait for one another."""
FAILED_LIMIT_S = 5.0
"""How long it may run after the program has failed or was killed."""
END_S = 3.0
"""How long it may take to end after a signal. After the second SIGTERM that of Open MPI ends at once."""
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_PASSED_ON = _ENDING | {signal.SIGUSR1, signal.SIGUSR2}
_OF_RANKS = (b"PMIX_RANK=", b"PMI_RANK=")
"""Variables that only ranks have: their children do not inherit them."""
_DAEMONS = (b"hydra_pmi_proxy", b"prted")
"""The launchers' daemons on other hosts. If the network fails while the launcher dies, they and their ssh stay."""
_AGENTS = ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
"""Variables that name the replacement of ssh for launchers."""


def run(
    command: Callable[[str | None], list[str]],
    ranks: int,
    hosts: str | None,
    env: Mapping[str, str],
    file: Path,
    restarts: int,
) -> int:
    """Start a program, restart it up to `restarts` times, and return its exit code.

    `command` makes the command for these hosts; `hosts` are as in `--hosts`. Hosts that are left get more of the
    `ranks` if others are lost. `file` is the exit file of the program.
    """
    number, code = 0, 1
    for number in range(restarts + 1):
        exit_file.forget(file)
        code, received = _run_once(command(hosts), env, file)
        own = exit_file.read(file)
        if own is not None:
            return own
        if received:
            return 128 + received[0]
        if not restarts and not file.exists():
            return code  # the program ran on another host, and this one does not see its file
        if number == restarts:
            break
        hosts = _alive(hosts, env)
        if hosts == "":
            print("mpi-runtime run: none of the hosts answers", file=sys.stderr)
            break
        hosts = with_places(hosts, ranks) if hosts else None
        where = f" on {hosts}" if hosts else ""
        what = "the program's job was lost" if exit_file.is_lost(file) else "the program was killed"
        print(
            f"mpi-runtime run: {what} (the launcher's exit code is {code}); restart {number + 1} of {restarts}{where}",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(REST_S)
    if restarts or not exit_file.is_lost(file):
        starts = f" in {number + 1} starts" if restarts else " by itself"
        print(f"mpi-runtime run: the program did not end{starts}", file=sys.stderr)
    return code if code > 0 else 1


def _run_once(command: list[str], env: Mapping[str, str], file: Path) -> tuple[int, list[int]]:
    """Run a command until it or the program ends. Return its exit code, and the signals to end that arrived."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        die_with_parent()

    adopt_orphans()
    try:
        found = _wait(subprocess.Popen(command, env=dict(env), preexec_fn=prepare), file)
        if exit_file.read(file) != 0:
            _end_rest()
        return found
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(process: "subprocess.Popen[bytes]", file: Path) -> tuple[int, list[int]]:
    received: list[int] = []
    end_s = None
    while not _has_ended(process):
        found = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, LOOK_S)
        if found is not None and found.si_signo != signal.SIGCHLD:
            if found.si_signo in _ENDING:
                received.append(found.si_signo)
            if found.si_code <= 0:  # from a process; the launcher gets that of a terminal itself, and must not get two
                process.send_signal(found.si_signo)
        if end_s is None and (limit_s := _limit_s(file)):
            end_s = time.monotonic() + limit_s
        if end_s is not None and time.monotonic() > end_s:
            _end(process)
    return process.wait(), received


def _limit_s(file: Path) -> float:
    """Return how long the launcher may still run; 0: the program runs, or is on another host."""
    code = exit_file.read(file)
    if code is not None:
        return FAILED_LIMIT_S if code else LAUNCHER_LIMIT_S
    pid, host = exit_file.running(file) or (0, "")
    return FAILED_LIMIT_S if host == os.uname().nodename and not is_alive(pid) else 0.0


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        end_s = time.monotonic() + END_S
        while not _has_ended(process) and time.monotonic() < end_s:
            time.sleep(PAUSE_S)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the launcher has ended. Orphans that this process has adopted are reaped, too."""
    with contextlib.suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == process.pid:
                break
            os.waitpid(found.si_pid, 0)
    return process.poll() is not None


def _end_rest() -> None:
    """Give what is left of the launch some time, and then kill it. It has become children of this process."""
    end_s = time.monotonic() + FAILED_LIMIT_S
    while (left := [pid for pid in children() if _is_of_launch(pid)]) and time.monotonic() < end_s + END_S:
        if time.monotonic() > end_s:
            for pid in left:
                kill_group(pid)
        time.sleep(PAUSE_S)


def _is_of_launch(pid: int) -> bool:
    """Whether a process is a rank, or the launcher's daemon for a host or the ssh of one."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(one.startswith(_OF_RANKS) for one in variables) or any(one in command for one in _DAEMONS)


def _alive(hosts: str | None, env: Mapping[str, str]) -> str | None:
    """The hosts that answer, all probed at the same time; None: no hosts were named."""
    if hosts is None:
        return None
    from concurrent.futures import ThreadPoolExecutor  # not at the top: few programs are restarted

    places = [place.strip() for place in hosts.split(",") if place.strip()]
    with ThreadPoolExecutor(len(places) or 1) as pool:
        answers = pool.map(_answers, (place.partition(":")[0] for place in places), repeat(env))
        return ",".join(place for place, has_answered in zip(places, answers, strict=True) if has_answered)


def _answers(host: str, env: Mapping[str, str]) -> bool:
    """Whether a host answers; this one does."""
    if host in ("localhost", os.uname().nodename):
        return True
    agent = next((env[name] for name in _AGENTS if env.get(name)), "")
    options = [] if agent else ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={HOST_LIMIT_S}"]
    words = [agent or "ssh", *options, host, "true"]
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(words, stdin=nothing, stdout=nothing, stderr=nothing, timeout=HOST_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        raise LaunchError(f"{agent or 'ssh'} cannot be started to see whether {host} answers: {error}") from error
    return done.returncode == 0
