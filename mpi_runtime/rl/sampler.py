"""The sampler: N environments and a policy, which fill fragments. Loads no torch for small networks."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import cloudpickle
import numpy as np

from mpi_runtime.rl.envs import EnvError, Maker, Step
from mpi_runtime.rl.parts.episodes import Fragment
from mpi_runtime.rl.parts.nets_numpy import NetSpec
from mpi_runtime.rl.parts.normalise import Moments
from mpi_runtime.rl.parts.replay import transitions
from mpi_runtime.rl.parts.weights import Array
from mpi_runtime.rl.policies import Policy, policy_of

RESTARTS = 100
"""How many environments that have failed are replaced in the life of a sampler, with `restart_failed_envs=True`."""


@dataclass(frozen=True)
class SamplerSpec:
    """What samplers are made from: the same for all of an algorithm."""

    maker: Maker
    net: NetSpec
    parameters: SimpleNamespace
    """Those of the algorithm, without their class: its module may load torch."""
    keeps_next: bool
    """Whether fragments have `next_obs`."""


@dataclass
class Weights:
    """What a sampler needs for the next fragment: stored once, mapped by the samplers of a host."""

    vector: Array
    version: int = 0
    epsilons: tuple[float, ...] = (0.0,)
    """Of the samplers, by index; the last one is that of all others."""
    obs: Moments | None = None
    returns: Moments | None = None


@dataclass
class State:
    """What a sampler has between two fragments."""

    rng: np.random.Generator
    obs: Array
    returns: Array
    lengths: Array
    discounted: Array
    steps: int = 0
    finished: tuple[list[float], list[int]] = field(default_factory=lambda: ([], []))


class Sampler:
    """Steps environments with a policy. As an actor, or in the process of the algorithm."""

    method: ClassVar[str] = "sample"
    """The method that makes what the algorithm learns from."""

    def __init__(self, spec: SamplerSpec, index: int, incarnation: int = 0) -> None:
        """Remember what to make: errors of environments belong to a call, not to the start of an actor."""
        self.spec, self.parameters, self.index = spec, spec.parameters, index
        seeds = np.random.SeedSequence([self.parameters.seed, index, incarnation])
        self.seeds = seeds.generate_state(self.parameters.num_envs + 1)
        """Environment i of sampler j: never the same seed twice."""
        self.fragment: Fragment | None = None

    @cached_property
    def envs(self) -> Any:
        """The environments."""
        restarts = RESTARTS if self.parameters.restart_failed_envs is True else int(self.parameters.restart_failed_envs)
        # Below 2^31: some environments take no larger seeds.
        made = self.spec.maker.many([int(word) & 0x7FFFFFFF for word in self.seeds[1:]], restarts)
        found, net = (made.observations, made.actions), self.spec.net
        if found != (net.observations, net.actions):
            raise EnvError(
                f"The spaces of sampler {self.index} differ from those of the algorithm: {found[0]}, {found[1]} here, "
                f"{net.observations}, {net.actions} there. All environments must have the same spaces."
            )
        return made

    @cached_property
    def policy(self) -> Policy:
        """The policy, whose weights arrive with each call."""
        return policy_of(self.spec.net)

    @cached_property
    def state(self) -> State:
        """The state before the next fragment. The environments are reset when it is first asked for."""
        returns, lengths, discounted = np.zeros((3, self.parameters.num_envs))
        rng = np.random.default_rng(self.seeds[0])
        return State(rng, np.array(self.envs.reset()), returns, lengths, discounted)

    def sample(self, weights: Weights, steps: int) -> Fragment:
        """Make `steps` steps in each environment. The arrays are overwritten by the next call in this process.

        An environment that has failed, or whose numbers are not finite, is an `EnvError`.
        """
        started = time.process_time()
        self.policy.load(weights.vector)
        fragment = self._fragment(steps)
        self.moments = Moments.zeros(self.spec.net.observations.shape), Moments.zeros(())
        epsilon = weights.epsilons[min(self.index, len(weights.epsilons) - 1)]
        self.state.finished = ([], [])
        raw: list[Array] = []
        obs = self._seen(self.state.obs, weights, raw)
        for t in range(steps):
            actions, fragment.logp[t], fragment.values[t] = self.policy.act(obs, self.state.rng, epsilon)
            fragment.obs[t], fragment.actions[t] = obs, actions
            step = self.envs.step(self.spec.net.actions.to_env(fragment.actions[t]))
            obs = self._record(fragment, t, step, weights, raw)
        self.state.obs = np.array(self.state.obs)
        fragment.last_obs[:] = obs
        fragment.last_values[:] = self.policy.values(obs)
        self._check(fragment)
        self.state.steps += fragment.steps
        if self.parameters.normalize_obs:
            self.moments = (Moments.of(np.concatenate(raw[:-1])), self.moments[1])
        fragment.moments = self.moments
        fragment.returns, fragment.lengths = self.state.finished
        fragment.version, fragment.failures = weights.version, getattr(self.envs, "failures", 0)
        fragment.seconds = time.process_time() - started
        return fragment

    def get_state(self) -> bytes | None:
        """Return everything that the next fragments depend on; None if the environments cannot be pickled."""
        now = (self.envs, self.state)
        try:
            found: bytes = cloudpickle.dumps(now)
        except Exception:  # whatever an environment raises when it is pickled
            return None
        return found

    def set_state(self, state: bytes) -> None:
        """Continue from a state of `get_state`."""
        self.envs, self.state = cloudpickle.loads(state)

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _fragment(self, steps: int) -> Fragment:
        if self.fragment is None or len(self.fragment.rewards) != steps:
            shape, net = (steps, self.parameters.num_envs), self.spec.net
            obs = np.zeros((*shape, *net.observations.shape), net.observations.dtype)
            if self.parameters.normalize_obs:
                obs = obs.astype(np.float32)
            actions = np.zeros((*shape, *net.actions.width), net.actions.dtype)
            last = np.zeros(self.parameters.num_envs, np.float32)
            following = np.zeros_like(obs) if self.spec.keeps_next else None
            rewards, logp, values, final = (np.zeros(shape, np.float32) for _ in range(4))
            terminated, truncated, void = (np.zeros(shape, bool) for _ in range(3))
            ends = (terminated, truncated, void)
            self.fragment = Fragment(
                obs, actions, rewards, *ends, obs[0].copy(), logp, values, final, last, next_obs=following
            )
        return self.fragment

    def _seen(self, obs: Array, weights: Weights, raw: list[Array]) -> Array:
        """Return observations as the policy sees them."""
        if not self.parameters.normalize_obs:
            return obs
        raw.append(np.array(obs))
        return weights.obs.normalise(obs) if weights.obs else obs.astype(np.float32)

    def _record(self, fragment: Fragment, t: int, step: Step, weights: Weights, raw: list[Array]) -> Array:
        """Write a step into the fragment, and return the observations for the next one."""
        state = self.state
        fragment.terminated[t], fragment.truncated[t], fragment.void[t] = step.terminated, step.truncated, step.void
        state.obs = step.obs
        state.returns += step.rewards
        state.lengths += 1
        if step.void.any():
            for counts in (state.returns, state.lengths, state.discounted):
                counts[step.void] = 0
        fragment.rewards[t] = self._rewards(step, weights)
        fragment.final_values[t] = 0.0
        obs = self._seen(step.obs, weights, raw)
        if fragment.next_obs is not None:
            fragment.next_obs[t] = obs
        for i, last in step.final.items():
            seen = weights.obs.normalise(last) if self.parameters.normalize_obs and weights.obs else last
            if fragment.next_obs is not None:
                fragment.next_obs[t, i] = seen
            if not step.terminated[i]:
                fragment.final_values[t, i] = self.policy.values(seen[None])[0]
            state.finished[0].append(float(state.returns[i]))
            state.finished[1].append(int(state.lengths[i]))
            state.returns[i] = state.lengths[i] = state.discounted[i] = 0
        return obs

    def _rewards(self, step: Step, weights: Weights) -> Array:
        rewards: Array = step.rewards
        if self.parameters.normalize_reward:
            # As VecNormalize does: the scale is the deviation of the discounted returns so far.
            self.state.discounted = self.state.discounted * self.parameters.gamma + rewards
            self.moments = (self.moments[0], self.moments[1].merged(Moments.of(self.state.discounted)))
            scale = float(weights.returns.deviation) if weights.returns else 1.0
            rewards = np.clip(rewards / (scale + 1e-8), -10, 10)
        if self.parameters.reward_clip is not None:
            rewards = np.clip(rewards, -self.parameters.reward_clip, self.parameters.reward_clip)
        return rewards

    def _check(self, fragment: Fragment) -> None:
        """Look for numbers that are not finite, once for a fragment."""
        for what, array in (
            ("a reward", fragment.rewards),
            ("an observation", fragment.obs),
            ("an observation", fragment.last_obs),
        ):
            if array.dtype == np.uint8 or np.isfinite(array).all():
                continue
            rows = array if array is not fragment.last_obs else array[None]
            t, i = np.argwhere(~np.isfinite(rows.reshape(*rows.shape[:2], -1)).all(-1))[0]
            at = len(fragment.rewards) if array is fragment.last_obs else t
            raise EnvError(
                f"sampler {self.index}: environment {i} (seed {self.envs.seeds[i]}) gave {what} that is not finite, "
                f"about {self.state.steps // self.parameters.num_envs + at} steps after its start: {rows[t, i]!r}. "
                "Correct the environment, or clip in a wrapper."
            )


@dataclass
class Rows:
    """What a sampler of Ape-X sends: rows for replay with their priorities, and the counts of its fragment."""

    columns: dict[str, Array]
    priorities: Array
    counts: Fragment


class ReplaySampler(Sampler):
    """A sampler whose fragments leave it as rows for replay. It computes their first priorities itself."""

    method = "rows"

    def rows(self, weights: Weights, steps: int) -> Rows:
        """Make `steps` steps in each environment.

        Horgan et al., 2018, "Distributed prioritized experience replay", section 3 and algorithm 1: priorities are the
        errors of the n-step targets, by the weights that have sampled.
        """
        fragment = self.sample(weights, steps)
        columns = transitions(fragment, self.parameters.gamma, self.parameters.n)
        q = self.policy.q_values(columns["obs"])  # type: ignore[attr-defined]
        chosen = q[np.arange(len(q)), columns["actions"]]
        errors = columns["rewards"] + columns["factors"] * self.policy.values(columns["next_obs"]) - chosen
        return Rows(columns, np.abs(errors), fragment.counts())
