"""Forward passes and distributions in numpy: with small networks ten times less overhead than in torch.

The weights of an MLP are a list: weight (out, in) and bias (out,) of each layer, as torch orders them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mpi_runtime.rl.parts.spaces import Actions, Observations
from mpi_runtime.rl.parts.weights import Array

LOG_2PI = float(np.log(2 * np.pi))


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": relu}


def mlp_shapes(inputs: int, hidden: Sequence[int], outputs: int) -> list[tuple[int, ...]]:
    """Return the shapes of the weights of an MLP."""
    widths = [inputs, *hidden, outputs]
    return [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]


def mlp(weights: Sequence[Array], x: Array, activation: str) -> Array:
    """Return the outputs of an MLP for rows (N, ...), which are flattened. The last layer is linear."""
    act = ACTIVATIONS[activation]
    x = x.reshape(len(x), -1)
    for at in range(0, len(weights) - 2, 2):
        x = act(x @ weights[at].T + weights[at + 1])
    outputs: Array = x @ weights[-2].T + weights[-1]
    return outputs


def mlps(weights: Sequence[Array], x: Array, activation: str) -> Array:
    """Return the outputs of N MLPs, each for its row of (N, ...). The weights have an axis for the MLPs in front."""
    act = ACTIVATIONS[activation]
    columns = x.reshape(len(x), -1, 1)
    for at in range(0, len(weights) - 2, 2):
        columns = act(weights[at] @ columns + weights[at + 1][..., None])
    outputs: Array = weights[-2] @ columns + weights[-1][..., None]
    return outputs[..., 0]


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def sample_categorical(logits: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw from rows of logits (N, n). Return actions (N,) and their log-probabilities."""
    logp = log_softmax(logits)
    uniform = rng.random((len(logp), 1), np.float32)
    # The last sum may be below 1 by rounding, so it is left out.
    actions = (np.exp(logp).cumsum(1)[:, :-1] < uniform).sum(1)
    return actions, logp[np.arange(len(logp)), actions]


def split(logits: Array, sizes: Sequence[int]) -> list[Array]:
    """Return the logits of each part of a multi-discrete action."""
    return np.split(logits, np.cumsum(sizes)[:-1], axis=-1)


def sample_multi_categorical(logits: Array, sizes: Sequence[int], rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw each part from its logits. Return actions (N, parts) and the sums of their log-probabilities."""
    drawn = [sample_categorical(part, rng) for part in split(logits, sizes)]
    logp: Array = np.sum([one for _, one in drawn], 0)
    return np.stack([actions for actions, _ in drawn], 1), logp


def sample_gaussian(mean: Array, log_std: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw from independent normal distributions (N, n). Return actions and their log-densities (N,)."""
    noise = rng.standard_normal(mean.shape, np.float32)
    logp = (-0.5 * np.square(noise) - log_std - 0.5 * LOG_2PI).sum(-1)
    return mean + np.exp(log_std) * noise, logp


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
                return mlp_shapes(inputs, self.hidden, outputs)
            width = self.hidden[-1]
            trunk = mlp_shapes(inputs, self.hidden[:-1], width)
            return [*trunk, (1, width), (1,), (outputs, width), (outputs,)]
        if self.kind == "policy":
            return mlp_shapes(inputs, self.hidden, outputs)
        if self.kind == "squashed":
            return mlp_shapes(inputs, self.hidden, 2 * outputs)
        both = [shape for width in (outputs, 1) for shape in mlp_shapes(inputs, self.hidden, width)]
        return both + ([(outputs,)] if self.actions.kind == "box" else [])


def drawn(actions: Actions, outputs: Array, log_std: Array | None, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw from the distribution of an action space. Return actions and log-probabilities."""
    if actions.kind == "discrete":
        return sample_categorical(outputs, rng)
    if actions.kind == "multi_discrete":
        return sample_multi_categorical(outputs, actions.sizes, rng)
    assert log_std is not None
    return sample_gaussian(outputs, log_std, rng)


def most_probable(actions: Actions, outputs: Array) -> Array:
    """Return the mode of the distribution of an action space."""
    if actions.kind == "discrete":
        return np.asarray(outputs.argmax(1))
    if actions.kind == "multi_discrete":
        return np.stack([part.argmax(1) for part in split(outputs, actions.sizes)], 1)
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
