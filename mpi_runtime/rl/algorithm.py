"""What all algorithms share: spaces, samplers, counting, results, and a checkpoint that has everything.

An algorithm is a subclass with parameters, `setup`, `iterate` (one iteration: sample, then learn) and its own state.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import cloudpickle
import numpy as np

from mpi_runtime.files.writing import replace_file
from mpi_runtime.rl.checkpoints import FORMAT, CheckpointError, Content, Learned, State, read
from mpi_runtime.rl.envs import Env, Maker, maker, spaces
from mpi_runtime.rl.parameters import Common, Given, checked
from mpi_runtime.rl.parts.episodes import Episodes, Fragment
from mpi_runtime.rl.parts.nets_numpy import NetSpec
from mpi_runtime.rl.parts.normalise import Moments
from mpi_runtime.rl.parts.spaces import Observation, differences
from mpi_runtime.rl.parts.weights import Array, flatten
from mpi_runtime.rl.policies import Policy, policy_of
from mpi_runtime.rl.sampler import Sampler, SamplerSpec, Weights
from mpi_runtime.rl.samplers import Samplers

Result = dict[str, Any]
"""The results of an iteration, with RLlib's keys."""
Self = TypeVar("Self", bound="Algorithm")
OTHERS = {
    "discrete": "PPO, A2C, A3C, DQN, ApeX and ES",
    "multi_discrete": "PPO, A2C, A3C and ES",
    "box": "PPO, A2C, A3C, SAC and ES",
}
"""The algorithms that fit each kind of actions."""


class Algorithm:
    """A policy, the samplers that try it and the update that improves it."""

    name: ClassVar[str] = ""
    """As the command line and `Tuner` know it."""
    Parameters: ClassVar[type[Common]] = Common
    """The class of its hyper-parameters."""
    fits: ClassVar[tuple[str, ...]] = ("discrete", "multi_discrete", "box")
    """Kinds of actions."""
    kind: ClassVar[str] = "actor_critic"
    """Of the network that samplers evaluate: see `NetSpec`."""
    keeps_next: ClassVar[bool] = False
    """Whether fragments have the next observations, as replay needs."""
    sampler: ClassVar[type[Sampler]] = Sampler
    """The class of its samplers."""
    saves: ClassVar[tuple[str, ...]] = ()
    """Attributes that a checkpoint has: networks, optimisers and generators of torch, replay, numbers."""

    def __init__(self, env: Env, *, env_config: object = None, **parameters: object) -> None:
        """Make an algorithm for an environment.

        Args:
            env: an id of gymnasium, a name of `register_env`, a class, a function that makes an environment (with a
                configuration, if it takes one), or an environment, which is copied.
            env_config: the configuration of the environment, a dictionary.
            parameters: hyper-parameters, by the names of this class's `Parameters`, of Stable-Baselines3 or of RLlib.

        Raises:
            TypeError: there is no hyper-parameter of this name.
            ValueError: a value is out of bounds, the environment's spaces do not fit, or the job is too small.
        """
        self.given = dict(parameters)
        self.network: Any = None
        """Of the samplers, if it is one of torch."""
        self.parameters: Any = checked(self.Parameters, self._translated(parameters), self.name)
        self.maker: Maker = maker(env, env_config, self.parameters.vectorize)
        one = self.maker.one()
        self.observations, self.actions = spaces(one)
        self._takes_many = hasattr(one, "num_envs") and hasattr(one, "single_action_space")
        if hasattr(one, "close"):
            one.close()
        if self.actions.kind not in self.fits:
            raise ValueError(
                f"{self.name} does not fit {self.actions.kind} actions ({self.maker.name}). "
                f"These algorithms do: {OTHERS[self.actions.kind]}"
            )
        self.rng = np.random.default_rng([self.parameters.seed, 1])
        self.episodes = Episodes()
        self.iteration = self.timesteps = self.goal = self.version = self.lag = 0
        self.seconds = self.sample_seconds = self.learn_seconds = 0.0
        self.moments = Moments.zeros(self.observations.shape), Moments.zeros(())
        self._policy: Policy | None = None
        self.setup()
        self.samplers = Samplers(self.sampler_spec(), self.sampler)

    # What an algorithm defines.

    def setup(self) -> None:
        """Make networks and optimisers."""
        raise NotImplementedError

    def iterate(self) -> dict[str, float]:
        """Sample, learn, and return figures about the update."""
        raise NotImplementedError

    def vector(self) -> Array:
        """Return the weights that samplers and `predict` use."""
        return flatten(self.network.parameters)

    def learner_state(self) -> Learned:
        """Return the state of networks, optimisers, generators and replay, without tensors."""
        from mpi_runtime.rl import learner  # not at the top: it loads torch, which ES does not need

        return {name: learner.state_of(getattr(self, name)) for name in self.saves}

    def set_learner_state(self, state: Learned) -> None:
        """Continue from such a state."""
        from mpi_runtime.rl import learner

        for name in self.saves:
            setattr(self, name, learner.restored(getattr(self, name), state[name]))

    def net_spec(self) -> NetSpec:
        """Return what the network of the samplers is made from."""
        p = self.parameters
        duelling, init = getattr(p, "duelling", False), getattr(p, "init", "orthogonal")
        sizes = (self.observations, self.actions, p.hidden)
        return NetSpec(self.kind, *sizes, p.activation, duelling, init, p.network)

    def _translated(self, parameters: Given) -> Given:
        """Translate names of other libraries that need more than another name."""
        return parameters

    # What algorithms use.

    def sampler_spec(self) -> SamplerSpec:
        """Return what samplers are made from."""
        return SamplerSpec(self.maker, self.net_spec(), SimpleNamespace(**vars(self.parameters)), self.keeps_next)

    def weights(self, *epsilons: float) -> Weights:
        """Return what samplers need for the next fragment."""
        self.version += 1
        return Weights(self.vector(), self.version, epsilons or (0.0,), *self.moments)

    def rounds(self) -> Iterator[None]:
        """Repeat a loop until `steps_per_iteration` steps are made, or `learn` reaches its goal."""
        end = self.timesteps + self.parameters.steps_per_iteration
        if self.timesteps < self.goal:
            end = min(end, self.goal)
        while self.timesteps < end:
            yield

    def sample(self, steps: int, *epsilons: float) -> Fragment:
        """Make a fragment with the current weights, and count it."""
        started = time.perf_counter()
        fragment = self.samplers.sample(self.weights(*epsilons), steps)
        self.sample_seconds += time.perf_counter() - started
        self.lag = self.version - fragment.version
        self.count(fragment)
        return fragment

    def count(self, fragment: Fragment) -> None:
        """Count the steps and episodes of a fragment, and merge its moments."""
        self.timesteps += fragment.steps - int(fragment.void.sum())
        self.episodes.add(fragment.returns, fragment.lengths)
        merged = fragment.moments
        if merged is not None:
            self.moments = self.moments[0].merged(merged[0]), self.moments[1].merged(merged[1])

    @property
    def remaining(self) -> float:
        """The part of the training that remains, from 1 to 0; 1 without a goal."""
        return max(0.0, 1.0 - self.timesteps / self.goal) if self.goal else 1.0

    # What users call.

    def train(self) -> Result:
        """Run one iteration, and return its results with RLlib's keys.

        `training_iteration`, `timesteps_total`, `episode_reward_mean` (also `_min`, `_max`; of the last 100 episodes),
        `episode_len_mean`, `time_this_iter_s`, `time_total_s`, `sample_time_s` and `learn_time_s` of this iteration,
        and `info` with the figures of the update.
        """
        started, before = time.perf_counter(), (self.sample_seconds, self.timesteps)
        info = self.iterate()
        if self.parameters.sample_ahead:
            info["lag"] = float(self.lag)
        elapsed = time.perf_counter() - started
        self._policy = None
        self.iteration += 1
        self.seconds += elapsed
        sampling, steps = self.sample_seconds - before[0], self.timesteps - before[1]
        self.learn_seconds += elapsed - sampling
        return {
            "training_iteration": self.iteration,
            "timesteps_total": self.timesteps,
            "timesteps_this_iter": steps,
            **self.episodes.summary(),
            "time_this_iter_s": elapsed,
            "time_total_s": self.seconds,
            "sample_time_s": sampling,
            "learn_time_s": elapsed - sampling,
            "steps_per_s": steps / elapsed,
            "sampler_restarts": self.samplers.restarts,
            "info": info,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }

    def learn(
        self: Self,
        total_timesteps: int,
        *,
        callback: Callable[[Result], object] | None = None,
        resume: bool = False,
        verbose: int = 0,
    ) -> Self:
        """Train for a number of steps of environments, and return the algorithm.

        Args:
            total_timesteps: how many; the last iteration is finished.
            callback: called with the result of each iteration. If it returns False, the training ends.
            resume: whether steps of the past count: `load(path).learn(100_000, resume=True)` continues an interrupted
                `learn(100_000)` as if it had not been interrupted.
            verbose: 1 prints a line for each iteration.
        """
        if not resume:
            self.goal = self.timesteps + total_timesteps
        elif not self.goal:
            self.goal = total_timesteps
        while self.timesteps < self.goal:
            result = self.train()
            if verbose:
                print(line(result), flush=True)
            if callback is not None and callback(result) is False:
                break
        return self

    def predict(self, observation: Observation, state: Any = None, deterministic: bool = False) -> tuple[Any, Any]:
        """Return the action for an observation, or for a batch of them, and `state` unchanged, as Stable-Baselines3."""
        encoded, is_batch = self._batch(observation)
        policy = self.policy()
        if self.parameters.normalize_obs:
            encoded = self.moments[0].normalise(encoded)
        chosen = policy.best(encoded) if deterministic else policy.act(encoded, self.rng, 0.0)[0]
        actions = self.actions.to_env(chosen)
        return (actions if is_batch else actions[0]), state

    def compute_single_action(self, observation: Observation, explore: bool = True) -> Any:
        """Return the action for an observation, as RLlib."""
        return self.predict(observation, deterministic=not explore)[0]

    def policy(self) -> Policy:
        """Return the policy with the current weights."""
        if self._policy is None:
            self._policy = policy_of(self.net_spec())
            self._policy.load(self.vector())
        return self._policy

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a checkpoint with everything that a resume needs, and return its path.

        Weights, optimiser, generators, counters, normalisers, replay, and the environments, if they can be pickled. The
        file is a pickle: load only files that you trust.
        """
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        content: Content = {
            "format": FORMAT,
            "algorithm": self.name,
            "maker": self.maker,
            "parameters": self.given,
            "net": self.net_spec(),
            "state": self.get_state(),
        }
        replace_file(os.fspath(file), cloudpickle.dumps(content))
        return str(file)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], env: Env = None, **changes: object) -> Self:
        """Return the algorithm of a checkpoint, which continues where it was saved.

        Args:
            path: a file that `save` has written.
            env: another environment with the same spaces; None: the same one.
            changes: hyper-parameters that change.

        Raises:
            CheckpointError: it belongs to another algorithm or other spaces.
        """
        content = cls._read(path)
        found = cls(content["maker"] if env is None else env, **{**content["parameters"], **changes})
        found._restore(content, path)
        return found

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same algorithm.

        Raises:
            CheckpointError: it belongs to another algorithm or other spaces.
        """
        self._restore(self._read(path), path)

    def get_state(self) -> State:
        """Return everything that further training depends on."""
        names = ("iteration", "timesteps", "goal", "version", "seconds", "sample_seconds", "learn_seconds", "moments")
        own = {name: getattr(self, name) for name in names}
        return {
            "own": own,
            "episodes": self.episodes,
            "rng": self.rng.bit_generator.state,
            "learner": self.learner_state(),
            "samplers": self.samplers.get_states(),
        }

    def set_state(self, state: State) -> None:
        """Continue from such a state. Environments that cannot be pickled begin with new episodes."""
        for name, value in state["own"].items():
            setattr(self, name, value)
        self.episodes = state["episodes"]
        self.rng.bit_generator.state = state["rng"]
        self.set_learner_state(state["learner"])
        self._policy = None
        self.resumes_episodes = self.samplers.set_states(state["samplers"])

    def stop(self) -> None:
        """End the samplers."""
        self.samplers.stop()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    def _read(cls, path: str | os.PathLike[str]) -> Content:
        content = read(path)
        if content["algorithm"] != cls.name:
            raise CheckpointError(f"{path} is a checkpoint of {content['algorithm']}, not of {cls.name}")
        return content

    def _restore(self, content: Content, path: str | os.PathLike[str]) -> None:
        found = differences(
            ("observations", "actions", "hidden", "activation", "duelling"), self.net_spec(), content["net"]
        )
        if found:
            raise CheckpointError(f"{path} does not fit this algorithm:\n  " + "\n  ".join(found))
        self.set_state(content["state"])

    def _batch(self, observation: Observation) -> tuple[Array, bool]:
        space = self.observations
        if space.kind in ("box", "image"):
            seen = np.asarray(observation, space.dtype)
            if seen.shape == space.shape:
                return seen[None], False
            if seen.shape[1:] == space.shape:
                return seen, True
            raise ValueError(f"an observation has shape {space.shape}, or (N, ...) as a batch; this has {seen.shape}")
        is_batch = space.kind == "discrete" and np.ndim(observation) == 1
        rows = [space.encode(one) for one in (observation if is_batch else [observation])]
        return np.stack(rows), is_batch


def line(result: Result) -> str:
    """Return the result of an iteration as a line."""
    info = ", ".join(f"{key} {value:.3g}" for key, value in result["info"].items())
    share = result["sample_time_s"] / max(1e-9, result["time_this_iter_s"])
    return (
        f"iteration {result['training_iteration']}: {result['timesteps_total']} steps, {result['steps_per_s']:.0f}/s, "
        f"return {result['episode_reward_mean']:.1f}, {share:.0%} sampling; {info}"
    )
