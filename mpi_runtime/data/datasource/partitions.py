"""Values of columns in the names of directories, such as "year=2024"."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from mpi_runtime.core import published

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""In the name of a directory, a value that is missing."""


@published("mpi_runtime.data.datasource")
class PartitionStyle(str, Enum):
    """How directories have values."""

    HIVE = "hive"
    """Their names have the column too, as "year=2024"."""
    DIRECTORY = "dir"
    """Their names are the values, in the order of `field_names`."""


@published("mpi_runtime.data.datasource")
@dataclass
class Partitioning:
    """Which columns the names of directories have: an argument of readers.

    data.read_images("in", partitioning=Partitioning("dir", field_names=["animal"], base_dir="in"))
    """

    style: PartitionStyle
    """A `PartitionStyle`, or its value."""
    base_dir: str | None = None
    """Only directories below it count; None: all."""
    field_names: list[str] | None = None
    """The columns, in the order of directories. A None among them leaves a directory out."""
    field_types: dict[str, type] | None = None
    """The types of columns: int, float, bool or str, which others are."""
    filesystem: object = None
    """Ray's, without effect."""

    def __post_init__(self) -> None:
        self.base_dir = os.fspath(self.base_dir) if self.base_dir else ""
        self.field_types = self.field_types or {}

    @property
    def normalized_base_dir(self) -> str:
        """`base_dir` with a slash at its end, unless it is empty."""
        path = (self.base_dir or "").removeprefix("local://").removeprefix("file://")
        return path if not path or path.endswith("/") else path + "/"


@published("mpi_runtime.data.datasource")
class PathPartitionParser:
    """Finds the values in the path of a file."""

    @staticmethod
    def of(
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: object = None,
    ) -> PathPartitionParser:
        """The parser of a `Partitioning` with these arguments."""
        return PathPartitionParser(Partitioning(style, base_dir, field_names, field_types, filesystem))

    def __init__(self, partitioning: Partitioning) -> None:
        """ValueError: there is no such style, or "dir" has no names of columns."""
        styles = [style.value for style in PartitionStyle]
        if partitioning.style not in styles:
            raise ValueError(f"Unsupported partition style: {partitioning.style}. It must be one of {styles}")
        if partitioning.style == PartitionStyle.DIRECTORY and not partitioning.field_names:
            raise ValueError("Directory partitioning requires field_names=[...]: names of directories have values only")
        self._scheme = partitioning

    @property
    def scheme(self) -> Partitioning:
        """Its `Partitioning`."""
        return self._scheme

    def __call__(self, path: str) -> dict[str, object]:
        """The values by column; none: the file lies outside the base directory, or in no directory with a value.

        Raises:
            ValueError: there are more or fewer directories than columns, or of other columns.
            KeyError: a column with a type is not there.
        """
        base = self._scheme.normalized_base_dir
        if not path.startswith(base):
            base = base and os.path.abspath(base) + "/"
            if not path.startswith(base):
                return {}
        folders = [name for name in os.path.dirname(path[len(base) :]).split("/") if name]
        names = self._scheme.field_names
        found: dict[str, object] = {}
        if self._scheme.style == PartitionStyle.HIVE:
            pairs = [name.split("=") for name in folders if name.count("=") == 1]
            folders = [value for _, value in pairs]
            keys = [key for key, _ in pairs]
            if names and keys:
                _check_count(names, folders)
                if wrong := [pair for pair in zip(names, keys, strict=True) if pair[0] != pair[1]]:
                    raise ValueError(f"Expected partition key {wrong[0][0]} but found {wrong[0][1]}, in {path}")
            found = {key: unquote(value) for key, value in zip(keys, folders, strict=True)}
        elif folders:
            assert names is not None
            _check_count(names, folders)
            found = {key: value for key, value in zip(names, folders, strict=True) if key is not None}
        for name, kind in (self._scheme.field_types or {}).items():
            found[name] = _typed(found[name], kind)
        return found


def _check_count(names: Sequence[str], found: Sequence[str]) -> None:
    if len(names) != len(found):
        raise ValueError(f"a path must have {len(names)} values of partitions, and this one has {list(found)}")


def _typed(value: object, kind: type) -> object:
    if value == MISSING:
        return value
    if kind is bool:
        return str(value).lower() == "true"
    return kind(str(value)) if kind in (int, float) else value


@published("mpi_runtime.data.datasource")
class PathPartitionFilter:
    """Which files are read, by the values in their paths: an argument of readers."""

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, object]], bool],
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, type] | None = None,
        filesystem: object = None,
    ) -> PathPartitionFilter:
        """Keep the files for whose values, {"year": "2024"}, `filter_fn` is true. Files without values have {}."""
        parser = PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem)
        return PathPartitionFilter(parser, filter_fn)

    def __init__(
        self, path_partition_parser: PathPartitionParser, filter_fn: Callable[[dict[str, object]], bool]
    ) -> None:
        """As `of`, with a parser."""
        self._parser = path_partition_parser
        self._filter_fn = filter_fn

    @property
    def parser(self) -> PathPartitionParser:
        """Its parser."""
        return self._parser

    def apply(self, path: str) -> bool:
        """Whether a file is read."""
        return bool(self._filter_fn(self._parser(path)))

    def __call__(self, paths: Sequence[str]) -> list[str]:
        """The paths of files that are read."""
        return list(filter(self.apply, paths))


def columns_of(path: str, parser: PathPartitionParser | None) -> Mapping[str, object]:
    """The values for the rows of a file; None is one that is missing."""
    found = parser(path) if parser else {}
    return {name: None if value == MISSING else value for name, value in found.items()}
