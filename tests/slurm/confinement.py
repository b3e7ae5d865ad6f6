"""Control groups for the nodes of a cluster, so that Slurm can confine jobs to their CPUs and their memory.

Version 2 where this machine has its controllers there, else version 1, in trees that hold one controller each.
"""

import os
from contextlib import suppress
from pathlib import Path

from tests.helpers import wait_until

CONFINED = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup"
NOT_CONFINED = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
_CONFIGURATION = """
CgroupPlugin=cgroup/v{version}
CgroupMountpoint=/sys/fs/cgroup
{more}
ConstrainCores=yes
ConstrainRAMSpace=yes
"""
_V1_CONTROLLERS = ("cpuset", "memory", "freezer")
"""What Slurm confines jobs with: each a tree of its own, as in version 1."""
_V2_CONTROLLERS = ("cpuset", "cpu", "memory")
_TOP = Path("/sys/fs/cgroup")

# The node gets control groups of its own, and takes them for the top of the trees.
_V1_GROUPS = """
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
# The same. A group that hands controllers on has no processes of its own.
_V2_GROUPS = """
set -e
mkdir /sys/fs/cgroup/{group}
echo 0 >/sys/fs/cgroup/{group}/cgroup.procs
exec unshare --cgroup bash -c 'umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/first
echo 0 >/sys/fs/cgroup/first/cgroup.procs
echo {controllers} >/sys/fs/cgroup/cgroup.subtree_control'"$0"
"""


def version() -> int:
    """Which version of control groups there is for jobs."""
    controllers = _TOP / "cgroup.controllers"
    return 2 if controllers.exists() and set(_V2_CONTROLLERS) <= set(controllers.read_text().split()) else 1


def configuration() -> str:
    """Return Slurm's file about control groups. Without systemd there is none to be asked for groups."""
    return _CONFIGURATION.format(version=version(), more="IgnoreSystemd=yes" if version() == 2 else "")


def enter(place: Path, node: str) -> str:
    """Return the shell that gives a node groups of its own, and then runs what it gets as its first argument."""
    if version() == 2:
        handed_on = " ".join(f"+{name}" for name in _V2_CONTROLLERS)
        return _V2_GROUPS.format(controllers=handed_on, group=_group(place, node))
    return _V1_GROUPS.format(controllers=" ".join(_V1_CONTROLLERS), group=_group(place, node))


def _group(place: Path, node: str) -> str:
    """The name of a node's control groups."""
    return f"{place.name}-{node}"


def _tops() -> list[Path]:
    """Where groups are made."""
    return [_TOP] if version() == 2 else [_TOP / name for name in _V1_CONTROLLERS]


def missing() -> str:
    """Why there can be no control groups for jobs here, or nothing."""
    if absent := [str(top) for top in _tops() if not (top / "cgroup.procs").exists()]:
        return f"jobs are confined by control groups, and there is no {', '.join(absent)}"
    if version() == 2 and not set(_V2_CONTROLLERS) <= set((_TOP / "cgroup.subtree_control").read_text().split()):
        return f"the top of the control groups does not hand on {', '.join(_V2_CONTROLLERS)}"
    for top in _tops():
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
        for parent in _tops():
            for top in parent.glob(_group(place, "*")):
                for path in sorted((top, *top.rglob("*/")), key=lambda path: -len(path.parts)):
                    with suppress(OSError):
                        path.rmdir()
                if top.exists():
                    return False
        return True

    wait_until(are_gone, 10, "the end of all control groups")
