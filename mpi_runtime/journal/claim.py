"""Keeps a journal to one job at a time, also where files cannot be locked.

The owner's name stands in a file, `owner`, which exists once: it is made whole under another name and gets this one by
`link`, which fails where there is one. Each second the owner writes it anew with a higher number. A job that finds it
takes the journal over if the owner's process is dead, which can be seen on its own host only, or if the number stands
still for STALE_S. Clocks of hosts are not compared.

If two think so at a time, or the owner was only stopped, two jobs use one journal. They write files of their own, so
nothing is lost or damaged; calls are made twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from mpi_runtime.errors import JournalError

NAME = "owner"
BEAT_S = 1.0
"""How often the owner writes."""
STALE_S = 10.0
LOOK_S = 0.2


class Owner(msgspec.Struct):
    """The content of the file."""

    job: str
    """The job in words: its host and process, and what a batch system calls it."""
    host: str
    """Where its process number means something: the boot of a host, and the namespace of processes."""
    pid: int
    started: str
    """When the process has started, as the kernel counts: its number may be given again."""
    token: str
    beats: int = 0


class Claim:
    """This job's hold of a journal."""

    def __init__(self, directory: Path, job: str) -> None:
        """Claim a journal. This takes up to STALE_S if a job on another host has it or had it.

        Raises:
            JournalError: another job uses it.
            OSError: the directory cannot be written to.
        """
        self._path = directory / NAME
        self._own = Owner(job, _here(), os.getpid(), _start_of(os.getpid()), os.urandom(8).hex())
        self._beat_s = time.monotonic()
        while not self._take():
            self._remove_dead(directory)

    def _take(self) -> bool:
        spare = self._write()
        try:
            os.link(spare, self._path)
            return True
        except FileExistsError:
            return False
        finally:
            spare.unlink(missing_ok=True)

    def _write(self) -> Path:
        spare = self._path.with_name(f"{NAME}.{self._own.token}")
        spare.write_bytes(msgspec.json.encode(self._own))
        return spare

    def _remove_dead(self, directory: Path) -> None:
        found = _read(self._path)
        first, deadline = found, time.monotonic() + STALE_S
        while found is not None and not _is_dead(found):
            if found != first or found.host == self._own.host:
                raise JournalError(
                    f"the journal {directory} is in use by {found.job}. Two jobs cannot use one journal: wait until "
                    "that has ended, end it, or name another directory."
                )
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
            found = _read(self._path)
        if found is None:
            if self._path.exists():  # it is no such file, or damaged: nobody's
                self._path.unlink(missing_ok=True)
            return
        aside = self._path.with_name(f"{NAME}.{self._own.token}.dead")
        with contextlib.suppress(FileNotFoundError):  # somebody else was faster
            os.rename(self._path, aside)
            moved = _read(aside)
            if moved is not None and moved.token != found.token:  # that of somebody who was faster
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self._path)
            aside.unlink()

    def beat(self) -> None:
        """Say that this job lives, if it is time to.

        Raises:
            OSError: the file cannot be written.
        """
        if time.monotonic() - self._beat_s > BEAT_S:
            self._beat_s = time.monotonic()
            self._own.beats += 1
            os.replace(self._write(), self._path)

    def release(self) -> None:
        """The job is done with it."""
        with contextlib.suppress(OSError):
            found = _read(self._path)
            if found is not None and found.token == self._own.token:
                self._path.unlink()


def owner_of(directory: Path) -> str:
    """The job that has claimed a journal, in words; empty: none, or one that is known to be dead."""
    found = _read(directory / NAME)
    return found.job if found is not None and not _is_dead(found) else ""


def _read(path: Path) -> Owner | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None


def _is_dead(owner: Owner) -> bool:
    return owner.host == _here() and _start_of(owner.pid) != owner.started


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _start_of(pid: int) -> str:
    """When a process has started, by the kernel's clock; empty: it is gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
