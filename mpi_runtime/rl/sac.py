"""SAC: Haarnoja et al., 2018, "Soft actor-critic algorithms and applications" (with an automatic temperature)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mpi_runtime.rl import learner
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.nets_torch import LOG_2PI, Network, mlp
from mpi_runtime.rl.parameters import Common
from mpi_runtime.rl.parts.replay import Ring, transitions
from mpi_runtime.rl.parts.schedules import schedule
from mpi_runtime.rl.parts.weights import Array, assign, flatten


@dataclass(frozen=True)
class SACParameters(Common):
    """Parameters of SAC. Defaults are those of Stable-Baselines3."""

    hidden: tuple[int, ...] = (256, 256)
    """As in `Common`."""
    activation: str = "relu"
    """As in `Common`."""
    buffer_size: int = 1_000_000
    """Transitions in replay."""
    learning_starts: int = 100
    """As in `DQNParameters`."""
    batch_size: int = 256
    """Rows in a step of the optimiser."""
    tau: float = 0.005
    """How far the target critics move in each update."""
    train_freq: int = 1
    """Steps of environments between updates; at least one of each environment."""
    gradient_steps: int = 1
    """As in `DQNParameters`."""
    ent_coef: float | str = "auto"
    """The temperature: a number, or "auto"."""
    target_entropy: float | str = "auto"
    """"auto": minus the number of actions."""
    n: int = 1
    """Steps in a target."""
    steps_per_iteration: int = 1000
    """Steps of environments in one result of `train`."""


class Critics:
    """Two Q functions of observation and action, each an MLP (section 4.2: the smaller one counts)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], activation: str, device: torch.device) -> None:
        self.nets = [mlp(inputs, hidden, 1, activation).to(device) for _ in range(2)]
        self.parameters: list[Tensor] = [one for net in self.nets for one in net.parameters()]

    def values(self, obs: Tensor, actions: Tensor) -> list[Tensor]:
        """Return both values, (N,) each."""
        seen = torch.cat([obs.reshape(len(obs), -1), actions], 1)
        return [net(seen)[:, 0] for net in self.nets]


def drawn(actor: Network, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions in [-1, 1] and their log-densities, from standard normal noise (N, n).

    Appendix C: log pi(a) = log mu(u) - sum of log(1 - tanh(u)^2).
    """
    mean, log_std = actor.mean_and_log_std(obs)
    squashed = torch.tanh(mean + log_std.exp() * noise)
    logp = (-0.5 * noise.square() - log_std - 0.5 * LOG_2PI).sum(1)
    return squashed, logp - torch.log(1 - squashed.square() + 1e-6).sum(1)


def critic_loss(
    critics: Critics, later: Critics, actor: Network, batch: dict[str, Tensor], noise: Tensor, heat: Tensor
) -> Tensor:
    """Return half the squared errors of both critics: equations 3 and 5."""
    with torch.no_grad():
        actions, logp = drawn(actor, batch["next_obs"], noise)
        value = torch.min(*later.values(batch["next_obs"], actions)) - heat * logp
        y = batch["rewards"] + batch["factors"] * value
    first, second = critics.values(batch["obs"], batch["actions"])
    return 0.5 * ((first - y).square().mean() + (second - y).square().mean())


def actor_loss(critics: Critics, actor: Network, obs: Tensor, noise: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of the actor (equation 7) and the log-densities of its actions."""
    actions, logp = drawn(actor, obs, noise)
    return (heat * logp - torch.min(*critics.values(obs, actions))).mean(), logp


def temperature_loss(log_heat: Tensor, logp: Tensor, target: float) -> Tensor:
    """Return the loss of the temperature's logarithm: equation 18, with log alpha for alpha as in the authors' code."""
    return -(log_heat * (logp + target).detach()).mean()


class SAC(Algorithm):
    """Soft actor-critic, for continuous actions."""

    name = "SAC"
    Parameters = SACParameters
    fits = ("box",)
    kind = "squashed"
    keeps_next = True
    saves = ("actor", "critics", "later", "log_heat", "optimisers", "generator", "replay")

    def setup(self) -> None:
        p = self.parameters
        if self.net_spec().needs_torch:
            raise ValueError("SAC has built-in networks for vectors only: flatten the observations, and omit network")
        if not all(math.isfinite(bound) for bound in (*self.actions.low, *self.actions.high)):
            raise ValueError("SAC needs actions with finite bounds: gymnasium.wrappers.RescaleAction gives them")
        self.device = learner.begin(p)
        self.actor = Network(self.net_spec(), self.device)
        width = self.observations.size + self.actions.outputs
        self.critics, self.later = (Critics(width, p.hidden, p.activation, self.device) for _ in range(2))
        assign(flatten(self.critics.parameters), self.later.parameters)
        self.log_heat = torch.zeros(1, device=self.device, requires_grad=True)
        self.is_auto = p.ent_coef == "auto"
        if not self.is_auto:
            self.log_heat = torch.tensor([math.log(float(p.ent_coef))], device=self.device, requires_grad=True)
        self.target = -float(self.actions.outputs) if p.target_entropy == "auto" else float(p.target_entropy)
        groups = (self.actor.parameters, self.critics.parameters, [self.log_heat])
        self.optimisers = [learner.adam(group, 1e-3, 1e-8) for group in groups]
        self.rate = schedule("learning_rate", p.learning_rate)
        self.replay = Ring(p.buffer_size)
        self.generator = torch.Generator().manual_seed(p.seed)
        bounds = [torch.tensor(bound, dtype=torch.float32) for bound in (self.actions.low, self.actions.high)]
        self.low, self.width = bounds[0].to(self.device), (bounds[1] - bounds[0]).to(self.device)

    def vector(self) -> Array:
        return flatten(self.actor.parameters)

    def iterate(self) -> dict[str, float]:
        p, figures = self.parameters, dict[str, float]()
        steps = max(1, p.train_freq // (p.num_envs * self.samplers.processes))
        for _ in self.rounds():
            is_random = self.timesteps < p.learning_starts
            fragment = self.sample(steps, float(is_random))
            self.replay.add(transitions(fragment, p.gamma, p.n))
            if self.timesteps > p.learning_starts:
                for _ in range(fragment.steps if p.gradient_steps < 0 else p.gradient_steps):
                    figures = self.update()
        return figures

    def update(self) -> dict[str, float]:
        """Make one step of each optimiser on a batch of the replay, in the order of algorithm 1."""
        p, rate = self.parameters, self.rate(self.remaining)
        columns = self.replay.take(self.replay.sample(p.batch_size, self.rng))
        batch = {name: torch.from_numpy(column).to(self.device) for name, column in columns.items()}
        batch["actions"] = 2 * (batch["actions"] - self.low) / self.width - 1
        shape = (2, *batch["actions"].shape)
        noise = torch.randn(shape, generator=self.generator).to(self.device)
        heat = self.log_heat.detach().exp()
        own = critic_loss(self.critics, self.later, self.actor, batch, noise[0], heat)
        learner.step(self.optimisers[1], self.critics.parameters, own, rate, None)
        loss, logp = actor_loss(self.critics, self.actor, batch["obs"], noise[1], heat)
        learner.step(self.optimisers[0], self.actor.parameters, loss, rate, None)
        if self.is_auto:
            learner.step(
                self.optimisers[2], [self.log_heat], temperature_loss(self.log_heat, logp, self.target), rate, None
            )
        with torch.no_grad():
            torch._foreach_lerp_(self.later.parameters, self.critics.parameters, p.tau)
        return {
            "actor_loss": loss.item(),
            "critic_loss": own.item(),
            "ent_coef": heat.item(),
            "entropy": -logp.mean().item(),
        }
