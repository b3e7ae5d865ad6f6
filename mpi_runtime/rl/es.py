"""ES: Salimans et al., 2017, "Evolution strategies as a scalable alternative to reinforcement learning".

Numpy only. All processes of a host share one table of noise in the object store, so a message names a perturbation by
its place in the table, and its result by two returns.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpi_runtime
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.checkpoints import Learned
from mpi_runtime.rl.parameters import Common
from mpi_runtime.rl.parts.nets_numpy import mlps, most_probable
from mpi_runtime.rl.parts.normalise import Moments
from mpi_runtime.rl.parts.schedules import Rate, schedule
from mpi_runtime.rl.parts.weights import Array, flatten, views
from mpi_runtime.rl.sampler import Sampler, SamplerSpec, Weights


@dataclass(frozen=True)
class ESParameters(Common):
    """Parameters of Evolution Strategies."""

    learning_rate: Rate = 0.02
    """As in `Common`."""
    hidden: tuple[int, ...] = (32, 32)
    """As in `Common`."""
    population: int = 40
    """Episodes in an iteration, two for each perturbation."""
    sigma: float = 0.05
    """The standard deviation of perturbations."""
    weight_decay: float = 0.005
    """The part of the weights that a step takes away, times the learning rate."""
    noise_size: int = 25_000_000
    """Numbers in the table: 100 MB, once on each host."""
    normalize_obs: bool = True
    """As in `Common`."""
    num_envs: int = 20
    """Episodes that a sampler runs side by side at most, an even number: one step of Python computes all actions."""


@dataclass
class Tried:
    """What a sampler sends: returns and lengths of episodes with +noise and -noise."""

    places: Array
    returns: Array
    """(K, 2)"""
    lengths: Array
    moments: list[Moments]
    """Of the observations of each pair, so that a result does not depend on how pairs are shared out."""


class EpisodeSampler(Sampler):
    """A sampler that runs whole episodes, each with its own perturbed weights, side by side."""

    method = "episodes"

    def episodes(self, weights: Weights, noise: Array, places: Array) -> Tried:
        """Run a pair of episodes for each place in the table of noise: mirrored sampling, section 2.1."""
        count, size, net = 2 * len(places), weights.vector.size, self.spec.net
        steps = np.stack([noise[place : place + size] for place in places]) * np.float32(self.parameters.sigma)
        vectors = weights.vector + np.stack([steps, -steps], 1).reshape(count, size)
        arrays = views(vectors, net.shapes())
        self.envs.stops_at_ends = True
        # Both episodes of a pair begin in the same state: the difference is that of the weights.
        self.envs.seeds[:count] = np.repeat(places % 2**31, 2).tolist()
        obs = self.envs.reset(count)
        normalise = weights.obs.normalise if self.parameters.normalize_obs and weights.obs else None
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        seen: list[tuple[list[int], Array]] = []
        while running := list(self.envs.running):
            if normalise and len(seen) * 16 == lengths[running[0]]:  # a sample is enough for the moments
                seen.append((running, np.array(obs[running])))
            outputs = mlps(arrays, normalise(obs[:count]) if normalise else obs[:count], net.activation)
            step = self.envs.step(net.actions.to_env(most_probable(net.actions, outputs)))
            returns[running] += step.rewards[running]
            lengths[running] += 1
        return Tried(places, returns.reshape(-1, 2), lengths.reshape(-1, 2), _moments(seen, len(places)))


def _moments(seen: list[tuple[list[int], Array]], pairs: int) -> list[Moments]:
    rows: list[list[Array]] = [[] for _ in range(pairs)]
    for running, observations in seen:
        for i, row in zip(running, observations, strict=True):
            rows[i // 2].append(row)
    return [Moments.of(np.stack(one)) for one in rows if one]


def centred_ranks(values: Array) -> Array:
    """Return ranks of all values, from -0.5 to 0.5: fitness shaping, section 2.1 there. Equal values share a rank."""
    order = np.unique(values.ravel(), return_inverse=True)
    counts = np.bincount(order[1].ravel())
    means = np.cumsum(counts) - (counts + 1) / 2
    ranks = means[order[1].ravel()].reshape(values.shape)
    result: Array = ranks / max(1, values.size - 1) - 0.5
    return result


def gradient(returns: Array, noise: Array, places: Array, size: int, sigma: float) -> Array:
    """Return the estimate of the gradient: algorithm 1 there, with mirrored pairs and shaped returns."""
    shaped = centred_ranks(returns)
    weights = (shaped[:, 0] - shaped[:, 1]).astype(np.float32)
    total = np.zeros(size, np.float32)
    for weight, place in zip(weights, places, strict=True):
        total += weight * noise[place : place + size]
    result: Array = total / np.float32(2 * len(places) * sigma)
    return result


@dataclass
class Adam:
    """Kingma and Ba, 2015, "Adam", algorithm 1, on a flat vector."""

    m: Array
    v: Array
    t: int = 0

    def step(self, gradient: Array, rate: float) -> Array:
        """Return how far to move, up the gradient."""
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * np.square(gradient)
        mean, square = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        moved: Array = (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        return moved


class ES(Algorithm):
    """Evolution strategies, for discrete and continuous actions. Needs no torch."""

    name = "ES"
    Parameters = ESParameters
    kind = "policy"
    sampler = EpisodeSampler

    def setup(self) -> None:
        p = self.parameters
        if self.net_spec().needs_torch:
            raise ValueError("ES has a built-in network for vectors only: flatten the observations, and omit network")
        if p.num_envs % 2:
            raise ValueError(f"ES runs episodes in pairs: num_envs must be even, not {p.num_envs}")
        if self._takes_many or p.vectorize:
            raise ValueError("ES needs single environments, not a vector environment")
        rng = np.random.default_rng([p.seed, 2])
        shapes = self.net_spec().shapes()
        arrays = [np.zeros(shape) if len(shape) == 1 else _rows_of_length_1(rng, shape) for shape in shapes]
        arrays[-2] *= 0.1
        self.theta = flatten(arrays)
        self.adam = Adam(np.zeros_like(self.theta), np.zeros_like(self.theta))
        self.rate = schedule("learning_rate", p.learning_rate)
        if p.noise_size <= 2 * self.theta.size:
            raise ValueError(f"noise_size={p.noise_size} is too small for {self.theta.size} weights")
        self.noise = np.random.default_rng([p.seed, 3]).standard_normal(p.noise_size, np.float32)
        self._noise_ref: Any = None
        share = math.ceil(p.population // 2 / max(1, p.num_samplers))
        self._pairs = min(p.num_envs // 2, share)
        """Perturbations in a message: their episodes run side by side."""

    def sampler_spec(self) -> SamplerSpec:
        spec = super().sampler_spec()
        spec.parameters.num_envs = 2 * self._pairs
        return spec

    def vector(self) -> Array:
        return self.theta

    def iterate(self) -> dict[str, float]:
        p = self.parameters
        started = time.perf_counter()
        places = self.rng.integers(0, p.noise_size - self.theta.size, p.population // 2)
        parts = np.split(places, range(self._pairs, len(places), self._pairs))
        found = self._tried(parts)
        self.sample_seconds += time.perf_counter() - started
        returns, lengths = (np.concatenate([getattr(one, name) for one in found]) for name in ("returns", "lengths"))
        estimate = gradient(returns, self.noise, places, self.theta.size, p.sigma)
        self.theta = self.theta * np.float32(1 - p.weight_decay * self.rate(self.remaining))
        self.theta = self.theta + self.adam.step(estimate, self.rate(self.remaining))
        self.timesteps += int(lengths.sum())
        self.episodes.add(returns.ravel().tolist(), lengths.ravel().tolist())
        for one in found:
            for moments in one.moments:
                self.moments = self.moments[0].merged(moments), self.moments[1]
        return {"gradient_norm": float(np.linalg.norm(estimate)), "weights_norm": float(np.linalg.norm(self.theta))}

    def _tried(self, parts: list[Array]) -> list[Tried]:
        """Have the samplers try all perturbations; return the results in the order of the parts."""
        if self.samplers.local is not None:
            weights = self.weights()
            return [self.samplers.local.episodes(weights, self.noise, part) for part in parts]
        if self._noise_ref is None:
            self._noise_ref = mpi_runtime.put(self.noise)
            self.noise = mpi_runtime.get(self._noise_ref)  # a view: this process has no second table
        ref = mpi_runtime.put(self.weights())
        waiting = list(range(len(parts)))[::-1]
        at_work: dict[int, list[int]] = {index: [] for index in range(self.samplers.count)}
        results: dict[int, Tried] = {}

        def ask(index: int) -> None:
            if waiting:
                at_work[index].append(waiting.pop())
                self.samplers.start(index, ref, self._noise_ref, parts[at_work[index][-1]])

        for _ in range(2):  # one runs, and one waits behind it
            for index in at_work:
                ask(index)
        for _ in parts:
            index, tried = self.samplers.next()
            (number,) = [one for one in at_work[index] if np.array_equal(parts[one], tried.places)][:1]
            at_work[index].remove(number)
            results[number] = tried
            ask(index)
        return [results[number] for number in range(len(parts))]

    def learner_state(self) -> Learned:
        """Return weights and optimiser. The table of noise follows from the seed."""
        return {"weights": self.theta, "adam": self.adam}

    def set_learner_state(self, state: Learned) -> None:
        self.theta, self.adam = state["weights"], state["adam"]


def _rows_of_length_1(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    rows = rng.standard_normal(shape)
    normal: Array = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normal
