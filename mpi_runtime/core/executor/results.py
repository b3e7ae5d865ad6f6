"""The ends of calls in an executor: results and errors become messages, or the process ends.

References in a result must live until its message is posted.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from mpi_runtime import errors
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.executor import driver_mark, gpu_errors, output
from mpi_runtime.core.executor.actor_methods import ActorExit
from mpi_runtime.core.executor.cancels import Cancels
from mpi_runtime.core.executor.fork_messages import Fork, Setup
from mpi_runtime.core.executor.gpu_errors import Granted
from mpi_runtime.core.objects import serialize
from mpi_runtime.errors import frames as tracebacks
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.scheduler.protocol import events
from mpi_runtime.scheduler.protocol.entries import GpuEntry
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Call,
    Done,
    MethodSpec,
    Returned,
    Spec,
    TaskSpec,
    Unfilled,
    Value,
)
from mpi_runtime.scheduler.protocol.limits import WANTED_MAX
from mpi_runtime.scheduler.protocol.questions import Nodes

if TYPE_CHECKING:
    from mpi_runtime.core.executor.saving import Saver
    from mpi_runtime.gpu.faults import Fault

_TRACES, _TRACED_KINDS_MAX, _TRACE_CHARACTERS_MAX = 3, 100, 6000
"""How many tracebacks of a kind of error the head gets from this process, of how many kinds, and how long ones."""
_CODE = vars(SystemExit)["code"]
"""The descriptor of `code`: a class may have a property of that name."""
_NUMBERS = re.compile(r"\d+")
_SLOW_US = 1000
"""The result of a call that took longer is sent at once, in microseconds."""
_WANTED_US = 50
"""The same if other calls wait for it. After shorter ones the next result is there before the head has read one."""


class Written(list[Value]):
    """Values of a call in serialised form."""


class Results:
    """Sends the results and errors of the calls of one executor."""

    def __init__(
        self, client: Client, cancels: Cancels, setup: Setup, request: Fork, code: Callable[[Spec], object]
    ) -> None:
        """Send with this client. `code` returns the function or method of a spec, None if it is not loaded."""
        self._client = client
        self._cancels = cancels
        self._code = code
        self._rank = setup.rank
        self.granted = Granted(request.gpu_ids, request.devices, request.variables, 0, 0, setup.hostname)
        """Its GPUs, and how much of each the running call or the actor has been granted."""
        self.actor_id = b""
        self.title = ""
        """The title of the actor; empty: its class defines no `__repr__`."""
        self.saver: Saver | None = None
        """Saves the state of its actor, if that is saved."""
        self.place = ""
        """For a member of a gang: its rank, in words before the name of the function."""
        self.ends_gang = False
        """Whether the gang of this member must not run another call."""
        self.is_concurrent = False
        """Whether several calls run at a time."""
        self._has_left = False
        """Whether the actor has asked for its end."""
        self._traced: dict[tuple[int, str], int] = {}
        """How often each kind of error was raised."""
        self._worked = False
        """Whether a call has ended well here. The creation of an actor need not have used its devices."""

    def ended(self, spec: Spec, call: Call, start_us: int, result: object) -> None:
        """Send the result of a call. A result that cannot be stored becomes an error."""
        duration_us = _since(start_us)
        if self._has_left:  # user code has caught what `exit_actor` raises
            return
        if self._cancels.attempts and isinstance(spec.kind, MethodSpec) and self._cancels.has(call):  # not interrupted
            self.failed(spec, call, start_us, KeyboardInterrupt())
            return
        try:
            message = self._result(call, spec, result, duration_us)
        except BaseException as error:
            self.failed(spec, call, start_us, error)
            return
        if type(spec.kind) is not ActorSpec:
            self._worked = True
        has_errors = call.digest and self._client.scopes.current().has_errors
        if self.ends_gang or has_errors:
            values = [Value(message.data)] if isinstance(message, Done) else message.values
            message = Returned(call.id, values, duration_us, has_errors=bool(has_errors), ends_gang=self.ends_gang)
        self._post(spec, call, message, start_us)

    def failed(self, spec: Spec, call: Call, start_us: int, error: BaseException) -> None:
        """Send the error of a call, or end the process if the error demands it."""
        duration_us = _since(start_us)
        is_exit = issubclass(type(error), SystemExit)  # not `isinstance`: user code may answer that
        if self._has_left:
            self.end_actor()
        elif is_exit:
            self.exits(error)
        else:
            try:
                end = self._fault(error) or self._raised(call, spec, error, duration_us)
            except BaseException as problem:
                end = self._raised(call, spec, remote_errors.substitute(error, problem), duration_us)
            if not isinstance(end, Returned):
                self._give_out(spec, error, end)
            self._post(spec, call, end, start_us)

    def _post(self, spec: Spec, call: Call, message: Done | Returned, start_us: int) -> None:
        client = self._client
        message.start_us = start_us
        client.outbox.ends_call = False
        if current.report_values is not None:
            current.report_values(client)
        if self._cancels.attempts:
            self._cancels.forget(message.id)  # also if the call has run to its end although it was cancelled
        if client.blocking.is_reported:
            client.blocking.resumes()
        if self.saver is not None and isinstance(spec.kind, MethodSpec) and self.saver.post(spec, message):
            return
        if client.feed.has_followers and type(message) is Done:
            client.feed.remember(message)
        slow_us = spec.gather_us or _SLOW_US
        behind = len(client.feed.calls)
        if call.wanted and behind < WANTED_MAX:
            slow_us = _WANTED_US
        if not self.is_concurrent and (message.duration_us > slow_us or not behind):
            client.outbox.post_now(message)
        elif spec.max_retries and not spec.gather_us:
            client.outbox.post(message)
        else:  # it is not run again, or is to be sent late: if this process is killed, its agent has it
            client.outbox.entrust(message, spec.gather_us)

    def unfilled(self, call: Call) -> None:
        """Send a call back that lacks an argument."""
        if self._cancels.attempts:
            self._cancels.forget(call.id)
        self._client.outbox.post_now(Unfilled(call.id))

    def end_actor(self) -> None:
        """Report that the actor ends. Calls that have not started are not run."""
        client = self._client
        if self._has_left:
            client.feed.exiting = True
            return
        self._has_left = True
        client.blocking.resumes()
        client.outbox.post_now(events.Left(self.actor_id))
        client.feed.retire()

    def exits(self, request: BaseException) -> None:
        """End the process as user code asks. Earlier results are sent first; running calls are lost."""
        if self.actor_id and not _status(request):
            self.end_actor()
            return
        text = _CODE.__get__(request)
        if issubclass(type(text), str):
            print(str.__str__(text), file=sys.stderr)
        output.flush()
        if current.report_values is not None:
            current.report_values(self._client)
        with contextlib.suppress(errors.HeadDiedError):
            self._client.outbox.flush()
        os._exit(_status(request))

    def _give_out(self, spec: Spec, error: BaseException, found: Fault) -> NoReturn:
        """End a process that can no longer use its GPUs. Earlier results are sent first; the running call is lost."""
        text = remote_errors.describe(spec.name, os.getpid(), self._rank, self.granted.hostname, error, self.title)
        output.flush()
        with contextlib.suppress(errors.HeadDiedError):
            self._client.outbox.post_now(events.Faulted(spec.name, found.name, found.blame, not self._worked, text))
        os._exit(1)  # exit handlers of libraries use CUDA, which may hang

    def _result(self, call: Call, spec: Spec, result: Any, duration_us: int) -> Done | Returned:
        store, count = self._client.store, spec.num_returns
        if type(result) is Written:
            return Returned(call.id, result, duration_us)
        keep = f"{call.id.hex()}-{call.attempt}-{os.urandom(4).hex()}" if call.digest else ""
        if count == 0 or (result is None and (count == 1 or count < 0)):
            return Done(call.id, serialize.NONE, duration_us)
        if count == 1 or count < 0:  # a generator of references; the items of a stream were sent, and None is left
            value = store.write(self._serialized(call, spec, [result], "the result")[0], keep=keep)
            if value.stored is None and not value.holds:
                return Done(call.id, value.data, duration_us)
            return Returned(call.id, [self.signed(spec, value)], duration_us)
        try:
            results = list(result)
        except TypeError:
            raise TypeError(
                f"{spec.name} returned {type(result).__name__!r}, and num_returns is {count}: it has to return {count}"
            ) from None
        if len(results) != count:
            raise ValueError(f"{spec.name} returned {len(results)} values, but num_returns is {count}")
        values = store.write_all(self._serialized(call, spec, results, f"a result of {spec.name}"), keep)
        return Returned(call.id, [self.signed(spec, value) for value in values], duration_us)

    def _serialized(self, call: Call, spec: Spec, results: Sequence[object], what: str) -> list[serialize.Serialized]:
        """Serialise results. This runs user code too (`__reduce__`), which the cancellation of a task interrupts."""
        try:
            if isinstance(spec.kind, TaskSpec):
                self._cancels.interruptible = call
            return [serialize.dumps(one, what) for one in results]
        finally:
            self._cancels.interruptible = None

    def signed(self, spec: Spec, value: Value) -> Value:
        """Note in a value that lies in the arena which function made it, and where that begins."""
        if value.stored is not None:
            line = tracebacks.definition(self._code(spec))
            value.made_by = f"{spec.name} ({line})" if line else spec.name
        return value

    def fails(self, spec: Spec, call: Call, error: BaseException) -> bool:
        """Whether an error of a generator is that of the whole call. Otherwise it is its last item."""
        if (
            issubclass(type(error), (ActorExit, SystemExit))
            or self._cancels.has(call)
            or self._fault(error) is not None
        ):
            return True
        return spec.retry is not None and spec.max_retries not in (0, call.attempt) and _may_retry(spec, error)

    def _fault(self, error: BaseException) -> Fault | None:
        return gpu_errors.fault(self.granted, error) if self.granted.gpu_ids else None

    def _raised(self, call: Call, spec: Spec, error: BaseException, duration_us: int) -> Returned:
        try:
            if isinstance(spec.kind, TaskSpec):
                self._cancels.interruptible = call  # user code describes and pickles the error
            value = self.error_of(call, spec, error)
        except KeyboardInterrupt as interrupt:
            self._cancels.interruptible = None
            value = self.error_of(call, spec, interrupt)
        finally:
            self._cancels.interruptible = None
        is_asked = self._cancels.has(call) or issubclass(type(error), KeyboardInterrupt)
        said = "" if is_asked else remote_errors.brief(error)
        trace = self._trace(spec, error, said) if said else ""
        again = _may_retry(spec, error)
        return Returned(call.id, [value], duration_us, raised=True, may_retry=again, said=said, trace=trace)

    def _trace(self, spec: Spec, error: BaseException, said: str) -> str:
        """The end of the traceback, for people who look at the job; empty for an error like several before."""
        kind = (spec.id, _NUMBERS.sub("#", said))
        times = self._traced.get(kind, 0) + 1
        if times > _TRACES or (times == 1 and len(self._traced) >= _TRACED_KINDS_MAX):
            return ""
        self._traced[kind] = times
        text = remote_errors.describe(spec.name, os.getpid(), self._rank, self.granted.hostname, error, self.title)
        return text[-_TRACE_CHARACTERS_MAX:]

    def error_of(self, call: Call, spec: Spec, error: BaseException) -> Value:
        """Return what `get` of the call will raise."""
        described: errors.MpiRuntimeError
        if self._cancels.has(call):
            text = events.CANCELLED_TEXT.format(spec.name)
            described = errors.task_error(errors.TaskCancelledError(text), text)
        else:
            if issubclass(type(error), KeyboardInterrupt):  # as in Ray: it must not look like a Ctrl-C of the caller
                error = errors.TaskCancelledError(f"{spec.name} raised KeyboardInterrupt.").with_traceback(
                    tracebacks.of(error)
                )
            note = gpu_errors.note(error, self.granted, self._devices_in_use) if self.granted.gpu_ids else ""
            note = note or driver_mark.note(error)
            described = remote_errors.make_task_error(
                error, self.place + spec.name, os.getpid(), self._rank, self.granted.hostname, self.title, note
            )
        if isinstance(spec.kind, ActorSpec):
            described = errors.ActorDiedError(
                f"The constructor of actor {spec.name} {call.id.hex()} raised:\n{described}"
            )
        try:
            serialized = serialize.Serialized(remote_errors.to_bytes(described), [], [])
            return self._client.store.write(serialized, is_error=True)
        except errors.MpiRuntimeError as full:
            return Value(remote_errors.to_bytes(errors.TaskError(full, str(described)[:10_000])), None, [], True)

    def _devices_in_use(self) -> list[GpuEntry]:
        """Ask the scheduler about the devices of this node."""
        questions = self._client.questions
        (node,) = questions.ask(Nodes(bytes.fromhex(questions.node_id())))
        return node.gpus


def _since(start_us: int) -> int:
    """The time since then. User code may have replaced the clock, as libraries for tests do."""
    return max(0, time.monotonic_ns() // 1000 - start_us)


def _status(request: BaseException) -> int:
    """Return the exit status that a SystemExit asks for, as Python takes it."""
    code = _CODE.__get__(request)
    if issubclass(type(code), int):
        return code if -(2**31) <= (code := int.__int__(code)) < 2**31 else 255
    return int(code is not None)


def _may_retry(spec: Spec, error: BaseException) -> bool:
    """Whether the call may be retried for this error. If a class cannot be loaded here, it was not raised here."""
    if spec.retry is None or not spec.retry.only:
        return True
    try:
        return isinstance(error, pickle.loads(spec.retry.only))
    except Exception:
        return False
