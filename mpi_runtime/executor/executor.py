"""The executor: it runs calls, or is one actor. User code runs only here and in the driver.

Calls arrive in frames and run in order. Before each call the executor claims its token: see `transport/tokens.py`.
Cancelled calls are in `cancels.py`, items of generators in `yields.py`, methods of actors in `actor_methods.py`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mpi_runtime import errors
from mpi_runtime.client.client import Client, Executing
from mpi_runtime.client.scope import Inherited, Scope
from mpi_runtime.errors import frames as tracebacks
from mpi_runtime.errors import remote as remote_errors
from mpi_runtime.executor import gpu_errors, output
from mpi_runtime.executor.actor_methods import ActorExit, construct, find_method, title_of
from mpi_runtime.executor.cancels import Cancels
from mpi_runtime.executor.fork_messages import Fork, Setup
from mpi_runtime.executor.gpu_errors import Granted
from mpi_runtime.executor.yields import Written, Yields
from mpi_runtime.gpu.device import VISIBLE
from mpi_runtime.objects import serialize
from mpi_runtime.objects.arena import ClientArena
from mpi_runtime.scheduler.protocol.events import (
    ACTOR,
    CANCELLED_TEXT,
    METHOD,
    TASK,
    Began,
    Call,
    Done,
    Faulted,
    Left,
    Returned,
    Spec,
    StateLost,
    Titled,
    Value,
    Where,
)
from mpi_runtime.transport.draft import Draft
from mpi_runtime.transport.messages import Drained
from mpi_runtime.transport.tokens import claim, tokens_of

if TYPE_CHECKING:
    from mpi_runtime.executor.lanes import Lanes
    from mpi_runtime.executor.saving import Saver
    from mpi_runtime.gpu.faults import Fault

_SLOW_US = 1000
"""The result of a call that took longer is sent at once, in microseconds."""


class Executor:
    """Runs the calls of one client connection until told to exit."""

    def __init__(
        self, end: socket.socket, arena: int, tokens: int, cancels: int, draft: Draft, setup: Setup, request: Fork
    ) -> None:
        """Use a connected socket, and these descriptors of arena, tokens and the pipe with ids of cancelled calls."""
        self._tokens = tokens_of(tokens)
        self.cancels = Cancels(cancels)
        self.client = Client(
            end,
            ClientArena(arena),
            setup.regions,
            setup.inline_bytes_max,
            inherited=Inherited(setup.namespace, request.environment),
            journal=setup.journal,
            executing=Executing(self, draft, self.cancels, cancels),
        )
        self.cancels.on_interrupt = lambda: self.client.scopes.running.clean_up()
        self._yields = Yields(self.client, self.cancels, self)
        self.number = request.executor
        self.rank = setup.rank
        self.hostname = setup.hostname
        self.gpu_ids = request.gpu_ids
        self.devices = request.devices
        self.shown = request.variables.get(VISIBLE, "")
        """The value of CUDA_VISIBLE_DEVICES for them."""
        self._functions: dict[int, Callable[..., Any]] = {}
        self._methods: dict[int, Callable[..., Any]] = {}
        """Methods of the actor, by spec."""
        self._has_left = False
        """Whether the actor has asked for its end."""
        self.actor: Any = None
        self.actor_id = b""
        self.title = ""
        """The title of the actor; empty: its class defines no `__repr__`."""
        self.actor_attempt = 0
        """How often the actor had been created before."""
        self.worked = False
        """Whether a call has ended well here. The creation of an actor need not have used its devices."""
        self.promised = (0, 0)
        """Granted units and bytes of each device, for the running call or the actor."""
        self._calls_made: dict[int, int] = {}
        """By spec with `max_calls`: how many of its calls were run."""
        self._problem = ""
        """Why the files of the `runtime_env` could not be made; then it runs no calls. Empty: they exist."""
        self._saver: Saver | None = None
        """Saves the state of its actor, if that is saved."""
        self._lanes: Lanes | None = None
        """Set in an actor that runs several calls at a time."""
        self._writes_as = ""
        """The function of the last call, whose lines its output is."""
        self.where: Where | None = None
        """The place that the running call, or the actor, was given."""

    def run(self, problem: str) -> None:
        """Run calls until told to exit, or until the connection closes.

        `problem`: why the files of the `runtime_env` cannot be made; empty: they exist.
        """
        self._problem = problem
        self.cancels.listen()
        client, feed = self.client, self.client.feed
        client.blocking.lends_cpu = True
        calls = feed.calls
        while True:
            if not calls:
                if feed.exiting:
                    break
                output.flush()
                try:
                    if self._saver is not None:
                        self._look_at_state(self._saver)
                    client.line.wait_until(feed.is_ready, None if self._saver is None else self._saver.pause_s(), None)
                except errors.HeadDiedError:
                    return
                continue
            claimed = claim(calls, self._tokens, feed.received)
            if isinstance(claimed, Drained):
                client.outbox.send_local(claimed)
            elif self._lanes is not None:
                self._lanes.put(*claimed)
            else:
                self._run(*claimed)
        self._shut_down()
        output.flush()
        with contextlib.suppress(errors.HeadDiedError):
            client.outbox.flush()

    def _look_at_state(self, saver: Saver) -> None:
        wanted, self.client.feed.saving = self.client.feed.saving, False
        saver.look(wanted)

    def save_now(self) -> bool:
        """Save the state of the actor, in a call."""
        if self._saver is None:
            raise errors.JournalError(
                f"the state of {type(self.actor).__name__} is not saved: it needs a job with a journal, and a class "
                "with save_state(self) and load_state(self, state), without the option journal=False, whose "
                "constructor was given no references"
            )
        return self._saver.save_now()

    def _shut_down(self) -> None:
        """Let an actor clean up before its process ends, by `__ray_shutdown__` or `__del__`."""
        if self.actor is None:
            return
        shutdown = getattr(type(self.actor), "__ray_shutdown__", None)
        if shutdown is not None:
            try:
                shutdown(self.actor)
            except Exception:
                import traceback

                traceback.print_exc()
        self._methods.clear()
        self.actor = None

    def _run(self, call: Call, arguments: list[Any]) -> None:
        client, cancels = self.client, self.cancels
        if call.attempt:
            client.outbox.flush()  # it may crash the process again, and unsent results would be lost with it
        spec = client.feed.specs[call.spec]
        if spec.kind != METHOD:
            if self.gpu_ids and self.promised != (spec.gpu, spec.gpu_memory):
                gpu_errors.hold(self.devices, spec)
            self.promised = spec.gpu, spec.gpu_memory
            if spec.name is not self._writes_as:
                self._writes_as = spec.name
                output.begin(spec.name.partition(".")[0])
            self.where = where = spec.where
            client.inherited.where = _captured(where) if where is not None and where.captures else None
        client.scopes.running = Scope(call.id, call.attempt, call, spec.name)
        start_us = time.monotonic_ns() // 1000
        try:
            try:
                if spec.kind == TASK:
                    cancels.interruptible = call
                result = self.perform(spec, call, arguments)
            finally:
                cancels.interruptible = None
        except BaseException as error:
            cancels.interruptible = None  # an interrupt may have arrived just before
            self.failed(spec, call, start_us, error)
        else:
            self.ended(spec, call, start_us, result)
        if spec.max_calls:
            self._calls_made[spec.id] = made = self._calls_made.get(spec.id, 0) + 1
            if made >= spec.max_calls:
                client.feed.retire()

    def perform(self, spec: Spec, call: Call, arguments: list[Any]) -> Any:
        """Run user code, and return its result.

        Raises:
            BaseException: whatever user code raises; `KeyboardInterrupt` if the call is cancelled.
        """
        if self.cancels.attempts and self.cancels.has(call):
            raise KeyboardInterrupt
        if call.kept and spec.kind != ACTOR:
            kept = self.client.store.recall(call.kept)
            if kept is not None:
                return Written(kept)
            if spec.kind == METHOD:  # the state has had this call, and must not have it twice
                raise errors.JournalError(
                    f"what {spec.name} returned in an earlier run cannot be read from the journal"
                )
        if spec.enforces_limit:
            self.client.outbox.post_now(Began(call.id))
        positional, named = self._arguments(call, arguments) if call.payload or arguments else ((), {})
        if spec.kind == METHOD:
            method = self._methods.get(spec.id) or self._find_method(spec)
            return self._one_or_all(spec, call, method(*positional, **named))
        function = self._functions.get(spec.id)
        if function is None:
            if self._problem:
                self.client.feed.retire()  # the next executor will try again
                raise errors.RuntimeEnvSetupError(f"The runtime_env of {spec.name} cannot be set up: {self._problem}")
            function = self._functions[spec.id] = pickle.loads(spec.function)
        if spec.kind == ACTOR:
            self._become_actor(spec, call, function, positional, named)
            return None
        return self._one_or_all(spec, call, function(*positional, **named))

    def _one_or_all(self, spec: Spec, call: Call, result: Any) -> Any:
        is_one = spec.num_returns == 1 and type(result) is not GeneratorType
        return result if is_one else self._yields.all_of(spec, call, result)

    async def complete(self, spec: Spec, call: Call, result: Any) -> Any:
        """Await a coroutine, and send the items of a generator. Return the result."""
        return await self._yields.all_of_async(spec, call, result)

    def is_cancelled(self, call: Call) -> bool:
        """Whether this attempt of a call is cancelled."""
        return self.cancels.has(call)

    def emit(self, item: Any) -> bool:
        """Send an item of the running task: see `Yields.emit`."""
        return self._yields.emit(item)

    def _find_method(self, spec: Spec) -> Callable[..., Any]:
        found = self._methods[spec.id] = find_method(self.actor, spec)
        return found

    def function_name(self) -> str | None:
        """Return the name of the running function or method with its module; None between calls."""
        call = self.client.scopes.current().call
        spec = self.client.feed.specs.get(call.spec) if call is not None else None
        if spec is None:
            return None
        code = self._methods.get(spec.id) or self._functions.get(spec.id)
        return f"{getattr(code, '__module__', '')}.{getattr(code, '__qualname__', spec.name)}"

    def _become_actor(
        self, spec: Spec, call: Call, cls: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.actor_id = call.id
        self.actor_attempt = call.attempt
        if spec.concurrency:
            from mpi_runtime.executor.lanes import Lanes  # not at the top: most actors run one call at a time

            self.client.blocking.lends_cpu = False  # one call that waits says nothing about the others
            self._lanes = Lanes(self, self.client.feed.specs, spec)
            self.cancels.on_cancelled = self._lanes.cancel
        self.actor = self._call(construct, cls, positional, named)
        if call.digest:
            self._begin_to_save(spec, call)
        self.title = title_of(self.actor)
        if self.title:
            output.begin(self.title)
            self.client.outbox.add(Titled(self.title))

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call user code of the actor that belongs to none of its calls: in its loop, if it has coroutines."""
        return function(*args) if self._lanes is None else self._lanes.call(function, *args)

    def _begin_to_save(self, spec: Spec, call: Call) -> None:
        """Give the actor the state that it had last, if there is one, and save its states from now on."""
        from mpi_runtime.executor import saving  # not at the top: most actors have none

        if call.kept:
            data = saving.read(self.client.store.journal, call.kept[0])
            if data is None:
                self.client.outbox.add(StateLost(f"the file {call.kept[0].file} is not there, or damaged"))
            else:
                try:
                    self._call(self.actor.load_state, pickle.loads(data))
                except Exception as error:
                    raise errors.JournalError(
                        f"{spec.name}.load_state failed: {error!r}. To start from scratch, use another journal "
                        "directory, or give the class the option journal=False."
                    ) from error
        self._saver = saving.Saver(self.client, spec, self.actor)
        if self._lanes is not None:
            self._lanes.saver = self._saver

    def _arguments(self, call: Call, arguments: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        client = self.client
        values = [client.store.load(entry) for entry in arguments]
        if not call.payload:  # the arguments were too large for a message, and are an object
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
        """Send the result of a call. A result that cannot be stored becomes an error."""
        duration_us = time.monotonic_ns() // 1000 - start_us
        if self._has_left:  # user code has caught what `exit_actor` raises
            return
        if spec.kind == METHOD and self.cancels.attempts and self.cancels.has(call):  # it was not interrupted
            self.failed(spec, call, start_us, KeyboardInterrupt())
            return
        try:
            message = self._result(call, spec, result, duration_us)
        except BaseException as error:
            self.failed(spec, call, start_us, error)
        else:
            if spec.kind != ACTOR:
                self.worked = True
            if call.digest and self.client.scopes.current().has_errors:
                values = [Value(message.data)] if type(message) is Done else message.values  # type: ignore[union-attr]
                message = Returned(call.id, values, duration_us, has_errors=True)
            self._post(spec, message, start_us)

    def failed(self, spec: Spec, call: Call, start_us: int, error: BaseException) -> None:
        """Send the error of a call, or end the process if the error demands it."""
        duration_us = time.monotonic_ns() // 1000 - start_us
        if self._has_left or (isinstance(error, SystemExit) and self.actor_id and not error.code):
            self.end_actor()
        elif isinstance(error, SystemExit):
            self._exit(error)
        elif self.gpu_ids and (found := gpu_errors.fault(self._granted(), error)) is not None:
            self._give_out(spec, error, found)
        else:
            self._post(spec, self._raised(call, spec, error, duration_us), start_us)

    def _post(self, spec: Spec, message: Done | Returned, start_us: int) -> None:
        client = self.client
        message.start_us = start_us
        if self.cancels.attempts:
            self.cancels.forget(message.id)  # also if the call has run to its end although it was cancelled
        if client.blocking.is_reported:
            client.blocking.resumes()
        if self._saver is not None and spec.kind == METHOD and self._saver.post(spec, message):
            return
        slow_us = spec.gather_us or _SLOW_US
        if self._lanes is None and (message.duration_us > slow_us or not client.feed.calls):
            client.outbox.post_now(message)
        elif spec.max_retries and not spec.gather_us:
            client.outbox.post(message)
        else:  # it is not run again, or is to be told late: if this process is killed, its agent has it
            client.outbox.entrust(message, spec.gather_us)

    def end_actor(self) -> None:
        """Tell the scheduler that the actor ends. Calls in hand are not run."""
        client = self.client
        if self._has_left:
            client.feed.exiting = True
            return
        self._has_left = True
        client.blocking.resumes()
        client.outbox.post_now(Left(self.actor_id))
        client.feed.retire()

    def _exit(self, request: SystemExit) -> NoReturn:
        """End the process as user code asks. Earlier results are sent first; the running call is lost."""
        code = request.code if isinstance(request.code, int) else 0 if request.code is None else 1
        if isinstance(request.code, str):
            print(request.code, file=sys.stderr)
        output.flush()
        with contextlib.suppress(errors.HeadDiedError):
            self.client.outbox.flush()
        os._exit(code)

    def _give_out(self, spec: Spec, error: BaseException, found: Fault) -> NoReturn:
        """End a process that can no longer use its GPUs. Earlier results are sent first; the running call is lost."""
        text = remote_errors.describe(spec.name, os.getpid(), self.rank, self.hostname, error, self.title)
        faulted = Faulted(spec.name, found.name, found.blame, not self.worked, text)
        output.flush()
        with contextlib.suppress(errors.HeadDiedError):
            self.client.outbox.post_now(faulted)
        os._exit(1)  # exit handlers of libraries use CUDA, which may hang

    def _result(self, call: Call, spec: Spec, result: Any, duration_us: int) -> Done | Returned:
        client = self.client
        count = spec.num_returns
        if type(result) is Written:
            return Returned(call.id, result, duration_us)
        keep = f"{call.id.hex()}-{call.attempt}-{os.urandom(4).hex()}" if call.digest else ""
        if count == 1 or count < 0:  # the items were sent, and None is left
            if result is None:
                return Done(call.id, serialize.NONE, duration_us)
            value = client.store.write(serialize.dumps(result, "the result"), keep=keep)
            if value.stored is None and not value.holds:
                return Done(call.id, value.data, duration_us)
            return self._returned(call, spec, [value], duration_us)
        if count == 0:
            return Done(call.id, serialize.NONE, duration_us)
        try:
            results = list(result)
        except TypeError:
            raise TypeError(
                f"{spec.name} returned {type(result).__name__!r}, and num_returns is {count}: it has to return {count}"
            ) from None
        if len(results) != count:
            raise ValueError(f"{spec.name} returned {len(results)} values, but num_returns is {count}")
        serialized = [serialize.dumps(one, f"a result of {spec.name}") for one in results]
        return self._returned(call, spec, client.store.write_all(serialized, keep), duration_us)

    def _returned(self, call: Call, spec: Spec, values: list[Value], duration_us: int) -> Returned:
        for value in values:
            if value.stored is not None:
                value.made_by = self.made_by(spec)
        return Returned(call.id, values, duration_us)

    def made_by(self, spec: Spec) -> str:
        """Return the name of a function or method, and where it begins."""
        line = tracebacks.definition(self._methods.get(spec.id) or self._functions.get(spec.id))
        return f"{spec.name} ({line})" if line else spec.name

    def fails(self, spec: Spec, call: Call, error: BaseException) -> bool:
        """Whether an error of a generator is that of the whole call. Otherwise it is its last item."""
        if isinstance(error, (ActorExit, SystemExit)) or self.cancels.has(call):
            return True
        if self.gpu_ids and gpu_errors.fault(self._granted(), error) is not None:
            return True
        return spec.retry_exceptions and spec.max_retries not in (0, call.attempt) and _may_retry(spec, error)

    def _raised(self, call: Call, spec: Spec, error: BaseException, duration_us: int) -> Returned:
        value = self.error_of(call, spec, error)
        said = "" if self.cancels.has(call) or isinstance(error, KeyboardInterrupt) else remote_errors.brief(error)
        return Returned(call.id, [value], duration_us, raised=True, may_retry=_may_retry(spec, error), said=said)

    def error_of(self, call: Call, spec: Spec, error: BaseException) -> Value:
        """Return an error as a value."""
        described: errors.MpiRuntimeError
        if self.cancels.has(call):
            text = CANCELLED_TEXT.format(spec.name)
            described = errors.task_error(errors.TaskCancelledError(text), text)
        else:
            if isinstance(error, KeyboardInterrupt):  # as in Ray: it must not look like a Ctrl-C of the caller
                error = errors.TaskCancelledError(f"{spec.name} raised KeyboardInterrupt.").with_traceback(
                    error.__traceback__
                )
            note = gpu_errors.note(error, self._granted(), self._devices_in_use) if self.gpu_ids else ""
            described = remote_errors.make_task_error(
                error, spec.name, os.getpid(), self.rank, self.hostname, self.title, note
            )
        if spec.kind == ACTOR:
            described = errors.ActorDiedError(f"The constructor of actor {spec.name} raised:\n{described}")
        try:
            serialized = serialize.Serialized(remote_errors.to_bytes(described), [], [])
            return self.client.store.write(serialized, is_error=True)
        except errors.MpiRuntimeError as full:
            return Value(remote_errors.to_bytes(errors.TaskError(full, str(described)[:10_000])), None, [], True)

    def _granted(self) -> Granted:
        return Granted(self.gpu_ids, self.devices, self.shown, *self.promised, self.hostname)

    def _devices_in_use(self) -> list[dict[str, Any]]:
        """Ask the scheduler about the devices of this node."""
        questions = self.client.questions
        table: list[dict[str, Any]] = questions.query("nodes", bytes.fromhex(questions.node_id()))[0]["gpus"]
        return table


def _may_retry(spec: Spec, error: BaseException) -> bool:
    """Whether the call may be retried for this error. If a class cannot be loaded here, it was not raised here."""
    if not spec.retry_only:
        return True
    try:
        return isinstance(error, pickle.loads(spec.retry_only))
    except Exception:
        return False


def _captured(where: Where) -> Where:
    """Where calls run that a call in a placement group makes: in any bundle of it, as in Ray."""
    return where if where.bundle < 0 else msgspec.structs.replace(where, bundle=-1)


def limit_threads(count: int) -> None:
    """Limit numerical libraries to this many threads. Those loaded in the forkserver use one until they are told."""
    if count > 1:
        import threadpoolctl

        threadpoolctl.threadpool_limits(count)
