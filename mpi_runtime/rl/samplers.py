"""The samplers of an algorithm: one in its own process, or actors that are replaced when they die or hang."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import mpi_runtime
from mpi_runtime.errors import ActorError, TaskError
from mpi_runtime.rl.envs import EnvError
from mpi_runtime.rl.parts.episodes import Fragment, joined
from mpi_runtime.rl.sampler import Sampler, SamplerSpec, Weights
from mpi_runtime.util import get_current_placement_group

if TYPE_CHECKING:
    from mpi_runtime import ActorHandle, ObjectRef

_log = logging.getLogger("mpi_runtime.rl")
FAILURES_MAX = 3
"""How often in a row a sampler may die or hang before it has made a fragment."""


class SamplerError(RuntimeError):
    """A sampler dies or hangs again and again. The message has the last reason."""


class Asked(NamedTuple):
    """A fragment that was asked for."""

    sampler: int
    """Its number."""
    arguments: tuple[object, ...]
    since: float
    incarnation: int
    """Of the sampler when it was asked."""


class Samplers:
    """Makes fragments, from one sampler here (`count` 0) or from `count` actors, for which the job needs the CPUs."""

    def __init__(self, spec: SamplerSpec, kind: type[Sampler]) -> None:
        self.spec, self.kind = spec, kind
        self.count: int = spec.parameters.num_samplers
        self.timeout_s: float | None = spec.parameters.sample_timeout_s
        self.restarts = 0
        """The number of samplers that were replaced."""
        self.local: Any = None
        self.actors: list[ActorHandle[Sampler]] = []
        self.incarnations = [0] * self.count
        self._failed = [0] * self.count
        self._asked: dict[ObjectRef[Any], Asked] = {}
        if not self.count:
            self.local = kind(spec, 0)
            _ = self.local.state  # makes the environments, and raises their errors, now
            return
        has = mpi_runtime.cluster_resources().get("CPU", 0)
        if get_current_placement_group() is None and self.count > has:  # within a placement group, the group decides
            raise ValueError(
                f"num_samplers={self.count} needs {self.count} CPUs, and this job has {has:g}: "
                f"pass num_samplers={int(has)}, or start the job on more"
            )
        self.actors = [self._started(index) for index in range(self.count)]

    @property
    def processes(self) -> int:
        """The number of samplers."""
        return max(1, self.count)

    def sample(self, weights: Weights, steps: int) -> Fragment:
        """Make `steps` steps in each environment of each sampler. Return them side by side, in the samplers' order.

        With `sample_ahead`, actors begin the next fragments before this returns, and the weights are for those.
        """
        if self.local is not None:
            found: Fragment = self.local.sample(weights, steps)
            return found
        ref = mpi_runtime.put(weights)
        for index in self.idle():
            self.start(index, ref, steps)
        fragments = dict(self.next() for _ in range(self.count))
        for index in self.idle() if self.spec.parameters.sample_ahead else ():
            self.start(index, ref, steps)
        return joined([fragments[index] for index in range(self.count)])

    def start(self, index: int, *arguments: object) -> None:
        """Ask a sampler for its next fragment, with weights (or a reference to them) and steps."""
        ref = getattr(self.actors[index], self.kind.method).remote(*arguments)
        self._asked[ref] = Asked(index, arguments, time.monotonic(), self.incarnations[index])

    def next(self) -> tuple[int, Any]:
        """Wait for the next fragment that was asked for; return the sampler's index and the fragment.

        A sampler that has died, or hangs for longer than `timeout_s`, is replaced and asked again.
        """
        while True:
            ready, _ = mpi_runtime.wait(list(self._asked), num_returns=1, timeout=self._patience())
            if not ready:
                self._end_those_that_hang()
                continue
            asked = self._asked.pop(ready[0])
            try:
                fragment = mpi_runtime.get(ready[0])
            except TaskError as error:
                # Errors of environments as they are, others with their remote traceback.
                raise (error.cause if isinstance(error.cause, EnvError) else error) from None
            except ActorError as error:
                self._replace(asked, str(error))
                continue
            self._failed[asked.sampler] = 0
            return asked.sampler, fragment

    def call(self, name: str, *arguments: object) -> list[Any]:
        """Call a method of every sampler."""
        if self.local is not None:
            return [getattr(self.local, name)(*arguments)]
        return list(mpi_runtime.get([getattr(actor, name).remote(*arguments) for actor in self.actors]))

    def get_states(self) -> list[bytes | None]:
        """Return the state of each sampler; None for one whose environments cannot be pickled.

        Fragments that were begun ahead are dropped, here and where the states are set: so both continue alike.
        """
        self.drain()
        return self.call("get_state")

    def set_states(self, states: list[bytes | None]) -> bool:
        """Continue from these states. Return whether that was possible; else episodes begin with new ones."""
        self.drain()
        if len(states) != self.processes or any(state is None for state in states):
            return False
        if self.local is not None:
            self.local.set_state(states[0])
        else:
            mpi_runtime.get([a.set_state.remote(state) for a, state in zip(self.actors, states, strict=True)])
        return True

    def stop(self) -> None:
        """End the samplers."""
        if self.local is not None:
            self.local.close()
        if self.actors and mpi_runtime.is_initialized():
            for actor in self.actors:
                mpi_runtime.kill(actor)
        self._asked.clear()
        self.actors, self.local = [], None

    def idle(self) -> list[int]:
        """Return the samplers that have not been asked for a fragment."""
        asked = {one.sampler for one in self._asked.values()}
        return [index for index in range(self.count) if index not in asked]

    def drain(self) -> None:
        """Wait for the fragments that were asked for, and drop them."""
        while self._asked:
            self.next()

    def _started(self, index: int) -> ActorHandle[Sampler]:
        return mpi_runtime.remote(num_cpus=1, max_restarts=0)(self.kind).remote(
            self.spec, index, self.incarnations[index]
        )

    def _patience(self) -> float | None:
        if self.timeout_s is None:
            return None
        first = min(one.since for one in self._asked.values())
        return max(0.001, first + self.timeout_s - time.monotonic())

    def _end_those_that_hang(self) -> None:
        now = time.monotonic()
        for ref, asked in list(self._asked.items()):
            if self.timeout_s is not None and now - asked.since >= self.timeout_s:
                del self._asked[ref]
                mpi_runtime.kill(self.actors[asked.sampler])
                self._replace(asked, f"no fragment in sample_timeout_s={self.timeout_s} s")

    def _replace(self, asked: Asked, why: str) -> None:
        """Ask for a fragment again, of a new sampler unless the one that was asked has been replaced already."""
        index = asked.sampler
        if asked.incarnation < self.incarnations[index]:
            self.start(index, *asked.arguments)
            return
        self._failed[index] += 1
        self.restarts += 1
        if self._failed[index] > FAILURES_MAX:
            raise SamplerError(f"sampler {index} has failed {self._failed[index]} times in a row. The last time: {why}")
        self.incarnations[index] += 1
        _log.warning("sampler %d is replaced, and asked for its fragment again: %s", index, why)
        self.actors[index] = self._started(index)
        self.start(index, *asked.arguments)
