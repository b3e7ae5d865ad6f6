"""`ray.util.iter`: iterators whose items are in actors, the shards, and pass through functions there.

`ParallelIterator` describes shards and the steps of their items. Its `gather_sync` and others make a `LocalIterator`,
which starts a pass through the shards at its first item, and can be sent to tasks before.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mpi_runtime

_Step = Callable[[Iterable[Any]], Iterable[Any]]
_END = "ray.util.iter: no more items"  # a text, since it passes between processes


class _Steps:
    """What both kinds of iterators can do with their items. Nothing happens here yet."""

    name: str

    def _with(self, step: _Step, what: str) -> Any:
        raise NotImplementedError

    def for_each(
        self, fn: Callable[[Any], Any], max_concurrency: int = 1, resources: dict[str, Any] | None = None
    ) -> Any:
        """Apply a function to each item; with `max_concurrency` above 1 in tasks with these options, in order."""
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        step = _each(fn) if max_concurrency == 1 else _each_in_tasks(fn, max_concurrency, resources or {})
        return self._with(step, "for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> Any:
        """Keep the items for which the function is true."""
        return self._with(lambda items: filter(fn, items), "filter()")

    def batch(self, n: int) -> Any:
        """Make lists of this many items; the last one may be shorter."""
        if n < 1:
            raise ValueError(f"batch() needs a number of items of at least 1, not {n}")
        return self._with(_batches(n), f"batch({n})")

    def flatten(self) -> Any:
        """Make items of the members of items."""
        return self._with(itertools.chain.from_iterable, "flatten()")

    def combine(self, fn: Callable[[Any], list[Any]]) -> Any:
        """Apply a function that returns a list to each item, and make items of its members."""
        made = self.for_each(fn).flatten()
        made.name = f"{self.name}.combine()"
        return made

    def transform(self, fn: _Step) -> Any:
        """Apply a function of an iterator that returns one."""
        return self._with(fn, "transform()")

    def take(self, n: int) -> list[Any]:
        """Return the first items."""
        return list(itertools.islice(iter(self), n))  # type: ignore[call-overload]

    def show(self, n: int = 20) -> None:
        """Print the first items."""
        for item in self.take(n):
            print(item)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.name}]"


class ParallelIteratorWorker:
    """The class of shards, and the base of those that programs write for `from_actors`."""

    def __init__(self, item_generator: Any, repeat: bool = False) -> None:
        """Keep an iterable, or a function that returns one; with `repeat` it starts again at its end."""
        self.item_generator, self.repeat = item_generator, repeat
        self._items: Iterator[Any] = iter(())
        self._slices: list[deque[Any]] = []

    def _pass(self) -> Iterator[Any]:
        while True:
            source = self.item_generator
            yield from source() if callable(source) else source
            if not self.repeat:
                return

    def par_iter_init(self, transform: _Step) -> None:
        """Begin a pass through the items."""
        self._items, self._slices = iter(transform(self._pass())), []

    def par_iter_next(self) -> Any:
        """Return the next item, or a mark at the end."""
        return next(self._items, _END)

    def par_iter_slice(self, step: int, start: int) -> Any:
        """Return the next of the items with a number `start`, `start + step` and so on."""
        self._slices = self._slices or [deque() for _ in range(step)]
        while not self._slices[start]:
            for one in self._slices:
                item = next(self._items, _END)
                one.append(item)
        at_front = self._slices[start]
        return at_front[0] if _is_end(at_front[0]) else at_front.popleft()


class ParallelIterator(_Steps):
    """Items in shards: `from_items([1, 2, 3], num_shards=2).for_each(f).gather_sync()`."""

    def __init__(self, shards: list[tuple[Any, tuple[_Step, ...]]], name: str) -> None:
        """Describe shards, each an actor and the steps of its items."""
        self._shards, self.name = shards, name

    def _with(self, step: _Step, what: str) -> ParallelIterator:
        return ParallelIterator([(actor, (*steps, step)) for actor, steps in self._shards], f"{self.name}.{what}")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.gather_sync())

    def num_shards(self) -> int:
        """The number of shards."""
        return len(self._shards)

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator:
        """Shuffle items of each shard, as many at a time as the buffer has room for."""
        what = f"local_shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})"
        return self._with(_shuffled(shuffle_buffer_size, seed), what)

    def union(self, other: ParallelIterator) -> ParallelIterator:
        """The shards of both."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"union() takes a ParallelIterator, not {type(other).__name__}")
        return ParallelIterator([*self._shards, *other._shards], f"ParallelUnion[{self}, {other}]")

    def select_shards(self, shards_to_keep: list[int]) -> ParallelIterator:
        """These shards only."""
        return ParallelIterator([self._shards[index] for index in shards_to_keep], f"{self.name}.select_shards()")

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> ParallelIterator:
        """New shards that share the items of these."""
        parts = [_part(self._shards, num_partitions, index) for index in range(num_partitions)]
        mpi_runtime.get(_begin(self._shards))
        return from_iterators(parts, name=f"{self.name}.repartition[num_partitions={num_partitions}]")

    def batch_across_shards(self) -> LocalIterator:
        """Lists with an item of each shard."""
        return LocalIterator(_rounds(self._shards), (), f"{self}.batch_across_shards()")

    def gather_sync(self) -> LocalIterator:
        """The items of all shards in turns."""
        return LocalIterator(_rounds(self._shards), (itertools.chain.from_iterable,), f"{self}.gather_sync()")

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """The items of all shards, those first that are ready first. `batch_ms` has no effect."""
        if num_async < 1:
            raise ValueError(f"num_async must be positive, not {num_async}")
        return LocalIterator(_as_ready(self._shards, num_async), (), f"{self}.gather_async()")

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """The items of one shard."""
        if num_async < 1:
            raise ValueError(f"num_async must be positive, not {num_async}")
        shard = [self._shards[shard_index]]
        return LocalIterator(_as_ready(shard, num_async, in_order=True), (), f"{self.name}.shard[{shard_index}]")

    def shards(self) -> list[LocalIterator]:
        """An iterator for each shard."""
        return [self.get_shard(index) for index in range(self.num_shards())]


class LocalIterator(_Steps):
    """Items of shards where they are asked for."""

    def __init__(self, source: Callable[[], Iterable[Any]], steps: tuple[_Step, ...], name: str) -> None:
        """Describe the items of a source, after these steps."""
        self._source, self._steps, self.name = source, steps, name
        self._running: Iterator[Any] | None = None

    def _with(self, step: _Step, what: str) -> LocalIterator:
        return LocalIterator(self._source, (*self._steps, step), f"{self.name}.{what}")

    def __iter__(self) -> Iterator[Any]:
        if self._running is None:
            self._running = iter(_composed(self._steps)(self._source()))
        return self._running

    def __next__(self) -> Any:
        return next(iter(self))

    def __reduce__(self) -> tuple[object, ...]:
        return LocalIterator, (self._source, self._steps, self.name)

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """Shuffle items, as many at a time as the buffer has room for."""
        what = f"shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})"
        return self._with(_shuffled(shuffle_buffer_size, seed), what)

    def duplicate(self, n: int) -> list[LocalIterator]:
        """Iterators of which each has all items."""
        copies = itertools.tee(iter(self), n)
        return [
            LocalIterator(functools.partial(iter, one), (), f"{self.name}.duplicate[{i}]")
            for i, one in enumerate(copies)
        ]

    def union(
        self, *others: LocalIterator, deterministic: bool = False, round_robin_weights: list[float] | None = None
    ) -> LocalIterator:
        """The items of all in turns, which have as many items as the weights say."""
        every = [self, *others]
        if round_robin_weights is not None and len(round_robin_weights) != len(every):
            raise ValueError(f"round_robin_weights must have {len(every)} numbers, not {len(round_robin_weights)}")
        weights = [max(1, int(weight)) for weight in round_robin_weights or [1] * len(every)]
        name = f"LocalUnion[{self}, {', '.join(map(str, others))}]"
        return LocalIterator(lambda: _turns([copy.copy(one) for one in every], weights), (), name)


def from_items(items: list[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Deal items to shards, one after the other."""
    kind = type(items[0]).__name__ if items else "None"
    name = f"from_items[{kind}, {len(items)}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators([items[index::num_shards] for index in range(num_shards)], repeat=repeat, name=name)


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Numbers from 0 to n - 1, of which each shard has a stretch; the last one has the rest."""
    size = n // num_shards
    ends = [*(size * index for index in range(1, num_shards)), n]
    name = f"from_range[{n}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators([range(size * index, end) for index, end in enumerate(ends)], repeat=repeat, name=name)


def from_iterators(generators: list[Any], repeat: bool = False, name: str | None = None) -> ParallelIterator:
    """A shard for each iterable, or function that returns one."""
    worker = mpi_runtime.remote(ParallelIteratorWorker)
    name = name or f"from_iterators[shards={len(generators)}{', repeat=True' if repeat else ''}]"
    return from_actors([worker.remote(one, repeat) for one in generators], name=name)


def from_actors(actors: list[Any], name: str | None = None) -> ParallelIterator:
    """Actors of classes derived from `ParallelIteratorWorker` as shards."""
    return ParallelIterator([(actor, ()) for actor in actors], name or f"from_actors[shards={len(actors)}]")


def _composed(steps: tuple[_Step, ...]) -> _Step:
    def all_steps(items: Iterable[Any]) -> Iterable[Any]:
        for step in steps:
            items = step(items)
        return items

    return all_steps


def _begin(shards: list[tuple[Any, tuple[_Step, ...]]]) -> list[Any]:
    return [actor.par_iter_init.remote(_composed(steps)) for actor, steps in shards]


def _rounds(shards: list[tuple[Any, tuple[_Step, ...]]]) -> Callable[[], Iterator[list[Any]]]:
    def rounds() -> Iterator[list[Any]]:
        mpi_runtime.get(_begin(shards))
        active = [actor for actor, _ in shards]
        refs = [actor.par_iter_next.remote() for actor in active]
        while active:
            found = [(actor, mpi_runtime.get(ref)) for actor, ref in zip(active, refs, strict=True)]
            found = [(actor, item) for actor, item in found if not _is_end(item)]
            if found:
                yield [item for _, item in found]
            active = [actor for actor, _ in found]
            refs = [actor.par_iter_next.remote() for actor in active]

    return rounds


def _as_ready(
    shards: list[tuple[Any, tuple[_Step, ...]]], num_async: int, in_order: bool = False
) -> Callable[[], Iterator[Any]]:
    def items() -> Iterator[Any]:
        mpi_runtime.get(_begin(shards))
        asked = {actor.par_iter_next.remote(): actor for _ in range(num_async) for actor, _ in shards}
        while asked:
            ref = next(iter(asked)) if in_order else mpi_runtime.wait(list(asked))[0][0]
            actor, item = asked.pop(ref), mpi_runtime.get(ref)
            if not _is_end(item):
                asked[actor.par_iter_next.remote()] = actor
                yield item

    return items


def _part(shards: list[tuple[Any, tuple[_Step, ...]]], step: int, start: int) -> Callable[[], Iterator[Any]]:
    def items() -> Iterator[Any]:
        active = [actor for actor, _ in shards]
        while active:
            found = mpi_runtime.get([actor.par_iter_slice.remote(step, start) for actor in active])
            yield from (item for item in found if not _is_end(item))
            active = [actor for actor, item in zip(active, found, strict=True) if not _is_end(item)]

    return items


def _turns(every: list[LocalIterator], weights: list[int]) -> Iterator[Any]:
    active = [(iter(one), weight) for one, weight in zip(every, weights, strict=True)]
    while active:
        left = []
        for one, weight in active:
            found = list(itertools.islice(one, weight))
            yield from found
            if len(found) == weight:
                left.append((one, weight))
        active = left


def _each(fn: Callable[[Any], Any]) -> _Step:
    return lambda items: map(fn, items)


def _each_in_tasks(fn: Callable[[Any], Any], most: int, options: dict[str, Any]) -> _Step:
    def step(items: Iterable[Any]) -> Iterator[Any]:
        task = mpi_runtime.remote(fn).options(**options)
        running: deque[Any] = deque()
        for item in items:
            running.append(task.remote(item))
            if len(running) == most:
                yield mpi_runtime.get(running.popleft())
        yield from (mpi_runtime.get(ref) for ref in running)

    return step


def _batches(n: int) -> _Step:
    def step(items: Iterable[Any]) -> Iterator[list[Any]]:
        rest = iter(items)
        while found := list(itertools.islice(rest, n)):
            yield found

    return step


def _shuffled(room: int, seed: int | None) -> _Step:
    def step(items: Iterable[Any]) -> Iterator[Any]:
        draw, buffer = random.Random(seed), []
        for item in items:
            buffer.append(item)
            if len(buffer) >= room:
                yield buffer.pop(draw.randint(0, len(buffer) - 1))
        while buffer:
            yield buffer.pop(draw.randint(0, len(buffer) - 1))

    return step


def _is_end(item: Any) -> bool:
    return isinstance(item, str) and item == _END


__all__ = [
    *("LocalIterator", "ParallelIterator", "ParallelIteratorWorker"),
    *("from_actors", "from_items", "from_iterators", "from_range"),
]
