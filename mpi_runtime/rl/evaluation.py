"""Episodes of a policy: their returns, a window, a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpi_runtime.rl.algorithm import Algorithm
from mpi_runtime.rl.envs import Env, EnvConfig, maker
from mpi_runtime.rl.parts.weights import Array

SECONDS_PER_FRAME = 1 / 30
"""In videos of environments that do not name their rate."""
GIF_RATE = 25
"""Frames per second in a GIF, about."""


@dataclass(frozen=True)
class Evaluation:
    """The returns of some episodes."""

    returns: tuple[float, ...]
    """Undiscounted."""
    lengths: tuple[int, ...]
    """Steps."""

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        """The standard deviation of the returns."""
        return float(np.std(self.returns))

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.deviation:.1f} over {len(self.returns)} episodes"

    def __iter__(self) -> Iterator[float]:
        """Mean and deviation, as `evaluate_policy` of Stable-Baselines3 returns them."""
        return iter((self.mean, self.deviation))


def evaluate(
    policy: Algorithm,
    env: Env = None,
    episodes: int = 10,
    *,
    deterministic: bool = True,
    seed: int = 10_000,
    env_config: EnvConfig | None = None,
    each: Callable[[int, float], None] | None = None,
    video: str = "",
    render: bool = False,
    steps: int | None = None,
) -> Evaluation:
    """Run whole episodes with a policy. Normalisers are frozen, and rewards are those of the environment.

    Args:
        policy: an algorithm.
        env: as for an algorithm; None: that of the algorithm.
        episodes: how many.
        deterministic: whether actions are the most probable ones.
        seed: of the first episode; the others have the next ones.
        env_config: the configuration of the environment.
        each: called with number and return of each episode when it has ended.
        video: a file (.gif, or .mp4 with imageio-ffmpeg) for all frames. Needs imageio.
        render: whether to show the episodes in a window.
        steps: the number of steps after which no further episode begins; None: any.

    Raises:
        TypeError: policy is not an algorithm.
        ValueError: the environment does not end its episodes within a million steps, cannot be rendered for a video, or
            `episodes` or `seed` is out of bounds.
    """
    if not hasattr(policy, "maker"):
        raise TypeError(f"policy must be an algorithm, such as rl.PPO(env), not {policy!r}")
    if episodes < 1 or seed < 0:
        raise ValueError(f"episodes must be 1 or more and seed 0 or more, not {episodes} and {seed}")
    made = policy.maker if env is None else maker(env, env_config)
    mode = "human" if render else "rgb_array" if video else None
    if mode and not isinstance(made.target, str) and not hasattr(made.target, "render"):
        raise ValueError(f"{made.name} has no render(): it can be neither shown nor recorded")
    one = made.one(**({"render_mode": mode} if mode else {}))
    returns: list[float] = []
    lengths: list[int] = []
    frames: list[Array] = []
    try:
        for number in range(episodes):
            observation, _ = one.reset(seed=seed + number)
            total, length, ended = 0.0, 0, False
            while not ended:
                if video:
                    frames.append(one.render())
                action, _ = policy.predict(observation, deterministic=deterministic)
                observation, reward, terminated, truncated, _ = one.step(_as_env(action))
                total, length, ended = total + float(reward), length + 1, terminated or truncated
                if length > 1_000_000:
                    raise ValueError("an episode has more than a million steps: give the environment a time limit")
            returns.append(total)
            lengths.append(length)
            if each is not None:
                each(number, total)
            if steps is not None and sum(lengths) >= steps:
                break
    finally:
        if hasattr(one, "close"):
            one.close()
    if video:
        write_video(video, frames, getattr(one, "metadata", {}).get("render_fps", round(1 / SECONDS_PER_FRAME)))
    return Evaluation(tuple(returns), tuple(lengths))


def write_video(path: str, frames: list[Array], rate: float) -> None:
    """Write frames, (height, width, 3) of uint8, at a rate of frames per second."""
    try:
        import imageio.v3  # not at the top: it is optional
    except ImportError as error:
        raise ImportError("a video needs imageio: install the extra `rl` (and imageio-ffmpeg for mp4)") from error
    Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)
    if path.endswith(".gif"):
        every = max(1, round(rate / GIF_RATE))  # a frame takes tens of milliseconds to encode
        imageio.v3.imwrite(Path(path).expanduser(), np.stack(frames[::every]), duration=1000 * every / rate, loop=0)
    else:
        imageio.v3.imwrite(Path(path).expanduser(), np.stack(frames), fps=rate)


def _as_env(action: Any) -> Any:
    return int(action) if np.ndim(action) == 0 and np.issubdtype(np.asarray(action).dtype, np.integer) else action
