"""Policies as samplers use them: in numpy for small networks, in torch only for images and networks of your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mpi_runtime.rl.parts import nets_numpy
from mpi_runtime.rl.parts.spaces import Actions, Observations
from mpi_runtime.rl.parts.weights import views

Array = NDArray[Any]


@dataclass(frozen=True)
class NetSpec:
    """What a network is made from: the same here and in the learner."""

    kind: str
    """One of "actor_critic", "q", "squashed" (SAC's actor) and "policy" (that of ES)."""
    observations: Observations
    actions: Actions
    hidden: tuple[int, ...]
    activation: str = "tanh"
    duelling: bool = False
    init: str = "orthogonal"
    network: Callable[..., Any] | None = None
    """A function of (observations, outputs) that makes a torch module of your own; None: the built-in networks."""

    @property
    def needs_torch(self) -> bool:
        """Whether samplers must load torch."""
        return self.network is not None or self.observations.kind == "image"

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the weights, in their order in the flat vector."""
        inputs, outputs = self.observations.size, self.actions.outputs
        if self.kind == "q":
            if not self.duelling:
                return nets_numpy.mlp_shapes(inputs, self.hidden, outputs)
            width = self.hidden[-1]
            trunk = nets_numpy.mlp_shapes(inputs, self.hidden[:-1], width)
            return [*trunk, (1, width), (1,), (outputs, width), (outputs,)]
        if self.kind == "policy":
            return nets_numpy.mlp_shapes(inputs, self.hidden, outputs)
        if self.kind == "squashed":
            return nets_numpy.mlp_shapes(inputs, self.hidden, 2 * outputs)
        both = [shape for width in (outputs, 1) for shape in nets_numpy.mlp_shapes(inputs, self.hidden, width)]
        return both + ([(outputs,)] if self.actions.kind == "box" else [])


class Policy(Protocol):
    """What a sampler and `predict` ask of a policy. Observations are (N, ...) and encoded."""

    def load(self, vector: Array) -> None:
        """Use these weights."""

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float) -> tuple[Array, Array, Array]:
        """Draw actions; return them with their log-probabilities and the values of the observations."""

    def best(self, obs: Array) -> Array:
        """Return the most probable actions."""

    def values(self, obs: Array) -> Array:
        """Return the values of observations."""


def policy_of(spec: NetSpec) -> Policy:
    """Make the policy with this network."""
    if spec.needs_torch:
        from mpi_runtime.rl import nets_torch  # not at the top: other samplers have no torch

        return nets_torch.TorchPolicy(spec)
    return {"actor_critic": ActorCritic, "q": EpsilonGreedy, "squashed": Squashed, "policy": Plain}[spec.kind](spec)


class ActorCritic:
    """A policy and a value function, each an MLP."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec, self.shapes = spec, spec.shapes()
        self.load(np.zeros(sum(int(np.prod(shape)) for shape in self.shapes), np.float32))

    def load(self, vector: Array) -> None:
        """Use these weights."""
        arrays = views(vector, self.shapes)
        depth = 2 * (len(self.spec.hidden) + 1)
        self.pi, self.vf = arrays[:depth], arrays[depth : 2 * depth]
        self.log_std = arrays[2 * depth] if self.spec.actions.kind == "box" else None

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float = 0.0) -> tuple[Array, Array, Array]:
        """Draw actions; return them with their log-probabilities and the values of the observations."""
        outputs = nets_numpy.mlp(self.pi, obs, self.spec.activation)
        actions, logp = drawn(self.spec.actions, outputs, self.log_std, rng)
        return actions, logp, self.values(obs)

    def best(self, obs: Array) -> Array:
        """Return the most probable actions."""
        return most_probable(self.spec.actions, nets_numpy.mlp(self.pi, obs, self.spec.activation))

    def values(self, obs: Array) -> Array:
        """Return the values of observations."""
        return nets_numpy.mlp(self.vf, obs, self.spec.activation)[:, 0]


class Plain:
    """A policy without a value function. It always takes its most probable action."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec, self.shapes = spec, spec.shapes()
        self.load(np.zeros(sum(int(np.prod(shape)) for shape in self.shapes), np.float32))

    def load(self, vector: Array) -> None:
        """Use these weights."""
        self.weights = views(vector, self.shapes)

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float = 0.0) -> tuple[Array, Array, Array]:
        """Return the most probable actions, and zeros."""
        zeros = np.zeros(len(obs), np.float32)
        return self.best(obs), zeros, zeros

    def best(self, obs: Array) -> Array:
        """Return the most probable actions."""
        return most_probable(self.spec.actions, nets_numpy.mlp(self.weights, obs, self.spec.activation))

    def values(self, obs: Array) -> Array:
        """Return zeros: there is no value function."""
        return np.zeros(len(obs), np.float32)


class EpsilonGreedy:
    """The best action of a Q network, or with probability epsilon any action."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec, self.shapes = spec, spec.shapes()
        self.load(np.zeros(sum(int(np.prod(shape)) for shape in self.shapes), np.float32))

    def load(self, vector: Array) -> None:
        """Use these weights."""
        self.weights = views(vector, self.shapes)

    def q_values(self, obs: Array) -> Array:
        """Return Q(s, a) for all actions, (N, n)."""
        if not self.spec.duelling:
            return nets_numpy.mlp(self.weights, obs, self.spec.activation)
        trunk = nets_numpy.mlp(self.weights[:-4], obs, self.spec.activation)
        features = nets_numpy.ACTIVATIONS[self.spec.activation](trunk)
        value = features @ self.weights[-4].T + self.weights[-3]
        advantage = features @ self.weights[-2].T + self.weights[-1]
        # Wang et al., 2016, "Dueling network architectures", equation 9.
        result: Array = value + advantage - advantage.mean(1, keepdims=True)
        return result

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float) -> tuple[Array, Array, Array]:
        """Draw actions; the values are those of the best ones."""
        q = self.q_values(obs)
        return *explored(q, rng, epsilon), q.max(1)

    def best(self, obs: Array) -> Array:
        """Return the actions with the highest Q."""
        return self.q_values(obs).argmax(1)

    def values(self, obs: Array) -> Array:
        """Return the highest Q of each observation."""
        result: Array = self.q_values(obs).max(1)
        return result


class Squashed:
    """SAC's actor: tanh of a normal variable, scaled to the bounds of the action."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec, self.shapes = spec, spec.shapes()
        self.load(np.zeros(sum(int(np.prod(shape)) for shape in self.shapes), np.float32))

    def load(self, vector: Array) -> None:
        """Use these weights."""
        self.weights = views(vector, self.shapes)

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float) -> tuple[Array, Array, Array]:
        """Draw actions in the bounds; with epsilon=1 uniform ones, for the first steps."""
        if epsilon >= 1.0:
            noise = rng.uniform(-1, 1, (len(obs), self.spec.actions.outputs)).astype(np.float32)
            return scaled(self.spec.actions, noise), np.zeros(len(obs), np.float32), np.zeros(len(obs), np.float32)
        mean, log_std = np.split(nets_numpy.mlp(self.weights, obs, self.spec.activation), 2, axis=1)
        noise = rng.standard_normal(mean.shape, np.float32)
        squashed = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * noise)
        return scaled(self.spec.actions, squashed), np.zeros(len(obs), np.float32), np.zeros(len(obs), np.float32)

    def best(self, obs: Array) -> Array:
        """Return the actions of the means."""
        mean = nets_numpy.mlp(self.weights, obs, self.spec.activation)[:, : self.spec.actions.outputs]
        return scaled(self.spec.actions, np.tanh(mean))

    def values(self, obs: Array) -> Array:
        """Return zeros: the actor has no value function."""
        return np.zeros(len(obs), np.float32)


def drawn(actions: Actions, outputs: Array, log_std: Array | None, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw from the distribution of an action space. Return actions and log-probabilities."""
    if actions.kind == "discrete":
        return nets_numpy.sample_categorical(outputs, rng)
    if actions.kind == "multi_discrete":
        return nets_numpy.sample_multi_categorical(outputs, actions.sizes, rng)
    assert log_std is not None
    return nets_numpy.sample_gaussian(outputs, log_std, rng)


def most_probable(actions: Actions, outputs: Array) -> Array:
    """Return the mode of the distribution of an action space."""
    if actions.kind == "discrete":
        return outputs.argmax(1)
    if actions.kind == "multi_discrete":
        return np.stack([part.argmax(1) for part in nets_numpy.split(outputs, actions.sizes)], 1)
    return outputs


def explored(q: Array, rng: np.random.Generator, epsilon: float) -> tuple[Array, Array]:
    """Return epsilon-greedy actions of rows of Q, and zeros."""
    count, choices = q.shape
    random = rng.random(count) < epsilon
    actions = np.where(random, rng.integers(0, choices, count), q.argmax(1))
    return actions, np.zeros(count, np.float32)


def scaled(actions: Actions, unit: Array) -> Array:
    """Map [-1, 1] to the bounds of a box."""
    low, high = np.asarray(actions.low, np.float32), np.asarray(actions.high, np.float32)
    result: Array = low + (unit + 1) * 0.5 * (high - low)
    return result
