"""The executor: it runs calls, or is one actor. User code runs only here and in the driver.

Calls arrive in frames and run in order. Before each call the executor claims its token: see `transport/tokens.py`.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import time
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import msgspec

from mpi_runtime import errors
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client, Executing
from mpi_runtime.core.client.scope import Inherited, Scope
from mpi_runtime.core.executor import driver_mark, gpu_errors, output, own_scheduler_mark
from mpi_runtime.core.executor.actor_methods import construct, find_method, title_of
from mpi_runtime.core.executor.cancels import Cancels
from mpi_runtime.core.executor.fork_messages import Fork, Setup
from mpi_runtime.core.executor.results import Results, Written
from mpi_runtime.core.executor.yields import Yields
from mpi_runtime.core.objects import serialize
from mpi_runtime.core.objects.arena import ClientArena
from mpi_runtime.core.transport.messages import Drained
from mpi_runtime.core.transport.tokens import claim, tokens_of
from mpi_runtime.core.transport.unsent_frame import Draft
from mpi_runtime.errors import frames as tracebacks
from mpi_runtime.scheduler.protocol.effects import Entry
from mpi_runtime.scheduler.protocol.events import (
    ActorSpec,
    Began,
    Call,
    MethodSpec,
    Spec,
    StateLost,
    TaskSpec,
    Titled,
    Where,
)

if TYPE_CHECKING:
    from mpi_runtime.core.executor.concurrency import Lanes
    from mpi_runtime.core.gangs.member import Member

FUNCTIONS_MAX, CODE_BYTES_MAX = 10_000, 1 << 29
"""After this number of functions, or bytes of code, another process takes over the tasks: a program may make functions
without end, and nothing shows that one will not be called again."""


class Executor:
    """Runs the calls of one client connection until it receives `Exit`."""

    def __init__(
        self,
        end: socket.socket,
        arena: int,
        tokens: int,
        cancels: int,
        draft: Draft,
        setup: Setup,
        request: Fork,
        member: Member | None = None,
    ) -> None:
        """Use a connected socket, and these descriptors of arena, tokens and the pipe with ids of cancelled calls."""
        self._tokens = tokens_of(tokens)
        home = driver_mark.home_of(request.environment)
        namespace = setup.job.config.namespace if home is None else home.namespace
        self.cancels = Cancels(cancels)
        self.client = Client(
            end,
            ClientArena(arena),
            setup.regions,
            setup.job.config.inline_bytes_max,
            inherited=Inherited(namespace, request.environment),
            journal=setup.job.config.journal,
            executing=Executing(self, draft, self.cancels, cancels),
        )
        self.cancels.on_interrupt = lambda: self.client.scopes.running.clean_up()
        self.results = Results(self.client, self.cancels, setup, request, self._code_of)
        self._yields = Yields(self.client, self.cancels, self.results)
        # For code above: see the protocol `Executor` of `client/client.py`.
        self.is_cancelled, self.emit, self.end_actor = self.cancels.has, self._yields.emit, self.results.end_actor
        if member is not None:
            self.results.place = f"{member.place} of "
        self.number = request.executor
        self.rank = setup.rank
        self.hostname = setup.hostname
        self.gpu_ids = own_scheduler_mark.numbers(request.environment, request.gpu_ids)
        self.devices = request.devices
        self.member = member
        """Its place in a gang; None: it belongs to none."""
        self._functions: dict[int, Callable[..., object]] = {}
        self._code_bytes = 0
        self._is_full = False
        """Whether they are so many that this process ends after the running call."""
        self._methods: dict[int, Callable[..., object]] = {}
        """Methods of the actor, by spec."""
        self.actor: Any = None
        self.actor_id = b""
        self.actor_attempt = 0
        self._calls_made: dict[int, int] = {}
        """By spec with `max_calls`: how many of its calls were run."""
        self._problem = ""
        """Why the files of the `runtime_env` could not be made; then it runs no calls. Empty: they exist."""
        self._lanes: Lanes | None = None
        """Set in an actor that runs several calls at a time."""
        self._writes_as = ""
        """The function of the last call, which the marks in its output name."""
        self.where: Where | None = None

    def run(self, problem: str) -> None:
        """Run calls until `Exit` arrives or the connection closes.

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
                    client.line.wait_until(feed.is_ready, self._look_at_state(), None)
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
        if current.report_values is not None:
            current.report_values(client)
        with contextlib.suppress(errors.HeadDiedError):
            client.outbox.flush()

    def _look_at_state(self) -> float | None:
        """Save the state of the actor if it is due. Return the seconds until the next look; None: for ever."""
        saver, feed = self.results.saver, self.client.feed
        if saver is None:
            return None
        wanted, feed.saving = feed.saving, False
        saver.look(wanted)
        return saver.pause_s()

    def save_now(self) -> bool:
        """Save the state of the actor, in a call."""
        if self.results.saver is None:
            raise errors.JournalError(
                f"the state of {type(self.actor).__name__} is not saved: it needs a job with a journal, and a class "
                "with save_state(self) and load_state(self, state), without the option journal=False, whose "
                "constructor was given no references"
            )
        return self.results.saver.save_now()

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

    def _run(self, call: Call, arguments: list[Entry]) -> None:
        client, cancels = self.client, self.cancels
        if arguments and client.feed.is_follower(arguments):
            if not client.feed.fill(arguments):
                self.results.unfilled(call)
                return
            client.outbox.secure()  # or a retry might give others another value than this call has read
        if call.attempt:
            client.outbox.flush()  # it may crash the process again, and unsent results would be lost with it
        spec = client.feed.specs[call.spec]
        if self.member is not None:
            spec = self.member.own(spec)
        kind = spec.kind
        if type(kind) is not MethodSpec:  # not `isinstance`: if it is false, it takes five times as long
            granted = self.results.granted
            if self.gpu_ids and (granted.units, granted.memory) != (spec.asks.gpu, spec.asks.gpu_memory):
                gpu_errors.hold(self.devices, spec.asks)
                self.results.granted = granted._replace(units=spec.asks.gpu, memory=spec.asks.gpu_memory)
            if spec.name is not self._writes_as:
                self._writes_as = spec.name
                output.begin(spec.name.partition(".")[0])
            self.where = where = spec.where
            client.inherited.where = _captured(where) if where is not None and where.captures else None
        client.scopes.running = Scope(call.id, call.attempt, call, spec.name)
        start_us = time.monotonic_ns() // 1000
        try:
            try:
                if isinstance(kind, TaskSpec):
                    cancels.interruptible = call
                result = self.perform(spec, call, arguments)
            finally:
                cancels.interruptible = None
        except BaseException as error:
            cancels.interruptible = None  # an interrupt may have arrived just before
            self.results.failed(spec, call, start_us, error)
            if (
                issubclass(type(error), KeyboardInterrupt)
                and isinstance(kind, TaskSpec)
                and tracebacks.is_in_import(error)
            ):
                client.feed.retire()  # modules that were imported meanwhile may refer to one that was not finished
        else:
            self.results.ended(spec, call, start_us, result)
        if isinstance(kind, TaskSpec) and kind.max_calls:
            self._calls_made[spec.id] = made = self._calls_made.get(spec.id, 0) + 1
            if made >= kind.max_calls:
                client.feed.retire()
        if self._is_full:
            client.feed.retire()

    def perform(self, spec: Spec, call: Call, arguments: list[Entry]) -> object:
        """Run user code, and return its result.

        Raises:
            BaseException: whatever user code raises; `KeyboardInterrupt` if the call is cancelled.
        """
        if self.cancels.attempts and self.cancels.has(call):
            raise KeyboardInterrupt
        if call.kept and not isinstance(spec.kind, ActorSpec):
            fails = isinstance(spec.kind, MethodSpec)  # the state has had this call, and must not have it twice
            otherwise = f"This call of {spec.name} {'fails: a saved state includes it' if fails else 'runs again'}"
            kept = self.client.store.recall(call.kept, otherwise)
            if kept is not None:
                return Written(kept)
            if fails:
                raise errors.JournalError(
                    f"the result of {spec.name} in an earlier run cannot be read from the journal"
                )
        if spec.time is not None and spec.time.is_enforced:
            self.client.outbox.post_now(Began(call.id))
        positional, named = self._arguments(call, arguments) if call.payload or arguments else ((), {})
        if type(spec.kind) is MethodSpec:
            function = self._methods.get(spec.id)
            if function is None:
                function = self._methods[spec.id] = find_method(self.actor, spec)
        else:
            function = self._functions[spec.id] if spec.id in self._functions else self._load(spec)
            if type(spec.kind) is ActorSpec:
                self._become_actor(spec, spec.kind, call, function, positional, named)
                return None
        if self.member is not None and isinstance(spec.kind, TaskSpec):
            return self._perform_part(self.member, spec, call, function, positional, named)
        result = function(*positional, **named)
        if self.member is not None and not self.member.has_value(spec):
            return None
        if spec.num_returns != 1 or type(result) is GeneratorType:
            return self._yields.all_of(spec, call, result)
        self.client.outbox.ends_call = self._lanes is None
        return result

    def _perform_part(
        self,
        member: Member,
        spec: Spec,
        call: Call,
        function: Callable[..., object],
        positional: tuple[object, ...],
        named: dict[str, object],
    ) -> object:
        """Run the part of a call on this member of a gang, with a communicator for this call."""
        result = function(member.enter(), *positional, **named)
        member.leave()
        self.results.ends_gang = member.is_spent()
        if not member.has_value(spec):
            return None
        return result if spec.num_returns >= 0 else self._yields.all_of(spec, call, result)

    def _load(self, spec: Spec) -> Callable[..., object]:
        if self._problem:
            self.client.feed.retire()  # the next executor will try again
            raise errors.RuntimeEnvSetupError(f"The runtime_env of {spec.name} cannot be set up: {self._problem}")
        function: Callable[..., object] = pickle.loads(spec.function)
        self._functions[spec.id] = function
        self._code_bytes += len(spec.function)
        has_much = len(self._functions) >= FUNCTIONS_MAX or self._code_bytes >= CODE_BYTES_MAX
        self._is_full = has_much and isinstance(spec.kind, TaskSpec) and self.member is None
        return function

    def _code_of(self, spec: Spec) -> Callable[..., object] | None:
        return self._methods.get(spec.id) or self._functions.get(spec.id)

    def function_name(self) -> str | None:
        """Return the name of the running function or method with its module; None between calls."""
        call = self.client.scopes.current().call
        spec = self.client.feed.specs.get(call.spec) if call is not None else None
        if spec is None:
            return None
        name = f"{spec.name}.__init__" if isinstance(spec.kind, ActorSpec) else spec.code_name or spec.name
        return f"{getattr(self._code_of(spec), '__module__', '')}.{name}"

    def _become_actor(
        self,
        spec: Spec,
        kind: ActorSpec,
        call: Call,
        cls: Callable[..., object],
        positional: tuple[object, ...],
        named: dict[str, object],
    ) -> None:
        self.actor_id = self.results.actor_id = call.id
        self.actor_attempt = call.attempt
        if self.member is not None:
            positional = (self.member.enter(), *positional)
        if kind.concurrency:
            from mpi_runtime.core.executor.concurrency import (
                Lanes,  # not at the top: most actors run one call at a time
            )

            self.client.blocking.lends_cpu = False  # one call that waits says nothing about the others
            self.results.is_concurrent = True
            self._lanes = Lanes(self.perform, self._yields, self.results, self.client.feed.specs, spec.name, kind)
            self.cancels.on_cancelled = self._lanes.cancel
        self.actor = self._call(construct, cls, positional, named)
        if call.digest:
            self._begin_to_save(spec.name, kind, call)
        self.results.title = title = title_of(self.actor)
        if title:
            output.begin(title)
            self.client.outbox.add(Titled(title))

    def _call(self, function: Callable[..., object], *args: object) -> object:
        """Call user code of the actor that belongs to none of its calls: in its loop, if it has coroutines."""
        return function(*args) if self._lanes is None else self._lanes.call(function, *args)

    def _begin_to_save(self, name: str, kind: ActorSpec, call: Call) -> None:
        """Give the actor the state that it had last, if there is one, and save its states from now on."""
        from mpi_runtime.core.executor import saving  # not at the top: most actors have none

        if call.kept:
            data = saving.read(self.client.store.journal, call.kept[0])
            if data is None:
                self.client.outbox.add(StateLost(f"the file {call.kept[0].file} is not there, or damaged"))
            else:
                try:
                    self._call(self.actor.load_state, serialize.loads(data))
                except Exception as error:
                    raise errors.JournalError(
                        f"{name}.load_state failed: {error!r}. To start from scratch, use another journal "
                        "directory, or give the class the option journal=False."
                    ) from error
        self.results.saver = saving.Saver(self.client, name, kind, self.actor)

    def _arguments(self, call: Call, arguments: list[Entry]) -> tuple[tuple[object, ...], dict[str, object]]:
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


def _captured(where: Where) -> Where:
    """Return the place for calls that a call in a placement group submits: any bundle of it, as in Ray."""
    return where if where.bundle < 0 else msgspec.structs.replace(where, bundle=-1)


def limit_threads(count: int) -> None:
    """Limit numerical libraries to this many threads. Those loaded in the forkserver use one until this call."""
    if count > 1:
        import threadpoolctl

        threadpoolctl.threadpool_limits(count)
