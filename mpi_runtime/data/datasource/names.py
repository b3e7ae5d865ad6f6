"""Names of written files."""

from __future__ import annotations

import os

from mpi_runtime.core import published


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
            write_uuid: a text that is the same each time that this data set is written.
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
