"""A real Grid Engine on one machine: a login host and two nodes, each a set of namespaces, joined by a bridge.

As `tests/slurm/cluster.py`, with Debian's gridengine-master, gridengine-exec and gridengine-client. The cell, with all
that the daemons write, is a directory of its own; nothing of the installed cell is used or changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.hosts import namespaces
from tests.hosts.login import Login, write_command
from tests.hosts.namespaces import child, connect, end, enter, hold, kept

NODES = ("n1", "n2")
SLOTS = 4
SUBNET = "10.78.0"
INSTALLED, TOOLS_AT = Path("/var/lib/gridengine"), Path("/usr/lib/gridengine")
TOOLS = ("sge_qmaster", "sge_execd", "qsub", "qconf", "ip", "unshare", "nsenter", "mount")
PACKAGES = "gridengine-master gridengine-exec gridengine-client iproute2"
START_LIMIT_S = 60.0

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


class Cluster(Login):
    """A cluster that is up."""

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
    made = Cluster(place, login, variables={"SGE_ROOT": str(place / "root")})
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
    write_command(place, "sge")
    for name in ("qmaster", "execd", "spooldb", "root/default/common"):
        (place / name).mkdir(parents=True)
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
