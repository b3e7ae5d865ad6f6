"""Search spaces: what is drawn lies where it should, grids and conditions, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime import tune
from mpi_runtime.tune.space import samplers
from mpi_runtime.tune.space.domains import Domain
from mpi_runtime.tune.space.unit_cube import UnitCube
from mpi_runtime.tune.space.variants import generate_variants, grid_points, merged, resolve, rng_of


def draws(domain: Domain, count: int = 2000) -> list[Any]:
    rng = np.random.default_rng(7)
    return [domain.draw(rng, {}) for _ in range(count)]


def test_uniform_numbers_fill_their_interval() -> None:
    values = draws(tune.uniform(-1, 3))
    assert -1 <= min(values) < -0.9
    assert 2.9 < max(values) <= 3
    assert abs(np.mean(values) - 1) < 0.1


def test_logarithms_are_even() -> None:
    for values in (draws(tune.loguniform(1e-4, 1e-1)), draws(tune.qloguniform(1e-4, 1e-1, 1e-4))):
        assert 1e-4 <= min(values) <= max(values) <= 1e-1
        assert abs(np.mean(np.log10(values)) + 2.5) < 0.1


@given(lower=st.integers(-20, 20), steps=st.integers(1, 20), q=st.sampled_from([1, 2, 5]))
def test_quantized_values_are_multiples_and_reach_both_bounds(lower: int, steps: int, q: int) -> None:
    lower *= q
    upper = lower + steps * q
    integers = draws(tune.qrandint(lower, upper + (q == 1), q), 400)  # a step of 1 excludes the upper bound
    floats = draws(tune.quniform(lower / 10, upper / 10, q / 10), 400)
    assert {value % q for value in integers} == {0}
    assert all(math.isclose(value * 10 / q, round(value * 10 / q), abs_tol=1e-6) for value in floats)
    assert lower <= min(integers) <= max(integers) <= upper
    assert lower / 10 <= min(floats) <= max(floats) <= upper / 10
    if steps < 3:
        assert set(integers) == set(range(lower, upper + 1, q))


def test_integers_leave_out_the_upper_bound() -> None:
    assert set(draws(tune.randint(2, 5))) == {2, 3, 4}
    assert set(draws(tune.lograndint(1, 5))) == {1, 2, 3, 4}


def test_integers_with_even_logarithms_are_mostly_small() -> None:
    values = draws(tune.lograndint(1, 1000))
    assert abs(np.mean(np.array(values) < 10) - 1 / 3) < 0.05  # one of three decades
    assert set(draws(tune.qlograndint(10, 40, 10))) == {10, 20, 30, 40}


def test_normal_numbers() -> None:
    values = draws(tune.randn(10, 2))
    assert abs(np.mean(values) - 10) < 0.2
    assert abs(np.std(values) - 2) < 0.2
    assert {value % 0.5 for value in draws(tune.qrandn(0, 2, 0.5))} == {0.0}


def test_choices_are_all_made() -> None:
    assert set(draws(tune.choice(["a", "b", None]))) == {"a", "b", None}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tune.uniform(4, 3), "not be above the upper"),
        (lambda: tune.randint(3, 3), "below the upper"),
        (lambda: tune.loguniform(0, 1), "no logarithm"),
        (lambda: tune.loguniform(1, 2, base=1), "base must be above 1"),
        (lambda: tune.quniform(0, 1, 0.3), "not a multiple of q=0.3"),
        (lambda: tune.quniform(0, 1, 0), "must be above 0"),
        (lambda: tune.qrandint(4, 5, 10), "no multiple of q"),
        (lambda: tune.randn(0, -1), "standard deviation"),
        (lambda: tune.choice([]), "nothing to choose"),
        (lambda: tune.grid_search([]), "no values"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_grids_are_combined_and_the_first_changes_fastest() -> None:
    space = {"b": tune.grid_search([1, 2]), "a": {"x": tune.grid_search(["p", "q", "r"])}, "c": 0}
    configs = [resolve(space, point, rng_of(0, 0)) for point in grid_points(space)]
    assert configs == [{"b": b, "a": {"x": x}, "c": 0} for b in (1, 2) for x in "pqr"]


def test_a_space_without_grids_has_one_point() -> None:
    assert [*grid_points({"x": tune.uniform(0, 1)})] == [{}]


def test_values_of_grids_may_be_drawn() -> None:
    space = {"x": tune.grid_search([1, tune.uniform(5, 6)])}
    first, second = [resolve(space, point, rng_of(0, 0))["x"] for point in grid_points(space)]
    assert first == 1
    assert 5 <= second <= 6


def test_only_the_chosen_branch_is_drawn() -> None:
    branches = [{"name": "sgd", "momentum": tune.uniform(0, 1)}, {"name": "adam", "betas": [tune.uniform(2, 3), 1]}]
    configs = [resolve({"opt": tune.choice(branches)}, {}, rng_of(0, number))["opt"] for number in range(50)]
    assert {config["name"] for config in configs} == {"sgd", "adam"}
    for config in configs:
        if config["name"] == "sgd":
            assert 0 <= config["momentum"] <= 1
        else:
            assert 2 <= config["betas"][0] <= 3


def test_functions_see_the_other_values_whatever_the_order() -> None:
    space = {
        "last": tune.sample_from(lambda spec: spec.config.middle + 1),
        "middle": tune.sample_from(lambda c: c["inner"]["first"] * 10),
        "inner": {"first": tune.randint(1, 9)},
        "none": tune.sample_from(lambda: "constant"),
        "domain": tune.sample_from(lambda c: tune.randint(0, c.inner.first)),
    }
    for number in range(20):
        config = resolve(space, {}, rng_of(3, number))
        first = config["inner"]["first"]
        assert config["middle"] == first * 10
        assert config["last"] == first * 10 + 1
        assert config["none"] == "constant"
        assert 0 <= config["domain"] < first


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"a": tune.sample_from(lambda c: c.b), "b": tune.sample_from(lambda c: c.a)}, "need each other's values"),
        ({"a": tune.sample_from(lambda c: c.nowhere)}, "parameter a raised.*nowhere"),
        ({"a": {"b": tune.sample_from(lambda: 1 / 0)}}, "parameter a/b raised ZeroDivisionError"),
        ({"a": tune.choice([tune.grid_search([1])])}, "cannot depend on chance"),
    ],
)
def test_spaces_that_cannot_be_resolved(space: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        resolve(space, {}, rng_of(0, 0))


@pytest.mark.parametrize("func", [lambda c, other: c, lambda *, name: name, 3, "c.a"])
def test_what_cannot_be_called_for_a_trial_is_refused(func: Any) -> None:
    with pytest.raises(ValueError, match=r"sample_from\(\) needs a function"):
        tune.sample_from(func)


def test_a_grid_among_the_values_of_a_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="grid among its values"):
        grid_points({"x": tune.grid_search([1, tune.grid_search([2])])})


@given(seed=st.integers(0, 2**32), number=st.integers(0, 10**6))
def test_values_depend_on_seed_and_number_alone(seed: int, number: int) -> None:
    space = {"a": tune.uniform(0, 1), "b": tune.choice("abc")}
    assert resolve(space, {}, rng_of(seed, number)) == resolve(space, {}, rng_of(seed, number))
    assert resolve(space, {}, rng_of(seed, number)) != resolve(space, {}, rng_of(seed, number + 1))


def test_a_space_is_not_changed_by_use() -> None:
    inner = {"x": tune.uniform(0, 1), "items": [tune.randint(0, 3)]}
    space = {"inner": inner}
    resolve(space, {}, rng_of(0, 0))
    assert space == {"inner": {"x": tune.uniform(0, 1), "items": [tune.randint(0, 3)]}}
    assert merged(space, {"inner": {"x": 1}})["inner"]["x"] == 1
    assert inner["x"] == tune.uniform(0, 1)


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_domains_draw_from_generators_of_either_kind_also_wrapped(kind: Any) -> None:
    domain = tune.uniform(0, 1)
    plain, wrapped = kind(3), SimpleNamespace(rng=kind(3))
    first = [domain.sample(random_state=plain) for _ in range(3)]
    assert first == [domain.sample({}, random_state=wrapped) for _ in range(3)]
    assert len({*first}) == 3
    assert 0 <= domain.sample(random_state=SimpleNamespace(rng=np.random)) <= 1
    assert not domain.is_grid()


def test_domains_describe_how_they_are_sampled_as_in_ray() -> None:
    """FLAML reads this, and adds attributes to domains."""
    assert [str(one.get_sampler()) for one in (tune.uniform(0, 1), tune.choice([1]), tune.randint(0, 9))] == [
        "Uniform"
    ] * 3
    assert [str(one.sampler) for one in (tune.loguniform(1, 9), tune.lograndint(1, 9))] == ["LogUniform"] * 2
    quantized = tune.qrandn(3.0, 1.0, 0.5).get_sampler()
    assert isinstance(quantized, samplers.Quantized)
    assert quantized.q == 0.5
    assert (str(quantized), str(quantized.get_sampler())) == ("Quantized", "Normal")
    domain = tune.choice(["a", "b"])
    domain.ordered = False
    generator = samplers.NumpyRng(3)
    assert 0 <= generator.rand() < 1
    assert generator.randint(5, 6) == 5


def test_variants_with_a_seed_or_a_generator() -> None:
    space = {"config": {"a": tune.uniform(0, 1), "b": tune.grid_search([1, 2])}}
    first, second = (list(generate_variants(space, random_state=7)) for _ in range(2))
    assert first == second
    assert [point for point, _ in first] == [{("config", "b"): 1}, {("config", "b"): 2}]
    (_, one), (_, other) = generate_variants(space, constant_grid_search=True)
    assert one["config"]["a"] == other["config"]["a"]
    with pytest.raises(ValueError, match="random_state"):
        next(generate_variants(space, random_state="seven"))


def test_grids_with_more_points_than_fit_in_memory() -> None:
    grid = tune.grid_search([*range(1000)])
    points = grid_points({"a": grid, "b": grid, "c": grid})
    assert (len(points), points[-1], points[1_002_003]) == (
        10**9,
        {("a",): 999, ("b",): 999, ("c",): 999},
        {("a",): 3, ("b",): 2, ("c",): 1},
    )
    assert points[999:1001] == [{("a",): 999, ("b",): 0, ("c",): 0}, {("a",): 0, ("b",): 1, ("c",): 0}]
    searcher = tune.search.BasicVariantGenerator(points_to_evaluate=[{"a": 7}])
    assert searcher.set_search_properties(None, None, {"a": grid, "b": grid, "c": grid})
    assert searcher.trials(1) == 10**6
    assert (searcher.suggest("0"), searcher.suggest("1")) == ({"a": 7, "b": 0, "c": 0}, {"a": 7, "b": 1, "c": 0})
    with pytest.raises(ValueError, match=r"have 1\.0e\+21 combinations, more than can be counted"):
        grid_points({str(number): grid for number in range(7)})


@pytest.mark.parametrize(
    ("domain", "value"), [(tune.uniform(3, 3), 3.0), (tune.quniform(2, 2, 2), 2.0), (tune.qrandint(4, 4, 2), 4)]
)
def test_a_domain_may_have_one_value(domain: Any, value: float) -> None:
    assert set(draws(domain)) == {value}
    cube = UnitCube({"x": domain})
    assert cube.values(cube.point({"x": value})) == {"x": value}
