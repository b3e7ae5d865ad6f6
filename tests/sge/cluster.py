"""A real Grid Engine on one machine: a login host and two nodes, each a set of namespaces, joined by a bridge.

As `tests/slurm/cluster.py`, with Debian's gridengine-master, gridengine-exec and gridengine-client. The cell, with all
that the daemons write, is a directory of its own; nothing of the installed cell is used or changed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tests.helpers import MARK, OPENMPI_ENVIRONMENT, ROOT, mpi_python, wait_until
from tests.hosts import namespaces
from tests.hosts.namespaces import child, connect, end, enter, hold, kept

NODES = ("n1", "n2")
SLOTS = 4
SUBNET = "10.78.0"
INSTALLED, TOOLS_AT = Path("/var/lib/gridengine"), Path("/usr/lib/gridengine")
TOOLS = ("sge_qmaster", "sge_execd", "qsub", "qconf", "ip", "unshare", "nsenter", "mount")
PACKAGES = "gridengine-master gridengine-exec gridengine-client iproute2"
START_LIMIT_S = 60.0
JOB_LIMIT_S = 120.0
"""How long a job may take: a bound on hangs."""

_BOOTSTRAP = """\
admin_user              root
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {place}/spooldb
binary_path             /usr/sbin
qmaster_spool_dir       {place}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
# As Debian's own, but jobs of root are run, and all is quick.
_CHANGED = {
    "execd_spool_dir": "{place}/execd",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:01",
    "max_unheard": "00:00:20",
    "execd_params": "NOTIFY_KILL=default",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00",
}
_SCHEDULER = {"schedule_interval": "0:0:2", "flush_submit_sec": "1", "flush_finish_sec": "1", "schedd_job_info": "true"}
_QUEUE = {
    "qname": "all.q", "hostlist": "@allhosts", "pe_list": "smp two four fill", "slots": str(SLOTS), "rerun": "FALSE",
    "notify": "00:00:05", "tmpdir": "/tmp", "shell": "/bin/bash", "load_thresholds": "none",
}  # fmt: skip
_ENVIRONMENTS = {"smp": "$pe_slots", "two": "2", "four": "4", "fill": "$fill_up"}
"""Parallel environments by name: how each allots slots."""
_NODE = (
    """
set -e
hostname {name}
mount -t tmpfs tmpfs /dev/shm
mount --bind {place}/hosts /etc/hosts
"""
    + namespaces.OWN_TMP
    + """ip link set lo up
echo ready
read begin
SGE_ND=1 sge_execd </dev/null >>{place}/log/{name}.out 2>&1 &
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
_numbers = count(1)


@dataclass
class Cluster:
    """A cluster that is up."""

    place: Path
    """A directory that all hosts see."""
    login: subprocess.Popen[str]
    nodes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """The process that holds each node."""

    def environment(self, mpi: str = "openmpi") -> dict[str, str]:
        """Return what a user has in a shell on the login host, with the environment of this MPI activated."""
        keep = {name: value for name, value in OPENMPI_ENVIRONMENT.items() if "mapping" not in name}
        return {
            **keep,
            "HOME": str(self.place / "home"),
            "PATH": f"{self.place}/bin:{mpi_python(mpi).parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "SGE_ROOT": str(self.place / "root"),
            "MPI_RUNTIME_PROFILES": str(self.place / "profiles.toml"),
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
        cwd: Path | None = None,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        limit_s: float = JOB_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login host to its end, which must be with this exit code (None: any)."""
        done = subprocess.run(
            self.on_login(command, cwd),
            env={**self.environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        if code is not None and done.returncode != code:
            pytest.fail(f"{shlex.join(command)}: {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done

    def on_login(self, command: Sequence[str], cwd: Path | None) -> list[str]:
        """Return the words that run a command on the login host."""
        return [*enter(child(self.login)), "sh", "-c", 'cd "$0" && exec "$@"', str(cwd or self.place), *command]

    def start_node(self, name: str, number: int) -> None:
        """Start a node."""
        text = _NODE.format(name=name, place=self.place, kept=kept(self.place))
        holder = hold(["--pid", "--mount-proc", "bash", "-c", text], _daemon_environment(self.place))
        self.nodes[name] = holder
        connect(child(self.login), child(holder), name, f"{SUBNET}.{number}")
        assert holder.stdin is not None
        holder.stdin.write("begin\n")
        holder.stdin.flush()

    def _configure(self, option: str, lines: Mapping[str, str] | str) -> None:
        text = lines if isinstance(lines, str) else "".join(f"{name} {value}\n" for name, value in lines.items())
        file = self.place / "made"
        file.write_text(text)
        self.run("qconf", option, str(file))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster, until the block is left; where there can be none the test is skipped."""
    if reason := namespaces.missing(TOOLS, PACKAGES):
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="mrg-", dir="/tmp"))
    place.chmod(0o755)
    _write_configuration(place)
    login = hold(["bash", "-c", _LOGIN.format(place=place, subnet=SUBNET)], _daemon_environment(place))
    made = Cluster(place, login)
    master: subprocess.Popen[bytes] | None = None
    try:
        with open(place / "log/qmaster.out", "ab") as out:
            master = subprocess.Popen(
                [*enter(child(login)), "sge_qmaster"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**_daemon_environment(place), "SGE_ND": "1"},
            )  # fmt: skip
        wait_until(lambda: made.run("qconf", "-sh", code=None).returncode == 0, START_LIMIT_S, "sge_qmaster")
        _set_up(made)
        for number, name in enumerate(NODES):
            made.start_node(name, number + 1)
        wait_until(lambda: _are_up(made), START_LIMIT_S, f"{len(NODES)} nodes")
        yield made
    finally:
        for holder in [*made.nodes.values(), login]:
            end(holder)
        if master is not None:
            master.kill()
            master.wait()
        if not os.environ.get("KEEPIT"):
            shutil.rmtree(place)


def _are_up(made: Cluster) -> bool:
    text = made.run("qstat", "-f", code=None).stdout
    lines = [line.split() for line in text.splitlines() if line.startswith("all.q@")]
    return len(lines) == len(NODES) and all(len(words) == 5 for words in lines)  # a sixth word: what is wrong


def _set_up(made: Cluster) -> None:
    made._configure("-Msconf", _changed(made.run("qconf", "-ssconf").stdout, _SCHEDULER))
    made.run("qconf", "-as", "login")
    for name in NODES:
        made.run("qconf", "-ah", name)
        made.run("qconf", "-as", name)
        made._configure(
            "-Ae",
            f"hostname {name}\nload_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists NONE\n"
            "projects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n",
        )
    made._configure("-Ahgrp", f"group_name @allhosts\nhostlist {' '.join(NODES)}\n")
    for name, rule in _ENVIRONMENTS.items():
        made._configure(
            "-Ap",
            f"pe_name {name}\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\n"
            f"stop_proc_args NONE\nqsort_args NONE\nallocation_rule {rule}\ncontrol_slaves TRUE\n"
            "job_is_first_task FALSE\nurgency_slots min\naccounting_summary TRUE\n",
        )
    made._configure("-Aq", _changed(made.run("qconf", "-sq").stdout, _QUEUE))


def _changed(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = re.sub(rf"^{name} .*$", f"{name} {value}", text, flags=re.MULTILINE)
    return text


def _write_configuration(place: Path) -> None:
    for name in ("qmaster", "execd", "spooldb", "log", "home", "bin", "root/default/common"):
        (place / name).mkdir(parents=True)
    command = place / "bin/mpi-runtime"  # the project need not be installed
    command.write_text('#!/bin/sh\nexec python -m mpi_runtime.cli.main "$@"\n')
    command.chmod(0o755)
    (place / "profiles.toml").write_text('[default]\nsystem = "sge"\n')  # Slurm's commands may be installed too
    root = place / "root"
    for name in ("bin", "lib", "util", "utilbin"):
        (root / name).symlink_to(INSTALLED / name)
    common = root / "default/common"
    (common / "bootstrap").write_text(_BOOTSTRAP.format(place=place))
    (common / "act_qmaster").write_text("login\n")
    addresses = [f"{SUBNET}.254 login", *(f"{SUBNET}.{number + 1} {name}" for number, name in enumerate(NODES))]
    (place / "hosts").write_text("\n".join(["127.0.0.1 localhost", *addresses]) + "\n")
    settings = Path("/usr/share/gridengine/default-configuration").read_text()
    changed = {name: value.format(place=place) for name, value in _CHANGED.items()}
    (place / "settings").write_text(_changed(settings, changed))
    resources = "/usr/share/gridengine/util/resources"
    lines: Sequence[Sequence[str]] = (
        ("spoolinit", "berkeleydb", "libspoolb", str(place / "spooldb"), "init"),
        ("spooldefaults", "configuration", str(place / "settings")),
        ("spooldefaults", "complexes", f"{resources}/centry"),
        ("spooldefaults", "usersets", f"{resources}/usersets"),
        ("spooldefaults", "managers", "root"),
        ("spooldefaults", "adminhosts", "login"),
    )
    for tool, *words in lines:
        subprocess.run(
            [str(TOOLS_AT / tool), *words], env=_daemon_environment(place), check=True, capture_output=True, timeout=60
        )


def _daemon_environment(place: Path) -> dict[str, str]:
    root = {"SGE_ROOT": str(place / "root"), "SGE_CELL": "default"}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **root}
