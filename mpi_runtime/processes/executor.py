"""The executor: runs calls, or is one actor. User code runs here, and nowhere else but in the driver.

Calls come in frames and are run in order. Before each the executor claims a token: the agent takes calls back by taking
tokens, so when a claim fails, all calls that were received and not started are somebody else's.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from mpi_runtime import current, errors
from mpi_runtime.objects import serialize
from mpi_runtime.processes.client import Client
from mpi_runtime.scheduler.events import ACTOR, METHOD, Call, Done, Returned, Spec, Value
from mpi_runtime.transport.messages import Drained

if TYPE_CHECKING:
    from mpi_runtime.processes.forkserver import Fork, Setup

_SLOW_US = 1000
"""A result that follows a call of this length is sent at once."""


class Executor:
    """Runs the calls of one client connection until told to exit."""

    def __init__(self, client: Client, tokens: int, setup: Setup, request: Fork) -> None:
        self._client = client
        self._tokens = tokens
        self.number = request.executor
        self.rank = setup.rank
        self.hostname = setup.hostname
        self.gpus = request.gpus
        self._functions: dict[int, Callable[..., Any]] = {}
        self.actor: Any = None
        self.actor_id = b""
        self.call: Call | None = None
        """The call that is running."""
        self.name = ""

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
            if self._claim():
                self._run(call, arguments)
            else:
                calls.clear()
                client.outbox.send_local(Drained(client.received_calls))
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
        client = self._client
        spec = client.specs[call.spec]
        self.call = call
        self.name = spec.name
        client.set_parent(call.id, call.attempt)
        start_s = time.perf_counter()
        try:
            positional, named = self._arguments(call, arguments)
            result = self._perform(spec, call, positional, named)
            del positional, named, arguments
            duration_us = int((time.perf_counter() - start_s) * 1e6)
            # `result` lives until the message is posted: references in it must not be released before that.
            message = self._result(call, spec, result, duration_us)
        except SystemExit as request:
            self._exit(request)
        except BaseException as error:
            duration_us = int((time.perf_counter() - start_s) * 1e6)
            message = self._raised(call, spec, error, duration_us)
            del error
        self.call = None
        client.say_unblocked()
        if duration_us > _SLOW_US or not client.calls or not spec.max_retries:
            client.outbox.post_now(message)
        else:
            client.outbox.post(message)

    def _exit(self, request: SystemExit) -> NoReturn:
        """User code asked the process to end: what ended before is told, the running call is lost with the process."""
        code = request.code if isinstance(request.code, int) else 0 if request.code is None else 1
        if isinstance(request.code, str):
            print(request.code, file=sys.stderr)
        _flush_output()
        with contextlib.suppress(errors.HeadDiedError):
            self._client.outbox.flush()
        os._exit(code)

    def _arguments(self, call: Call, arguments: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not call.payload and not arguments:
            return (), {}
        client = self._client
        values = [client.load(entry) for entry in arguments]
        if not call.payload:  # too large for a message: the arguments are an object of their own
            positional, named = values[0]
            values = values[1:]
        else:
            positional, named = serialize.loads(call.payload)
        if values:
            positional = tuple(values[item.number] if type(item) is serialize.Slot else item for item in positional)
            named = {k: values[item.number] if type(item) is serialize.Slot else item for k, item in named.items()}
        return positional, named

    def _perform(self, spec: Spec, call: Call, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if spec.kind == METHOD:
            method = spec.name.rpartition(".")[2]
            result = getattr(self.actor, method)(*positional, **named)
            if inspect.isawaitable(result):
                raise NotImplementedError(f"{spec.name} is a coroutine function: async actors are not there yet")
            return result
        function = self._functions.get(spec.id)
        if function is None:
            function = self._functions[spec.id] = pickle.loads(spec.function)
        if spec.kind == ACTOR:
            self.actor_id = call.id
            self.actor = function(*positional, **named)
            return None
        return function(*positional, **named)

    def _result(self, call: Call, spec: Spec, result: Any, duration_us: int) -> Done | Returned:
        client = self._client
        count = spec.num_returns
        if count == 1:
            if result is None:
                return Done(call.id, _NONE, duration_us)
            value = client.store(serialize.dumps(result, "the result"))
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
        return Returned(call.id, client.store_all(serialized), duration_us)

    def _raised(self, call: Call, spec: Spec, error: BaseException, duration_us: int) -> Returned:
        described: errors.MpiRuntimeError = errors.make_task_error(
            error, spec.name, os.getpid(), self.rank, self.hostname
        )
        if spec.kind == ACTOR:
            described = errors.ActorDiedError(f"The constructor of actor {spec.name} raised:\n{described}")
        try:
            serialized = serialize.Serialized(errors.to_bytes(described), [], [])
            value = self._client.store(serialized, is_error=True)
        except errors.MpiRuntimeError as full:
            value = Value(errors.to_bytes(errors.TaskError(full, str(described)[:10_000])), None, [], True)
        return Returned(call.id, [value], duration_us, raised=True)


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


def main(client: Client, tokens: int, setup: Setup, request: Fork) -> None:
    """Be an executor until told to exit."""
    client.is_executor = True
    client.namespace = setup.namespace
    client.executor = executor = Executor(client, tokens, setup, request)
    current.set_client(client)
    executor.run()
