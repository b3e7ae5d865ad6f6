"""A real Slurm cluster on one machine: a login host and a few nodes, each a set of namespaces, joined by a bridge.

Nodes have their own network, name, processes, memory files and `/tmp`; the rest of the file system is common, as a
cluster has it. They claim CPUs and GPUs that are not there. Slurm's commands run on the login host, which is also
where its controller runs; nothing of all this can be reached from the machine itself. Needs root, Slurm, munge,
iproute2 and util-linux. All of it goes with the processes that hold the namespaces.

Not as on a real cluster: nothing confines a task to its CPUs, memory or devices, unless `cluster(confined=True)` does.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tests.helpers import MARK, OPENMPI_ENVIRONMENT, ROOT, Program, mpi_python, start_command, wait_until
from tests.hosts import namespaces
from tests.hosts.namespaces import child, connect, end, enter, hold, kept
from tests.slurm import confinement

NODES = 6
STEADY = 3
"""The first are in the partition `main`; the last of these and all others in `fragile`: tests break the others."""
CPUS = 8
GPUS = 4
SUBNET = "10.77.0"
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "ip", "unshare", "nsenter", "mount")
PACKAGES = "munge slurmctld slurmd slurm-client libpmix2 iproute2"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL")
START_LIMIT_S = 60.0
MEET = """
import pathlib, time

def meet(here, there):
    "Wait until the program that meets the other way round is there too."
    pathlib.Path(here).touch()
    end = time.monotonic() + 60
    while not pathlib.Path(there).exists():
        assert time.monotonic() < end, "the other job has not begun"
        time.sleep(0.05)
"""
"""For the programs of two jobs that are to run at the same time."""
JOB_LIMIT_S = 90.0
"""How long a job may take: a bound on hangs."""

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=login({subnet}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job waits before it starts again.
AuthInfo=socket={place}/munge/socket,cred_expire=5
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/log/slurmctld
SlurmdLogFile={place}/log/%n
MpiDefault=none
{confinement}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=5,batch_sched_delay=0,sched_min_interval=0,nohold_on_prolog_fail
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
# All quick: a node is down after 10 s of silence, SIGKILL comes 10 s after SIGTERM.
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=5
TCPTimeout=2
BatchStartTimeout=10
KillWait=10
UnkillableStepTimeout=15
CompleteWait=0
WaitTime=0
MinJobAge=3600
GresTypes=gpu
DefMemPerCPU=500
{nodes}
# A job of main takes what those of spare have, which are told and requeued. Slurm's own default is to tell them by
# SIGTERM to their steps; here they get the signal that they have asked for.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=DEFAULT DefaultTime=10 MaxTime=60 State=UP PriorityTier=2 PreemptMode=OFF
PartitionName=main Nodes=n[1-{steady}] Default=YES
PartitionName=fragile Nodes=n[{steady}-{all}]
PartitionName=spare Nodes=n[1-{steady}] PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=sparecancel Nodes=n[1-{steady}] PriorityTier=1 PreemptMode=CANCEL GraceTime=5
"""

# Run by each node's first process, which bash is: it reaps the orphans that it inherits, and outlives its slurmd.
# {place} is visible to all nodes under its own name, {kept} too. Debian ships the library that `srun --mpi=pmix` opens,
# but not under the name by which it opens it.
_NODE = (
    """
set -e
hostname {name}
mount -t tmpfs tmpfs /dev/shm
mount --bind {place}/hosts /etc/hosts
for library in /usr/lib/*/pmix2/lib; do [ ! -d $library ] || mount --bind {place}/pmix $library; done
"""
    + namespaces.OWN_TMP
    + """ip link set lo up
echo ready
read begin
slurmd -D -N {name} </dev/null >>{place}/log/{name}.out 2>&1 &
set +e
while :; do wait -n 2>/dev/null || sleep 0.2; done
"""
)

_LOGIN = """
set -e
hostname login
mount --bind {place}/hosts /etc/hosts
ip link add br0 type bridge
ip addr add {subnet}.254/24 dev br0
ip link set br0 up
ip link set lo up
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Ended:
    """How a job ended, as Slurm has it."""

    id: str
    state: str
    exit_code: str
    """As Slurm writes it: code:signal."""
    stdout: str
    facts: Mapping[str, str]

    def expect(self, state: str = "COMPLETED", exit_code: str = "0:0") -> Ended:
        """Fail, showing the output, unless the job ended so."""
        if (self.state, self.exit_code) != (state, exit_code):
            pytest.fail(f"job {self.id}: {self.state} {self.exit_code}, not {state} {exit_code}\n{self.stdout}")
        return self


@dataclass
class Cluster:
    """A cluster that is up."""

    place: Path
    """A directory that all hosts see."""
    login: subprocess.Popen[str]
    nodes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """The process that holds each node."""
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_confined: bool = False
    """Whether jobs are confined to their CPUs and their memory, by control groups."""

    @property
    def is_new(self) -> bool:
        """Whether this is Slurm 24.11 or later; all else is known of 22.05. Who has changed what between is not."""
        year, month = re.findall(r"\d+", self.run("sinfo", "--version").stdout)[:2]
        return (int(year), int(month)) >= (24, 11)

    def environment(self, mpi: str = "openmpi") -> dict[str, str]:
        """Return what a user has in a shell on the login host, with the environment of this MPI activated."""
        keep = {name: value for name, value in OPENMPI_ENVIRONMENT.items() if "mapping" not in name}
        return {
            **keep,
            "HOME": str(self.place / "home"),
            "PATH": f"{self.place}/bin:{mpi_python(mpi).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "SLURM_CONF": str(self.place / "slurm.conf"),
            "MPI_RUNTIME_QUIET": "1",
            MARK: os.environ[MARK],
        }

    def directory(self) -> Path:
        """Make a directory that all hosts see."""
        made = self.place / f"work{next(_numbers)}"
        made.mkdir()
        return made

    def run(
        self,
        *command: str,
        mpi: str = "openmpi",
        cwd: Path | None = None,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login host to its end, which must be with this exit code (None: any)."""
        done = subprocess.run(
            self.on_login(command, cwd),
            env={**self.environment(mpi), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_LIMIT_S,
        )
        if code is not None and done.returncode != code:
            pytest.fail(f"{shlex.join(command)}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, *command: str, mpi: str = "openmpi", cwd: Path | None = None) -> Program:
        """Start a command on the login host."""
        env: dict[str, str | None] = {**dict.fromkeys(os.environ), **self.environment(mpi)}
        del env[MARK]
        return start_command(self.on_login(command, cwd), env=env)

    def on_login(self, command: Sequence[str], cwd: Path | None) -> list[str]:
        """Return the words that run a command on the login host."""
        return [*enter(child(self.login)), "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.place), *command]

    def sbatch(self, script: str, *options: str, app: str = "", mpi: str = "openmpi", cwd: Path | None = None) -> str:
        """Submit a batch script, beside a program `app.py`, and return the job's id."""
        directory = cwd or self.directory()
        if app:
            (directory / "app.py").write_text(app)
        (directory / "job.sbatch").write_text(script)
        out = f"--output={directory}/out-%j"
        done = self.run("sbatch", "--parsable", out, *options, "job.sbatch", mpi=mpi, cwd=directory)
        return done.stdout.strip()

    def facts(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job (of the first of several), by name."""
        text = self.run("scontrol", "show", "job", "-o", job).stdout
        return dict(word.partition("=")[::2] for word in text.splitlines()[0].split() if "=" in word)

    def output(self, job: str) -> str:
        """Return what the job has written so far."""
        path = Path(self.facts(job)["StdOut"])
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_output(self, job: str, text: str, times: int = 1, timeout: float = JOB_LIMIT_S) -> str:
        """Wait until the job has written this text, so many times; return all that it has written."""

        def written() -> str:
            has_ended = self.facts(job)["JobState"] in ENDED
            found = self.output(job)
            if has_ended and found.count(text) < times:
                pytest.fail(f"job {job} has not written {text!r}: {self.facts(job)}\n{found}")
            return found if found.count(text) >= times else ""

        return wait_until(written, timeout, f"{text!r} of job {job}")

    def wait(self, job: str, timeout: float = JOB_LIMIT_S) -> Ended:
        """Wait until a job has ended, and all that belongs to it."""
        end = time.monotonic() + timeout
        while (facts := self.facts(job))["JobState"] not in ENDED:
            if time.monotonic() > end:
                output, nodes = self.output(job), self.run("sinfo", "-N", "-l").stdout
                self.run("scancel", job)
                pytest.fail(f"job {job} has not ended within {timeout} s: {facts}\n{nodes}\n{output}")
            time.sleep(0.25)
        return Ended(job, facts["JobState"], facts["ExitCode"], self.output(job), facts)

    def wait_until_running(self, job: str) -> None:
        """Wait until a job has begun."""
        wait_until(lambda: self.facts(job)["JobState"] == "RUNNING", START_LIMIT_S, f"the begin of job {job}")

    def wait_for_requeued(self, job: str) -> Ended:
        """Wait until a job has been requeued, and has ended then: in between it looks as if it had ended too."""
        wait_until(lambda: self.facts(job)["Restarts"] != "0", JOB_LIMIT_S, f"the requeue of job {job}")
        return self.wait(job)

    # Nodes that break.

    def crash(self, name: str, silently: bool) -> None:
        """End all processes of a node at once; silently: as when it loses its power, its peers get no word of it."""
        if silently:
            subprocess.run([*enter(child(self.login)), "ip", "link", "set", name, "down"], check=True)
        end(self.nodes.pop(name))

    def start_node(self, name: str) -> None:
        """Start a node."""
        number = int(name[1:])
        text = _NODE.format(name=name, place=self.place, kept=kept(self.place))
        words = ["--pid", "--mount-proc", "bash", "-c", text]
        if self.is_confined:
            words[-1:] = [confinement.enter(self.place, name), text]
        holder = hold(words, _daemon_environment(self.place))
        self.nodes[name] = holder
        connect(child(self.login), child(holder), name, f"{SUBNET}.{number}")
        assert holder.stdin is not None
        holder.stdin.write("begin\n")
        holder.stdin.flush()

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are up and have nothing to do."""

        def are_idle() -> bool:
            nodes = self.run("sinfo", "-h", "-N", "-o", "%N %T", code=None).stdout.split("\n")
            return set(nodes) - {""} == {f"n{number + 1} idle" for number in range(NODES)}

        wait_until(are_idle, START_LIMIT_S, f"{NODES} idle nodes")


_numbers = count(1)


@contextmanager
def cluster(confined: bool = False) -> Iterator[Cluster]:
    """A cluster, until the block is left; where there can be none the test is skipped.

    confined: as most sites have it, jobs cannot use other CPUs or more memory than they were given. The nodes have no
    more CPUs than there are, then.
    """
    if reason := namespaces.missing(TOOLS, PACKAGES) or (confined and confinement.missing()):
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="mrs-", dir="/tmp"))
    place.chmod(0o755)
    _write_configuration(place, confined)
    login = hold(["bash", "-c", _LOGIN.format(place=place, subnet=SUBNET)], _daemon_environment(place))
    made = Cluster(place, login, is_confined=confined)
    try:
        _start_daemon(made, "munged", "--foreground", "--force", f"--socket={place}/munge/socket",
                      f"--key-file={place}/munge/key", f"--pid-file={place}/munge/pid",
                      f"--log-file={place}/log/munged", f"--seed-file={place}/munge/seed")  # fmt: skip
        wait_until((place / "munge/socket").exists, START_LIMIT_S, "munged")
        _start_daemon(made, "slurmctld", "-D")
        for number in range(NODES):
            made.start_node(f"n{number + 1}")
        made.wait_for_nodes()
        yield made
    finally:
        for holder in [*made.nodes.values(), login]:
            end(holder)
        for daemon in made.daemons:
            daemon.kill()
            daemon.wait()
        if confined:
            confinement.remove(place)
        shutil.rmtree(place)


def _write_configuration(place: Path, confined: bool) -> None:
    for name in ("munge", "state", "spool", "log", "home", "pmix", "devices", "bin"):
        (place / name).mkdir()
    command = place / "bin/mpi-runtime"  # the project need not be installed
    command.write_text('#!/bin/sh\nexec python -m mpi_runtime.cli.main "$@"\n')
    command.chmod(0o755)
    (place / "munge/key").write_bytes(os.urandom(1024))
    (place / "munge/key").chmod(0o600)
    names = [f"n{number + 1}" for number in range(NODES)]
    addresses = [f"{SUBNET}.254 login", *(f"{SUBNET}.{number + 1} {name}" for number, name in enumerate(names))]
    (place / "hosts").write_text("\n".join(["127.0.0.1 localhost", *addresses]) + "\n")
    cpus = len(os.sched_getaffinity(0)) if confined else CPUS
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={SUBNET}.{number + 1} CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} "
        f"ThreadsPerCore=1 RealMemory={cpus * 1000} Gres=gpu:fake:{GPUS} State=UNKNOWN"
        for number, name in enumerate(names)
    )
    (place / "slurm.conf").write_text(
        _CONFIGURATION.format(
            place=place,
            subnet=SUBNET,
            nodes=nodes,
            steady=STEADY,
            all=NODES,
            confinement=confinement.CONFINED if confined else confinement.NOT_CONFINED,
        )
    )
    (place / "cgroup.conf").write_text(confinement.configuration() if confined else "")
    for number in range(GPUS):
        (place / f"devices/nvidia{number}").symlink_to("/dev/null")
    (place / "gres.conf").write_text(f"Name=gpu Type=fake File={place}/devices/nvidia[0-{GPUS - 1}]\n")
    for library in Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2*"):
        shutil.copy2(library, place / "pmix", follow_symlinks=False)
    with suppress(FileExistsError):
        (place / "pmix/libpmix.so").symlink_to("libpmix.so.2")


def _start_daemon(made: Cluster, *command: str) -> None:
    with open(made.place / f"log/{command[0]}.out", "ab") as out:
        daemon = subprocess.Popen(
            [*enter(child(made.login)), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=_daemon_environment(made.place),
        )
    made.daemons.append(daemon)


def _daemon_environment(place: Path) -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "SLURM_CONF": str(place / "slurm.conf")}
