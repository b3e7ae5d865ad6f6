"""Cuts a data set into a part for each worker: consecutive items, and sizes that differ by one at most."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import mpi_runtime
from mpi_runtime.core import published

if TYPE_CHECKING:
    from mpi_runtime import ActorHandle
    from mpi_runtime.data import DataContext, DataIterator, Dataset, ExecutionOptions


class Items(Protocol):
    """A data set: a length, and items by number."""

    def __len__(self) -> int:
        """The number of items."""

    def __getitem__(self, index: Any, /) -> Any:
        """An item, or a part."""


@published("mpi_runtime.train")
class Shard(Sequence[Any]):
    """The part of a worker. A reference in it is loaded when its item is asked for."""

    def __init__(self, items: Items, start: int, stop: int) -> None:
        self._items = items
        self._range = range(start, stop)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        item = self._items[self._range[index]]
        return mpi_runtime.get(item) if isinstance(item, mpi_runtime.ObjectRef) else item

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return f"<Shard of {len(self)} items, from item {self._range.start}>"


@published("mpi_runtime.train")
class DataConfig:
    """How the workers of a trainer share data sets of `mpi_runtime.data`. A class of yours may have its `configure`."""

    def __init__(
        self,
        datasets_to_split: str | Sequence[str] = "all",
        execution_options: ExecutionOptions | Mapping[str, ExecutionOptions] | None = None,
        enable_shard_locality: bool = True,
    ) -> None:
        """Choose what is shared, and how.

        Args:
            datasets_to_split: the names of data sets of which each worker gets a part; "all". Each worker gets all
                rows of the others, and makes them itself.
            execution_options: settings of all streams, or by the name of a data set; None: those of the program.
            enable_shard_locality: accepted for programs written for Ray: a block is read where its reader is.

        Raises:
            TypeError: `datasets_to_split` is neither "all" nor a list of names.
        """
        if datasets_to_split != "all" and (
            isinstance(datasets_to_split, str) or not isinstance(datasets_to_split, Sequence)
        ):
            raise TypeError(
                f"`datasets_to_split` should be 'all' or a list of names of data sets, not {datasets_to_split!r}"
            )
        self._split = datasets_to_split
        self._options = execution_options
        self._has_hints = enable_shard_locality

    def configure(
        self,
        datasets: dict[str, Dataset],
        world_size: int,
        worker_handles: Sequence[object] | None = None,
        worker_node_ids: Sequence[str] | None = None,
    ) -> list[dict[str, DataIterator]]:
        """For each worker, by rank, what `get_dataset_shard` returns, by name. `worker_handles` are None here."""
        parts: list[dict[str, DataIterator]] = [{} for _ in range(world_size)]
        for name, given in datasets.items():
            dataset = given.copy(given)
            dataset.context.execution_options = self._options_of(name)
            if self._split == "all" or name in self._split:
                hints = worker_node_ids if self._has_hints else None
                split = dataset.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                split = [dataset.iterator()] * world_size
            for part, iterator in zip(parts, split, strict=False):
                part[name] = iterator
        return parts

    def _options_of(self, name: str) -> ExecutionOptions:
        given = self._options.get(name) if isinstance(self._options, Mapping) else self._options
        return self.default_ingest_options() if given is None else copy.deepcopy(given)

    @staticmethod
    def default_ingest_options() -> ExecutionOptions:
        """The settings of the streams of this program."""
        from mpi_runtime.data import DataContext

        return copy.deepcopy(DataContext.get_current().execution_options)


class Stream(Protocol):
    """A stream that several workers read."""

    actor: ActorHandle | None

    def start(self, name: str) -> object:
        """Start an actor of this name, which runs it."""


@runtime_checkable
class Reader(Protocol):
    """The part of one of them."""

    shares: Stream
    rank: int


class Parts:
    """The parts of all workers of a data set of `mpi_runtime.data`, with the settings of the program.

    Each attempt of each trial runs shared streams of its own, so none takes the rows of another.
    """

    def __init__(self, parts: list[DataIterator], settings: DataContext) -> None:
        self._settings = settings
        self._whole: dict[int, DataIterator] = {}
        self._shared: dict[int, tuple[Callable[[Stream, int], DataIterator], Stream, int]] = {}
        """By the rank of a worker: what makes its iterator, of a stream and the rank of a reader. The iterators
        themselves would start the stream when they are pickled."""
        for rank, part in enumerate(parts):
            if isinstance(part, Reader):
                self._shared[rank] = type(part), part.shares, part.rank
            else:
                self._whole[rank] = part

    def enter(self, share: Callable[[list[str]], list[str]], rank: int) -> None:
        """Let this worker have the settings of the program, and the streams that rank 0 starts; `share`: broadcasts."""
        self._settings.enter()
        shares = list({id(one): one for _, one, _ in self._shared.values()}.values())
        names = [f"stream of a training {uuid.uuid4().hex}" for _ in shares]
        if not rank:
            for one, name in zip(shares, names, strict=True):
                one.start(name)
        for one, name in zip(shares, share(names), strict=True):
            if rank:
                # By name: a handle that is pickled as bytes would keep the actor beyond the training.
                one.actor = mpi_runtime.get_actor(name)

    def part_of(self, rank: int) -> DataIterator:
        """The part of a worker."""
        if rank in self._whole:
            return self._whole[rank]
        made, stream, reader = self._shared[rank]
        return made(stream, reader)


def is_stream(items: object) -> bool:
    """Whether it is a data set of `mpi_runtime.data`."""
    return hasattr(type(items), "streaming_split")


def shared(datasets: Mapping[str, Any], config: DataConfig, size: int) -> dict[str, object]:
    """Prepare data sets of `mpi_runtime.data` for their workers; others as they are."""
    streams = {name: items for name, items in datasets.items() if is_stream(items)}
    if not streams:
        return dict(datasets)
    from mpi_runtime.data import DataContext

    settings = DataContext.get_current().copy()
    by_rank = config.configure(streams, size, None, None)
    parts = {name: Parts([of_rank[name] for of_rank in by_rank], settings) for name in streams}
    return {**datasets, **parts}


def check(name: str, items: object) -> None:
    """Refuse data that cannot be cut, by TypeError: it has no length or no items with numbers."""
    if is_stream(items):
        return
    if isinstance(items, Mapping | str | bytes) or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise TypeError(
            f"datasets[{name!r}] must be a list of references or something else with a length and items by number, "
            f"such as an array or a data set of torch, not {type(items).__name__}"
        )


def cut(items: Items | Parts, rank: int, size: int) -> Items | DataIterator:
    """Return the part of a worker: a slice of what has slices, such as an array; else a `Shard`."""
    if isinstance(items, Parts):
        return items.part_of(rank)
    count = len(items)
    start, stop = count * rank // size, count * (rank + 1) // size
    if not isinstance(items, list | tuple) and hasattr(items, "shape"):
        part: Items = items[start:stop]
        return part
    return Shard(items, start, stop)
