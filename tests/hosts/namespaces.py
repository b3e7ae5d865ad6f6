"""Hosts on one machine: processes that hold namespaces of their own, and network links between them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.helpers import ROOT, wait_until

UNSHARE = ("unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private", "--fork", "--kill-child")
ENTER = ("--net", "--uts", "--ipc", "--mount")
OWN_TMP = """mkdir -p {place}/{name}.tmp
mount -t tmpfs tmpfs {place}/{name}.tmp
for path in {kept}; do
    mkdir -p {place}/{name}.tmp"${{path#/tmp}}"
    mount --rbind "$path" {place}/{name}.tmp"${{path#/tmp}}"
done
mount --move {place}/{name}.tmp /tmp
chmod 1777 /tmp
"""
"""Lines of shell, as a format: a /tmp of its own, in which the directories that are to be kept are the same."""


def hold(command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a process that holds new namespaces; returns when it has written `ready`."""
    holder = subprocess.Popen(
        [*UNSHARE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != "ready\n":
        raise OSError(f"namespaces could not be made: {command}")
    return holder


def end(holder: subprocess.Popen[str]) -> None:
    """Kill it, and with it (`unshare --kill-child`) its child, whose namespaces go along."""
    holder.kill()
    holder.wait()
    for stream in (holder.stdin, holder.stdout):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


def child(holder: subprocess.Popen[str]) -> int:
    """The first process in the namespaces."""
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    return int(wait_until(lambda: children.read_text().split(), what="the first process of a host")[0])


def enter(pid: int) -> list[str]:
    """Return the words that run the command after them in the namespaces of a process."""
    return ["nsenter", "--target", str(pid), *ENTER, "--"]


def connect(bridge: int, host: int, name: str, address: str) -> None:
    """Link a host, which then has this address, to `br0` in the network of another process."""
    for pid, line in (
        (bridge, f"ip link add {name} type veth peer name eth0 netns {host}"),
        (bridge, f"ip link set {name} master br0 up"),
        (host, f"ip addr add {address}/24 dev eth0"),
        (host, "ip link set eth0 up"),
    ):
        subprocess.run(["nsenter", "--target", str(pid), "--net", "--", *line.split()], check=True)


def kept(place: Path) -> str:
    """Return what of `/tmp` programs need on hosts that have one of their own, as words of a shell."""
    paths = dict.fromkeys((place, ROOT, Path(sys.prefix), Path(sys.base_prefix)))
    return " ".join(shlex.quote(str(path)) for path in paths if path.is_relative_to("/tmp"))


def missing(tools: Sequence[str], packages: str) -> str:
    """Return why there can be no hosts here that are made with these tools, or nothing."""
    if os.geteuid():
        return "hosts are made of namespaces: run as root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if absent := [tool for tool in tools if not shutil.which(tool, path=path)]:
        return f"this takes {', '.join(absent)}: install {packages}"
    tried = subprocess.run([*UNSHARE, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, text=True)
    return f"this machine does not let us make hosts: {tried.stderr.strip()}" if tried.returncode else ""
