"""Names of written files.

They begin with a digest of what decides the rows, as far as it is known: functions with what they refer to, their
arguments, and the names, sizes and times of files. So a program that runs again, perhaps since it was killed, replaces
its files. What a job writes a second time into a directory has other names. Each run has other names too if a
source cannot be compared, such as a database.

With a journal a run continues an earlier one. So it replaces the files of that one even if variables or files have
changed, or a source cannot be compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from types import FunctionType
from weakref import WeakKeyDictionary

from mpi_runtime.core import published
from mpi_runtime.data.plan import Divided, Exchanged, Joined, Limited, Mapped, Operator, Source, identity, sources
from mpi_runtime.extend import digest_of, job

_THIS_RUN = os.urandom(8).hex()
_written: WeakKeyDictionary[object, set[tuple[str, str]]] = WeakKeyDictionary()
"""For each job of this process, directories and the beginnings of the names of what it has written there."""


def beginning_of(operator: Operator, folder: str, *others: object) -> str:
    """The beginning of the names of files that a data set writes into a directory. Call `forget` if that fails.

    `others`: more that decides what is in the files.
    """
    words: object = identity(operator), *others
    if not job().store.journal:
        states = [state_of(name) for source in sources(operator) for name in source.files]
        words = words, [digest_of(one) for one in words_of(operator)], states
    written = _written.setdefault(job(), set())
    while True:
        found = hashlib.blake2b(repr(words).encode(), digest_size=8).hexdigest()
        if (folder, found) not in written:
            written.add((folder, found))
            return found
        words = found


def forget(folder: str, beginning: str) -> None:
    """Not all files whose names begin like this are written: the next try replaces them."""
    for written in _written.values():  # not of `job()`: it may have ended
        written.discard((folder, beginning))


def of_this_run() -> str:
    """What is another in each run, for sources whose rows may differ; with a journal always the same."""
    return "" if job().store.journal else _THIS_RUN


def state_of(name: str) -> tuple[int, int] | None:
    """The bytes of a file, and the time of its last change in ns; None: it is not there."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def words_of(operator: Operator) -> list[object]:
    """What each step of a data set does, for digests."""
    match operator:
        case Mapped(parent, step):
            words = [getattr(step, name) for name in step.__struct_fields__ if name != "function"]
            return [*words_of(parent), [*words, _opened(step.function)]]
        case Divided(parent) | Limited(parent):
            return words_of(parent)
        case Joined(parents) | Exchanged(parents):
            own = [operator.arguments] if isinstance(operator, Exchanged) else []
            return [word for parent in parents for word in words_of(parent)] + own
        case Source():
            return []


def _opened(function: Callable[..., object]) -> object:
    """A function; one of this package with what it holds: of installed functions only the names count."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith("mpi_runtime."):
        return function
    return function, [cell.cell_contents for cell in function.__closure__ or ()]


@published("mpi_runtime.data.datasource")
class FilenameProvider:
    """Names the files of a write: subclass it, and pass an instance as `filename_provider=`.

        class Numbered(FilenameProvider):
            def get_filename_for_task(self, write_uuid, task_index):
                return f"part-{task_index:06}.parquet"

    Names must be different for each number, and the same when they are asked for again.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        """`dataset_uuid`: the beginning of names; `file_format`: their ending, without the dot."""
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """The name of a file.

        Args:
            write_uuid: a text for this write, the same if the program is run again.
            task_index: the number of the block that is written. Numbers may have gaps.
        """
        head = f"{self.dataset_uuid}_" if self.dataset_uuid is not None else ""
        tail = f".{self.file_format}" if self.file_format is not None else ""
        return f"{head}{write_uuid}_{task_index:06}{tail}"


def numbered(name: str, *numbers: int) -> str:
    """The name of a file with numbers in front of its ending."""
    root, ending = os.path.splitext(name)
    return "_".join([root, *(f"{number:06}" for number in numbers)]) + ending


def index_of(place: tuple[int, ...]) -> int:
    """A number of its own for each place in the order of blocks: that of its source, if there is nothing else."""
    if len(place) > 1 and place[1] < 10**6 and not any((place[0], *place[2:])):
        return place[1]
    return int("1" + "".join(f"{number:09}" for number in place))


def checked(name: str) -> str:
    """ValueError: it names a file in another directory."""
    if os.path.dirname(name) or name in ("", ".", ".."):
        raise ValueError(f"filename_provider must return names of files without directories, not {name!r}")
    return name
