"""Which devices a request gets: never more than there is, always what was asked for, and something if there is any."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_runtime.gpu import ledger
from mpi_runtime.gpu.device import Device, Link
from mpi_runtime.gpu.ledger import UNIT, Granted, Inventory, choose, part
from mpi_runtime.gpu.topology import choose_set, pair_weight
from mpi_runtime.scheduler.protocol.amounts import Request
from mpi_runtime.scheduler.protocol.resources import Grant, Pool, fits, give_back, take

GIB = 1 << 30
RANKS = (frozenset((4,)), frozenset((7,)), frozenset((4, 7)), None)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    inventory = Inventory()
    for number in range(draw(st.integers(1, 6))):
        device = Device(
            f"GPU-{number}",
            types=draw(st.sampled_from([("H100",), ("A100", "A100-40G")])),
            memory=draw(st.sampled_from([0, 40 * GIB, 80 * GIB])),
            bus=f"{number:02}",
            instance=draw(st.sampled_from([(-1, -1), (-1, -1), (1, 0)])),
            is_exclusive=draw(st.sampled_from([False, False, True])),
        )
        links = [Link(device.uuid, one.uuid, draw(st.integers(0, 2)), 50) for one in inventory.devices]
        inventory.add([device], links, draw(st.sampled_from(RANKS)))
    for id in range(len(inventory.devices)):
        draw(st.sampled_from([{}, {}, inventory.suspects, inventory.out]))[id] = "why"
    return inventory


requests = st.builds(
    Request,
    st.just(0),
    st.one_of(st.integers(0, UNIT), st.sampled_from([UNIT, 2 * UNIT, 3 * UNIT])),
    st.just(0),
    st.sampled_from([(), (), (("accelerator_type:H100", 10),), (("accelerator_type:A100", 10),)]),
    st.sampled_from([0, 0, 10 * GIB, 60 * GIB]),
).filter(lambda request: request.needs_gpu)


def pool_of(inventory: Inventory) -> Pool:
    custom = {f"accelerator_type:{name}": 100 * UNIT for name in ("H100", "A100", "A100-40G")}
    devices = inventory.devices
    return Pool(0, 0, custom, [UNIT] * len(devices), [one.memory for one in devices], inventory)


@given(inventories(), st.lists(st.tuples(requests, st.integers(0, 9)), max_size=25))
def test_nothing_is_promised_twice_and_everything_is_as_asked(
    inventory: Inventory, steps: list[tuple[Request, int]]
) -> None:
    free, total = pool_of(inventory), pool_of(inventory)
    held: list[tuple[Request, Granted]] = []
    grants: list[Grant] = []
    for request, ends in steps:
        if ends < len(grants):
            give_back(grants.pop(ends), free)
            held.pop(ends)
        if not fits(request, free):
            assert not there_is(inventory, free, request)
            continue
        grant = take(request, free)
        grants.append(grant)
        held.append((request, grant.gpus))
        check_grant(inventory, request, grant.gpus)
        for device, one in enumerate(inventory.devices):
            units = [units for _, devices in held for id, units, _ in devices if id == device]
            memory = [memory for _, devices in held for id, _, memory in devices if id == device]
            assert sum(units) == UNIT - free.gpu_units[device] <= UNIT
            assert sum(memory) == one.memory - free.gpu_memory[device] <= one.memory
            assert len(units) == 1 or UNIT not in units, "a whole device is nobody else's"
            assert len(units) < 2 or not one.is_exclusive
    for grant in grants:
        give_back(grant, free)
    assert free == total


def check_grant(inventory: Inventory, request: Request, granted: Granted) -> None:
    ids = [device for device, _, _ in granted]
    devices = [inventory.devices[device] for device in ids]
    assert ids == sorted(set(ids))
    assert inventory.ranks_of(ids) != frozenset(), "one rank can use all of them"
    assert not inventory.out.keys() & set(ids)
    assert len(ids) == 1 or not any(device.is_instance for device in devices)
    assert all(name in device.types for device in devices for name in request.types)
    assert all(device.memory >= request.gpu_memory for device in devices)
    if request.gpu >= UNIT:
        assert [units for _, units, _ in granted] == [UNIT] * (request.gpu // UNIT)
        assert all(memory == device.memory for device, (_, _, memory) in zip(devices, granted, strict=True))
    else:
        (device,) = devices
        assert granted[0][1:] == (request.gpu, request.gpu_memory or part(device, request.gpu))
        assert not device.is_exclusive


def there_is(inventory: Inventory, free: Pool, request: Request) -> bool:
    """The same question, answered by trying every set."""
    usable = [
        device
        for device, one in enumerate(inventory.devices)
        if all(name in one.types for name in request.types) and one.memory >= request.gpu_memory
        if device not in inventory.out
    ]
    if request.gpu < UNIT:
        return any(
            free.gpu_units[device] >= request.gpu
            and free.gpu_memory[device] >= (request.gpu_memory or part(inventory.devices[device], request.gpu))
            and not inventory.devices[device].is_exclusive
            for device in usable
        )
    count = request.gpu // UNIT
    return any(
        all(
            free.gpu_units[device] == UNIT and free.gpu_memory[device] == inventory.devices[device].memory
            for device in chosen
        )
        and inventory.ranks_of(chosen) != frozenset()
        and (count == 1 or not any(inventory.devices[device].is_instance for device in chosen))
        for chosen in combinations(usable, count)
    )


# By link


def linked(*pairs: tuple[int, int], count: int = 4, nvlinks: int = 2) -> Inventory:
    inventory = Inventory()
    links = [Link(f"GPU-{a}", f"GPU-{b}", nvlinks, 50) for a, b in pairs]
    inventory.add([Device(f"GPU-{number}", bus=f"{number:02}") for number in range(count)], links, None)
    return inventory


def ids(granted: Granted | None) -> list[int]:
    assert granted is not None
    return [device for device, _, _ in granted]


def test_answers_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SETS_MAX", 3)
    inventory = linked((0, 1), count=6)
    memory = [device.memory for device in inventory.devices]
    for taken in range(6):
        free = [0 if device == taken else UNIT for device in range(6)]
        assert len(ids(choose(inventory, free, memory, 2 * UNIT))) == 2
        assert len(inventory.sets) == taken % 3 + 1


def test_suspects_are_given_last() -> None:
    inventory = linked((0, 1), (2, 3))
    inventory.suspects[1] = "f"
    free = [UNIT] * 4
    assert ids(choose(inventory, free, [0] * 4, 2 * UNIT)) == [2, 3]
    assert ids(choose(inventory, free, [0] * 4, UNIT)) == [0]
    assert ids(choose(inventory, [0, UNIT // 2, UNIT, 0], [0] * 4, UNIT // 2)) == [2]
    assert ids(choose(inventory, free, [0] * 4, 4 * UNIT)) == [0, 1, 2, 3]


def test_several_are_those_that_are_linked() -> None:
    """NVLink joins 0 with 3 and 1 with 2: the first two would be a wrong choice."""
    inventory = linked((0, 3), (1, 2))
    free, memory = [UNIT] * 4, [0] * 4
    assert ids(choose(inventory, free, memory, 2 * UNIT)) == [0, 3]
    assert ids(choose(inventory, [0, UNIT, UNIT, 0], memory, 2 * UNIT)) == [1, 2]
    assert ids(choose(inventory, [0, UNIT, UNIT, UNIT], memory, UNIT)) == [3], "the pair that is whole stays whole"


def test_a_set_leaves_the_best_rest() -> None:
    """0, 1, 2 and 3, 4, 5 are linked: two single ones come from one triple."""
    inventory = linked((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), count=6)
    free, memory = [UNIT] * 6, [0] * 6
    assert ids(choose(inventory, free, memory, 3 * UNIT)) == [0, 1, 2]
    assert ids(choose(inventory, [0, *free[1:]], memory, 2 * UNIT)) == [1, 2]


def test_sixteen_of_which_some_are_too_many_to_compare_all() -> None:
    weights = [[0 if a == b else pair_weight(a // 8 == b // 8, 50) for b in range(32)] for a in range(32)]
    assert choose_set(range(32), 8, weights) == tuple(range(8))
    assert choose_set(range(4, 32), 8, weights) == tuple(range(8, 16))
    assert choose_set(range(16), 8, weights) == tuple(range(8))


def test_weights_follow_the_distance() -> None:
    by_distance = [pair_weight(0, distance) for distance in (10, 20, 30, 40, 50)]
    assert by_distance == sorted(by_distance, reverse=True)
    assert by_distance[-1] == 0 < by_distance[-2]
    assert pair_weight(1, 50) > by_distance[0]
    assert pair_weight(18, 40) > pair_weight(4, 40)


# By rank


def test_one_device_that_several_ranks_name_is_one() -> None:
    inventory = Inventory()
    first, second = Device("GPU-b", bus="02"), Device("GPU-a", bus="01")
    assert inventory.add([first], (), frozenset((4,))) == [first]
    assert inventory.add([first, second], (), frozenset((7,))) == [second]
    assert [device.uuid for device in inventory.devices] == ["GPU-a", "GPU-b"], "numbered by place, whoever came first"
    assert inventory.seen_by == [frozenset((7,)), frozenset((4, 7))]


@pytest.mark.parametrize(("seen_by", "count", "chosen"), [
    (({4}, {4}, {7}, {7}), 2, [0, 1]),
    (({4}, {7}, {7}, {7}), 2, [1, 2]),
    (({4}, {7}, {7}, {7}), 3, [1, 2, 3]),
    (({4}, {4}, {7}, {7}), 3, None),
    (({4, 7}, {4}, {7}, None), 3, [0, 1, 3]),
])  # fmt: skip
def test_several_are_those_that_one_rank_can_use(
    seen_by: tuple[set[int] | None, ...], count: int, chosen: list[int] | None
) -> None:
    inventory = Inventory()
    for number, ranks in enumerate(seen_by):
        inventory.add([Device(f"GPU-{number}", bus=f"{number}")], (), None if ranks is None else frozenset(ranks))
    found = choose(inventory, [UNIT] * 4, [0] * 4, count * UNIT)
    assert (ids(found) if found else None) == chosen
