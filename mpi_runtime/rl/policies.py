"""Policies as samplers use them: in numpy for small networks, in torch only for images and networks of your own."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from mpi_runtime.rl.parts import nets_numpy
from mpi_runtime.rl.parts.nets_numpy import NetSpec, drawn, explored, most_probable, scaled
from mpi_runtime.rl.parts.weights import Array, views


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
    classes: dict[str, Any] = {"actor_critic": ActorCritic, "q": EpsilonGreedy, "squashed": Squashed, "policy": Plain}
    policy: Policy = classes[spec.kind](spec)
    return policy


class NumpyPolicy:
    """What these policies share: their weights, zeros at first, and values of observations, zeros if there are none."""

    def __init__(self, spec: NetSpec) -> None:
        self.spec, self.shapes = spec, spec.shapes()
        self.load(np.zeros(sum(int(np.prod(shape)) for shape in self.shapes), np.float32))

    def load(self, vector: Array) -> None:
        self.weights = views(vector, self.shapes)

    def values(self, obs: Array) -> Array:
        return np.zeros(len(obs), np.float32)


class ActorCritic(NumpyPolicy):
    """A policy and a value function, each an MLP."""

    def load(self, vector: Array) -> None:
        arrays = views(vector, self.shapes)
        depth = 2 * (len(self.spec.hidden) + 1)
        self.pi, self.vf = arrays[:depth], arrays[depth : 2 * depth]
        self.log_std = arrays[2 * depth] if self.spec.actions.kind == "box" else None

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float = 0.0) -> tuple[Array, Array, Array]:
        outputs = nets_numpy.mlp(self.pi, obs, self.spec.activation)
        actions, logp = drawn(self.spec.actions, outputs, self.log_std, rng)
        return actions, logp, self.values(obs)

    def best(self, obs: Array) -> Array:
        return most_probable(self.spec.actions, nets_numpy.mlp(self.pi, obs, self.spec.activation))

    def values(self, obs: Array) -> Array:
        return nets_numpy.mlp(self.vf, obs, self.spec.activation)[:, 0]


class Plain(NumpyPolicy):
    """A policy without a value function. It always takes its most probable action."""

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float = 0.0) -> tuple[Array, Array, Array]:
        zeros = self.values(obs)
        return self.best(obs), zeros, zeros

    def best(self, obs: Array) -> Array:
        return most_probable(self.spec.actions, nets_numpy.mlp(self.weights, obs, self.spec.activation))


class EpsilonGreedy(NumpyPolicy):
    """The best action of a Q network, or with probability epsilon any action."""

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
        q = self.q_values(obs)
        return *explored(q, rng, epsilon), q.max(1)

    def best(self, obs: Array) -> Array:
        return np.asarray(self.q_values(obs).argmax(1))

    def values(self, obs: Array) -> Array:
        result: Array = self.q_values(obs).max(1)
        return result


class Squashed(NumpyPolicy):
    """SAC's actor: tanh of a normal variable, scaled to the bounds of the action."""

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float) -> tuple[Array, Array, Array]:
        """Draw actions in the bounds; with epsilon=1 uniform ones, for the first steps."""
        zeros = self.values(obs)
        if epsilon >= 1.0:
            noise = rng.uniform(-1, 1, (len(obs), self.spec.actions.outputs)).astype(np.float32)
            return scaled(self.spec.actions, noise), zeros, zeros
        mean, log_std = np.split(nets_numpy.mlp(self.weights, obs, self.spec.activation), 2, axis=1)
        noise = rng.standard_normal(mean.shape, np.float32)
        squashed = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * noise)
        return scaled(self.spec.actions, squashed), zeros, zeros

    def best(self, obs: Array) -> Array:
        mean = nets_numpy.mlp(self.weights, obs, self.spec.activation)[:, : self.spec.actions.outputs]
        return scaled(self.spec.actions, np.tanh(mean))
