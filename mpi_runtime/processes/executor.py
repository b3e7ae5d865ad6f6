"""The executor: runs calls, or is one actor. User code runs here, and nowhere else but in the driver.

Calls come in frames and are run in order. Before each the executor claims a token: the agent takes calls back by taking
tokens, so when a claim fails, all calls that were received and not started are somebody else's.

What is cancelled is in `cancels.py`, what calls yield in `yields.py`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from mpi_runtime import current, errors
from mpi_runtime.objects import serialize
from mpi_runtime.processes import gpu_errors
from mpi_runtime.processes.cancels import Cancels
from mpi_runtime.processes.client import Client
from mpi_runtime.processes.interrupts import CANCEL_SIGNAL, Interrupts
from mpi_runtime.processes.scope import Scope
from mpi_runtime.processes.yields import Yields
from mpi_runtime.scheduler.events import (
    ACTOR,
    CANCELLED_TEXT,
    METHOD,
    TASK,
    Call,
    Done,
    Faulted,
    Left,
    Returned,
    Spec,
    Titled,
    Value,
    Where,
)
from mpi_runtime.transport.messages import Drained

if TYPE_CHECKING:
    from mpi_runtime.gpu.faults import Fault
    from mpi_runtime.processes.forkserver import Fork, Setup
    from mpi_runtime.processes.lanes import Lanes

_SLOW_US = 1000
"""A result that follows a call of this length is sent at once."""
_TITLE_CHARACTERS_MAX = 100
"""It stands before each line of an actor's output."""


class ActorExit(BaseException):
    """Raised in an actor by `exit_actor()`; user code does not catch it by mistake."""


class Executor:
    """Runs the calls of one client connection until told to exit."""

    def __init__(self, client: Client, tokens: int, cancels: int, setup: Setup, request: Fork) -> None:
        self._client = client
        self._tokens = tokens
        self.cancels = Cancels(cancels)
        self.yields = Yields(client, self.cancels)
        self.number = request.executor
        self.rank = setup.rank
        self.hostname = setup.hostname
        self.gpus = request.gpus
        self.devices = request.devices
        self._functions: dict[int, Callable[..., Any]] = {}
        self.actor: Any = None
        self.actor_id = b""
        self.title = ""
        """What the actor calls itself, if its class says how."""
        self.actor_attempt = 0
        """How often the actor had been created before."""
        self.worked = False
        """Whether a call has ended well here. The creation of an actor need not have used its devices."""
        self.promised = (0, 0)
        """Units and bytes of each device, for the running call or the actor."""
        self._calls_made: dict[int, int] = {}
        """How many calls of a function, where that is limited."""
        self.problem = ""
        """Why the files that its calls are to find are not there: it runs none."""
        self._lanes: Lanes | None = None
        """In an actor that takes several calls at a time."""
        self.where: Where | None = None
        """Where the running call, or the actor, was told to run."""

    def run(self) -> None:
        """Run calls until told to exit, or the connection is gone."""
        client = self._client
        calls = client.calls
        while True:
            if not calls:
                if client.exiting:
                    break
                _flush_output()
                try:
                    client.read_calls()
                except errors.HeadDiedError:
                    return
                continue
            call, arguments = calls.popleft()
            if not self._claim():
                calls.clear()
                client.outbox.send_local(Drained(client.received_calls))
            elif self._lanes is not None:
                self._lanes.put(call, arguments)
            else:
                self._run(call, arguments)
        _flush_output()
        with contextlib.suppress(errors.HeadDiedError):
            client.outbox.flush()

    def _claim(self) -> bool:
        try:
            os.eventfd_read(self._tokens)
        except BlockingIOError:
            return False
        return True

    def _run(self, call: Call, arguments: list[Any]) -> None:
        client, cancels = self._client, self.cancels
        if call.attempt:
            client.outbox.flush()  # it may end the process again: what others have returned would be run again with it
        spec = client.specs[call.spec]
        if spec.kind != METHOD:
            self.promised = spec.gpu, spec.gpu_memory
            self.where = where = spec.where
            client.inherited = where if where is not None and where.captures else None
        client.enter(Scope(call.id, call.attempt, call, spec.name))
        start_us = time.monotonic_ns() // 1000
        try:
            try:
                if spec.kind == TASK:
                    cancels.interruptible = call.id
                result = self.perform(spec, call, arguments)
            finally:
                cancels.interruptible = b""
        except BaseException as error:
            cancels.interruptible = b""  # an interrupt may have come just before
            self.failed(spec, call, start_us, error)
        else:
            self.ended(spec, call, start_us, result)
        if spec.max_calls:
            self._calls_made[spec.id] = made = self._calls_made.get(spec.id, 0) + 1
            if made >= spec.max_calls:
                client.calls.clear()  # without their tokens: others will run them
                client.exiting = True

    def perform(self, spec: Spec, call: Call, arguments: list[Any]) -> Any:
        """Run user code: what it returns."""
        if call.id in self.cancels.ids:
            raise KeyboardInterrupt
        positional, named = self._arguments(call, arguments) if call.payload or arguments else ((), {})
        if spec.kind == METHOD:
            name = spec.name.rpartition(".")[2]
            method = _SPECIAL[name](self.actor) if name in _SPECIAL else getattr(self.actor, name)
            result = method(*positional, **named)
            return result if spec.num_returns >= 0 else self.yields.all_of(spec, call, result)
        function = self._functions.get(spec.id)
        if function is None:
            if self.problem:
                self._client.calls.clear()  # without their tokens: another executor will try again
                self._client.exiting = True
                raise errors.RuntimeEnvSetupError(f"The runtime_env of {spec.name} cannot be set up: {self.problem}")
            function = self._functions[spec.id] = pickle.loads(spec.function)
        if spec.kind == ACTOR:
            self._become_actor(spec, call, function, positional, named)
            return None
        result = function(*positional, **named)
        return result if spec.num_returns >= 0 else self.yields.all_of(spec, call, result)

    def _become_actor(
        self, spec: Spec, call: Call, cls: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.actor_id = call.id
        self.actor_attempt = call.attempt
        self.actor = cls(*positional, **named)
        self.title = title_of(self.actor)
        if self.title:
            self._client.outbox.add(Titled(self.title))
        if spec.concurrency:
            from mpi_runtime.processes.lanes import Lanes  # not at the top: most actors take one call at a time

            self._client.lends_cpu = False  # of several calls one that waits says nothing about the others
            self._lanes = Lanes(self, self._client.specs, spec)
            self.cancels.on_cancelled = self._lanes.cancel

    def _arguments(self, call: Call, arguments: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        client = self._client
        values = [client.store.load(entry) for entry in arguments]
        if not call.payload:  # too large for a message: the arguments are an object of their own
            positional, named = values[0]
            values = values[1:]
        else:
            positional, named = serialize.loads(call.payload)
        if values:
            positional = tuple(values[item.number] if type(item) is serialize.Slot else item for item in positional)
            named = {k: values[item.number] if type(item) is serialize.Slot else item for k, item in named.items()}
        return positional, named

    # Results. References in them must live until the message is posted.

    def ended(self, spec: Spec, call: Call, start_us: int, result: Any) -> None:
        """User code has returned; a result that cannot be stored is an error like any other."""
        duration_us = time.monotonic_ns() // 1000 - start_us
        try:
            message = self._result(call, spec, result, duration_us)
        except BaseException as error:
            self.failed(spec, call, start_us, error)
        else:
            if spec.kind != ACTOR:
                self.worked = True
            self._post(spec, message, start_us)

    def failed(self, spec: Spec, call: Call, start_us: int, error: BaseException) -> None:
        """User code has raised."""
        duration_us = time.monotonic_ns() // 1000 - start_us
        if isinstance(error, ActorExit) or (isinstance(error, SystemExit) and self.actor_id and not error.code):
            self._end_actor()
        elif isinstance(error, SystemExit):
            self._exit(error)
        elif self.gpus and (found := gpu_errors.fault(self.devices, error)) is not None:
            self._give_out(spec, error, found)
        else:
            self._post(spec, self._raised(call, spec, error, duration_us), start_us)

    def _post(self, spec: Spec, message: Done | Returned, start_us: int) -> None:
        client = self._client
        message.start_us = start_us
        if self.cancels.ids:
            self.cancels.ids.discard(message.id)  # also of a call that has run on to its end
        if client.said_blocked:
            client.say_unblocked()
        at_once = message.duration_us > _SLOW_US or not client.calls or not spec.max_retries
        if at_once and self._lanes is None:
            client.outbox.post_now(message)
        else:
            client.outbox.post(message)

    def _end_actor(self) -> None:
        """The actor asked for its end: what it has in hand is not run."""
        client = self._client
        client.say_unblocked()
        client.outbox.post_now(Left(self.actor_id))
        client.calls.clear()
        client.exiting = True

    def _exit(self, request: SystemExit) -> NoReturn:
        """User code asked the process to end: what ended before is told, the running call is lost with the process."""
        code = request.code if isinstance(request.code, int) else 0 if request.code is None else 1
        if isinstance(request.code, str):
            print(request.code, file=sys.stderr)
        _flush_output()
        with contextlib.suppress(errors.HeadDiedError):
            self._client.outbox.flush()
        os._exit(code)

    def _give_out(self, spec: Spec, error: BaseException, found: Fault) -> NoReturn:
        """This process can use its GPUs no more: what ended before is told, and the call is lost with the process."""
        text = errors.describe(spec.name, os.getpid(), self.rank, self.hostname, error, self.title)
        faulted = Faulted(spec.name, found.name, found.by_program, not self.worked, text)
        _flush_output()
        with contextlib.suppress(errors.HeadDiedError):
            self._client.outbox.post_now(faulted)
        os._exit(1)  # what libraries do at the end asks CUDA, which may hang

    def _result(self, call: Call, spec: Spec, result: Any, duration_us: int) -> Done | Returned:
        client = self._client
        count = spec.num_returns
        if count == 1 or count < 0:  # a stream or the like: what is left is None
            if result is None:
                return Done(call.id, _NONE, duration_us)
            value = client.store.write(serialize.dumps(result, "the result"))
            if value.stored is None and not value.holds:
                return Done(call.id, value.data, duration_us)
            return Returned(call.id, [value], duration_us)
        if count == 0:
            return Done(call.id, _NONE, duration_us)
        try:
            results = list(result)
        except TypeError:
            results = [result]
        if len(results) != count:
            raise ValueError(f"{spec.name} returned {len(results)} values, but num_returns is {count}")
        serialized = [serialize.dumps(one, f"a result of {spec.name}") for one in results]
        return Returned(call.id, client.store.write_all(serialized), duration_us)

    def _raised(self, call: Call, spec: Spec, error: BaseException, duration_us: int) -> Returned:
        described: errors.MpiRuntimeError
        if call.id in self.cancels.ids:
            described = errors.TaskCancelledError(CANCELLED_TEXT.format(spec.name))
        else:
            note = gpu_errors.note(self, self._client, error) if self.gpus else ""
            described = errors.make_task_error(
                error, spec.name, os.getpid(), self.rank, self.hostname, self.title, note
            )
        if spec.kind == ACTOR:
            described = errors.ActorDiedError(f"The constructor of actor {spec.name} raised:\n{described}")
        try:
            serialized = serialize.Serialized(errors.to_bytes(described), [], [])
            value = self._client.store.write(serialized, is_error=True)
        except errors.MpiRuntimeError as full:
            value = Value(errors.to_bytes(errors.TaskError(full, str(described)[:10_000])), None, [], True)
        return Returned(call.id, [value], duration_us, raised=True, may_retry=_may_retry(spec, error))


def _may_retry(spec: Spec, error: BaseException) -> bool:
    """Whether this is what the call may be run again for. A class that cannot be loaded here was not raised here."""
    if not spec.retry_only:
        return True
    try:
        return isinstance(error, pickle.loads(spec.retry_only))
    except Exception:
        return False


def title_of(actor: object) -> str:
    """What an actor calls itself, in one line: its `repr`, if its class defines one; else nothing."""
    if type(actor).__repr__ is object.__repr__:
        return ""
    try:
        line = " ".join(repr(actor).split())
    except Exception as error:  # it is asked for before the first call, by us: no reason for the actor to die
        print(f"{type(actor).__name__}.__repr__ raised {error!r}: its output has the class's name.", file=sys.stderr)
        return ""
    line = line.encode(errors="replace").decode()
    return line if len(line) <= _TITLE_CHARACTERS_MAX else f"{line[: _TITLE_CHARACTERS_MAX - 3]}..."


def _terminate() -> NoReturn:
    raise ActorExit


_SPECIAL: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "__ray_call__": lambda actor: lambda function, *args, **kwargs: function(actor, *args, **kwargs),
    "__ray_ready__": lambda actor: lambda: True,
    "__ray_terminate__": lambda actor: _terminate,
}
"""Methods that every actor has."""
_NONE = pickle.dumps(None, 5)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def limit_threads(count: int) -> None:
    """Have numerical libraries use this many threads. Those that the forkserver has loaded use one until told."""
    if count > 1:
        import threadpoolctl

        threadpoolctl.threadpool_limits(count)


def main(client: Client, tokens: int, cancels: int, setup: Setup, request: Fork, problem: str) -> None:
    """Be an executor until told to exit; `problem`: why the files that its calls are to find are not there."""
    client.lends_cpu = True
    client.namespace = setup.namespace
    client.environment = request.environment
    client.executor = executor = Executor(client, tokens, cancels, setup, request)
    executor.problem = problem
    client.outbox.interrupts = Interrupts(CANCEL_SIGNAL, second_at_once=False)
    current.set_client(client)
    executor.cancels.listen()
    executor.run()
