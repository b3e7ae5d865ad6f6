"""The results of `f.map` and `f.starmap`. `chunks.py` makes the calls."""

from __future__ import annotations

import itertools
import math
import operator
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Literal, TypeVar, overload

from mpi_runtime import errors
from mpi_runtime.core import published
from mpi_runtime.core.calls.arguments import Parameters
from mpi_runtime.core.calls.chunks import CALLS_MAX, SLICE_S, Chunked, Failed, Piece, are_open, open_outcome, submit
from mpi_runtime.core.calls.options import COUNT_MAX, Options
from mpi_runtime.core.client.interrupts import is_of_handler
from mpi_runtime.core.driver import running
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.scheduler.protocol.questions import ClusterResources
from mpi_runtime.show import bars

T_co = TypeVar("T_co", covariant=True)

CHUNKS_PER_SLOT = 4
"""Fewest chunks for one CPU, so that all CPUs end at about the same time."""
RECORDED_CHUNKS, RECORDED_CHUNK_CALLS = 256, 64
"""With a journal: chunks of an iterable with a length (a crash costs about one), and calls in one of any other."""
LEAD_PIECES_MIN = 16
"""Number of pieces of an iterable without a length that are submitted before the first result is read."""


@published()
class Results(Sequence[T_co]):
    """The results of `f.map` and `f.starmap`, in the order of the calls. A sequence: reading waits for the value.

    An index, a slice and iteration return values. If a call raised, reading its value raises the error; the other
    values are not affected, and iteration can continue after the error. If the iterable has no length, reading submits
    further calls, and `len()` submits all of them. The values are kept as long as this object. It belongs to one
    thread, and cannot be passed to other processes.

        squares = square.map(range(1_000_000))
        print(squares[3], sum(squares))

        for index, outcome in square.map(inputs).as_completed(return_exceptions=True):
            ...
    """

    def __init__(
        self,
        chunked: Chunked,
        parameters: Parameters,
        iterable: Iterable[object],
        chunk: int | Literal["auto"],
        star: bool,
    ) -> None:
        self._name, options = chunked.name, chunked.options
        _check(self._name, options, chunk)
        if options.get("num_ranks"):
            chunk = 1  # each call is one of the whole gang
        self._chunked = chunked
        self._star = star
        self._elements = _elements(self._name, parameters, iterable, star)
        self._numbers = iterable if isinstance(iterable, range) and not star else None
        """Of a range: the numbers that are not submitted yet. `_elements` and `_drawn` are not used then."""
        length = len(iterable) if isinstance(iterable, Sized) else math.inf
        slots = _slots(options)
        self._lead = max(LEAD_PIECES_MIN, CHUNKS_PER_SLOT * slots) if length == math.inf else math.inf
        if chunk == "auto" and running.client().store.journal:
            chunk = _same_in_each_run(options, length)
        self._is_auto = not isinstance(chunk, int)
        self._most = chunk if isinstance(chunk, int) else _most(options, length, slots)
        self._size = 1 if self._is_auto else self._most
        self._drawn: list[object] = []
        """Elements that are not submitted yet. They survive an error of the iterable, and Ctrl-C."""
        self._pieces: list[Piece] = []
        self._submitted = 0
        self._is_complete = False
        self._last: tuple[int, list[object]] = (-1, [])
        """The outcomes that were read last, after the index of the first of them."""
        self._reaches(0)

    def __len__(self) -> int:
        while not self._is_complete:
            self._submit_more()
        return self._submitted

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Wait for a value, or for the list of values of a slice, and return it.

        Raises:
            TaskError: the call raised. The error is also an instance of the class that the call raised.
            IndexError: there is no such call.
        """
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = operator.index(index)
        while not self._is_complete and not 0 <= index < self._submitted:
            self._submit_more()
        place = index + self._submitted if index < 0 else index
        if not 0 <= place < self._submitted:
            raise IndexError(f"result {index} does not exist: there are {self._submitted}")
        try:
            return self._result(place)
        except errors.MpiRuntimeError as error:
            raise remote_errors.bare(error)

    def _result(self, index: int) -> object:
        while True:
            number = self._number(index)
            outcomes, start = self._outcomes(number, None, math.inf), self._pieces[number].start
            if start <= index < start + len(outcomes):
                return open_outcome(outcomes[index - start])

    def __iter__(self) -> Iterator[T_co]:
        chunks = self._in_order(None, math.inf)
        return Iteration(itertools.chain.from_iterable(chunks), open_outcome)

    def get(self, timeout: float | None = None, return_exceptions: bool = False) -> list[T_co]:
        """Wait for all values and return them, in the order of the calls.

        Args:
            timeout: the most seconds to wait; None waits without a limit.
            return_exceptions: return errors in the places of their values, instead of raising the first error.

        Raises:
            GetTimeoutError: not all values were there in time. Those that are there can still be read.
            TaskError: a call raised. The error is also an instance of the class that the call raised.
        """
        found: list[Any] = []
        try:
            for outcomes in self._in_order(timeout, _deadline(timeout)):
                if are_open(outcomes):
                    found += outcomes
                else:
                    found += map(_open_or_error if return_exceptions else open_outcome, outcomes)
        except errors.MpiRuntimeError as error:
            raise remote_errors.bare(error)
        return found

    def as_completed(self, timeout: float | None = None, return_exceptions: bool = False) -> Iterator[tuple[int, T_co]]:
        """Iterate over pairs of index and value, in the order of completion. Calls of one chunk come together.

        Args:
            timeout: the most seconds for the whole iteration; None waits without a limit.
            return_exceptions: return errors as values, instead of raising them.

        Raises:
            GetTimeoutError: not all values were there in time.
            TaskError: a call raised. The iteration can be continued after it.
        """
        pairs = self._by_completion(timeout, _deadline(timeout))
        opened = _open_or_error if return_exceptions else open_outcome
        return Iteration(pairs, lambda pair: (pair[0], opened(pair[1])))

    def __repr__(self) -> str:
        more = "" if self._is_complete else " and more"
        return f"<results of {self._submitted} calls{more} of {self._name}()>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"{self!r} stay in the process that submitted the calls. Send the values, results.get(), or submit the "
            "calls where the results are needed."
        )

    def _submit_more(self) -> None:
        """Submit the next calls: first one, then twice as many each time while their arguments are small."""
        drawn = self._draw()
        if not drawn:
            self._is_complete = True
            return
        slice_s, is_large = SLICE_S if self._is_auto else None, False
        for piece in submit(self._chunked, drawn, self._star, slice_s, self._size):
            self._pieces.append(piece._replace(start=self._submitted))
            self._submitted += piece.calls
            if self._numbers is not None:
                self._numbers = self._numbers[piece.calls :]
            else:
                del self._drawn[: piece.calls]
            is_large = is_large or piece.is_large
        if self._is_auto:
            if is_large:
                self._most = max(1, self._size // 2)
            self._size = min(self._most, 2 * self._size)

    def _draw(self) -> list[object] | range:
        """The elements of the next chunk, or all that are left."""
        if self._numbers is not None:
            return self._numbers[: self._size]
        self._drawn.extend(itertools.islice(self._elements, self._size - len(self._drawn)))
        return self._drawn[:]

    def _reaches(self, number: int) -> bool:
        """Whether a piece with this number exists. Submits it, and `_lead` pieces after it."""
        while not self._is_complete and len(self._pieces) <= number + self._lead:
            self._submit_more()
        return number < len(self._pieces)

    def _number(self, index: int) -> int:
        """The number of the piece that has the call with this index."""
        return bisect_right(self._pieces, index, key=lambda piece: piece.start) - 1

    def _outcomes(self, number: int, timeout: float | None, deadline: float) -> list[object]:
        """Return the outcomes of the calls of a piece. If it submitted its last calls, their pieces follow it now.

        If it submitted all of its calls, the list is empty, and their pieces have replaced it.
        """
        piece = self._pieces[number]
        if self._last[0] == piece.start:
            return self._last[1]
        piece.ref.check_job()
        client = running.client()
        outcomes: list[object]
        try:
            value = client.waiting.get(
                (piece.ref.binary(),), None if deadline == math.inf else deadline - time.monotonic()
            )[0]
            outcomes, rest = ([value], []) if piece.is_call else value
        except Exception as error:
            if type(error) is errors.GetTimeoutError:
                raise errors.GetTimeoutError(
                    f"Waited {timeout:g} s for the results of {self._name}(): result {piece.start} is not "
                    "there yet. The calls continue; ask again later, or with a longer timeout."
                ) from None
            if is_of_handler(error):
                raise
            outcomes, rest = [_failure(error)] * piece.calls, []
        if len(outcomes) < piece.calls:
            start = piece.start + len(outcomes)
            parts = [part._replace(start=start + part.start) for part in rest]
            self._pieces[number : number + 1] = [piece._replace(calls=len(outcomes)), *parts] if outcomes else parts
        if outcomes:
            self._last = piece.start, outcomes
        return outcomes

    def _in_order(self, timeout: float | None, deadline: float) -> Iterator[list[object]]:
        number, bar, stalls = 0, self._bar(), running.client().stalls
        while self._reaches(number):
            with bars.shown(stalls, bar):
                outcomes = self._outcomes(number, timeout, deadline)
            yield outcomes
            number += bool(outcomes)
        if bar is not None:
            bar.turn(is_last=True)

    def _bar(self) -> bars.Bar | None:
        """A bar in a notebook while the results are read."""
        values = running.client().references.values

        def counts() -> tuple[int, int | None]:
            ended = sum(piece.calls for piece in self._pieces if piece.ref.binary() in values)
            return ended, self._submitted if self._is_complete else None

        return bars.new(f"calls of {self._name}()", counts)

    def _by_completion(self, timeout: float | None, deadline: float) -> Iterator[tuple[int, object]]:
        client, seen, bar = running.client(), 0, self._bar()
        waiting: list[Piece] = []
        while True:
            while len(waiting) < self._lead and (seen < self._submitted or self._reaches(len(self._pieces))):
                piece = self._pieces[self._number(seen)]
                waiting.append(piece)
                seen += piece.calls
            if not waiting:
                break
            left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
            with bars.shown(client.stalls, bar):
                flags = client.waiting.wait([piece.ref.binary() for piece in waiting], 1, left)
            if not any(flags):
                raise errors.GetTimeoutError(
                    f"Waited {timeout:g} s for the results of {self._name}(): {len(waiting)} pieces of "
                    "the work have not ended yet. The calls continue; ask again later, or with a longer timeout."
                )
            ready = list(itertools.compress(waiting, flags))
            waiting = [piece for piece, flag in zip(waiting, flags, strict=True) if not flag]
            for piece in ready:
                outcomes = self._outcomes(self._number(piece.start), timeout, deadline)
                start, end = piece.start + len(outcomes), piece.start + piece.calls
                while start < end:
                    part = self._pieces[self._number(start)]
                    waiting.append(part)
                    start += part.calls
                yield from enumerate(outcomes, piece.start)
        if bar is not None:
            bar.turn(is_last=True)


class Iteration(Iterator[T_co]):
    """An iterator that can be continued after an error. A generator cannot."""

    def __init__(self, outcomes: Iterator[object], open: Callable[[Any], T_co]) -> None:
        self._outcomes = outcomes
        self._open = open

    def __next__(self) -> T_co:
        try:
            return self._open(next(self._outcomes))
        except errors.MpiRuntimeError as error:
            raise remote_errors.bare(error)


def _open_or_error(outcome: object) -> Any:
    try:
        return open_outcome(outcome)
    except Exception as error:
        if is_of_handler(error):
            raise
        return error


def _failure(error: Exception) -> Failed:
    """The outcome for an error of the runtime, or of a call that is its own task."""
    if not isinstance(error, errors.MpiRuntimeError):  # the value cannot be read here
        error = errors.task_error(error, f"the result cannot be read in this process: {error!r}")
    return Failed(remote_errors.to_bytes(error))


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout


def _check(name: str, options: Mapping[str, object], chunk: object) -> None:
    num_returns = options.get("num_returns")
    if num_returns not in (None, 1):
        raise ValueError(
            f"{name} has num_returns={num_returns}, but map() and starmap() return one value for each call: use "
            f"{name}.options(num_returns=1), and index into its value."
        )
    if options.get("own_scheduler"):
        raise ValueError(
            f"{name} has own_scheduler=True, so its calls are large: submit each with {name}.remote(), and use map() "
            "inside the call"
        )
    if options.get("num_ranks") and chunk not in ("auto", 1):
        raise ValueError(f"chunk={chunk!r} is not possible with num_ranks: each call is one of the whole gang")
    if isinstance(chunk, str) and chunk == "auto":
        pass
    elif isinstance(chunk, bool) or not isinstance(chunk, int):
        raise TypeError(f"chunk must be 'auto' or the number of calls in one task, not {chunk!r}")
    elif not 1 <= chunk <= COUNT_MAX:
        raise ValueError(f"chunk must be 'auto' or from 1 to {COUNT_MAX}, not {chunk}")


def _elements(function: str, parameters: Parameters, iterable: Iterable[object], star: bool) -> Iterator[object]:
    """The arguments of the calls of a function with this name, checked."""
    name = f"{function}.{'starmap' if star else 'map'}()"
    try:
        elements = iter(iterable)
    except TypeError:
        raise TypeError(f"{name} needs something to iterate over, such as a list, not {iterable!r}") from None
    if star:
        return _checked(function, parameters, elements, name)
    parameters.check((None,), {}, function)
    return elements


def _checked(function: str, parameters: Parameters, elements: Iterator[Any], name: str) -> Iterator[tuple[object, ...]]:
    for index, element in enumerate(elements):
        try:
            args = tuple(element)
        except TypeError:
            raise TypeError(
                f"{name}: element {index} must be the arguments of a call, such as a tuple, not {element!r}"
            ) from None
        if not parameters.least <= len(args) <= parameters.most:
            try:
                parameters.check(args, {}, function)
            except TypeError as error:
                raise TypeError(f"{name}: element {index} does not fit: {error}") from None
        yield args


def _slots(options: Options) -> int:
    """The number of calls with these options that can run at a time if nothing else runs; at least 1."""
    cpus = options.get("num_cpus")
    asked = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus"), **(options.get("resources") or {})}
    total = running.client().questions.ask(ClusterResources())
    shares = [total.get(name, 0) / amount for name, amount in asked.items() if amount]
    return max(1, int(min(shares, default=total.get("CPU", 1))))


def _same_in_each_run(options: Mapping[str, object], length: float) -> int:
    """The number of calls in a chunk with a journal: nothing measured, so that the next run finds the same chunks."""
    if options.get("max_retries") == 0:
        return 1
    return max(1, math.ceil(min(CALLS_MAX, length / RECORDED_CHUNKS))) if length < math.inf else RECORDED_CHUNK_CALLS


def _most(options: Mapping[str, object], length: float, slots: int) -> int:
    """The largest number of calls in a chunk."""
    if options.get("max_retries") == 0:
        return 1  # if the process died, finished calls of a larger chunk would run again
    return max(1, math.ceil(min(CALLS_MAX, length / (CHUNKS_PER_SLOT * slots))))
