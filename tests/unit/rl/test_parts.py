"""The pure parts beside their definitions, computed the long way."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpi_runtime.rl.parts import nets_numpy
from mpi_runtime.rl.parts.episodes import Episodes, Fragment, joined
from mpi_runtime.rl.parts.normalise import Moments
from mpi_runtime.rl.parts.replay import Prioritised, Ring, SumTree
from mpi_runtime.rl.parts.returns import gae, n_step
from mpi_runtime.rl.parts.schedules import Linear, schedule
from mpi_runtime.rl.parts.spaces import actions_of, observations_of
from mpi_runtime.rl.parts.weights import flatten, views

SEEDS = range(8)


def fragment(rng: np.random.Generator, steps: int = 17, count: int = 3) -> Fragment:
    """A fragment with episodes that end in both ways, some of them in neighbouring steps, and void steps."""
    shape = (steps, count)
    terminated = rng.random(shape) < 0.15
    truncated = ~terminated & (rng.random(shape) < 0.15)
    void = ~terminated & ~truncated & (rng.random(shape) < 0.1)
    floats: list[Any] = [rng.standard_normal(shape).astype(np.float32) for _ in range(4)]
    final = floats[3] * truncated
    rewards = floats[0] * ~void
    obs = rng.standard_normal((*shape, 2)).astype(np.float32)
    last = rng.standard_normal(count).astype(np.float32)
    return Fragment(
        obs, np.zeros(shape, np.int64), rewards, terminated, truncated, void, obs[0], floats[1], floats[2], final, last
    )


def value_after(one: Fragment, t: int, i: int) -> float:
    if one.terminated[t, i]:
        return 0.0
    if one.truncated[t, i]:
        return float(one.final_values[t, i])
    return float(one.values[t + 1, i] if t + 1 < len(one.values) else one.last_values[i])


def delta(one: Fragment, t: int, i: int, gamma: float) -> float:
    if one.void[t, i]:
        return 0.0
    return float(one.rewards[t, i]) + gamma * value_after(one, t, i) - float(one.values[t, i])


@pytest.mark.parametrize("seed", SEEDS)
def test_advantages_are_the_sum_of_their_definition(seed: int) -> None:
    one = fragment(np.random.default_rng(seed))
    gamma, lam = 0.97, 0.9
    advantages, targets = gae(one, gamma, lam)
    for t, i in np.ndindex(*one.rewards.shape):
        total, weight = 0.0, 1.0
        for k in range(t, len(one.rewards)):
            total += weight * delta(one, k, i, gamma)
            weight *= gamma * lam
            if one.ends[k, i]:
                break
        assert advantages[t, i] == pytest.approx(total, abs=1e-5)
    np.testing.assert_allclose(targets, advantages + one.values)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    one = fragment(np.random.default_rng(0), steps=1, count=2)
    one.rewards[:], one.values[:], one.void[:] = 1.0, 0.0, False
    one.terminated[:], one.truncated[:], one.final_values[:] = [[True, False]], [[False, True]], 10.0
    assert gae(one, 0.9, 1.0)[0].tolist() == [[1.0, 10.0]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 3, 40])
def test_n_step_sums_are_those_of_a_loop(seed: int, n: int) -> None:
    one = fragment(np.random.default_rng(seed))
    sums, last, factors = n_step(one.rewards, one.terminated, one.ends, one.void, 0.9, n)
    for t, i in np.ndindex(*one.rewards.shape):
        total, k = 0.0, t
        while True:
            total += 0.9 ** (k - t) * float(one.rewards[k, i])
            if one.ends[k, i] or k - t + 1 == n or k + 1 == len(one.rewards):
                break
            if one.void[k + 1, i]:
                break
            k += 1
        assert sums[t, i] == pytest.approx(total, abs=1e-5)
        assert last[t, i] == k
        assert factors[t, i] == pytest.approx(0.0 if one.terminated[k, i] else 0.9 ** (k - t + 1))


def test_a_ring_keeps_the_last_ones() -> None:
    ring, expected = Ring(7), list[int]()
    rng = np.random.default_rng(0)
    for _ in range(50):
        new = [len(expected) + k for k in range(int(rng.integers(1, 10)))]
        expected += new
        column = np.array(new)
        ring.add({"x": column})
        column[:] = -1  # it was copied
        assert sorted(ring.take(np.arange(ring.size))["x"].tolist()) == expected[-7:]
    assert set(ring.sample(500, rng).tolist()) == set(range(7))


@pytest.mark.parametrize("capacity", [1, 2, 5, 64])
def test_a_sum_tree_finds_what_a_linear_search_finds(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, weights = SumTree(capacity), np.zeros(capacity)
    for _ in range(30):
        places = rng.integers(0, capacity, 4)
        new = rng.random(4) * (rng.random(4) < 0.7)
        for place, weight in zip(places, new, strict=True):
            weights[place] = weight
        tree.set(places, new)
        np.testing.assert_allclose(tree.get(np.arange(capacity)), weights)
        assert tree.total == pytest.approx(weights.sum())
        if weights.sum() > 0:
            sums = rng.random(20) * weights.sum() * (1 - 1e-9)
            linear = [int(np.searchsorted(weights.cumsum(), one, side="right")) for one in sums]
            assert tree.find(sums).tolist() == linear


def test_priorities_are_frequencies_and_weights_undo_them() -> None:
    rng = np.random.default_rng(0)
    replay = Prioritised(4, alpha=1.0)
    replay.add({"x": np.arange(4)}, np.array([1.0, 2.0, 3.0, 4.0]))
    counts = np.zeros(4)
    sums = np.zeros(4)
    for _ in range(2000):
        places, weights = replay.draw(10, 1.0, rng)
        np.add.at(counts, places, 1)
        np.add.at(sums, places, weights)
    np.testing.assert_allclose(counts / counts.sum(), [0.1, 0.2, 0.3, 0.4], atol=0.01)
    np.testing.assert_allclose(sums / sums.sum(), 0.25, atol=0.02)
    replay.add({"x": np.array([9])})
    assert replay.tree.get(np.array([0]))[0] == pytest.approx(4.0, rel=1e-4), "new ones have the highest priority"


def test_moments_merge() -> None:
    rows = np.random.default_rng(0).normal(5.0, 3.0, (100, 2))
    merged = Moments.zeros((2,))
    for piece in np.split(rows, [1, 10, 40]):
        merged = merged.merged(Moments.of(piece))
    np.testing.assert_allclose(merged.mean, rows.mean(0))
    np.testing.assert_allclose(merged.deviation, rows.std(0))
    normal = merged.normalise(rows)
    np.testing.assert_allclose(normal.std(0), 1.0, rtol=1e-3)
    assert Moments.zeros((2,)).normalise(rows[:1]).tolist() == pytest.approx(rows[:1].astype(np.float32), abs=1e-5)


def test_schedules() -> None:
    line = Linear(1.0, 0.1, fraction=0.5)
    assert [line(x) for x in (1.0, 0.75, 0.5, 0.0)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert schedule("lr", "lin_0.2")(0.5) == pytest.approx(0.1)
    assert schedule("lr", 3)(0.5) == 3.0
    with pytest.raises(ValueError, match="lr='fast' must be a number"):
        schedule("lr", "fast")
    with pytest.raises(TypeError, match="lr=None must be a number"):
        schedule("lr", None)


def test_weights_are_views() -> None:
    rng = np.random.default_rng(0)
    shapes = nets_numpy.mlp_shapes(3, (5, 4), 2)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    vector = flatten(arrays)
    again = views(vector, shapes)
    for one, other in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.shares_memory(vector, again[0])
    with pytest.raises(ValueError, match="the weights have 3 numbers"):
        views(vector[:3], shapes)


def test_many_networks_give_what_each_gives() -> None:
    shapes = nets_numpy.mlp_shapes(3, (5, 4), 2)
    vectors = np.random.default_rng(0).standard_normal((7, sum(int(np.prod(shape)) for shape in shapes)), np.float32)
    rows = np.random.default_rng(1).standard_normal((7, 3), np.float32)
    together = nets_numpy.mlps(views(vectors, shapes), rows, "tanh")
    for vector, row, outputs in zip(vectors, rows, together, strict=True):
        alone = nets_numpy.mlp(views(vector, shapes), row[None], "tanh")[0]
        np.testing.assert_allclose(outputs, alone, rtol=1e-5, atol=1e-6)
    for count in range(1, 7):
        some = nets_numpy.mlps(views(vectors[:count], shapes), rows[:count], "tanh")
        np.testing.assert_array_equal(some, together[:count])
    with pytest.raises(ValueError, match="the weights have 6 numbers"):
        views(vectors[:, :6], shapes)


def test_draws_have_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)).repeat(20_000, 0)
    actions, logp = nets_numpy.sample_categorical(logits, rng)
    np.testing.assert_allclose(np.bincount(actions) / len(actions), [0.2, 0.5, 0.3], atol=0.015)
    np.testing.assert_allclose(np.exp(logp), np.array([0.2, 0.5, 0.3])[actions], rtol=1e-5)
    both, logp = nets_numpy.sample_multi_categorical(np.concatenate([logits, logits[:, :2]], 1), (3, 2), rng)
    expected = np.array([0.2, 0.5, 0.3])[both[:, 0]] * np.array([2 / 7, 5 / 7])[both[:, 1]]
    np.testing.assert_allclose(np.exp(logp), expected, rtol=1e-5)
    mean, log_std = np.full((20_000, 2), 3.0, np.float32), np.log(np.array([0.5, 2.0], np.float32))
    drawn, logp = nets_numpy.sample_gaussian(mean, log_std, rng)
    np.testing.assert_allclose(drawn.std(0), [0.5, 2.0], rtol=0.03)
    density = -((drawn - mean) ** 2) / (2 * np.exp(2 * log_std)) - log_std - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(logp, density.sum(1), rtol=1e-3, atol=1e-3)


class Box:
    """Stands for gymnasium's class of this name."""

    def __init__(self, low: float, high: float, shape: tuple[int, ...], dtype: Any = np.float32) -> None:
        self.low, self.high, self.shape, self.dtype = np.full(shape, low), np.full(shape, high), shape, dtype


class Discrete(SimpleNamespace):
    """Stands for gymnasium's class of this name."""


class MultiDiscrete(SimpleNamespace):
    """Stands for gymnasium's class of this name."""


class Dict(SimpleNamespace):
    """Stands for gymnasium's class of this name."""


class Text(SimpleNamespace):
    """Stands for gymnasium's class of this name."""


def test_observations_are_encoded() -> None:
    assert observations_of(Discrete(n=3)).encode(2).tolist() == [0, 0, 1]
    assert observations_of(MultiDiscrete(nvec=[2, 3])).encode([1, 0]).tolist() == [0, 1, 1, 0, 0]
    image = observations_of(Box(0, 255, (8, 8, 3), np.uint8))
    assert (image.kind, image.dtype, image.size) == ("image", np.uint8, 192)
    mixed = observations_of(Dict(spaces={"place": Box(-1, 1, (2,)), "door": Discrete(n=2)}))
    assert mixed.encode({"door": 1, "place": [0.5, -0.5]}).tolist() == [0.5, -0.5, 0, 1]
    assert mixed.size == 4
    with pytest.raises(ValueError, match="observations of Text have no encoding"):
        observations_of(Text())
    with pytest.raises(ValueError, match="must start at 0"):
        observations_of(Discrete(n=3, start=1))


def test_actions_are_given_as_the_environment_takes_them() -> None:
    assert actions_of(Discrete(n=3, start=5)).to_env(np.array([0, 2])).tolist() == [5, 7]
    box = actions_of(Box(-2, 2, (1, 2)))
    assert box.to_env(np.array([[3.0, -1.0]])).tolist() == [[[2.0, -1.0]]]
    assert (box.outputs, box.width) == (2, (2,))
    assert actions_of(MultiDiscrete(nvec=[2, 3])).outputs == 5
    with pytest.raises(ValueError, match="actions of Text fit no algorithm"):
        actions_of(Text())


def test_fragments_side_by_side() -> None:
    rng = np.random.default_rng(0)
    one, two = fragment(rng), fragment(rng)
    both = joined([one, two])
    np.testing.assert_array_equal(both.values[:, 3:], two.values)
    np.testing.assert_allclose(gae(both, 0.9, 0.8)[0][:, :3], gae(one, 0.9, 0.8)[0])
    assert joined([one]) is one
    assert both.steps == one.steps + two.steps


def test_statistics_of_episodes() -> None:
    episodes = Episodes()
    assert np.isnan(episodes.summary()["episode_reward_mean"])
    episodes.add([1.0] * 50, [1] * 50)
    episodes.add([3.0] * 100, [2] * 100)
    assert episodes.summary() == {
        "episode_reward_mean": 3.0,
        "episode_reward_min": 3.0,
        "episode_reward_max": 3.0,
        "episode_len_mean": 2.0,
        "episodes_total": 150,
    }


def test_every_preset_has_hyper_parameters_of_its_algorithm() -> None:
    pytest.importorskip("torch")
    from mpi_runtime.rl.config import algorithm_named
    from mpi_runtime.rl.parameters import checked
    from mpi_runtime.rl.presets import ZOO

    for (algorithm, env), given in ZOO.items():
        found = checked(algorithm_named(algorithm).Parameters, given, algorithm)
        assert {key: getattr(found, key) for key in given} == given, (algorithm, env)
    assert {env for algorithm, env in ZOO if algorithm == "PPO"} == {
        "CartPole-v1", "LunarLander-v3", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"
    }  # fmt: skip
