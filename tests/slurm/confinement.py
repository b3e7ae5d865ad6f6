"""Control groups for the nodes of a cluster, so that Slurm can confine jobs to their CPUs and their memory.

Version 1 alone, in trees that hold one controller each; Slurm on version 2 has not been tried.
"""

import os
from contextlib import suppress
from pathlib import Path

from tests.helpers import wait_until

CONFINED = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup"
NOT_CONFINED = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
CONFIGURATION = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=yes
ConstrainRAMSpace=yes
"""
CONTROLLERS = ("cpuset", "memory", "freezer")
"""What Slurm confines jobs with: each a tree of its own, as in version 1."""

# The node gets control groups of its own, and takes them for the top of the trees.
_OWN_GROUPS = """
set -e
for controller in {controllers}; do
    top=/sys/fs/cgroup/$controller
    mkdir $top/{group}
    if [ $controller = cpuset ]; then
        for name in cpus mems; do cat $top/cpuset.$name >$top/{group}/cpuset.$name; done
    fi
    echo 0 >$top/{group}/cgroup.procs
done
exec unshare --cgroup bash -c 'for controller in {controllers}; do
    umount /sys/fs/cgroup/$controller
    mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller
done'"$0"
"""


def enter(place: Path, node: str) -> str:
    """Return the shell that gives a node groups of its own, and then runs what it gets as its first argument."""
    return _OWN_GROUPS.format(controllers=" ".join(CONTROLLERS), group=_group(place, node))


def _group(place: Path, node: str) -> str:
    """The name of a node's control groups."""
    return f"{place.name}-{node}"


def missing() -> str:
    """Why there can be no control groups for jobs here, or nothing."""
    tops = [Path("/sys/fs/cgroup", name) for name in CONTROLLERS]
    if absent := [str(top) for top in tops if not (top / "cgroup.procs").exists()]:
        return f"jobs are confined by control groups of version 1, and there is no {', '.join(absent)}"
    for top in tops:
        tried = top / f"mrs-{os.getpid()}"
        try:
            tried.mkdir()
            tried.rmdir()
        except OSError as error:
            return f"control groups cannot be made here: {error}"
    return ""


def remove(place: Path) -> None:
    """What has been confined has ended, but the kernel may take a moment to count it out."""

    def are_gone() -> bool:
        for controller in CONTROLLERS:
            for top in Path("/sys/fs/cgroup", controller).glob(_group(place, "*")):
                for path in sorted((top, *top.rglob("*/")), key=lambda path: -len(path.parts)):
                    with suppress(OSError):
                        path.rmdir()
                if top.exists():
                    return False
        return True

    wait_until(are_gone, 10, "the end of all control groups")
