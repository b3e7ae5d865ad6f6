"""DQN: Mnih et al., 2015, "Human-level control through deep reinforcement learning", algorithm 1.

With what later papers added, each on its own: double (van Hasselt et al., 2016), duelling (Wang et al., 2016),
prioritised replay (Schaul et al., 2016), targets of n steps (Sutton and Barto, 2018, section 7.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mpi_runtime.rl import learner
from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.nets_torch import Network
from mpi_runtime.rl.parameters import Common
from mpi_runtime.rl.parts.replay import Prioritised, Ring, transitions
from mpi_runtime.rl.parts.schedules import Linear, Rate, schedule


@dataclass(frozen=True)
class DQNParameters(Common):
    """Parameters of DQN. Defaults are those of Stable-Baselines3."""

    learning_rate: Rate = 1e-4
    """As in `Common`."""
    activation: str = "relu"
    """As in `Common`."""
    buffer_size: int = 1_000_000
    """Transitions in replay."""
    learning_starts: int = 100
    """Steps with random actions; updates begin after the fragment in which they end."""
    batch_size: int = 32
    """Rows in a step of the optimiser."""
    train_freq: int = 4
    """Steps of environments between updates; at least one of each environment."""
    gradient_steps: int = 1
    """Steps of the optimiser in an update; -1: one for each step of an environment. It sets the replay ratio."""
    target_update: int = 10_000
    """Steps of environments between updates of the target network."""
    tau: float = 1.0
    """How far the target network moves then; 1: all the way."""
    exploration_fraction: float = 0.1
    """The part of the training in which epsilon falls from 1 to `exploration_final`."""
    exploration_final: float = 0.05
    """Epsilon at the end."""
    max_grad_norm: float | None = 10.0
    """The largest norm of a gradient; None: any."""
    double: bool = False
    """Whether the network chooses the action whose value the target network gives."""
    duelling: bool = False
    """Whether the network has heads for value and advantages."""
    prioritised: bool = False
    """Whether rows with large errors are drawn more often."""
    alpha: float = 0.6
    """The exponent of priorities."""
    beta: float = 0.4
    """The exponent of importance weights at the beginning; it ends at 1."""
    n: int = 1
    """Steps in a target. Targets are shorter at the end of a fragment of `train_freq` steps."""
    steps_per_iteration: int = 1000
    """Steps of environments in one result of `train`."""


def targets(network: Network, target: Network, batch: dict[str, Tensor], double: bool) -> Tensor:
    """Return y = r + gamma max Q'(s', a): algorithm 1 there.

    Double: y = r + gamma Q'(s', argmax Q(s', a)), van Hasselt et al., equation 4.
    """
    with torch.no_grad():
        later = target.q_values(batch["next_obs"])
        if double:
            chosen = network.q_values(batch["next_obs"]).argmax(1, keepdim=True)
            best = later.gather(1, chosen)[:, 0]
        else:
            best = later.max(1).values
        return batch["rewards"] + batch["factors"] * best


def loss_of(network: Network, batch: dict[str, Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of Huber (errors clipped to [-1, 1], "Methods" there) by importance weights, and the errors."""
    q = network.q_values(batch["obs"]).gather(1, batch["actions"][:, None])[:, 0]
    losses = functional.smooth_l1_loss(q, y, reduction="none")
    if "weights" in batch:
        losses = losses * batch["weights"]
    return losses.mean(), (q - y).detach()


class DQN(Algorithm):
    """Deep Q-learning, for discrete actions."""

    name = "DQN"
    Parameters = DQNParameters
    fits = ("discrete",)
    kind = "q"
    keeps_next = True
    saves = ("network", "target", "optimiser", "replay", "updates", "target_at")

    def setup(self) -> None:
        p = self.parameters
        self.device = learner.begin(p)
        self.network, self.target = (Network(self.net_spec(), self.device) for _ in range(2))
        self.move_target(1.0)
        self.optimiser = learner.adam(self.network.parameters, 1e-3, 1e-8)
        self.rate = schedule("learning_rate", p.learning_rate)
        self.epsilon = Linear(1.0, p.exploration_final, p.exploration_fraction)
        self.replay: Tensor = Prioritised(p.buffer_size, p.alpha) if p.prioritised else Ring(p.buffer_size)
        self.updates = self.target_at = 0

    def iterate(self) -> dict[str, float]:
        p, figures = self.parameters, dict[str, float]()
        steps = max(1, p.train_freq // (p.num_envs * self.samplers.processes))
        for _ in self.rounds():
            is_random = self.timesteps < p.learning_starts
            epsilon = 1.0 if is_random else self.epsilon(self.remaining)
            fragment = self.sample(steps, epsilon)
            self.replay.add(transitions(fragment, p.gamma, p.n))
            if self.timesteps - self.target_at >= p.target_update:
                self.move_target(p.tau)
                self.target_at = self.timesteps
            if self.timesteps > p.learning_starts:
                for _ in range(fragment.steps if p.gradient_steps < 0 else p.gradient_steps):
                    figures = self.update()
        return {**figures, "replay_ratio": self.updates * p.batch_size / max(1, self.timesteps), "epsilon": epsilon}

    def update(self) -> dict[str, float]:
        """Make one step of the optimiser on a batch of the replay."""
        p = self.parameters
        if p.prioritised:
            places, weights = self.replay.draw(p.batch_size, Linear(p.beta, 1.0)(self.remaining), self.rng)
            columns = {**self.replay.take(places), "weights": weights}
        else:
            places = self.replay.sample(p.batch_size, self.rng)
            columns = self.replay.take(places)
        batch = {name: torch.from_numpy(column).to(self.device) for name, column in columns.items()}
        y = targets(self.network, self.target, batch, p.double)
        loss, errors = loss_of(self.network, batch, y)
        learner.step(self.optimiser, self.network.parameters, loss, self.rate(self.remaining), p.max_grad_norm)
        if p.prioritised:
            self.replay.update(places, errors.cpu().numpy())
        self.updates += 1
        return {"loss": loss.item(), "q": float(y.mean())}

    def move_target(self, tau: float) -> None:
        """Move the weights of the target network towards those of the network."""
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters, self.network.parameters, strict=True):
                slow.lerp_(fast, tau)
