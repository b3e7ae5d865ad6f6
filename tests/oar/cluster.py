"""A real OAR on one machine: a login host with the server and its database, and two nodes, each a set of namespaces.

As `tests/sge/cluster.py`, with Debian's oar-server, oar-node and oar-user, a PostgreSQL and a sshd for each node. All
that they write is in a directory of its own; nothing of the installed OAR is used or changed but its programs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.hosts import namespaces
from tests.hosts.login import Login, write_command
from tests.hosts.namespaces import child, connect, end, hold, kept

NODES = ("n1", "n2")
CORES = 4
"""Cores of each node, as the database has them."""
SUBNET = "10.79.0"
PROGRAMS = Path("/usr/lib/oar")
TOOLS = ("oarsub", "oarsh", "Almighty", "sshd", "runuser", "ip", "unshare", "nsenter", "mount")
PACKAGES = "oar-server oar-node oar-user oar-server-pgsql oar-user-pgsql libjson-perl postgresql iproute2"
START_LIMIT_S = 60.0

_CHANGED = {
    "DB_HOSTNAME": "login",
    "DB_BASE_PASSWD": "oar",
    "DB_BASE_LOGIN_RO": "oar",
    "DB_BASE_PASSWD_RO": "oar",
    "SERVER_HOSTNAME": "login",
    "LOG_LEVEL": "3",
    "LOG_FILE": "/var/lib/oar/oar.log",
    "SCHEDULER_JOB_SECURITY_TIME": "1",
    "SCHEDULER_GANTT_HOLE_MINIMUM_TIME": "1",
    "JOB_RESOURCE_MANAGER_FILE": "/etc/oar/job_resource_manager.pl",
}
"""No cpusets: those of this machine belong to others."""
_PRIVATE = """\
set -e
hostname {name}
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/sshd
mount --bind {place}/hosts /etc/hosts
mount --bind {place}/etc /etc/oar
mkdir -p {place}/{name}
cp -a {place}/oar {place}/{name}/oar
mount --bind {place}/{name}/oar /var/lib/oar
"""
_NODE = (
    _PRIVATE
    + namespaces.OWN_TMP
    + """ip link set lo up
echo ready
read begin
/usr/sbin/sshd -f /etc/oar/sshd_config -E {place}/log/{name}.sshd
set +e
while :; do wait -n 2>/dev/null || sleep 0.2; done
"""
)
_LOGIN = (
    _PRIVATE
    + """
ip link add br0 type bridge
ip addr add {subnet}.254/24 dev br0
ip link set br0 up
ip link set lo up
echo ready
read begin
runuser -u postgres -- {postgres}/postgres -D {place}/database >{place}/log/postgres 2>&1 </dev/null &
read begin
/usr/sbin/Almighty </dev/null >>{place}/log/almighty 2>&1 &
wait
"""
)
_SSHD = """\
Port 6667
HostKey /etc/oar/oar_ssh_host_rsa_key
AcceptEnv OAR_CPUSET OAR_USER_CPUSET OAR_USER_GPUDEVICE OAR_JOB_USER
PermitUserEnvironment yes
StrictModes no
UsePAM no
MaxStartups 1024
AllowUsers oar
"""


class Cluster(Login):
    """A cluster that is up."""

    def begin(self, holder: subprocess.Popen[str]) -> None:
        """Have a host start the next of its daemons."""
        assert holder.stdin is not None
        holder.stdin.write("begin\n")
        holder.stdin.flush()

    def processes(self) -> list[str]:
        """Return the command lines of all processes of the nodes."""
        spaces = {os.readlink(f"/proc/{child(one)}/ns/net") for one in self.nodes.values()}
        there: list[str] = []
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(one / "ns/net") in spaces:
                    there.append((one / "cmdline").read_text(errors="replace").replace("\0", " "))
        return there

    def start_node(self, name: str, number: int) -> None:
        """Start a node."""
        text = _NODE.format(name=name, place=self.place, kept=kept(self.place))
        holder = hold(["--pid", "--mount-proc", "bash", "-c", text], _daemon_environment())
        self.nodes[name] = holder
        connect(child(self.login), child(holder), name, f"{SUBNET}.{number}")
        self.begin(holder)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster, until the block is left; where there can be none the test is skipped."""
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if reason := namespaces.missing(TOOLS, PACKAGES) or ("" if postgres else f"no PostgreSQL: install {PACKAGES}"):
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="mro-", dir="/tmp"))
    place.chmod(0o755)
    _write_configuration(place, postgres[-1])
    text = _LOGIN.format(name="login", place=place, subnet=SUBNET, postgres=postgres[-1])
    login = hold(["--pid", "--mount-proc", "bash", "-c", text], _daemon_environment())
    made = Cluster(place, login)
    try:
        made.begin(login)
        _fill_database(made, postgres[-1])
        for number, name in enumerate(NODES):
            made.start_node(name, number + 1)
        made.begin(login)
        wait_until(lambda: _are_up(made), START_LIMIT_S, f"{len(NODES)} nodes")
        yield made
    finally:
        for holder in [*made.nodes.values(), login]:
            end(holder)
        if not os.environ.get("KEEPIT"):
            shutil.rmtree(place)


def _are_up(made: Cluster) -> bool:
    text = made.run("oarnodes", "-s", code=None).stdout
    # The database may have the nodes before the server listens.
    connected = made.run("bash", "-c", "</dev/tcp/login/6666", code=None)
    return text.count("Alive") >= len(NODES) and connected.returncode == 0


def _fill_database(made: Cluster, postgres: Path) -> None:
    query = [str(postgres / "psql"), "-q", "-h", "login", "-U", "postgres", "-v", "ON_ERROR_STOP=1"]
    wait_until(lambda: made.run(*query, "-c", "select 1", code=None).returncode == 0, START_LIMIT_S, "PostgreSQL")
    made.run(*query, "-c", "create role oar login superuser password 'oar'", "-c", "create database oar owner oar")
    tables = [f"{PROGRAMS}/database/{name}.sql" for name in ("pg_structure", "default_data")]
    rules = made.place / "rules.sql"  # as Debian's, but jobs of root are run
    text = Path(f"{PROGRAMS}/database/pg_default_admission_rules.sql").read_text()
    first, *others = re.split(r"(?m)^(?=INSERT)", text)
    rules.write_text("".join([first, *(one for one in others if "root and oar users" not in one)]))
    query[query.index("-U") + 1] = "oar"
    made.run(*query, "-d", "oar", *(word for one in [*tables, str(rules)] for word in ("-f", one)))
    for name in ("cpu", "core"):
        made.run("/usr/sbin/oarproperty", "-a", name)
    made.run("/usr/sbin/oarproperty", "-c", "-a", "host")
    rows = [
        f"('{name}', '{name}', 'Alive', {host}, {CORES * (host - 1) + core}, '{core - 1}')"
        for host, name in enumerate(NODES, 1)
        for core in range(1, CORES + 1)
    ]
    fields = "network_address, host, state, cpu, core, cpuset"
    made.run(*query, "-d", "oar", "-c", f"insert into resources ({fields}) values {', '.join(rows)}")


def _write_configuration(place: Path, postgres: Path) -> None:
    write_command(place, "oar")
    (place / "oar/.ssh").mkdir(parents=True)
    addresses = [f"{SUBNET}.254 login", *(f"{SUBNET}.{number + 1} {name}" for number, name in enumerate(NODES))]
    (place / "hosts").write_text("\n".join(["127.0.0.1 localhost", *addresses]) + "\n")
    shutil.copytree("/etc/oar", place / "etc")
    settings = place / "etc/oar.conf"
    text = settings.read_text()
    for name, value in _CHANGED.items():
        text, times = re.subn(rf"(?m)^#? ?{name}=.*$", f'{name}="{value}"', text)
        text += "" if times else f'{name}="{value}"\n'
    settings.write_text(re.sub(r"(?m)^CPUSET_PATH", "# CPUSET_PATH", text))
    (place / "etc/sshd_config").write_text(_SSHD)
    keys = place / "oar/.ssh"
    for key in ("id_rsa", "../../etc/oar_ssh_host_rsa_key"):
        (keys / key).unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(keys / key)], check=True)
    (keys / "authorized_keys").write_text('environment="OAR_KEY=1" ' + (keys / "id_rsa.pub").read_text())
    (keys / "config").write_text("Host *\nForwardX11 no\nStrictHostKeyChecking no\nLogLevel ERROR\n")
    for name in (".bash_oar", ".bash_profile", ".bashrc"):
        shutil.copy(Path("/var/lib/oar") / name, place / "oar")
    (place / "oar/.batch_job_bashrc").write_text("")  # Debian's reads the .bashrc of the user, here of this machine
    subprocess.run(["chown", "-R", "oar:oar", str(place / "oar"), str(settings)], check=True)
    database = place / "database"
    database.mkdir()
    shutil.chown(database, "postgres", "postgres")
    subprocess.run(
        ["runuser", "-u", "postgres", "--", str(postgres / "initdb"), "-A", "trust", "-N", "-D", str(database)],
        check=True, capture_output=True, cwd="/",
    )  # fmt: skip
    with open(database / "postgresql.conf", "a") as conf:
        conf.write(f"listen_addresses = '*'\nunix_socket_directories = '{database}'\nfsync = off\n")
    with open(database / "pg_hba.conf", "a") as conf:
        conf.write("host all all 0.0.0.0/0 trust\n")


def _daemon_environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
