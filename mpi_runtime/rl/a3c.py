"""A3C: Mnih et al., 2016, "Asynchronous methods for deep reinforcement learning", algorithm S3.

Each sampler computes the gradient of its own fragment. The learner applies gradients in the order in which they arrive,
and sends this sampler the new weights: gradients are as old as the number of other samplers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mpi_runtime.rl import learner
from mpi_runtime.rl.a2c import A2C, A2CParameters, loss_of
from mpi_runtime.rl.nets_torch import Network
from mpi_runtime.rl.parts.episodes import Fragment
from mpi_runtime.rl.parts.schedules import Rate
from mpi_runtime.rl.parts.weights import assign, flatten, views
from mpi_runtime.rl.ppo import batch_of
from mpi_runtime.rl.sampler import Sampler, SamplerSpec, Weights


@dataclass(frozen=True)
class A3CParameters(A2CParameters):
    """Parameters of A3C. The gradient that is clipped is that of one sampler."""

    num_samplers: int = 2
    """As in `Common`."""
    n_steps: int = 20
    """Steps of each environment for a gradient; t_max in the paper."""
    learning_rate: Rate = 1e-3
    """As in `Common`."""


@dataclass
class Gradient:
    """What a sampler sends."""

    vector: Any
    parts: dict[str, float]
    counts: Fragment


class GradientSampler(Sampler):
    """A sampler that computes gradients, in torch."""

    method = "gradient"

    def __init__(self, spec: SamplerSpec, index: int, incarnation: int = 0) -> None:
        super().__init__(spec, index, incarnation)
        torch.set_num_threads(1)
        self.network = Network(spec.net)

    def gradient(self, weights: Weights) -> Gradient:
        """Sample a fragment, and return the gradient of its loss."""
        p = self.parameters
        fragment = self.sample(weights, p.n_steps)
        assign(weights.vector, self.network.parameters)
        batch = batch_of(fragment, p.gamma, p.gae_lambda, "cpu")
        loss, parts = loss_of(self.network, batch, p)
        gradients = torch.autograd.grad(loss, self.network.parameters)
        figures = {name: part.item() for name, part in parts.items()}
        return Gradient(flatten(gradients), figures, fragment.counts())


class A3C(A2C):
    """Asynchronous advantage actor-critic, for discrete and continuous actions."""

    name = "A3C"
    Parameters = A3CParameters
    sampler = GradientSampler

    def iterate(self) -> dict[str, float]:
        p, end = self.parameters, self.timesteps + self.parameters.steps_per_iteration
        found: Gradient | None = None
        for index in self.samplers.idle():
            self.samplers.start(index, self.weights())
        lags = []
        while self.timesteps < end:
            started = time.perf_counter()
            index, found = self.samplers.next()
            self.sample_seconds += time.perf_counter() - started
            assert found is not None
            self.count(found.counts)
            lags.append(self.version - found.counts.version)
            shapes = [tuple(one.shape) for one in self.network.parameters]
            for one, part in zip(self.network.parameters, views(found.vector, shapes), strict=True):
                one.grad = learner.tensors(part, self.device)
            learner.descend(self.optimiser, self.network.parameters, self.rate(self.remaining), p.max_grad_norm)
            self.samplers.start(index, self.weights())
        return {**(found.parts if found else {}), "lag": float(np.mean(lags))}
