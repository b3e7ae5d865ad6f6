"""Environments: names and factories, N of them stepped together, adapters and wrappers.

A sampler steps its environments in a loop: for environments of microseconds this is the fastest way there is on one
core, ten times as fast as `gymnasium.vector.AsyncVectorEnv`. Parallel work is the samplers' part.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mpi_runtime.core import published
from mpi_runtime.errors.optional import load
from mpi_runtime.rl.parts.spaces import Actions, Observation, Observations, actions_of, observations_of
from mpi_runtime.rl.parts.weights import Array

Env = Any
"""An environment of gymnasium, or another object with its methods. Algorithms also take a class or a function."""
EnvConfig = dict[str, Any]
"""The configuration of an environment."""
_registered: dict[str, Callable[..., Env]] = {}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class EnvError(RuntimeError):
    """An environment has raised an error, or has returned something that is not a number. The message names it."""


def register_env(name: str, creator: Callable[..., Env]) -> None:
    """Register a function that makes an environment, under a name for algorithms, the command line and `Tuner`.

    Args:
        name: the name; it goes before ids of gymnasium.
        creator: a function or a class. It is called with the configuration (a dictionary) if it takes an argument.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(creator):
        raise TypeError(f"register_env({name!r}): {creator!r} cannot be called")
    _registered[name] = creator


def registered() -> dict[str, Callable[..., Env]]:
    """Return the functions of `register_env` in this process, by name."""
    return dict(_registered)


@dataclass(frozen=True)
class Maker:
    """Makes the environments of a sampler: a name of gymnasium, a function, or an environment to copy."""

    target: Env | str
    config: EnvConfig = field(default_factory=dict)
    vectorise: bool = False
    """Whether to ask gymnasium for the environment's own vector version."""

    def one(self, **more: object) -> Env:
        """Make an environment; `more` are arguments of `gymnasium.make`, such as `render_mode`."""
        if isinstance(self.target, str):
            gymnasium = load(f"the environment {self.target!r}", "gymnasium")
            try:
                return gymnasium.make(self.target, **self.config, **more)
            except gymnasium.error.UnregisteredEnv as error:
                raise ValueError(
                    f"there is no environment {self.target!r}: {error}. Registered ones: {sorted(_registered)}"
                ) from None
        if hasattr(self.target, "step") and not inspect.isclass(self.target):
            return copy.deepcopy(self.target)
        try:
            known = list(inspect.signature(self.target).parameters.values())
        except (TypeError, ValueError):
            known = []
        keywords = more if any(one.name == "render_mode" for one in known) else {}
        plain = [one for one in known if one.kind in _POSITIONAL and one.name != "render_mode"]
        wants_config = plain and (plain[0].default is plain[0].empty or plain[0].name in ("config", "env_config"))
        return self.target(self.config, **keywords) if wants_config else self.target(**keywords)

    def many(self, seeds: Sequence[int], restarts: int = 0) -> Loop | Vector:
        """Make an environment for each seed. Up to `restarts` of them are replaced when they fail."""
        if self.vectorise:
            import gymnasium  # not at the top: it is optional

            made = gymnasium.make_vec(
                self.target, num_envs=len(seeds), vectorization_mode="vector_entry_point", **self.config
            )
            return Vector(made, seeds)
        first = self.one()
        if hasattr(first, "num_envs") and hasattr(first, "single_action_space"):
            return Vector(first, seeds)
        return Loop([first, *(self.one() for _ in seeds[1:])], seeds, self, restarts)

    @property
    def name(self) -> str:
        """A name for files and tables."""
        if isinstance(self.target, str):
            return self.target
        spec = getattr(self.target, "spec", None)
        return str(getattr(spec, "id", None) or getattr(self.target, "__name__", type(self.target).__name__))


def maker(env: Env | str, config: object = None, vectorise: bool = False) -> Maker:
    """Return what makes this environment: a name, an id of gymnasium, a class, a function or an environment."""
    if isinstance(env, Maker):
        return env
    if config is not None and not isinstance(config, dict):
        raise TypeError(f"env_config must be a dictionary, not {config!r}")
    if isinstance(env, str):
        return Maker(_registered.get(env, env), dict(config or {}), vectorise)
    if not callable(env) and not hasattr(env, "step"):
        raise TypeError(
            f"env={env!r} must be an id of gymnasium, a registered name, a class, a function or an environment"
        )
    return Maker(env, dict(config or {}), vectorise)


def spaces(env: Env) -> tuple[Observations, Actions]:
    """Return the spaces of an environment, or of one in a vector environment."""
    for name in ("observation_space", "action_space"):
        if not hasattr(env, name):
            raise EnvError(f"{type(env).__name__} has no {name}: an environment needs one, as in gymnasium")
    single = hasattr(env, "single_observation_space")
    found = env.single_observation_space if single else env.observation_space
    return observations_of(found), actions_of(env.single_action_space if single else env.action_space)


class Step(NamedTuple):
    """The answer of N environments to N actions."""

    obs: Array
    """(N, ...), encoded: after the end of an episode the first observation of the next one."""
    rewards: Array
    terminated: Array
    truncated: Array
    void: Array
    final: dict[int, Array]
    """The last observation of the episodes that have ended."""


class Loop:
    """N environments, stepped one after another."""

    def __init__(self, envs: list[Env], seeds: Sequence[int], maker: Maker, restarts: int = 0) -> None:
        self.envs, self.seeds, self.maker, self.restarts = envs, list(seeds), maker, restarts
        self.running: Sequence[int] = range(len(envs))
        """The environments that are stepped."""
        self.stops_at_ends = False
        """Whether an environment is not stepped after the end of its episode. Else a new episode begins."""
        self.failures = 0
        """The number of environments that were replaced so far."""
        self.observations, self.actions = spaces(envs[0])
        count = len(envs)
        self.rewards = np.zeros(count, np.float32)
        self.terminated, self.truncated, self.void = (np.zeros(count, bool) for _ in range(3))
        self.obs = np.zeros((count, *self.observations.shape), self.observations.dtype)
        self.is_plain = self.observations.kind in ("box", "image")

    def reset(self, count: int | None = None) -> Array:
        """Seed and reset the first `count` environments, or all. Return the observations."""
        self.running = range(len(self.envs) if count is None else count)
        for i in self.running:
            self.obs[i] = self._reset(i, self.envs[i], self.seeds[i])
        return self.obs

    def step(self, actions: Array) -> Step:
        """Step the environments, and reset those whose episodes end. The arrays are overwritten by the next step."""
        final: dict[int, Array] = {}
        if self.failures:  # only then a step was void
            self.void[:] = False
        is_discrete = self.actions.kind == "discrete"
        obs, rewards, terminated, truncated = self.obs, self.rewards, self.terminated, self.truncated
        for i in self.running:
            env = self.envs[i]
            action = int(actions[i]) if is_discrete else actions[i]
            try:
                seen, rewards[i], is_terminated, is_truncated, _ = env.step(action)
                terminated[i], truncated[i] = is_terminated, is_truncated
            except Exception as error:
                obs[i] = self._replaced(i, "step", error)
                rewards[i], terminated[i], truncated[i], self.void[i] = 0.0, False, False, True
                continue
            if is_terminated or is_truncated:
                final[i] = np.array(self._encoded(i, seen))
                if not self.stops_at_ends:
                    obs[i] = self._reset(i, env, None)
            elif self.is_plain and getattr(seen, "shape", None) == self.observations.shape:
                try:
                    obs[i] = seen
                except ValueError:
                    obs[i] = self._encoded(i, seen)  # raises, with a name
            else:
                obs[i] = self._encoded(i, seen)
        if self.stops_at_ends and (final or self.void.any()):
            self.running = [i for i in self.running if i not in final and not self.void[i]]
        return Step(obs, rewards, terminated, truncated, self.void, final)

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            if hasattr(env, "close"):
                env.close()

    def _reset(self, i: int, env: Env, seed: int | None) -> Array:
        try:
            found = env.reset(seed=seed) if seed is not None else env.reset()
        except Exception as error:
            return self._replaced(i, "reset", error)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            raise EnvError(f"{self._named(i)}: reset() must return (observation, info), as in gymnasium. {ADAPTER}")
        return self._encoded(i, found[0])

    def _encoded(self, i: int, observation: Observation) -> Array:
        try:
            return self.observations.encode(observation)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise EnvError(
                f"{self._named(i)} returned an observation that does not fit its observation_space "
                f"({self.observations.kind} of shape {self.observations.shape}): {error}"
            ) from error

    def _replaced(self, i: int, what: str, error: Exception) -> Array:
        """Put a new environment in the place of one that has failed, and return its first observation."""
        inside = error.__traceback__.tb_next if error.__traceback__ else None
        if inside is None:  # the error is that of our own line: the answer has another form
            raise EnvError(f"{self._named(i)}: {what}() does not answer as in gymnasium ({error}). {ADAPTER}") from None
        if self.failures >= self.restarts:
            trace = "".join(traceback.format_exception(type(error), error, inside))
            raise EnvError(f"{self._named(i)} raised an error in {what}():\n{trace}") from None
        self.failures += 1
        self.seeds[i] = int(np.random.SeedSequence([self.seeds[i], self.failures]).generate_state(1)[0]) & 0x7FFFFFFF
        self.envs[i] = self.maker.one()
        return self._reset(i, self.envs[i], self.seeds[i])

    def _named(self, i: int) -> str:
        return f"environment {i} of {len(self.envs)} ({type(self.envs[i]).__name__}, seed {self.seeds[i]})"


ADAPTER = (
    "step() must return (observation, reward, terminated, truncated, info). For an environment of the old gym, "
    "pass lambda: mpi_runtime.rl.from_old_gym(make())"
)


class Vector:
    """A `gymnasium.vector.VectorEnv`, whatever its way to reset."""

    def __init__(self, env: Env, seeds: Sequence[int]) -> None:
        self.env, self.seeds = env, list(seeds)
        self.observations, self.actions = spaces(env)
        if self.observations.parts:
            raise EnvError("vector environments with dictionary observations are not supported: pass a single one")
        if env.num_envs != len(self.seeds):
            raise EnvError(f"the vector environment has num_envs={env.num_envs}: pass num_envs={env.num_envs} here too")
        mode = str(getattr(env, "metadata", {}).get("autoreset_mode", "NextStep"))
        if "disabled" in mode.lower():
            raise EnvError("the vector environment does not reset itself: make it with autoreset_mode=NEXT_STEP")
        self.is_next_step = "next" in mode.lower()
        """Whether an environment is reset by the step after the end: then this step is not a transition."""
        self.ended = np.zeros(len(self.seeds), bool)

    def reset(self) -> Array:
        """Seed and reset all environments, and return their observations."""
        # One number, of which gymnasium derives the others: environments that compute as one take no list.
        obs, _ = self.env.reset(seed=self.seeds[0])
        self.ended[:] = False
        return self._encoded(obs)

    def step(self, actions: Array) -> Step:
        """Step all environments."""
        obs, rewards, terminated, truncated, info = self.env.step(actions)
        rows = self._encoded(obs)
        # Before gymnasium 1.0 there was no mode: environments were reset at once, and info had another name.
        finals = info.get("final_obs", info.get("final_observation"))
        if finals is not None:
            self.is_next_step = False
        void = self.ended.copy() if self.is_next_step else np.zeros_like(self.ended)
        terminated, truncated = np.asarray(terminated, bool) & ~void, np.asarray(truncated, bool) & ~void
        ended = terminated | truncated
        final = {}
        for i in np.flatnonzero(ended):
            if finals is None and not self.is_next_step:
                raise EnvError("the vector environment resets at once, and its info has no final_obs, as in gymnasium")
            last = rows[i] if self.is_next_step else self.observations.encode(finals[i])
            final[int(i)] = np.array(last)
        self.ended = ended
        return Step(rows, np.asarray(rewards, np.float32), terminated, truncated, void, final)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _encoded(self, obs: Observation) -> Array:
        if self.observations.kind in ("box", "image"):
            return np.array(obs, self.observations.dtype)
        return np.stack([self.observations.encode(one) for one in obs])


class from_old_gym:  # used like a function
    """An environment of the old gym (before 0.26) as one of gymnasium: 4-tuples with `done`, `reset()` without info."""

    def __init__(self, env: Env) -> None:
        if not hasattr(env, "observation_space"):
            raise TypeError(f"env must be an environment of the old gym, not {env!r}")
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.render_mode = None

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Observation, dict[str, object]]:
        """Reset the environment, and seed it if it can be seeded."""
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        return self.env.reset(), {}

    def step(self, action: object) -> tuple[Observation, float, bool, bool, dict[str, object]]:
        """Step the environment; a time limit that it reports is a truncation."""
        observation, reward, done, info = self.env.step(action)
        cut = bool(info.get("TimeLimit.truncated", False))
        return observation, float(reward), bool(done) and not cut, cut, info

    def render(self) -> object:
        """Render the environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        if hasattr(self.env, "close"):
            self.env.close()


@published("mpi_runtime.rl")
def atari(env: str, *, render_mode: str | None = None, episodic_life: bool = True, clip_reward: bool = True) -> Env:
    """Make an Atari game as DQN saw it: Mnih et al., 2015, "Human-level control", methods.

    Frames of 84 x 84, the maximum of two, each action for four frames, up to 30 no-ops at the start, the last four
    frames stacked.

    Args:
        env: an id, such as "ALE/Pong-v5".
        render_mode: as in `gymnasium.make`.
        episodic_life: whether a lost life ends an episode. Only for training.
        clip_reward: whether rewards are -1, 0 or 1. Only for training.

    Raises:
        ImportError: ale-py is missing.
    """
    ale_py, gymnasium = load("rl.atari", "ale_py", "ale-py"), load("rl.atari", "gymnasium")
    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else each game greets on standard error
    made = gymnasium.make(env, render_mode=render_mode, frameskip=1)
    made = gymnasium.wrappers.AtariPreprocessing(made, terminal_on_life_loss=False)
    if episodic_life:
        made = EpisodicLife(made)
    if clip_reward:
        made = gymnasium.wrappers.TransformReward(made, lambda reward: float(np.sign(reward)))
    return gymnasium.wrappers.FrameStackObservation(made, 4)


def EpisodicLife(env: Env) -> Env:  # used like a class
    """Wrap an Atari game so that a lost life ends an episode; the game itself is reset only when it is over."""
    import gymnasium

    class Wrapper(gymnasium.Wrapper):  # type: ignore[misc]
        lives = 0
        is_over = True

        def reset(self, **keywords: object) -> Any:
            if self.is_over or keywords.get("seed") is not None:
                found = self.env.reset(**keywords)
            else:
                observation, _, terminated, truncated, info = self.env.step(0)
                found = self.env.reset() if terminated or truncated else (observation, info)
            self.is_over, self.lives = False, self.env.unwrapped.ale.lives()
            return found

        def step(self, action: object) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            self.is_over = terminated or truncated
            lives = self.env.unwrapped.ale.lives()
            lost, self.lives = 0 < lives < self.lives, lives
            return observation, reward, terminated or lost, truncated, info

    return Wrapper(env)
