"""Keeps a journal to one job at a time, also where files cannot be locked.

Two jobs that write one journal would make calls twice. Locks of files do not work on some cluster file systems, or are
not seen by other hosts. And a job may be killed, so a mark alone proves nothing. The idea is a *claim* with a *beat*: a
file that its owner changes each second. Whoever wants the journal watches whether the file changes.

Each owner makes a file, `owner-N`, with a higher number than all before. It is written whole under another name and
gets this one by `link`, which fails if the name exists. No such file is ever replaced, and only its owner writes to it:

    beat, number: 19 characters | newline | an `Owner` in JSON

The number is for other jobs that read the journal: how much of another file they may read. The beat is written in
place, so that a full disk does not look like the owner's death. The file with the highest number names the owner.
Another job takes the journal over, with the next number, if

- the owner has released the journal,
- its process is dead, which can be seen on its own host only, or
- its beat has stood still for LOOKS quick looks in a row. A failed or slow look starts the count from zero: if the file
  system or the observer stalls, every owner seems to stand still. Clocks of hosts are not compared.

An owner that was stopped, replaced, and continued finds a higher number at its next beat, and records no more. Until
then two jobs use one journal. They write files of their own, so nothing is lost or damaged; calls are made twice.

Not obvious: `taking` is pure, so that tests run several owners step by step, in any order. A copied journal has a copy
of the owner's file, with another inode: that owner does not own the copy. Process ids are used again, so an owner is
known by its id, the start of its process, and the boot of its host.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from mpi_runtime.errors import JournalError
from mpi_runtime.files import private

PREFIX = "owner-"
BEAT_S = 1.0
"""How often the owner writes."""
LOOK_S, LOOKS = 0.2, 50
"""Pause between two looks at an owner, and how many must find it unchanged: ten seconds."""
QUICK_S = 1.0
"""A look that ends later than this after the one before does not count."""
LIMIT_S = 120.0
"""Seconds after which a job gives up the journal if its looks fail or are slow."""
RECENT_S = 5.0
"""A file that was written less than this ago shows that its job lives, if the clocks of the hosts agree."""
_BEAT_BYTES = 20
_RELEASED = b"released"

_still: dict[Path, bytes] = {}
"""Contents of files that were seen to stand still: they need not be looked at again for ten seconds."""

Step = tuple[Literal["numbers", "read", "link", "remove"], int]
Verdict = Literal["free", "in use", "unknown"]


class Owner(msgspec.Struct):
    """The content of the file."""

    job: str
    """The job in words: its host and process, and its name in a batch system."""
    host: str
    """The scope of its process number: the boot of a host, and the namespace of processes."""
    pid: int
    started: str
    """The start of its process by the kernel's clock: numbers of processes are used again."""
    inode: int = 0
    """Of its file: a copy of the journal has another one, and that process does not own the copy. 0: not known."""


class InUseError(Exception):
    """The owner lives. The argument is the content of its file."""


class JournalInUseError(JournalError):
    """Another job uses the journal."""


class TakenOverError(OSError):
    """Another job has taken the journal over, because this one stood still."""


def taking(judge: Callable[[bytes], Verdict]) -> Generator[Step, Any, int]:
    """Yield the steps by which a job claims a journal, and return its number. Pure: the caller performs them.

    The answers: `numbers` lists the numbers of all owners. `read` returns the content of a file (None: it cannot be
    read now) and whether this look counts; None if the file is gone. `link` returns whether this job's file has the
    name.

    Raises:
        InUseError: another job has the journal.
    """
    while True:
        last = max((yield "numbers", 0), default=0)
        if last and not (yield from _watch(last, judge)):
            continue
        if not (yield "link", last + 1):
            continue
        numbers = yield "numbers", 0
        if max(numbers, default=0) != last + 1:  # the first list was old, and a later owner may have removed this name
            yield "remove", last + 1
            continue
        for number in numbers:
            if number <= last:
                yield "remove", number
        return last + 1


def _watch(number: int, judge: Callable[[bytes], Verdict]) -> Generator[Step, Any, bool]:
    """Look at an owner until it is known to have ended. Returns False if its file is gone: a higher number exists."""
    first: bytes | None = None
    looks = 0
    while looks <= LOOKS:
        found = yield "read", number
        if found is None:
            return False
        content, counts = found
        looks = looks + 1 if counts else 0
        if content is None:
            continue
        verdict = judge(content)
        if verdict == "free":
            return True
        if first is None:
            first = content
        if verdict == "in use" or content != first:
            raise InUseError(content)
    return True


class Claim:
    """This job's hold of a journal."""

    def __init__(self, directory: Path, job: str) -> None:
        """Claim a journal. This takes ten seconds if its owner stands still and is not known to be dead.

        Raises:
            JournalError: another job uses it.
            OSError: the directory cannot be written to.
        """
        self._directory = directory
        self._beats = self._published = 0
        self._beat_s = self._looked_s = -math.inf
        spare = directory / f"owner.{os.urandom(8).hex()}"
        self._file = private.create_file(spare)
        try:
            started = state_and_start(os.getpid())[1]
            owner = Owner(job, here(), os.getpid(), started, os.fstat(self._file).st_ino)
            self._write(b"0")
            os.pwrite(self._file, msgspec.json.encode(owner), _BEAT_BYTES)
            self.number = self._take(spare)
            """Higher than those of all owners before."""
            self.names: list[str] = []
            """The names in the journal at the last beat."""
        except BaseException as error:
            os.close(self._file)
            if not isinstance(error, InUseError):
                raise
            raise JournalInUseError(
                f"the journal {directory} is in use by {_job_in(error.args[0])}. Two jobs cannot use one journal: wait "
                "until that has ended, end it, or name another directory."
            ) from None
        finally:
            spare.unlink(missing_ok=True)

    def _take(self, spare: Path) -> int:
        """Perform the steps of `taking`."""
        limit_s = time.monotonic() + LIMIT_S
        steps = taking(_judge)
        answer: Any = None
        try:
            while True:
                answer = self._perform(*steps.send(answer), spare, limit_s)
        except StopIteration as end:
            return int(end.value)

    def _perform(self, what: str, number: int, spare: Path, limit_s: float) -> Any:
        path = self._directory / f"{PREFIX}{number}"
        if what == "numbers":
            return numbers_in(os.listdir(self._directory))
        if what == "link":
            return _link(spare, path)
        if what == "remove":
            return path.unlink(missing_ok=True)
        return self._look(path, limit_s)

    def _look(self, path: Path, limit_s: float) -> tuple[bytes | None, bool] | None:
        is_first = self._looked_s == -math.inf
        if not is_first:
            time.sleep(LOOK_S)
        content: bytes | None = None
        try:
            content = _content(path)
        except FileNotFoundError:
            return None
        except OSError:
            pass  # ESTALE, for instance: look again
        now_s, before_s = time.monotonic(), self._looked_s
        self._looked_s = now_s
        if now_s > limit_s:
            raise TimeoutError(errno.ETIMEDOUT, "its file system is too slow or fails: its owner may live", str(path))
        return content, content is not None and (is_first or now_s - before_s < QUICK_S)

    def beat(self, published: int = 0) -> None:
        """Show that this job lives, if a second has passed, and check that no other job has taken the journal over.

        A new number for other jobs is `published` at once.

        Raises:
            TakenOverError: another job has.
            OSError: the file cannot be written.
        """
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)  # counts while the host is suspended, too
        if now_s - self._beat_s < BEAT_S and published == self._published:
            return
        self._beat_s, self._published = now_s, published
        self._beats += 1
        self._write(f"{self._beats} {published}".encode())
        self.names = os.listdir(self._directory)
        if max(numbers_in(self.names), default=0) > self.number:
            job = owner_of(self._directory) or "another job"
            raise TakenOverError(errno.ESTALE, f"{job} has taken the journal over, because this job stood still")

    def release(self) -> None:
        """Let other jobs use the journal."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._write(_RELEASED)
            os.close(self._file)
            self._file = -1

    def _write(self, beat: bytes) -> None:
        os.pwrite(self._file, beat.ljust(_BEAT_BYTES - 1) + b"\n", 0)
        os.close(os.dup(self._file))  # at a close NFS sends the data


def owner_of(directory: Path) -> str:
    """Return the job that has claimed a journal, in words; empty: no job, or one that is known to have ended."""
    found = _last(directory)
    return "" if found is None or _judge(found[1]) == "free" else _job_in(found[1])


def living_owner_of(directory: Path) -> str:
    """As `owner_of`, but an owner on another host counts as ended if its beat stands still: for those who only look."""
    far = far_owner(directory)
    return "" if far is not None and standing_still([far]) else owner_of(directory)


def far_owner(directory: Path) -> Path | None:
    """Return the file of an owner if only its beat shows whether it lives: it runs on another host, or is stopped."""
    found = _last(directory)
    return found[0] if found is not None and _judge(found[1]) == "unknown" else None


def standing_still(paths: Iterable[Path]) -> set[Path]:
    """Return those of the files, which living jobs write each second, that no job writes any more.

    This takes ten seconds if there is one that was not known to stand still, and a moment if all were written just now.
    """
    known = {path: content for path in paths if (content := _read(path)) is not None}
    rest = {path: content for path, content in known.items() if _still.get(path) != content}
    looks = 0
    while rest and looks < LOOKS:
        begin_s = time.monotonic()
        rest = {path: content for path, content in rest.items() if not _is_recent(path) and _read(path) == content}
        looks += time.monotonic() - begin_s < QUICK_S
        time.sleep(LOOK_S if rest else 0)
    _still.update(rest)
    return {path for path, content in known.items() if _still.get(path) == content}


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _is_recent(path: Path) -> bool:
    try:
        return abs(time.time() - path.stat().st_mtime) < RECENT_S
    except OSError:
        return True


def _last(directory: Path) -> tuple[Path, bytes] | None:
    """Return the file of the last owner, and its content."""
    try:
        path = directory / f"{PREFIX}{max(numbers_in(os.listdir(directory)), default=0)}"
        return path, _content(path)
    except OSError:
        return None


def _content(path: Path) -> bytes:
    """The content of an owner's file. In that of a copy its process counts as one of another host: its beat shows."""
    with open(path, "rb") as file:
        content, inode = file.read(), os.fstat(file.fileno()).st_ino
    owner = _owner_in(content)
    if owner is None or owner.inode in (0, inode):
        return content
    return content[:_BEAT_BYTES] + msgspec.json.encode(msgspec.structs.replace(owner, host=""))


def _judge(content: bytes) -> Verdict:
    owner = _owner_in(content)
    if content.startswith(_RELEASED):
        return "free"
    if owner is None or owner.host != here():
        return "unknown"
    state, started = state_and_start(owner.pid)
    if state in "ZX" or started != owner.started:
        return "free"
    return "unknown" if state in "Tt" else "in use"  # a stopped process is replaced as one of another host


def _owner_in(content: bytes) -> Owner | None:
    try:
        return msgspec.json.decode(content[_BEAT_BYTES:], type=Owner)
    except msgspec.DecodeError:
        return None


def _job_in(content: bytes) -> str:
    owner = _owner_in(content)
    return "another job" if owner is None else owner.job


def beat_of(directory: Path, number: int) -> tuple[str, int] | None:
    """Return the beat of an owner, and the number that it has published; None: it cannot be read at this moment.

    The beat of an owner that is known to have ended is empty.

    Raises:
        FileNotFoundError: the file is gone: a higher number exists.
        OSError: it cannot be read.
    """
    content = _content(directory / f"{PREFIX}{number}")
    beat, _, published = content[: _BEAT_BYTES - 1].decode(errors="replace").strip().partition(" ")
    if _judge(content) == "free":
        return "", 0
    return (beat, int(published or 0)) if beat.isdecimal() and (published or "0").isdecimal() else None


def numbers_in(names: Iterable[str]) -> list[int]:
    """Return the numbers of the owners among the names in a journal."""
    found = (name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))
    return [int(name) for name in found if name.isdecimal()]


def is_dead(host: str, pid: int, started: str) -> bool:
    """Whether a process of this host, by `here()`, is known to have ended."""
    if host != here():
        return False
    state, known = state_and_start(pid)
    return state in "ZX" or known != started


def _link(spare: Path, path: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        os.link(spare, path)
    try:
        return os.path.samefile(spare, path)  # over a network a link may be made, and its answer lost
    except FileNotFoundError:
        return False


def here() -> str:
    """Return the scope of process numbers: the boot of this host, and its namespace of processes."""
    return f"{_of_kernel('/proc/sys/kernel/random/boot_id')} {os.readlink('/proc/self/ns/pid')}"


def _of_kernel(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def state_and_start(pid: int) -> tuple[str, str]:
    """Return state and start of a process as the kernel has them; "X" if it is gone."""
    fields = _of_kernel(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if fields else ("X", "")
