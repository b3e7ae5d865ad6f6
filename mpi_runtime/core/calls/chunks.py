"""Chunks: many calls of one function in one task, for `f.map`.

A chunk makes its calls one after another. Its value has the outcome of each. Nothing is measured beforehand: a chunk
that takes long, or whose results are large, stops, submits the remaining calls in pieces of the right size, and returns
references to them with the outcomes so far. So nothing depends on when the results are read, and the caller's process
only has a list of pieces.

If the process of a chunk dies, the scheduler retries the chunk. The retry makes no call itself but submits each as a
task: the call that kills its process fails alone, after all its attempts.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mpi_runtime.core import published
from mpi_runtime.core.calls import specs
from mpi_runtime.core.calls.arguments import pack
from mpi_runtime.core.calls.code import Code
from mpi_runtime.core.calls.options import DEFAULT_MAX_RETRIES, Options
from mpi_runtime.core.calls.submitter import Submitter, name_of, submit_packed
from mpi_runtime.core.client import current
from mpi_runtime.core.client.object_ref import ObjectRef, note
from mpi_runtime.core.driver import running
from mpi_runtime.core.objects import serialize
from mpi_runtime.errors import remote as remote_errors

CALLS_MAX = 4096
"""The largest number of calls in one chunk. Beyond it the cost of a message is small compared to the calls."""
SLICE_S = 0.03
"""Seconds that a chunk runs: long compared to the cost of a task, short for a caller who waits."""
LATE_CALLS_SHARE = 32
UNSEEN_CALLS_MAX = 7
"""Between two readings of the clock a chunk makes at most this many calls, and at most this part of its calls."""
RESULT_BYTES_MAX = 1 << 20
"""The most bytes that a chunk returns. They are one object, which must fit into the arena and is transferred as a
whole."""

Elements = list[Any] | range
"""The arguments of calls in order: each is the only one, or a tuple of them."""
_PLAIN = frozenset((type(None), bool, int, float, complex))
"""Small values that are sent as they are. Other values are serialised one by one, so that an error concerns one value
only."""


class Piece(NamedTuple):
    """Consecutive calls, and the reference to their outcomes."""

    start: int
    """The index of the first call."""
    calls: int
    ref: ObjectRef[object]
    is_call: bool
    """True: the value of `ref` is that of the call. False: it is a chunk's, `(outcomes, pieces)`."""
    is_large: bool = False
    """Whether the arguments were too large for a message."""


class Failed(NamedTuple):
    """The outcome of a call: an error."""

    data: bytes
    """The result of `remote_errors.to_bytes`. It is read again each time it is raised, or its traceback would grow."""


@published()
class Pickled:
    """The outcome of a call: a value that was serialised on its own, and is read on demand."""

    __slots__ = ("buffers", "data", "held", "source")

    def __init__(self, data: bytes, buffers: list[Any], held: Sequence[bytes] = (), source: object = None) -> None:
        self.data = data
        self.buffers = buffers
        self.held = held
        self.source = source
        """Keeps the references inside alive until the whole is sent."""

    def __reduce__(self) -> tuple[object, ...]:
        for id in self.held:
            note(id, current.client())
        return Pickled, (self.data, [pickle.PickleBuffer(buffer) for buffer in self.buffers])

    def load(self) -> object:
        """The value. Arrays in it are views of the chunk's memory."""
        return pickle.loads(self.data, buffers=self.buffers)


def are_open(outcomes: list[object]) -> bool:
    """Whether all outcomes are plain values."""
    kinds = set(map(type, outcomes))
    return Pickled not in kinds and Failed not in kinds


def open_outcome(outcome: object) -> Any:
    """The value of a call, or its error raised."""
    if type(outcome) is Pickled:
        return outcome.load()
    if type(outcome) is Failed:
        raise remote_errors.from_bytes(outcome.data)
    return outcome


class Chunked:
    """A function whose calls are made in chunks."""

    code_attribute = "function"

    def __init__(
        self, one: Submitter[..., Any], function: Callable[..., Any], name: str, options: Options, code: Code
    ) -> None:
        self.one = one
        """Submits a call as a task of its own."""
        self.function = function
        self.name = name
        self.options = options
        self.code = code
        self._by_calls: dict[int, Submitter[..., object]] = {}

    def of(self, calls: int) -> Submitter[..., object]:
        """The function that makes this many calls in one task; 0: as many as fit into its slice of time.

        For the scheduler each is a separate function, with task durations of its own.
        """
        known = self._by_calls.get(calls)
        if known is None:
            options = {**self.options, "num_returns": 1, "retry_exceptions": False}
            options |= {name: time_of(self.options.get(name), calls) for name in ("time_limit", "expect")}
            known = self._by_calls[calls] = Submitter(Runner(self, calls), options)
        return known


# In the executor.


class Runner:
    """Makes the calls of a chunk. It replaces the user's function as the code of a task."""

    code_attribute = "chunked"

    def __init__(self, chunked: Chunked, calls: int) -> None:
        self.chunked = chunked
        self.calls = calls
        """The largest number of calls, if all of them run here; else 0."""
        self.__name__ = chunked.name
        retries = chunked.options.get("max_retries")
        self.max_retries = DEFAULT_MAX_RETRIES if retries is None else retries
        wanted = chunked.options.get("retry_exceptions")
        self._retried = tuple(wanted) if isinstance(wanted, (list, tuple)) else (BaseException,) if wanted else ()
        """The classes of errors for which a call is retried."""

    def __reduce__(self) -> tuple[object, ...]:
        # Not the function itself: objects in it may change, and other bytes would count as another function.
        chunked = self.chunked
        options = specs.portable(chunked.options)
        return load_chunk, (type(chunked.one), chunked.code.pickled(), options, self.calls)

    def __call__(
        self, elements: Elements, star: bool, slice_s: float | None, has_refs: bool
    ) -> tuple[list[object], list[Piece]]:
        """Make the calls.

        Args:
            elements: one for each call.
            star: whether an element is a tuple of arguments, or the only argument.
            slice_s: seconds after which the remaining calls are submitted in pieces; None: make all.
            has_refs: whether there are references among the arguments.

        Returns:
            The outcomes of the first calls, and pieces for the others; their starts count from the first of these.
        """
        client = running.client()
        call, line, executor = client.scopes.current().call, client.line, current.executor()
        assert call is not None
        if call.attempt:
            return [], self._one_by_one(elements, star)
        elements = list(elements)
        function = self.chunked.function
        if has_refs:
            function = _with_values(function)
        outcomes: list[object] = []
        append, clock, size, plain, feed = outcomes.append, time.perf_counter, 0, _PLAIN, client.feed
        started = clock()
        end, size_max = (math.inf, math.inf) if slice_s is None else (started + slice_s, RESULT_BYTES_MAX)
        # Reading the clock takes as long as an empty call. An emptied block ends with the running call.
        made, count, unseen = 0, 1, 1 + min(len(elements) // LATE_CALLS_SHARE, UNSEEN_CALLS_MAX)
        while block := elements[made : made + count]:
            feed.block = block
            for element in block:
                try:
                    outcome = function(*element) if star else function(element)
                    if type(outcome) not in plain:
                        outcome, bytes = _carried(outcome)
                        size += bytes
                        if size > size_max:
                            block.clear()
                except SystemExit:
                    raise
                except BaseException as error:
                    if executor.is_cancelled(call):
                        feed.block = []
                        raise
                    outcome, bytes = self._again(function, element if star else (element,), error)
                    size += bytes
                    if size > size_max:
                        block.clear()
                append(outcome)
            if line.closed or size > size_max or clock() > end:
                break
            made, count = made + count, unseen
        feed.block = []
        rest = elements[len(outcomes) :]
        if not rest or slice_s is None or line.closed:
            return outcomes, []  # closed: this is a forked child, which must leave the rest to its parent
        share = max((clock() - started) / slice_s, size / RESULT_BYTES_MAX)
        return outcomes, list(submit(self.chunked, rest, star, slice_s, max(1, int(len(outcomes) / share))))

    def _again(
        self, function: Callable[..., object], args: tuple[object, ...], error: BaseException
    ) -> tuple[object, int]:
        """Retry a call that has raised, as often as its options allow. Returns its outcome and size."""
        attempts = 0
        while isinstance(error, self._retried) and attempts != self.max_retries:
            attempts += 1
            try:
                return _carried(function(*args))
            except SystemExit:
                raise
            except BaseException as next_error:
                error = next_error
        scope, executor = running.client().scopes.current(), current.executor()
        scope.has_errors = True
        described = remote_errors.make_task_error(error, scope.name, os.getpid(), executor.rank, executor.hostname)
        failed = Failed(remote_errors.to_bytes(described))
        return failed, len(failed.data)

    def _one_by_one(self, elements: Elements, star: bool) -> list[Piece]:
        """Submit each call as a task. One attempt of each may have run already."""
        client, chunked = running.client(), self.chunked
        pieces = []
        for index, element in enumerate(elements):
            packed = pack(client, element if star else (element,), {}, chunked.name)
            pieces.append(Piece(index, 1, submit_packed(chunked.one, packed, attempt=1), is_call=True))
        return pieces


@published()
def load_chunk(kind: type[Submitter[..., object]], code: bytes, options: Mapping[str, object], calls: int) -> Runner:
    """Return what a `Runner` was before it was pickled."""
    function = pickle.loads(code)
    name = name_of(function)
    known = Code(function, name)
    known.know(code)
    return Runner(Chunked(kind(function, options, known), function, name, options, known), calls)


def _with_values(function: Callable[..., object]) -> Callable[..., object]:
    """The function, called with values instead of references."""
    get = running.client().waiting.get

    def call(*args: object) -> object:
        return function(*(get((arg.binary(),), None)[0] if type(arg) is ObjectRef else arg for arg in args))

    return call


def _carried(value: object) -> tuple[object, int]:
    """The value as a part of a chunk's result, and its approximate size in bytes."""
    if type(value) in _PLAIN:
        return value, 0
    if type(value) is str or type(value) is bytes:
        return value, len(value)
    serialized = serialize.dumps(value, "the result")
    data = b"".join((serialized.data, *serialized.rest))
    return Pickled(data, list(serialized.buffers), serialized.refs, value), serialized.size()


# Submission: in the caller's process, and in a chunk that submits its remaining calls.


def submit(chunked: Chunked, elements: Elements, star: bool, slice_s: float | None, most: int) -> Iterator[Piece]:
    """Submit calls in chunks of at most `most`. Calls that wait for an argument become tasks of their own.

    A range is sent as it is, without iterating over it.
    """
    client = running.client()
    values = client.references.values
    has_refs = not isinstance(elements, range) and ObjectRef in map(
        type, itertools.chain.from_iterable(elements) if star else elements
    )
    groups: list[tuple[bool, list[object] | range]] = [(False, elements)]
    if has_refs:
        parts = itertools.groupby(elements, lambda element: _waits(values, element if star else (element,)))
        groups = [(waits, list(part)) for waits, part in parts]
    start = 0
    for waits, together in groups:
        size = 1 if waits else most
        for at in range(0, len(together), size):
            chunk = together[at : at + size]
            if len(chunk) == 1:
                args: Any = chunk[0] if star else chunk
                yield Piece(start, 1, chunked.one.remote(*args), is_call=True)
            else:
                packed = pack(client, (chunk, star, slice_s, has_refs), {}, chunked.name)
                ref = submit_packed(chunked.of(_rounded(len(chunk), most) if slice_s is None else 0), packed)
                yield Piece(start, len(chunk), ref, is_call=False, is_large=packed.keep is not None)
            start += len(chunk)


def _rounded(calls: int, most: int) -> int:
    """The chunk size, rounded up to a power of two, so that there are few kinds of chunks."""
    return min(most, 1 << (calls - 1).bit_length())


def time_of(of_call: float | None, calls: int) -> float | None:
    """The time limit of a chunk, or how long it is expected to take, in seconds, if that is known of its calls.

    With 0 calls: the last one starts before the end of the slice.
    """
    if of_call is None:
        return None
    return calls * of_call if calls else SLICE_S + of_call


def _waits(values: Mapping[bytes, object], args: tuple[object, ...]) -> bool:
    """Whether a reference among these may have no value yet."""
    return any(type(arg) is ObjectRef and arg.binary() not in values for arg in args)
