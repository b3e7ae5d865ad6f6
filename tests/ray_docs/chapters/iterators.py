"""Iterators whose items are in actors: `ray.util.iter`."""

import ray
from ray.util import iter as iterators

from tests.ray_docs.helpers import raised


class _Sum:
    """Adds up the items that it has seen, in one shard."""

    def __init__(self):
        self.total = 0

    def __call__(self, item):
        self.total += item
        return self.total, item


def items_of_shards_come_in_turns():
    """`gather_sync` has the items of all shards in turns, and each shard the state of its own function."""
    items = ray.util.iter.from_items([1, 2, 3, 4, 5], num_shards=2)
    print(items, items.num_shards(), items.gather_sync())
    print(list(items.gather_sync()), sorted(items.gather_async()), items.take(3))

    class Sum:  # a local class, so that shards get it by value
        __init__, __call__ = _Sum.__init__, _Sum.__call__

    print(list(items.for_each(Sum()).gather_sync()))
    print(list(items.batch_across_shards()))


def steps_of_items():
    """Each step is a part of the name, and runs where the items are."""
    words = iterators.from_items(["a b", "b c d"], num_shards=1).for_each(str.split).flatten()
    print(words, list(words.gather_sync()))
    some = words.filter(lambda word: word != "b").batch(2)
    print(some, list(some.gather_sync()))
    print(words.combine(lambda word: [word] * 2), words.combine(lambda word: [word] * 2).take(3))
    print(words.transform(lambda items: reversed(list(items))).take(2), words.local_shuffle(2, seed=1))
    print(sorted(words.local_shuffle(2, seed=1).gather_sync()))
    print(raised(lambda: list(words.for_each(lambda word: 1 / 0).gather_sync()), "ZeroDivisionError"))


def shards_go_to_tasks():
    """A shard is an iterator that can be sent to a task."""
    items = iterators.from_items(["a b", "c", "d e"], num_shards=2)
    print(items.shards())
    count = ray.remote(lambda shard: [word for text in shard for word in text.split()])
    print(ray.get([count.remote(shard) for shard in items.shards()]))
    print(list(items.select_shards([1]).gather_sync()), items.get_shard(0).take(1))


def numbers_and_repetition():
    """Each shard of `from_range` has a stretch; with `repeat` items begin again."""
    print(iterators.from_range(7, 2), list(iterators.from_range(7, 2).gather_sync()))
    print(iterators.from_range(3, 1, repeat=True), iterators.from_range(3, 1, repeat=True).take(7))
    print(iterators.from_iterators([range(2), lambda: iter([9])]).take(5))
    one = iterators.from_range(3, 1)
    one.show(2)
    print(
        sorted(one.union(iterators.from_items([7, 8], 1)).gather_sync()), sorted(iter(one.repartition(2).gather_sync()))
    )


def iterators_in_one_process():
    """`gather_sync` gives a `LocalIterator`, which has the same steps."""
    items = iterators.from_range(3, 1)
    print(list(items.gather_sync().for_each(lambda item: item * 2).filter(bool).batch(2)))
    local = items.gather_sync()
    print(next(local), next(local), list(local), next(local, "none"))
    others = iterators.from_items([7, 8, 9, 10], 1).gather_sync()
    print(list(items.gather_sync().union(others, deterministic=True)))
    print(sorted(items.gather_sync().shuffle(2, seed=3)))


def shards_of_the_program():
    """`from_actors` takes actors of classes derived from `ParallelIteratorWorker`."""

    @ray.remote
    class Worker(iterators.ParallelIteratorWorker):
        def __init__(self, items):
            super().__init__(lambda: iter(items), False)

    items = iterators.from_actors([Worker.remote([3, 4]), Worker.remote([5])])
    print(items, list(items.gather_sync()))
    print(raised(lambda: items.union(3), "TypeError"), raised(lambda: items.gather_async(num_async=0), "ValueError"))
