"""Networks and distributions in torch, for learners; and the policy of samplers whose network numpy cannot compute."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mpi_runtime.rl.parts.nets_numpy import NetSpec, drawn, explored, most_probable
from mpi_runtime.rl.parts.weights import Array, assign

LOG_2PI = math.log(2 * math.pi)


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: str) -> nn.Module:
    """Make an MLP with a linear last layer."""
    act = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
    layers: list[nn.Module] = []
    for a, b in zip([inputs, *hidden], hidden, strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else inputs, outputs))


def initialise(module: nn.Module, init: str, last: float) -> None:
    """Initialise the layers of an MLP in place; `last` is the gain of the last one.

    "orthogonal": gain sqrt(2), biases 0, as Stable-Baselines3. "normc": normal rows of length 1, as RLlib 1.x.
    "torch": as torch makes them.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if init == "torch":
        return
    for layer in layers:
        is_last = layer is layers[-1]
        if init == "orthogonal":
            nn.init.orthogonal_(layer.weight, last if is_last else math.sqrt(2))
        else:
            with torch.no_grad():
                rows = torch.randn_like(layer.weight)
                layer.weight.copy_(rows / rows.norm(dim=1, keepdim=True) * (last if is_last else 1.0))
        nn.init.zeros_(layer.bias)


def convolutions(shape: tuple[int, ...]) -> tuple[nn.Module, int, bool]:
    """Make the features of images: Mnih et al., 2015, "Human-level control", methods, model architecture.

    Return the module, the number of its outputs, and whether images have their channels last.
    """
    is_last = shape[-1] < shape[0]
    channels, height, width = (shape[2], shape[0], shape[1]) if is_last else shape
    layers = [nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
    body = nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
    with torch.no_grad():
        try:
            count = body(torch.zeros(1, channels, height, width)).shape[1]
        except RuntimeError:
            raise ValueError(
                f"images of {shape} are too small for the built-in network, which needs 36 x 36: pass network="
            ) from None
    return nn.Sequential(body, nn.Linear(count, 512), nn.ReLU()), 512, is_last


class Network:
    """The network of a `NetSpec`, with its parameters in the order of `NetSpec.shapes`."""

    def __init__(self, spec: NetSpec, device: torch.device | str = "cpu") -> None:
        self.spec, self.device = spec, torch.device(device)
        self.features: nn.Module | None = None
        self.own: nn.Module | None = None
        self.heads: list[nn.Module] = []
        outputs = spec.actions.outputs
        if spec.network is not None:
            self.own = spec.network(spec.observations, 2 * outputs if spec.kind == "squashed" else outputs)
        elif spec.observations.kind == "image":
            self.features, width, self.channels_last = convolutions(spec.observations.shape)
            initialise(self.features, spec.init, math.sqrt(2))
            self._make_heads(width, ())
        else:
            self._make_heads(spec.observations.size, spec.hidden)
        modules = [one for one in (self.own, self.features, *self.heads) if one is not None]
        for module in modules:
            module.to(self.device)
        self.parameters: list[Tensor] = [one for module in modules for one in module.parameters()]
        self.log_std: Tensor | None = None
        if spec.kind == "actor_critic" and spec.actions.kind == "box":
            self.log_std = nn.Parameter(torch.zeros(outputs, device=self.device))
            self.parameters.append(self.log_std)

    def _make_heads(self, inputs: int, hidden: tuple[int, ...]) -> None:
        spec, outputs = self.spec, self.spec.actions.outputs
        if spec.kind == "actor_critic":
            self.heads = [mlp(inputs, hidden, width, spec.activation) for width in (outputs, 1)]
            for head, gain in zip(self.heads, (0.01, 1.0), strict=True):
                initialise(head, spec.init, gain)
        elif spec.kind == "q" and spec.duelling:
            trunk, width = (
                (mlp(inputs, hidden[:-1], hidden[-1], spec.activation), hidden[-1]) if hidden else (None, inputs)
            )
            self.heads = [*([trunk] if trunk else []), nn.Linear(width, 1), nn.Linear(width, outputs)]
        else:
            self.heads = [mlp(inputs, hidden, (1 + (spec.kind == "squashed")) * outputs, spec.activation)]

    def encoded(self, obs: Tensor) -> Tensor:
        """Return what the heads see of observations (N, ...)."""
        if self.features is None:
            return obs.reshape(len(obs), -1)
        pixels = obs.float() / 255
        return self.features(pixels.permute(0, 3, 1, 2) if self.channels_last else pixels)

    def outputs(self, obs: Tensor) -> Tensor:
        """Return logits or means (N, outputs) of an actor-critic."""
        return self.own(obs)[0] if self.own is not None else self.heads[0](self.encoded(obs))

    def values(self, obs: Tensor) -> Tensor:
        """Return values (N,) of an actor-critic."""
        return self.own(obs)[1].reshape(-1) if self.own is not None else self.heads[1](self.encoded(obs)).squeeze(1)

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and values of an actor-critic."""
        if self.own is not None:
            outputs, values = self.own(obs)
            return outputs, values.reshape(-1)
        seen = self.encoded(obs)
        return self.heads[0](seen), self.heads[1](seen).squeeze(1)

    def q_values(self, obs: Tensor) -> Tensor:
        """Return Q(s, a) for all actions, (N, n)."""
        if self.own is not None:
            return self.own(obs)
        seen = self.encoded(obs)
        if not self.spec.duelling:
            return self.heads[0](seen)
        if len(self.heads) == 3:
            act = {"tanh": torch.tanh, "relu": torch.relu}[self.spec.activation]
            seen = act(self.heads[0](seen))
        value, advantage = self.heads[-2](seen), self.heads[-1](seen)
        # Wang et al., 2016, "Dueling network architectures", equation 9.
        return value + advantage - advantage.mean(1, keepdim=True)

    def mean_and_log_std(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what SAC's actor draws from, before the squashing."""
        found = self.own(obs) if self.own is not None else self.heads[0](self.encoded(obs))
        mean, log_std = found.chunk(2, dim=1)
        return mean, log_std.clamp(-20, 2)


def log_probabilities(network: Network, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of actions, and entropies, each (N,), of the distribution that fits the actions."""
    kind = network.spec.actions.kind
    if kind == "box":
        log_std = network.log_std
        assert log_std is not None
        logp = (-0.5 * ((actions - outputs) / log_std.exp()).square() - log_std - 0.5 * LOG_2PI).sum(1)
        return logp, (0.5 + 0.5 * LOG_2PI + log_std).sum().expand(len(outputs))
    parts = [outputs] if kind == "discrete" else list(outputs.split(list(network.spec.actions.sizes), 1))
    columns = [actions] if kind == "discrete" else list(actions.unbind(1))
    logp, entropy = 0.0, 0.0
    for part, column in zip(parts, columns, strict=True):
        logs = functional.log_softmax(part, 1)
        logp = logp + logs.gather(1, column[:, None])[:, 0]
        entropy = entropy - (logs.exp() * logs).sum(1)
    return logp, entropy


def divergence(network: Network, old: Tensor, new: Tensor, old_log_std: Tensor) -> Tensor:
    """Return the mean KL divergence of new outputs from old ones."""
    kind = network.spec.actions.kind
    if kind == "box":
        log_std = network.log_std
        assert log_std is not None
        ratio = (old_log_std - log_std).exp().square()
        distance = ((old - new) / log_std.exp()).square()
        return 0.5 * (ratio + distance - 1 - ratio.log()).sum(1).mean()
    sizes = [old.shape[1]] if kind == "discrete" else list(network.spec.actions.sizes)
    total = 0.0
    for a, b in zip(old.split(sizes, 1), new.split(sizes, 1), strict=True):
        before, after = functional.log_softmax(a, 1), functional.log_softmax(b, 1)
        total = total + (before.exp() * (before - after)).sum(1).mean()
    return total


class TorchPolicy:
    """A policy whose network is evaluated by torch, on a CPU."""

    def __init__(self, spec: NetSpec) -> None:
        torch.set_num_threads(1)
        self.spec, self.network = spec, Network(spec)

    def load(self, vector: Array) -> None:
        assign(vector, self.network.parameters)

    def act(self, obs: Array, rng: np.random.Generator, epsilon: float = 0.0) -> tuple[Array, Array, Array]:
        with torch.no_grad():
            seen = torch.from_numpy(np.array(obs))
            if self.spec.kind == "q":
                q = self.network.q_values(seen).numpy()
                return *explored(q, rng, epsilon), q.max(1)
            outputs, values = self.network.both(seen)
            log_std = None if self.network.log_std is None else self.network.log_std.numpy()
            return *drawn(self.spec.actions, outputs.numpy(), log_std, rng), values.numpy()

    def best(self, obs: Array) -> Array:
        with torch.no_grad():
            seen = torch.from_numpy(np.array(obs))
            outputs = self.network.q_values(seen) if self.spec.kind == "q" else self.network.outputs(seen)
            return most_probable(self.spec.actions, outputs.numpy())

    def values(self, obs: Array) -> Array:
        with torch.no_grad():
            seen = torch.from_numpy(np.array(obs))
            is_q = self.spec.kind == "q"
            found = self.network.q_values(seen).max(1).values if is_q else self.network.values(seen)
            return np.asarray(found.numpy())
