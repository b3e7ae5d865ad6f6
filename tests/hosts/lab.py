"""A few hosts on one machine: namespaces with their own network, name, memory files and `/tmp`, joined by a bridge.

Programs of different hosts share cores, processes and all directories but `/tmp` and `/dev/shm`; they reach each
other by network only. Launchers get from one to the other through a stand-in for ssh, which, like ssh, hands on no
environment. Needs root, iproute2 and util-linux. All of it goes with the processes that hold the namespaces.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.helpers import MARK, Program, mpi_python, start_command
from tests.hosts import namespaces
from tests.hosts.namespaces import ENTER, child, connect, enter, hold, kept

SUBNET = "10.78.0"
TOOLS = ("ip", "unshare", "nsenter", "mount")

# Run by each host's first process: {place} is visible to all hosts under its own name, {kept} too.
_FIRST = (
    """
set -e
hostname {name}
mount --bind {place}/{name}.boot_id /proc/sys/kernel/random/boot_id
mount --bind {place}/hosts /etc/hosts
mount -t tmpfs tmpfs /dev/shm
"""
    + namespaces.OWN_TMP
    + """ip link set lo up
echo ready
exec sleep infinity
"""
)

_SSH = """#!/bin/sh
# Options and their values, the host, the command.
while :; do
    case "$1" in
        -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host="${{1##*@}}"
shift
exec 3<&0  # a command in the background would have none
nsenter --target "$(cat {place}/"$host".pid)" {enter} -- \\
    env -i HOME=/ PATH=/usr/local/bin:/usr/bin:/bin {mark}="${mark}" sh -c "$*" <&3 3<&- &
trap 'kill $!' TERM INT HUP
wait $!
code=$?
# Of a host that is cut off it does not hear that the command has ended.
while [ -e {place}/"$host".cut ]; do sleep 0.1; done
exit $code
"""


@dataclass(frozen=True)
class Lab:
    """Hosts that are up."""

    place: Path
    """A directory that all hosts see; its `ssh` is what launchers are to use."""
    hosts: Mapping[str, int]
    """The first process of each host, by name: host1, host2 ..."""
    switch: int
    """The process that holds the bridge between them."""

    def enter(self, host: str) -> list[str]:
        """Return the words that run the command after them on a host."""
        return enter(self.hosts[host])

    @contextmanager
    def cut(self, host: str) -> Iterator[None]:
        """Have a host hear nothing of the others, nor they of it, and nobody be told, until the block is left."""
        mark = self.place / f"{host}.cut"
        mark.touch()
        words = ["nsenter", "--target", str(self.switch), "--net", "--", "ip", "link", "set", host]
        subprocess.run([*words, "nomaster"], check=True)
        try:
            yield
        finally:
            subprocess.run([*words, "master", "br0"], check=True)
            mark.unlink()

    def mpirun(
        self,
        program: str,
        *args: str,
        ranks: Mapping[str, int],
        mpi: str = "openmpi",
        env: Mapping[str, str] | None = None,
        directory: str | None = None,
        options: Sequence[str] = (),
    ) -> Program:
        """Start a program (its source) on so many ranks of each host, from the first of these hosts.

        `directory` is made on that host alone, and is where the launcher starts. `options` are for the launcher.
        """
        place = self.place / f"program{next(_numbers)}"
        place.mkdir()
        (place / "app.py").write_text(program)
        python = mpi_python(mpi)
        hosts = ",".join(f"{host}:{number}" for host, number in ranks.items())
        # No order for all hosts but what is needed here: a policy for crowded hosts puts all ranks on the first one.
        environment: dict[str, str | None] = {
            "PRTE_MCA_rmaps_default_mapping_policy": None,
            "TMPDIR": None,
            **(env or {}),
        }
        launcher = [str(python.with_name("mpirun"))]
        if mpi == "openmpi":
            launcher += ["--host", hosts, "--prtemca", "plm_ssh_agent", str(self.place / "ssh")]
            for name in ("PYTHONPATH", MARK, *(env or {})):
                launcher += ["-x", name]
        else:
            launcher += ["-launcher", "ssh", "-launcher-exec", str(self.place / "ssh"), "-hosts", hosts]
        launcher += [*options, "-n", str(sum(ranks.values()))]
        where = directory or str(place)
        enter = self.enter(next(iter(ranks)))
        enter += ["sh", "-c", f'mkdir -p {where} && cd {where} && exec "$@"', "sh"]
        command = [*enter, *launcher, str(python), str(place / "app.py"), *args]
        return start_command(command, env=environment, cwd=self.place, place=place)

    def restarted(
        self, source: str, folder: Path, *args: str, ranks: Mapping[str, int], mpi: str, restarts: int
    ) -> Program:
        """Start a program (its source) by `mpi-runtime run --journal --restarts` on so many ranks of each host.

        `folder` is made, for the program, its journal and its output. The first host starts it.
        """
        (folder / "place").mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "app.py").write_text(source)
        env: dict[str, str | None] = {
            "PRTE_MCA_rmaps_default_mapping_policy": None,
            "TMPDIR": None,
            "PRTE_MCA_plm_ssh_agent" if mpi == "openmpi" else "HYDRA_LAUNCHER_EXEC": str(self.place / "ssh"),
        }
        hosts = ",".join(f"{host}:{number}" for host, number in ranks.items())
        words = ["run", "-n", str(sum(ranks.values())), "--mpi", mpi, "--hosts", hosts]
        words += ["--journal", f"{folder}/journal", "--restarts", str(restarts), f"{folder}/app.py", *args]
        command = [*self.enter(next(iter(ranks))), str(mpi_python(mpi)), "-m", "mpi_runtime", *words]
        return start_command(command, env=env, cwd=folder, place=folder / "place")


_numbers = count(1)


def missing() -> str:
    """Return why there can be no lab here, or nothing."""
    return namespaces.missing(TOOLS, "iproute2 and util-linux")


@contextmanager
def lab(number: int) -> Iterator[Lab]:
    """So many hosts, until the block is left."""
    place = Path(tempfile.mkdtemp(prefix="mrl-", dir="/tmp"))
    place.chmod(0o755)
    holders: list[subprocess.Popen[str]] = []
    try:
        switch = hold(
            ["sh", "-c", "ip link add br0 type bridge && ip link set br0 up && echo ready; exec sleep infinity"]
        )
        holders.append(switch)
        names = [f"host{index + 1}" for index in range(number)]
        lines = ["127.0.0.1 localhost", *(f"{SUBNET}.{index + 1} {name}" for index, name in enumerate(names))]
        (place / "hosts").write_text("\n".join(lines) + "\n")
        ssh = place / "ssh"
        ssh.write_text(_SSH.format(place=place, enter=" ".join(ENTER), mark=MARK))
        ssh.chmod(0o755)
        words = kept(place)
        hosts = {}
        for index, name in enumerate(names):
            (place / f"{name}.boot_id").write_text(Path("/proc/sys/kernel/random/uuid").read_text())
            holder = hold(["sh", "-c", _FIRST.format(name=name, place=place, kept=words)])
            holders.append(holder)
            hosts[name] = child(holder)
            (place / f"{name}.pid").write_text(str(hosts[name]))
            connect(child(switch), hosts[name], name, f"{SUBNET}.{index + 1}")
        yield Lab(place, hosts, child(switch))
    finally:
        for holder in holders:
            namespaces.end(holder)
        shutil.rmtree(place)
