"""One step of an optimiser: device, gradients of several learners, clipping; and its state as numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from mpi_runtime.extend import kind_in_torch
from mpi_runtime.rl.parameters import Common
from mpi_runtime.rl.parts.weights import Array, assign, flatten

T = TypeVar("T")


def device_of(wanted: str) -> torch.device:
    """Return the device: "auto" is a GPU if this process has one (`num_gpus` of its task), else the CPU."""
    if wanted == "auto":
        return torch.device(kind_in_torch(torch) or "cpu")
    if wanted.partition(":")[0] not in ("cpu", "gpu", "cuda", "xpu"):
        raise ValueError(f"device={wanted!r} must be 'auto', 'cpu', 'gpu', or a GPU's name in torch, 'cuda' or 'xpu'")
    device = torch.device((kind_in_torch(torch) or "cuda") if wanted == "gpu" else wanted)
    if device.type not in ("cpu", kind_in_torch(torch)):
        raise ValueError(f"device={wanted!r}: this process sees no GPU. A task sees those that it asks for: num_gpus=1")
    return device


def begin(parameters: Common) -> torch.device:
    """Seed torch, set the number of its threads, and return the device: the beginning of each algorithm's `setup`."""
    torch.manual_seed(parameters.seed)
    torch.set_num_threads(parameters.threads)
    return device_of(parameters.device)


def adam(parameters: Sequence[Tensor], rate: float, eps: float) -> Optimizer:
    """Make Adam in one fused kernel: half the overhead of the default with small networks."""
    return torch.optim.Adam(list(parameters), lr=rate, eps=eps, fused=True)


def step(
    optimiser: Optimizer, parameters: Sequence[Tensor], loss: Tensor, rate: float, norm: float | None, group: str = ""
) -> None:
    """Make a step down the gradient of a loss.

    `rate` is the learning rate. `norm` is the largest norm of the gradient, which is scaled down to it; None: any. The
    members of a `group` of `util.collective` average their gradients.
    """
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    descend(optimiser, parameters, rate, norm, group)


def descend(
    optimiser: Optimizer, parameters: Sequence[Tensor], rate: float, norm: float | None, group: str = ""
) -> None:
    """Make a step down the gradients that the parameters have."""
    if group:
        average(parameters, group)
    if norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, norm, foreach=True)
    for each in optimiser.param_groups:
        each["lr"] = rate
    optimiser.step()


def average(parameters: Sequence[Tensor], group: str) -> None:
    """Replace gradients by their means over a group of `util.collective`."""
    from mpi_runtime.util import collective  # not at the top: a single learner needs none

    flat = torch.cat([one.grad.reshape(-1) for one in parameters])
    total = np.array(flat.cpu().numpy())
    collective.allreduce(total, group_name=group)
    mean = torch.from_numpy(total).to(flat.device) / collective.get_collective_group_size(group)
    for one, part in zip(parameters, mean.split([one.numel() for one in parameters]), strict=True):
        one.grad.copy_(part.view_as(one))


def begin_equal(parameters: Sequence[Tensor], group: str) -> None:
    """Copy the weights of rank 0 of a group of `util.collective` to its other members."""
    from mpi_runtime.util import collective  # not at the top: a single learner needs none

    vector = flatten(parameters)
    collective.broadcast(vector, 0, group_name=group)
    assign(vector, parameters)


def tensors(array: Array, device: torch.device) -> Tensor:
    """Return an array as a tensor on a device. Arrays of the store are read-only, so it is a copy."""
    return torch.from_numpy(np.array(array)).to(device)


def to_numpy(state: object) -> object:
    """Return the state of an optimiser or a module with numpy arrays for tensors, to be pickled without torch."""
    return _converted(state, torch.Tensor, lambda tensor: tensor.detach().cpu().numpy().copy())


def from_numpy(state: object) -> object:
    """Undo `to_numpy`."""
    return _converted(state, np.ndarray, lambda array: torch.from_numpy(array.copy()))


def state_of(thing: object) -> object:
    """Return the state of a network, an optimiser, a generator, or several, as numpy arrays; of others the value."""
    if isinstance(thing, torch.optim.Optimizer):
        return to_numpy(thing.state_dict())
    if isinstance(thing, torch.Generator):
        return thing.get_state().numpy().copy()
    if isinstance(thing, torch.Tensor) or hasattr(thing, "parameters"):
        return flatten([thing] if isinstance(thing, torch.Tensor) else thing.parameters)
    return [state_of(one) for one in thing] if isinstance(thing, list) else thing


def restored(thing: Any, state: Any) -> Any:
    """Return the thing with a state of `state_of`: the same object, or for plain values the state."""
    if isinstance(thing, torch.optim.Optimizer):
        thing.load_state_dict(from_numpy(state))
    elif isinstance(thing, torch.Generator):
        thing.set_state(torch.from_numpy(state.copy()))
    elif isinstance(thing, torch.Tensor) or hasattr(thing, "parameters"):
        assign(state, [thing] if isinstance(thing, torch.Tensor) else thing.parameters)
    elif isinstance(thing, list):
        return [restored(one, own) for one, own in zip(thing, state, strict=True)]
    else:
        return state
    return thing


def _converted(state: object, kind: type[T], convert: Callable[[T], object]) -> object:
    if isinstance(state, kind):
        return convert(state)
    if isinstance(state, dict):
        return {key: _converted(value, kind, convert) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_converted(value, kind, convert) for value in state)
    return state
