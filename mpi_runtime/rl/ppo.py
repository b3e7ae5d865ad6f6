"""PPO: Schulman et al., 2017, "Proximal policy optimization algorithms".

Sample T steps of N environments, compute advantages, and make several epochs of steps on the clipped objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mpi_runtime.rl import learner
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.nets_torch import Network, divergence, log_probabilities
from mpi_runtime.rl.parameters import Common, Given, given_as
from mpi_runtime.rl.parts.episodes import Fragment
from mpi_runtime.rl.parts.returns import gae
from mpi_runtime.rl.parts.schedules import Rate, schedule


@dataclass(frozen=True)
class PPOParameters(Common):
    """Parameters of PPO. Defaults are those of Stable-Baselines3."""

    n_steps: int = 2048
    """Steps of each environment in an iteration."""
    batch_size: int = 64
    """Of a minibatch."""
    n_epochs: int = 10
    """Passes over the fragment in an iteration."""
    gae_lambda: float = 0.95
    """The weight of later errors in advantages, in [0, 1]."""
    clip_range: Rate = 0.2
    """A number, a function of the remaining part of the training, or "lin_0.2"."""
    clip_range_vf: float | None = None
    """How far a value may move from the old one; None: any distance."""
    normalize_advantage: str | bool = True
    """True: in each minibatch; "batch": once for the whole batch; False: not at all."""
    ent_coef: float = 0.0
    """The coefficient of the entropy in the loss."""
    vf_coef: float = 0.5
    """The coefficient of the error of the value function in the loss."""
    max_grad_norm: float | None = 0.5
    """The largest norm of a gradient; None: any."""
    target_kl: float | None = None
    """An iteration ends early when the divergence from the old policy exceeds 1.5 times this."""
    kl_coeff: float = 0.0
    """The coefficient of the divergence in the loss, at first; 0: no such term."""
    kl_target: float = 0.01
    """The divergence that the coefficient aims at."""
    init: str = "orthogonal"
    """"orthogonal", "normc" (RLlib 1.x) or "torch"."""
    adam_eps: float = 1e-5
    """The constant in the denominator of Adam."""
    learner_group: str = ""
    """A group of `util.collective` whose members, each with a seed and samplers of its own, average their gradients."""


@dataclass
class Batch:
    """Transitions as tensors of (K, ...)."""

    obs: Tensor
    actions: Tensor
    logp: Tensor
    values: Tensor
    advantages: Tensor
    targets: Tensor

    def take(self, rows: Tensor | slice) -> Batch:
        """Return some of the rows."""
        return Batch(*(one[rows] for one in vars(self).values()))


def batch_of(fragment: Fragment, gamma: float, lam: float, device: torch.device) -> Batch:
    """Compute advantages, drop void steps, and move a fragment to the learner's device."""
    advantages, targets = gae(fragment, gamma, lam)
    keep = ~fragment.void.ravel()
    columns = (fragment.obs, fragment.actions, fragment.logp, fragment.values, advantages, targets)
    flat = (one.reshape(-1, *one.shape[2:]) for one in columns)
    return Batch(*(learner.tensors(one if keep.all() else one[keep], device) for one in flat))


def normalised(advantages: Tensor) -> Tensor:
    """Return advantages with mean 0 and deviation 1."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8) if len(advantages) > 1 else advantages


def losses(
    network: Network, batch: Batch, p: PPOParameters, clip: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the losses of policy, value and entropy, the logarithm of the ratio, and the outputs of the policy."""
    advantages = normalised(batch.advantages) if p.normalize_advantage is True else batch.advantages
    outputs, values = network.both(batch.obs)
    logp, entropy = log_probabilities(network, outputs, batch.actions)
    log_ratio = logp - batch.logp
    ratio = log_ratio.exp()
    # Section 3, equation 7.
    policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
    if p.clip_range_vf is not None:
        values = batch.values + (values - batch.values).clamp(-p.clip_range_vf, p.clip_range_vf)
    value_loss = (batch.targets - values).square().mean()
    return policy_loss, value_loss, -entropy.mean(), log_ratio, outputs


class PPO(Algorithm):
    """Proximal policy optimisation, for discrete and continuous actions."""

    name = "PPO"
    Parameters = PPOParameters
    saves = ("network", "optimiser", "generator", "kl_coeff")

    def setup(self) -> None:
        p = self.parameters
        self.device = learner.begin(p)
        self.network = Network(self.net_spec(), self.device)
        if p.learner_group:
            learner.begin_equal(self.network.parameters, p.learner_group)
        self.optimiser = learner.adam(self.network.parameters, 1e-3, p.adam_eps)
        self.rate = schedule("learning_rate", p.learning_rate)
        self.clip = schedule("clip_range", p.clip_range)
        self.generator = torch.Generator().manual_seed(p.seed)
        self.kl_coeff = p.kl_coeff

    def _translated(self, parameters: Given) -> Given:
        """RLlib's `train_batch_size` is the number of all steps of an iteration."""
        if "train_batch_size" not in parameters:
            return parameters
        rest = {key: value for key, value in parameters.items() if key != "train_batch_size"}
        envs, samplers = given_as(rest, "num_envs", 1), max(1, given_as(rest, "num_samplers", 0))
        return {**rest, "n_steps": math.ceil(parameters["train_batch_size"] / (envs * samplers))}

    def iterate(self) -> dict[str, float]:
        rate, clip = self.rate(self.remaining), self.clip(self.remaining)
        fragment = self.sample(self.parameters.n_steps)
        batch = batch_of(fragment, self.parameters.gamma, self.parameters.gae_lambda, self.device)
        return self.update(batch, rate, clip)

    def update(self, batch: Batch, rate: float, clip: float) -> dict[str, float]:
        """Make `n_epochs` epochs of minibatches, and return figures of the last one."""
        p, network = self.parameters, self.network
        count, size = len(batch.logp), min(p.batch_size, len(batch.logp))
        if p.normalize_advantage == "batch":
            batch.advantages = normalised(batch.advantages)
        old = old_log_std = None
        if p.kl_coeff:
            with torch.no_grad():
                old = torch.cat([network.outputs(obs) for obs in batch.obs.split(4096)])
                old_log_std = None if network.log_std is None else network.log_std.clone()
        divergences: list[float] = []
        stopped = False
        for epoch in range(p.n_epochs):
            order = torch.randperm(count, generator=self.generator).to(self.device)
            shuffled, divergences = batch.take(order), []
            for start in range(0, count, size):
                part = shuffled.take(slice(start, start + size))
                policy, value, entropy, log_ratio, outputs = losses(network, part, p, clip)
                loss = policy + p.vf_coef * value
                if p.ent_coef:
                    loss = loss + p.ent_coef * entropy
                if old is not None:
                    kl = divergence(network, old[order[start : start + size]], outputs, old_log_std)
                    loss = loss + self.kl_coeff * kl
                    divergences.append(kl.item())
                elif p.target_kl is not None or epoch == p.n_epochs - 1:
                    with torch.no_grad():  # Schulman, 2020, "Approximating KL divergence": k3
                        divergences.append((log_ratio.exp() - 1 - log_ratio).mean().item())
                if p.target_kl is not None and divergences[-1] > 1.5 * p.target_kl:
                    stopped = True
                    break
                learner.step(self.optimiser, network.parameters, loss, rate, p.max_grad_norm, p.learner_group)
            if stopped:
                break
        mean_kl = float(np.mean(divergences))
        if p.kl_coeff:  # section 4: d > 1.5 d_targ doubles it, as RLlib with 2.0, 1.5 and 0.5
            self.kl_coeff *= 1.5 if mean_kl > 2 * p.kl_target else 0.5 if mean_kl < 0.5 * p.kl_target else 1.0
        figures = {"policy_loss": policy.item(), "vf_loss": value.item(), "entropy": -entropy.item(), "kl": mean_kl}
        return {**figures, "clip_fraction": ((log_ratio.exp() - 1).abs() > clip).float().mean().item(), "lr": rate}
