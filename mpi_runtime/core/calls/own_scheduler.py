"""Calls that bring their own scheduler: the option `own_scheduler`.

Inside such a call the API is served by a job of its own, over the CPUs and GPUs that the call was granted. Its driver
is the executor of the call, its head a child of that executor, started as for a program without a launcher.

1. The executor's client of the outer job is set aside from its start on (`client/current.py`), so that user code
   cannot use it: references from outside would name nothing inside, and threads that outlive a call would submit calls
   outside.
2. The call starts a job. The first one starts the head. Later calls in this executor find it, with its modules loaded.
   Ids derive from the id of the call, so those of two jobs never are equal.
3. The call ends, and then its job: all processes inside have ended before the result is sent and the grant returned.
4. If the executor dies, its forkserver kills what is left of the job, recognised by the variable `CALL_OF`, and reports
   the death afterwards.
5. If the head dies, the executor ends at once. So the call is retried as a whole.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator
from typing import TYPE_CHECKING, Any, cast

from mpi_runtime import config as configuration
from mpi_runtime.core import published
from mpi_runtime.core.calls.options import Options
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client, Executing, Executor
from mpi_runtime.core.client.scope import Inherited, Scope
from mpi_runtime.core.driver.head_handle import HeadHandle
from mpi_runtime.core.driver.session import Session
from mpi_runtime.core.executor import own_scheduler_mark
from mpi_runtime.core.host.launch import INSIDE, Launch
from mpi_runtime.errors import LaunchError
from mpi_runtime.scheduler.protocol.events import BRINGS, OWN_SCHEDULER, Dying
from mpi_runtime.scheduler.protocol.limits import UNIT
from mpi_runtime.scheduler.protocol.questions import Nodes

if TYPE_CHECKING:
    from mpi_runtime.scheduler.protocol.events import Spec

STORE_BYTES_MIN = 1 << 24
_OF_HOST = (*configuration.OF_THIS_JOB, configuration.RESOURCES, configuration.NUM_CPUS, configuration.FIND_GPUS)
"""Variables about the outer job and the whole host."""
_NOT_WITH = ("num_ranks", "gpu_memory")
_OF_NODE = ("node:", "accelerator_type:")
"""Prefixes of resources that a node has by itself."""


def check(options: Options) -> None:
    """Refuse options of a function that contradict `own_scheduler`."""
    for name in _NOT_WITH:
        if options.get(name):
            raise ValueError(f"{name} is not possible with own_scheduler=True")
    for name in ("num_cpus", "num_gpus"):
        value = options.get(name)
        if value is not None and (value != int(value) or (name == "num_cpus" and not value)):
            least = "1 or more" if name == "num_cpus" else "0 or more"
            raise ValueError(f"{name} must be a whole number, {least}, with own_scheduler=True; got {value!r}")


def environment(outer: dict[str, str], name: str) -> dict[str, str]:
    """Return the environment of calls to `name` with `own_scheduler`, from that of other calls made here."""
    if own_scheduler_mark.is_inside(outer):
        raise ValueError(
            f"{name} has own_scheduler=True and was called inside a call that brings its own scheduler. Schedulers are "
            f"not nested: call {name}.options(own_scheduler=False), which runs it on the CPUs of this call"
        )
    return {**outer, OWN_SCHEDULER: BRINGS}


def check_no_refs(name: str, where: str, refs: Collection[bytes]) -> None:
    """Raise ValueError if there are references of the outer job in the arguments or the code of a call."""
    if refs:
        raise ValueError(
            f"{name} has own_scheduler=True, and {where} a reference or a handle, which works only outside the call. "
            "Pass a reference as an argument of its own, which stands for its value; make actors inside the call"
        )


@published()
class Inside:
    """A function whose calls bring their own scheduler. It replaces the user's function as the code of a task."""

    code_attribute = "function"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function, updated=())
        code = getattr(function, "__code__", None)
        if code is not None:
            self.__code__ = code

    def __reduce__(self) -> tuple[object, ...]:
        return Inside, (self.function,)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function, as the driver of a job of its own."""
        job = _Job()
        if inspect.isgeneratorfunction(self.function):
            return self._items(job, args, kwargs)
        try:
            try:
                job.start()
                with job.in_use():
                    return self.function(*args, **kwargs)
            finally:
                job.end()
        finally:
            job.end()  # an interrupt may have arrived before the other one began

    def _items(self, job: _Job, args: tuple[object, ...], kwargs: dict[str, object]) -> Generator[object, None, object]:
        """Yield the items of a generator. They are serialised outside of its job."""
        try:
            try:
                job.start()
                items = self.function(*args, **kwargs)
                while True:
                    with job.in_use():
                        try:
                            item = next(items)
                        except StopIteration as end:
                            return end.value
                    yield item
                    del item
            finally:
                job.end()
        finally:
            job.end()


class _Caller:
    """The executor of the outer call as the job inside sees it: its driver, and not one of its executors."""

    number = 0
    where = None

    def __init__(self, executor: object) -> None:
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


_head: HeadHandle | None = None
"""The head of the last job, for the next one."""


class _Job:
    def __init__(self) -> None:
        outer = current.aside()
        assert outer is not None
        self._outer = outer
        self._threads = set(threading.enumerate())
        self._session: Session | None = None

    def start(self) -> None:
        with self._outer.outbox.interrupts:
            self._session = _start(self._outer)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Return a context in which user code uses this job."""
        assert self._session is not None
        current.set_client(self._session.client)
        try:
            yield
        finally:
            current.set_client(None)

    def end(self) -> None:
        outer = self._outer
        with outer.outbox.interrupts:
            current.set_client(None)
            session, self._session = self._session, None
            if session is None:
                return
            outer.scopes.running.has_errors |= session.client.scopes.running.has_errors
            if not session.end():
                _end_executor("has not ended its processes in time")
            left = set(threading.enumerate()) - self._threads
            if not all(one.name.startswith("mpi_runtime") for one in left):
                outer.feed.retire()  # threads that the call has left would use the API in the next one


def _start(outer: Client) -> Session:
    """Start a job over the grant of the running call of this executor."""
    global _head
    executor = outer.executor
    scope = outer.scopes.running
    assert executor is not None
    assert scope.call is not None
    spec = outer.feed.specs[scope.call.spec]
    head, _head = _head, None
    is_warm = head is not None and not head.has_ended
    if head is None or not is_warm:
        variables = {name: text for name, text in configuration.environment().items() if name not in _OF_HOST}
        variables[own_scheduler_mark.CALL_OF] = str(os.getpid())
        wish = configuration.find_gpus()
        if not spec.asks.gpu:
            variables[configuration.FIND_GPUS] = "never"
        elif wish not in ("auto", "always", "never"):
            variables[configuration.FIND_GPUS] = wish  # of this vendor
        head = HeadHandle(Launch(INSIDE), variables, _end_executor)
    inside = Inherited(
        outer.inherited.namespace, own_scheduler_mark.inside(outer.inherited.environment, executor.gpu_ids)
    )
    executing = Executing(cast(Executor, _Caller(executor)), None, outer.outbox.interrupts, outer.line.cancels)
    scopes = Scope(b"inside" + scope.call.id, scope.call.attempt, scope.call, scope.name)
    try:
        session = Session(head, _config(outer, spec), scopes, inside, executing)
    except LaunchError:
        if is_warm:
            _end_executor("has ended before it began")
        raise
    _head = head
    return session


def _config(outer: Client, spec: Spec) -> configuration.Config:
    """The configuration of a job over the grant of a call: its share of the node, by CPUs."""
    (node,) = outer.questions.ask(Nodes(bytes.fromhex(outer.questions.node_id())))
    share = min(1.0, spec.asks.cpu / UNIT / max(1.0, node.resources.get("CPU", 1.0)))
    memory = spec.asks.memory or max(1, int(node.resources.get("memory", 0) * share))
    return configuration.Config(
        num_cpus=spec.asks.cpu / UNIT,
        num_gpus=spec.asks.gpu / UNIT,
        memory=memory,
        memory_limit=memory,
        object_store_memory=max(STORE_BYTES_MIN, int(outer.store_bytes * share)),
        resources={name: units / UNIT for name, units in spec.asks.custom if not name.startswith(_OF_NODE)},
        inline_bytes_max=outer.store.inline_bytes_max,
        namespace=outer.inherited.namespace,
        quiet=True,
        waiting_line_s=0.0,
        heartbeat_timeout_s=0.0,
    )


def _end_executor(how: str) -> None:
    """End this executor, and so the call, which is retried as a whole."""
    why = f"the process with the scheduler of its call {how}"
    with contextlib.suppress(Exception):
        print(f"This call ends, and may be retried: {why}.", file=sys.stderr, flush=True)
    with contextlib.suppress(Exception):
        outer = current.aside()
        if outer is not None:
            outer.outbox.post_now(Dying(f"ended because {why}"))
    os._exit(1)


@atexit.register
def _end_head() -> None:
    global _head
    if _head is not None:
        _head.end()
        _head = None


def _after_fork_in_child() -> None:
    global _head
    _head = None


os.register_at_fork(after_in_child=_after_fork_in_child)
