"""Options of remote functions and classes: what is refused, and the spec that they become."""

import math
import pickle
from typing import Any

import pytest

from mpi_runtime.core.calls import options, specs
from mpi_runtime.core.calls.placement_groups import placement_group
from mpi_runtime.core.calls.remote_function import RemoteFunction
from mpi_runtime.errors.arguments import AMOUNT_MIN
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.events import ActorSpec, MethodSpec, TaskSpec, TimeSpec
from mpi_runtime.scheduler.protocol.limits import UNIT


def check(**given: Any) -> None:
    options.check(given, options.TASK_OPTIONS, "remote functions")


@pytest.mark.parametrize(
    "given",
    [
        {"num_cpus": 0}, {"num_cpus": 0.5}, {"num_cpus": 3}, {"num_cpus": None}, {"num_gpus": 0.25}, {"num_gpus": 2},
        {"num_gpus": 2.0}, {"memory": 100}, {"memory": 1.5e9}, {"resources": {}}, {"resources": {"a": 0.5}},
        {"num_returns": 0}, {"num_returns": 5}, {"max_retries": -1}, {"max_retries": 0}, {"retry_exceptions": True},
        {"name": "x"}, {"runtime_env": {}}, {"runtime_env": {"env_vars": {"A": "1"}}},
    ],
    ids=str,
)  # fmt: skip
def test_good_options(given: Any) -> None:
    check(**given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"num_cpus": -0.1}, ValueError), ({"num_cpus": math.inf}, ValueError), ({"num_cpus": math.nan}, ValueError),
        ({"num_cpus": 10**30}, ValueError),
        ({"num_cpus": True}, TypeError), ({"num_cpus": "1"}, TypeError), ({"num_gpus": 1.5}, ValueError),
        ({"num_returns": -1}, ValueError), ({"num_returns": 100_001}, ValueError),
        ({"num_returns": 1.0}, TypeError), ({"num_returns": True}, TypeError),
        ({"max_retries": -2}, ValueError), ({"retry_exceptions": 1}, TypeError), ({"name": 1}, TypeError),
        ({"resources": {"GPU": 1}}, ValueError), ({"resources": {1: 1}}, TypeError),
        ({"resources": {"a": "1"}}, TypeError),
        ({"resources": [("a", 1)]}, TypeError), ({"memory": -1}, ValueError), ({"runtime_env": []}, TypeError),
        ({"runtime_env": {"conda": "x"}}, ValueError), ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError),
        ({"accelerator_type": ""}, ValueError), ({"accelerator_type": 1}, TypeError), ({"gpu_memory": -1}, ValueError),
        ({"gpu_memory": "much"}, ValueError), ({"gpu_memory": "-1GB"}, ValueError),
        ({"gpu_memory": "9" * 30}, ValueError), ({"gpu_memory": "9" * 400}, ValueError),
        ({"cpus": 1}, ValueError), ({"": 1}, ValueError),
    ],
    ids=str,
)  # fmt: skip
def test_bad_options(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        check(**given)
    (name,) = given
    assert name in str(caught.value)


@pytest.mark.parametrize("value", [[], {}, object()])
def test_a_num_returns_of_another_type(value: Any) -> None:
    with pytest.raises(TypeError, match="num_returns must be a whole number"):
        RemoteFunction(math.sqrt, {"num_returns": value})


def test_a_typing_error_gets_a_hint() -> None:
    with pytest.raises(ValueError, match="did you mean 'num_gpus'"):
        check(num_gpu=1)
    with pytest.raises(ValueError, match="there are: num_cpus"):
        check(zzz=1)
    with pytest.raises(ValueError, match="did you mean 'max_retries'"):
        check(max_retry=1)
    with pytest.raises(ValueError, match="there are") as caught:
        check(zzz=1)
    assert " _" not in str(caught.value), "only the public ones"


def test_old_options_of_placement_groups() -> None:
    check(placement_group=None, placement_group_bundle_index=-1, placement_group_capture_child_tasks=None)
    check(placement_group="default", scheduling_strategy="SPREAD")
    with pytest.raises(TypeError, match="placement_group must be a PlacementGroup"):
        check(placement_group=3)
    with pytest.raises(ValueError, match="must be -1 without a placement_group"):
        specs.task_spec("f", b"code", {"placement_group_bundle_index": 0})
    assert specs.task_spec("f", b"code", {"placement_group": None}).where is None


def test_amounts_that_would_be_counted_as_nothing_are_refused() -> None:
    assert AMOUNT_MIN * UNIT == 1
    for given in ({"num_cpus": 1e-5}, {"num_gpus": 9e-5}, {"resources": {"a": 1e-9}}):
        with pytest.raises(ValueError, match=r"0\.0001 or more"):
            check(**given)
    check(num_cpus=1e-4)
    check(time_limit=1e-5)  # seconds are not counted in units


def test_counts_from_one_name_their_least_value() -> None:
    for name in ("num_ranks", "ranks_per_node"):
        for wrong in (0, -1):
            with pytest.raises(ValueError, match=f"{name} must be 1 or more, not {wrong}"):
                check(**{name: wrong})
        with pytest.raises(ValueError, match=f"{name} must be at most 100000, not 1000000"):
            check(**{name: 10**6})


def test_a_group_has_no_more_bundles_than_the_head_can_place_soon() -> None:
    with pytest.raises(ValueError, match="bundles must be at most 100000, not 100001: make several groups"):
        placement_group([{"CPU": 1}] * 100_001)


def test_options_that_only_ray_has_get_a_hint() -> None:
    with pytest.raises(ValueError, match="tensors go through the object store"):
        check(tensor_transport="gloo")
    with pytest.raises(ValueError, match=r"init\(object_store_memory"):
        check(object_store_memory=100)


def test_actors_have_no_options_of_calls() -> None:
    for name in ("num_returns", "max_retries", "retry_exceptions"):
        with pytest.raises(ValueError, match="for actors"):
            options.check({name: 1}, options.ACTOR_OPTIONS, "actors")


def test_defaults_of_tasks() -> None:
    spec = specs.task_spec("f", b"code", {})
    assert (spec.kind, spec.name, spec.function) == (TaskSpec(), "f", b"code")
    assert spec.asks == Request(UNIT)
    assert (spec.num_returns, spec.max_retries, spec.retry, spec.gang, spec.time) == (1, 3, None, None, None)
    nones = dict.fromkeys(options.TASK_OPTIONS)
    assert specs.task_spec("f", b"code", nones).id == spec.id


def test_amounts_are_whole_units() -> None:
    needs = {"num_cpus": 0.1, "num_gpus": 1 / 3, "resources": {"a": 0.2, "b": 0}, "memory": 2.5}
    spec = specs.task_spec("f", b"", needs)
    assert spec.asks == Request(1000, 3333, 2, (("a", 2000),))


def test_an_actor_keeps_its_cpu_only_if_it_asked_for_it() -> None:
    by_default = specs.actor_spec("A", b"", {})
    assert (by_default.kind, by_default.asks) == (ActorSpec(), Request(UNIT))
    asked = specs.actor_spec("A", b"", {"num_cpus": 2})
    assert (asked.kind, asked.asks) == (ActorSpec(held_cpu=2 * UNIT), Request(2 * UNIT))
    assert specs.actor_spec("A", b"", {"num_cpus": 1}).kind == ActorSpec(held_cpu=UNIT)


def test_ids_are_of_the_content() -> None:
    first = specs.task_spec("f", b"code", {"num_cpus": 1})
    assert first.id == specs.task_spec("f", b"code", {"num_cpus": 1}).id
    others = [
        specs.task_spec("g", b"code", {"num_cpus": 1}),
        specs.task_spec("f", b"other", {"num_cpus": 1}),
        specs.task_spec("f", b"code", {"num_cpus": 2}),
        specs.task_spec("f", b"code", {"num_returns": 2}),
        specs.actor_spec("f", b"code", {}),
        specs.method("f", {}, {}).spec,
    ]
    assert len({first.id, *(spec.id for spec in others)}) == 7
    assert all(0 <= spec.id < 2**63 for spec in (first, *others))


def test_methods() -> None:
    spec = specs.method("A.f", {"num_returns": 3}, {}).spec
    assert (spec.kind, spec.name, spec.num_returns, spec.asks, spec.max_retries) == (
        MethodSpec(),
        "A.f",
        3,
        Request(),
        0,
    )


def test_a_methods_own_options_go_before_its_actors() -> None:
    def method(own: dict[str, Any], actor: dict[str, Any]) -> specs.Method:
        return specs.method("A.f", own, actor)

    def facts(method: specs.Method) -> tuple[int, int, bool]:
        return method.spec.num_returns, method.spec.max_retries, method.spec.retry is not None

    assert facts(method({}, {})) == (1, 0, False)
    assert facts(method({}, {"max_task_retries": -1})) == (1, -1, False)
    own = method({"max_task_retries": 0, "num_returns": 2}, {"max_task_retries": 5})
    assert facts(own) == (2, 0, False)
    changed = specs.changed("A.f", own, {"retry_exceptions": [KeyError], "max_task_retries": 3})
    assert facts(changed) == (2, 3, True)
    assert changed.spec.retry is not None
    assert pickle.loads(changed.spec.retry.only) == (KeyError,)
    back = {"retry_exceptions": False, "max_task_retries": 0}
    assert specs.changed("A.f", changed, back) == own
    renamed = specs.changed("A.f", own, {"name": "other"})
    assert (renamed.spec.name, renamed.spec.function) == ("other", b"f")
    assert specs.changed("A.f", renamed, {"name": ""}) == own


@pytest.mark.parametrize(("value", "size"), [
    (5, 5), (1.5e9, 1_500_000_000), ("20GB", 20 * 10**9), ("20 GiB", 20 << 30), ("512MiB", 512 << 20), ("1.5k", 1500),
    ("2KB", 2000), ("2KiB", 2048), ("7", 7), ("7B", 7), ("2T", 2 * 10**12), (0, 0),
])  # fmt: skip
def test_sizes(value: Any, size: int) -> None:
    assert options.size_in_bytes("gpu_memory", value) == size


def test_options_for_gpus() -> None:
    given = {"num_gpus": 0.5, "accelerator_type": "H100", "gpu_memory": "10GB", "resources": {"a": 1}}
    check(**given)
    request = specs.task_spec("f", b"", given).asks
    assert request == Request(UNIT, UNIT // 2, 0, (("a", UNIT), ("accelerator_type:H100", 10)), 10**10)
    assert request.types == ("H100",)
    assert str(request) == "1 CPU, 0.5 GPU of type H100, 9.3 GiB of GPU memory, 1 of 'a'"
    assert str(specs.task_spec("f", b"", {"accelerator_type": "L4"}).asks) == "1 CPU, 0.001 of 'accelerator_type:L4'"
    alone = specs.task_spec("f", b"", {"accelerator_type": "L4", "gpu_memory": 5}).asks
    assert str(alone) == "1 CPU, 5 bytes of GPU memory on a GPU of type L4"
    stated = {"accelerator_type": "L4", "resources": {"accelerator_type:L4": 0.5}}
    assert specs.task_spec("f", b"", stated).asks.custom == (("accelerator_type:L4", UNIT // 2),)


@pytest.mark.parametrize("name", ["time_limit", "expect"])
def test_times_are_in_seconds(name: str) -> None:
    check(**{name: 600})
    made = TimeSpec if name == "time_limit" else lambda us: TimeSpec(expect_us=us)
    found = [specs.task_spec("f", b"", {name: given}).time for given in (0.5, None, 1e300)]
    assert found == [made(500_000), None, made(2**62)]
    for wrong in (0, -1, float("inf"), float("nan"), 1e-9):
        with pytest.raises(ValueError, match=f"{name} must be"):
            check(**{name: wrong})
    for wrong_type in (True, "600"):
        with pytest.raises(TypeError, match=f"{name} must be a number"):
            check(**{name: wrong_type})
    method = specs.method("A.f", {"time_limit": 0.5}, {})
    assert method.spec.time == TimeSpec(500_000)
    assert specs.changed("A.f", method, {"time_limit": 2}).spec.time == TimeSpec(2_000_000)
    with pytest.raises(ValueError, match="'time_limit' for actors"):
        options.check({"time_limit": 1}, options.ACTOR_OPTIONS, "actors")
