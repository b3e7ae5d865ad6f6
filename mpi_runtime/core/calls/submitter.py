"""Submits the calls of one function. The part of a remote function that `f.map` needs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.core.calls import specs
from mpi_runtime.core.calls.arguments import NOTHING, Packed, Parameters, digest_of_arguments, pack
from mpi_runtime.core.calls.code import Code
from mpi_runtime.core.client import current
from mpi_runtime.core.client.client import Client
from mpi_runtime.core.client.object_ref import ObjectRef
from mpi_runtime.core.client.scope import Inherited
from mpi_runtime.core.client.submitting import submit
from mpi_runtime.core.driver import running
from mpi_runtime.core.executor.scratch import held
from mpi_runtime.core.objects.collecting import Collecting
from mpi_runtime.scheduler.protocol.events import Call, Spec, Where


class Registered:
    """Registers its spec with the job before the first call, and again after a change of the inherited settings."""

    def __init__(self, code: Code, options: option_rules.Options) -> None:
        self._code = code
        self._options = dict(options)
        self._spec: Spec | None = None
        self._inherited: Inherited | None = None
        """The inherited settings at the time of `_spec`."""
        self._where: Where | None = None
        self._holds: list[bytes] = []
        """Ids of objects that each call needs for its environment."""

    def _remote(self: Any, args: Any = (), kwargs: Mapping[str, object] | None = None, **options: object) -> object:
        """Call `.options(**options).remote(*args, **kwargs)`. Libraries use this form."""
        return (self.options(**options) if options else self).remote(*(args or ()), **(kwargs or {}))

    def _new_spec(self, where: Where | None, environment: dict[str, str]) -> Spec:
        """Make the spec of calls that inherit this place and have this environment."""
        raise NotImplementedError

    def _digest_of(self, code: object) -> bytes:
        """The hash of a function or class; empty: the job has no journal, or the option `journal` is False."""
        if not running.client().store.journal or self._options.get("journal") is False:
            return b""
        from mpi_runtime.core.calls.code_digest import digest_of  # not at the top: most jobs have no journal

        return digest_of(code)

    def _registered_spec(self, client: Client) -> Spec:
        """The spec of calls that are submitted now."""
        inherited = client.inherited
        if self._spec is None or inherited is not self._inherited or inherited.where is not self._where:
            environment = specs.environment(inherited, self._options)
            self._spec = self._new_spec(inherited.where, environment)
            self._holds = held(environment)
            client.register(self._spec)
            self._inherited, self._where = inherited, inherited.where
        return self._spec


if TYPE_CHECKING:
    from mpi_runtime.core.calls.signatures import Submit

P = ParamSpec("P")
R = TypeVar("R")


class Submitter(Registered, Generic[P, R]):
    """Submits the calls of a function."""

    code_attribute = "_function"

    def __init__(self, function: Callable[P, R], options: Mapping[str, object], pickled: Code | None = None) -> None:
        """Check the options. `pickled`: the code of the function, if it was pickled before."""
        option_rules.check(options, option_rules.FUNCTION_OPTIONS, "remote functions")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ValueError(
                "'async def' should not be used for remote functions: make a plain function that calls asyncio.run()."
            )
        option_rules.check_gang(options, inspect.isgeneratorfunction(function))
        self._function = function
        self._name = name_of(function)
        self._own: ModuleType | None = None
        """The module `own_scheduler`, if each call brings its own scheduler."""
        code: object = function
        if options.get("own_scheduler"):
            from mpi_runtime.core.calls import own_scheduler  # not at the top: few programs use it

            self._own = own_scheduler
            own_scheduler.check(options)
            code = own_scheduler.Inside(function)
        super().__init__(pickled or Code(code, self._name), options)

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[P, ObjectRef[R]]: ...  # noqa: D102
    else:

        def remote(self, /, *args: object, **kwargs: object) -> object:
            """Submit a call, and return a reference to its value at once.

            An argument that is an `ObjectRef` stands for its value; inside a container it stays a reference.

            Returns:
                An `ObjectRef`; a list of them for `num_returns` above 1; None for 0; an `ObjectRefGenerator` for
                "streaming", the default of generator functions.

            Raises:
                TypeError: an argument is missing, unknown, or cannot be serialised.
                ValueError: no bundle of the placement group can hold the call; or a directory of the `runtime_env` does
                    not exist, cannot be read, or is too large.
            """
            parameters = self._parameters
            if kwargs or not parameters.least <= len(args) <= parameters.most:
                parameters.check(args, kwargs, self._name)
            client = current._client or running.client()
            spec, inherited = self._spec, client.inherited
            if spec is None or inherited is not self._inherited or inherited.where is not self._where:
                spec = self._registered_spec(client)
            count, gang = spec.num_returns, spec.gang
            if args or kwargs:
                packed = pack(client, args, kwargs, self._name, 0 if gang is None else gang.ranks)
                if self._own is not None:
                    self._own.check_no_refs(self._name, "its arguments hold", packed.holds)
                call = Call(client.scopes.next_ids(count), spec.id, packed.payload, packed.arguments, packed.holds)
            else:
                packed = NOTHING
                call = Call(client.scopes.next_ids(count), spec.id, b"")
            if self._holds:
                call.holds = (*call.holds, *self._holds)
            if spec.code:
                call.digest = digest_of_arguments(call, packed)
            if gang is None:
                return submit(client, call, spec)
            call.scattered = packed.scattered
            found = submit(client, call, spec)
            return [found] if gang.by_rank and count == 1 else found

    @functools.cached_property
    def _parameters(self) -> Parameters:
        known = Parameters.of(self._function)
        return known.without_first(self._name) if self._options.get("num_ranks") else known

    def _new_spec(self, where: Where | None, environment: dict[str, str]) -> Spec:
        is_generator = inspect.isgeneratorfunction(self._function)
        digest = self._digest_of(self._function)
        if self._own is None:
            code = self._code.pickled()
        else:
            environment = self._own.environment(environment, self._name)
            with Collecting() as found:
                code = self._code.pickled()
            self._own.check_no_refs(self._name, "its code refers to", found)
        return specs.task_spec(self._name, code, self._options, where, is_generator, environment, digest)


def name_of(function: object) -> str:
    """The name of a function in messages; that of its class if it has none, as a partial."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def submit_packed(function: Submitter[..., R], packed: Packed, attempt: int = 0) -> ObjectRef[R]:
    """Submit a call with one return value, after this number of attempts."""
    client = running.client()
    spec = function._registered_spec(client)
    holds = (*packed.holds, *function._holds)
    call = Call(client.scopes.next_ids(1), spec.id, packed.payload, packed.arguments, holds, b"", attempt)
    if spec.code:
        call.digest = digest_of_arguments(call, packed)
    ref: ObjectRef[R] = submit(client, call, spec)
    return ref
