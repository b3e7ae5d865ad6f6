"""A scheduler for dask: each task of a graph runs as a task of the job.

import dask.array
from mpi_runtime.util.dask import enable_dask_on_mpi_runtime, mpi_runtime_dask_get

total = dask.array.ones((10_000, 10_000), chunks=1000).sum()
print(total.compute(scheduler=mpi_runtime_dask_get))  # this time, or
with enable_dask_on_mpi_runtime():  # for all that is computed inside
    print(total.compute())
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi_runtime import ObjectRef, get, put, remote
from mpi_runtime.errors import TaskError
from mpi_runtime.util.background_calls import of_user

try:
    import dask
    from dask._task_spec import Alias, DataNode, convert_legacy_graph
    from dask.core import flatten
    from dask.order import order
    from dask.typing import Key
except ImportError as error:
    raise ModuleNotFoundError(
        "mpi_runtime.util.dask needs dask 2024.12 or newer, which cannot be imported here: pip install 'dask>=2024.12'"
    ) from error

__all__ = ["enable_dask_on_mpi_runtime", "mpi_runtime_dask_get"]


def enable_dask_on_mpi_runtime() -> Any:
    """Make dask compute on the job: from now on, or, as a context manager, inside the block.

    Data frames are shuffled through the object store, not through files of one host.

    Returns:
        The result of `dask.config.set`.
    """
    return dask.config.set({"scheduler": mpi_runtime_dask_get, "dataframe.shuffle.method": "tasks"})


def mpi_runtime_dask_get(
    dsk: Any, keys: object, *, ray_remote_args: Mapping[str, object] | None = None, **_: object
) -> Any:
    """Compute keys of a dask graph. Give it to dask as `scheduler=`.

    All tasks are submitted at once, in the order that dask recommends. Values between tasks stay in the object store;
    only the values of `keys` are fetched. Arrays in results and arguments are read-only. Without a job, one with
    defaults is started.

        dask.compute(first, second, scheduler=mpi_runtime_dask_get, ray_remote_args={"num_cpus": 2})

    Args:
        dsk: the graph, with tasks of dask's classes or as tuples; or an object that has a graph.
        keys: a key, or nested lists of keys.
        ray_remote_args: options of the tasks, as for `remote`.
        **_: options of dask's other schedulers, such as `num_workers`; without effect.

    Returns:
        The value of the key; tuples of values for lists.

    Raises:
        KeyError: the graph lacks a key.
        Exception: the error of a task, as it was raised, with the remote traceback as its `__cause__`. Tasks that do
            not depend on it run to their end.
        MpiRuntimeError: there is no value for another reason, such as a dead process.
    """
    graph = _needed(convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()), keys)
    task: Any = remote(dask_task).options(**(ray_remote_args or {}))
    refs: dict[Key, ObjectRef[object]] = {
        key: put(node.value) for key, node in graph.items() if isinstance(node, DataNode)
    }
    priorities = order(graph)
    for key in sorted(graph.keys() - refs.keys(), key=priorities.__getitem__):
        node = graph[key]
        needs = list(node.dependencies)
        if isinstance(node, Alias):
            refs[key] = refs[node.target]
        else:
            refs[key] = task.remote(node, needs, *[refs[need] for need in needs])
    wanted = {key: refs[key] for key in flatten([keys])}
    del refs  # each lives on until the last task that needs it has ended
    try:
        values = get(list(wanted.values()))
    except TaskError as error:
        cause = of_user(error)
        raise cause from cause.__cause__
    return _arranged(keys, dict(zip(wanted, values, strict=True)))


def dask_task(node: Any, needs: list[Key], *values: object) -> object:
    """Run one task of a graph. `needs` are the keys of `values`."""
    return node(dict(zip(needs, values, strict=True)))


def _needed(graph: Mapping[Key, Any], keys: object) -> dict[Key, Any]:
    """The part of a graph that is needed to compute these keys."""
    needed: dict[Key, Any] = {}
    missing = list(flatten([keys]))
    while missing:
        key = missing.pop()
        if key not in needed:
            if key not in graph:
                raise KeyError(f"the dask graph has no key {key!r}, which is asked for or needed by one of its tasks")
            needed[key] = graph[key]
            missing.extend(graph[key].dependencies)
    return needed


def _arranged(keys: Any, values: Mapping[Key, object]) -> object:
    return tuple(_arranged(key, values) for key in keys) if isinstance(keys, list) else values[keys]
