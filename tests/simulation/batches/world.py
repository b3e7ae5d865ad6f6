"""Virtual time, and a file system with everything that network file systems do.

Each job is a thread, and one runs at a time: it can be killed or stopped at each operation on a file. Names and sizes
that another host has written are seen late; operations fail, stall, or are done and reported as failed.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mpi_runtime.batch.elastic.files import JobFiles
from mpi_runtime.batch.elastic.records import Returned, Status

END_S = 4000.0
RETRY_S = 4.0
"""How late a host notices the end of a stall, at most: between retries it pauses."""
ANSWER_S = 2.0
"""How long the batch system takes to answer."""


class KilledError(BaseException):
    """The job was killed with -9."""


def taken_lock() -> threading.Lock:
    """A lock for which a thread waits until another releases it: a semaphore does the same several times slower."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Process:
    """A thread in virtual time."""

    def __init__(self, world: World, name: str, host: str) -> None:
        self.world, self.name, self.host = world, name, host
        self.is_killed = self.has_ended = False
        self.stopped_until = 0.0
        self.troubled_s = -1e9
        """When it was last stopped, stalled or out of room: until then it counts as calm."""
        self._turn = taken_lock()
        self._has_begun = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def body(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.is_killed:
                self.body()
        except KilledError:
            pass
        except BaseException as error:
            self.world.error = error
        self.has_ended = True
        self.world.idle.release()

    def give_turn(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        self._turn.release()

    def resume(self) -> None:
        self.give_turn()
        self.world.idle.acquire()

    def pause(self, seconds: float) -> None:
        """Let time pass. The job may be killed meanwhile."""
        until_s = self.world.now + seconds
        if self.stopped_until > until_s or not self.world.passes(until_s):
            self.world.at(until_s, self)
            following = self.world.next_process()
            if following is None:
                self.world.idle.release()
            elif following is not self:
                following.give_turn()
            if following is not self:
                self._turn.acquire()
        if self.is_killed:
            raise KilledError

    def finish(self) -> None:
        """End the thread."""
        self.is_killed = True
        if self._has_begun:
            if not self.has_ended:  # else nobody would release `idle`: a thread lives for a moment after its end
                self.resume()
            self._thread.join()

    def clock(self) -> float:
        return self.world.now


class World:
    """Time and events."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.idle = taken_lock()
        self.error: BaseException | None = None
        """What a process has raised."""
        self.counters: Counter[str] = Counter()
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Process | Callable[[], None]]] = []
        self._serial = 0
        self.log: list[str] = []

    def at(self, time_s: float, what: Process | Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time_s, self._serial, what))

    def passes(self, time_s: float) -> bool:
        """Whether nothing happens until then, and so it is then: threads are switched only where others have a turn."""
        if self.now >= END_S or (self._events and self._events[0][0] <= time_s):
            return False
        self.now = time_s
        return True

    def next_process(self) -> Process | None:
        """Take the next event, if it is the turn of a process. Threads switch half as often without `run`."""
        if self._events and self.now < END_S:
            time_s, _, what = self._events[0]
            if isinstance(what, Process) and not what.has_ended and (what.is_killed or what.stopped_until <= time_s):
                heapq.heappop(self._events)
                self.now = time_s
                return what
        return None

    def add(self, process: Process, time_s: float) -> None:
        self.processes.append(process)
        self.at(time_s, process)

    def note(self, text: str) -> None:
        self.log.append(f"{self.now:8.2f} {text}")

    def run(self) -> None:
        """Run until all processes have ended."""
        try:
            while self._events and self.now < END_S:
                self.now, _, what = heapq.heappop(self._events)
                if not isinstance(what, Process):
                    what()
                elif what.stopped_until > self.now and not what.is_killed:
                    self.at(what.stopped_until, what)
                elif not what.has_ended:
                    what.resume()
                    if self.error is not None:
                        raise self.error
            late = [one.name for one in self.processes if not one.has_ended]
            assert not late, f"{late} did not end"
        finally:
            for one in self.processes:
                one.finish()


@dataclass
class File:
    """The versions of a file, or the records that were added to it."""

    writer: Process
    versions: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each of them was written."""
    is_removed: bool = False

    def add(self, content: Any, now: float) -> None:
        self.versions.append(content)
        self.times.append(now)


@dataclass
class Faults:
    """How bad the file system is."""

    names_s: float = 0.0
    """How late new names are seen by other hosts, at most."""
    sizes_s: float = 0.0
    fails: float = 0.0
    """The probability that an operation fails."""
    stalls: list[tuple[float, float]] = field(default_factory=list)
    """Times at which all operations wait, and until when."""
    full: list[tuple[float, float]] = field(default_factory=list)
    """Times at which nothing can be added to files."""


class FileSystem:
    """All files of the batch."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world, self.faults = world, faults
        self.files: dict[str, File] = {}
        self._listings: dict[tuple[str, str], tuple[float, list[str]]] = {}
        self._absent: dict[tuple[str, str], float] = {}

    def operation(self, process: Process, what: str = "") -> None:
        """Let the time of an operation pass; it may fail."""
        world = self.world
        process.pause(world.rng.uniform(0.0005, 0.01))
        for begin, end in self.faults.stalls:
            end_s = end + random.Random(f"{process.host} {end}").uniform(0, RETRY_S)
            if begin <= world.now < end_s:
                process.pause(end_s - world.now)
        world.counters["operations"] += 1
        if world.rng.random() < self.faults.fails:
            world.counters["failures"] += 1
            number = world.rng.choice([errno.ESTALE, errno.EIO])
            raise OSError(number, os.strerror(number), what)

    def add_to(self, process: Process, path: str, content: Any) -> None:
        self.operation(process, path)
        if any(begin <= self.world.now < end for begin, end in self.faults.full):
            process.troubled_s = self.world.now
            self.world.counters["no room"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.set(process, path, content)

    def set(self, process: Process, path: str, content: Any) -> None:
        file = self.files.setdefault(path, File(process))
        if file.is_removed and self.faults.names_s:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        file.add(content, self.world.now)

    def names(self, process: Process, prefix: str) -> list[str]:
        """A listing. A host keeps one for a while, and does not see what others have made since."""
        self.operation(process, prefix)
        until_s, found = self._listings.get((process.host, prefix), (-1.0, []))
        if until_s < self.world.now:
            found = [path for path, file in self.files.items() if path.startswith(prefix) and not file.is_removed]
            until_s = self.world.now + self.world.rng.uniform(0, self.faults.names_s)
            self._listings[process.host, prefix] = until_s, found
        own = [path for path, file in self.files.items() if path.startswith(prefix) and file.writer is process]
        return [path for path in {**dict.fromkeys(found), **dict.fromkeys(own)} if not self.files[path].is_removed]

    def versions(self, process: Process, path: str) -> list[Any]:
        """What this process can see of a file. A host remembers for a while that there was none."""
        self.operation(process, path)
        file = self.files.get(path)
        is_absent = self._absent.get((process.host, path), -1.0) > self.world.now
        if file is None or file.is_removed or is_absent:
            if not is_absent:
                self._absent[process.host, path] = self.world.now + self.world.rng.uniform(0, self.faults.names_s)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        late = 0.0 if file.writer.host == process.host else self._lateness(process, path, self.faults.sizes_s)
        return file.versions[: bisect_right(file.times, self.world.now - late)]

    def _lateness(self, process: Process, what: str, most_s: float) -> float:
        return random.Random(f"{process.name} {what} {self.world.now // 20}").uniform(0, most_s) if most_s else 0.0

    def link(self, process: Process, path: str, content: Any) -> None:
        """Make a name of a file that has this content, unless it exists. The server decides, not what a host sees."""
        self.operation(process, path)
        is_answered = self.world.rng.random() >= self.faults.fails
        if path not in self.files:  # no name is free twice
            self.files[path] = File(process, [content], [self.world.now])
        if not is_answered:
            raise OSError(errno.EIO, "the answer is lost", path)

    def clear(self, tokens: list[str]) -> None:
        """Remove what these jobs of an earlier run have left."""
        gone = {f"member-{token}" for token in tokens}
        for path, file in self.files.items():
            file.is_removed = file.is_removed or path in gone or path.startswith(("offers-", "taken-"))


class SimulatedFiles(JobFiles):
    """The files of one job in this file system."""

    def __init__(self, system: FileSystem, process: Process, token: str) -> None:  # makes none on a disk
        self.system, self.process, self.token = system, process, token
        self.records: list[tuple[str, Any]] = []
        """Records of this job that were not written yet."""
        self.written = 0
        self.epoch = 0
        self.asked_s: dict[str, float] = {}

    def write_status(self, status: Status) -> None:
        self.system.operation(self.process, "status")
        self.system.set(self.process, f"member-{self.token}", status)

    def tokens(self) -> list[str]:
        return [path.removeprefix("member-") for path in self.system.names(self.process, "member-")]

    def read_status(self, token: str) -> Status | None:
        versions = self.system.versions(self.process, f"member-{token}")
        if not versions or self.system.world.rng.random() < 0.01:
            return None
        found: Status = versions[-1]
        return found

    def is_gone(self, status: Status) -> bool:
        is_answered = self.asked_s.get(status.token, self.system.world.now) < self.system.world.now - ANSWER_S
        return (status.host == self.process.host or is_answered) and self.owner(status.token).is_killed

    def ask(self, status: Status) -> None:
        """Half of the jobs are of a batch system that knows about them."""
        if sum(status.token.encode()) % 2:
            self.asked_s.setdefault(status.token, self.system.world.now)

    def owner(self, token: str) -> Process:
        return self.system.files[f"member-{token}"].writer

    def read_notes(self, status: Status, begin: int, is_last: bool) -> tuple[list[Any], int]:
        path = f"segment-{status.segment}"
        is_there = status.length or (is_last and path in self.system.files)
        versions = self.system.versions(self.process, path) if is_there else []
        end = len(versions) if is_last else min(len(versions), status.length)
        if is_last and end < status.length:
            raise OSError(errno.EAGAIN, "the rest is not here yet")
        end = begin + self.system.world.rng.randint(0, end - begin) if not is_last and end > begin else end
        found = []
        for what, content in versions[begin:end]:
            if what == "ended":
                found.append(content)
            elif what == "returned":
                found.append(Returned(*content))
        return found, max(begin, end)

    def make_name(self, slice: str, is_back: bool = False) -> str:
        mine = "" if is_back else self.token
        own = self.system.files.get(f"member-{self.token}")
        if own is not None and own.is_removed:  # with those whose names these are
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"taken-{slice}")
        self.system.link(self.process, f"taken-{slice}", mine)
        holder: str = self.system.files[f"taken-{slice}"].versions[0]
        return holder

    def coordinator(self) -> tuple[int, str, int] | None:
        numbers = [int(path.removeprefix("owner-")) for path in self.system.names(self.process, "owner-")]
        if not numbers or max(numbers) < self.epoch:
            return None
        self.epoch = max(numbers)
        versions = self.system.versions(self.process, f"owner-{self.epoch}")
        return (self.epoch, *versions[-1]) if versions else None

    def read_offers(self, epoch: int, begin: int, length: int) -> bytes:
        try:
            data = b"".join(self.system.versions(self.process, f"offers-{epoch}"))
        except FileNotFoundError:
            return b""
        if length >= 0:
            return data[begin : begin + self.system.world.rng.randint(0, length)]
        return b"".join(self.system.files[f"offers-{epoch}"].versions)

    def write_offers(self, at: int, data: bytes) -> None:
        file = self.system.files.get(f"offers-{self.epoch}")
        length = sum(map(len, file.versions)) if file is not None else 0
        assert at == length, "two jobs write to one file"
        self.system.add_to(self.process, f"offers-{self.epoch}", data)

    def earlier_epochs(self) -> list[int]:
        """Read from the server: a claim waits until it has seen all files of those before it."""
        files = self.system.files.items()
        found = [path.removeprefix("offers-") for path, file in files if not file.is_removed and "offers-" in path]
        return [int(one) for one in found if int(one) < self.epoch]
