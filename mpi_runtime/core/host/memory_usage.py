"""Memory in use, as the kernel counts it, on the host and in control groups with a limit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mpi_runtime.core.host.machine import cgroup_directories, memory_limit_of, read
from mpi_runtime.core.host.process_tree import descendants

OWN = "memory_limit of init()"
LARGEST = 3
"""How many of the largest processes are named."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KILLED = ("memory.events", "memory.oom_control")
"""Files in which control groups count the processes that the kernel killed for lack of memory: version 2, version 1."""


class Use(NamedTuple):
    """A limit of memory and how much of it is used, in bytes."""

    used: int
    limit: int
    where: str
    """What has this limit, in words."""

    @property
    def share(self) -> float:
        """The used fraction of the limit; 1: all of it."""
        return self.used / self.limit if self.limit else 0.0


class Memory:
    """The memory of this host that this process may use."""

    def __init__(self, limit: int = 0, root: str = "", is_alone: bool = True) -> None:
        """Find the control groups that have limits.

        Args:
            limit: bytes that the processes passed to `fullest` may have together; 0: no limit.
            root: has /proc and /sys.
            is_alone: whether no other agent watches this host. Else only `limit` counts: all agents would end calls.
        """
        self._limit = limit
        self._is_alone = is_alone
        self._root = root
        groups = list(cgroup_directories(root, "memory"))
        self._groups = [one for one in groups if memory_limit_of(one)]
        self._killed_in = next(filter(_has_count, groups), "")

    def fullest(self, pids: Iterable[int]) -> Use:
        """Return the limit that is used most, in proportion: the host's, a control group's, or ours for these pids."""
        uses = self._uses() if self._is_alone or not self._limit else []
        if self._limit:
            uses.append(Use(sum(map(self.private_of_tree, pids)), self._limit, OWN))
        return max(uses, key=lambda use: use.share)

    def least(self) -> Use:
        """Return the smallest limit of the kernel, and what is used of it."""
        return min(self._uses(), key=lambda use: use.limit)

    def _uses(self) -> list[Use]:
        return [_of_host(self._root), *map(_of_group, self._groups)]

    def private_of(self, pid: int) -> int:
        """Return the bytes that a process has in memory and does not share; 0 if it has ended."""
        fields = read(f"{self._root}/proc/{pid}/statm").split()
        return max(0, int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else 0

    def private_of_tree(self, pid: int) -> int:
        """Return the same for a process and its descendants. Those of a call may have more than its executor."""
        return sum(map(self.private_of, [pid, *descendants(pid, self._root)]))

    def largest(self, use: Use, pids: Iterable[int]) -> Sequence[tuple[int, str, int]]:
        """Return the processes that have most memory of their own: pid, name, bytes.

        If `use` is of our own limit, only these pids and their descendants count.
        """
        if use.where == OWN:
            among = [one for pid in pids for one in (pid, *descendants(pid, self._root))]
        else:
            among = [int(name) for name in os.listdir(f"{self._root}/proc") if name.isdecimal()]
        sizes = sorted(((self.private_of(pid), pid) for pid in among), reverse=True)[:LARGEST]
        return [(pid, read(f"{self._root}/proc/{pid}/comm"), size) for size, pid in sizes if size]

    def kills(self) -> int:
        """Return how many processes the kernel has killed for lack of memory, in our control group or on the host."""
        return _kills_in(self._killed_in) if self._killed_in else _number(read(f"{self._root}/proc/vmstat"), "oom_kill")


def _of_host(root: str) -> Use:
    text = read(f"{root}/proc/meminfo")
    total, available = _number(text, "MemTotal:") << 10, _number(text, "MemAvailable:") << 10
    return Use(total - available, total, "the host")


def _of_group(directory: str) -> Use:
    """Return the use of a control group. Cached pages of files do not count: the kernel drops them when it needs room.

    Nearly all of a group with a limit may be such pages, and "active" ones, after its processes have read a file twice.
    """
    used = read(f"{directory}/memory.current") or read(f"{directory}/memory.usage_in_bytes")
    text = read(f"{directory}/memory.stat")
    files = sum(_number(text, f"total_{name}") or _number(text, name) for name in ("inactive_file", "active_file"))
    size = int(used) if used.isdecimal() else 0
    return Use(max(0, size - files), memory_limit_of(directory), f"control group {directory}")


def _has_count(directory: str) -> bool:
    return any("oom_kill " in read(f"{directory}/{name}") for name in _KILLED)


def _kills_in(directory: str) -> int:
    return max(_number(read(f"{directory}/{name}"), "oom_kill") for name in _KILLED)


def _number(text: str, name: str) -> int:
    """Return the number after this name in a text with one name and number per line; 0 if the name is missing."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[0] == name and fields[1].isdecimal():
            return int(fields[1])
    return 0
