"""A2C: the synchronous form of Mnih et al., 2016, "Asynchronous methods for deep reinforcement learning", section 4.

Sample a few steps of all environments, and make one step of the optimiser on all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpi_runtime.rl import learner
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.nets_torch import Network, log_probabilities
from mpi_runtime.rl.parameters import Common
from mpi_runtime.rl.parts.schedules import Rate, schedule
from mpi_runtime.rl.ppo import Batch, batch_of, normalised


@dataclass(frozen=True)
class A2CParameters(Common):
    """Parameters of A2C. Defaults are those of Stable-Baselines3."""

    learning_rate: Rate = 7e-4
    """As in `Common`."""
    n_steps: int = 5
    """Steps of each environment between two steps of the optimiser."""
    gae_lambda: float = 1.0
    """The weight of later errors in advantages, in [0, 1]."""
    ent_coef: float = 0.0
    """The coefficient of the entropy in the loss."""
    vf_coef: float = 0.5
    """The coefficient of the error of the value function in the loss."""
    max_grad_norm: float | None = 0.5
    """The largest norm of a gradient; None: any."""
    normalize_advantage: bool = False
    """Whether advantages are scaled to mean 0 and deviation 1."""
    steps_per_iteration: int = 1000
    """Steps of environments in one result of `train`."""


def loss_of(network: Network, batch: Batch, p: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of a batch and its parts, as tensors."""
    outputs, values = network.both(batch.obs)
    logp, entropy = log_probabilities(network, outputs, batch.actions)
    advantages = normalised(batch.advantages) if p.normalize_advantage else batch.advantages
    # Section 4: log pi (R - V), with an entropy bonus; and the squared error of the value.
    policy = -(advantages * logp).mean()
    value = (batch.targets - values).square().mean()
    loss = policy + p.vf_coef * value - p.ent_coef * entropy.mean()
    return loss, {"policy_loss": policy, "vf_loss": value, "entropy": entropy.mean()}


class A2C(Algorithm):
    """Advantage actor-critic, for discrete and continuous actions."""

    name = "A2C"
    Parameters = A2CParameters
    saves = ("network", "optimiser")

    def setup(self) -> None:
        p = self.parameters
        self.device = learner.begin(p)
        self.network = Network(self.net_spec(), self.device)
        # As section 4 of the supplement has it, with the constants of Stable-Baselines3.
        self.optimiser = torch.optim.RMSprop(self.network.parameters, lr=1e-3, alpha=0.99, eps=1e-5, foreach=True)
        self.rate = schedule("learning_rate", p.learning_rate)

    def iterate(self) -> dict[str, float]:
        p, parts = self.parameters, dict[str, Tensor]()
        for _ in self.rounds():
            batch = batch_of(self.sample(p.n_steps), p.gamma, p.gae_lambda, self.device)
            loss, parts = loss_of(self.network, batch, p)
            learner.step(self.optimiser, self.network.parameters, loss, self.rate(self.remaining), p.max_grad_norm)
        return {name: part.item() for name, part in parts.items()}
