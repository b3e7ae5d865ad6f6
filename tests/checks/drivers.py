"""Assertions on drivers between decisions: each has what is its own, and nothing is left of one that is gone."""

from __future__ import annotations

from mpi_runtime.scheduler.losses.drivers import is_kept
from mpi_runtime.scheduler.protocol.events import DRIVER, driver_of
from mpi_runtime.scheduler.records import lifecycle
from mpi_runtime.scheduler.records.lifecycle import STOPPING
from mpi_runtime.scheduler.records.records import Actor, Driver, Function, Queue, Task
from mpi_runtime.scheduler.records.state import State


def check(state: State, live: dict[bytes, Task]) -> None:
    """Check all drivers. `live`: the open calls."""
    for task in live.values():
        _check_owner(state, task, task.driver, task.function.driver)
    for actor in state.actors.values():
        if actor.state != lifecycle.DEAD:
            _check_owner(state, actor, actor.driver, actor.creation.function.driver)
    for function in state.functions.values():
        _check_home(state, function, function, function.driver)
    for group in state.groups.values():
        assert group.driver in (DRIVER, *state.drivers), f"group {group.id.hex()} is of driver {group.driver}, now gone"
    for executor in state.executors.values():
        number = executor.driver.number if executor.driver is not None else DRIVER
        assert number == driver_of(dict(executor.key.environment)), f"{executor} is of driver {number}, and its key not"
        if executor.driver is not None:
            assert state.drivers.get(number) is executor.driver, f"{executor} is of driver {number}, which is gone"
        wrong = [one for one in executor.assigned.values() if one.function.driver is not executor.driver]
        assert executor.actor is not None or not wrong, f"{executor} has calls of another driver"
    for queue in state.queues.values():
        _check_home(state, queue, queue.function, queue.function.driver)
    clients = {number for number, client in state.clients.items() if client.executor is None}
    assert clients - {DRIVER} <= state.drivers.keys(), "a driver is connected, and not known"
    assert state.leaving.keys() <= state.drivers.keys() - clients, "references of a driver are left, and it is not"
    for driver in state.drivers.values():
        _check_driver(state, live, driver)


def _check_owner(state: State, owned: Task | Actor, owner: int, home: Driver | None) -> None:
    number = home.number if home is not None else DRIVER
    assert owner in (DRIVER, number), f"{_name(owned)} belongs to driver {owner}, and its function to {number}"
    assert home is None or state.drivers.get(number) is home, f"{_name(owned)} is of driver {number}, which is gone"


def _check_home(state: State, owned: Function | Queue, function: Function, home: Driver | None) -> None:
    number = home.number if home is not None else DRIVER
    assert number == driver_of(function.spec.environment), (
        f"{_name(owned)} is of driver {number}, and its environment not"
    )
    assert home is None or state.drivers.get(number) is home, f"{_name(owned)} is of driver {number}, which is gone"


def _name(owned: Task | Actor | Function | Queue) -> str:
    """For what is wrong: texts for all that is right took longer than their checks."""
    if isinstance(owned, Function):
        return f"function {owned.spec.name}"
    if isinstance(owned, Queue):
        return f"queue of {owned.function.spec.name}"
    return f"{'call' if isinstance(owned, Task) else 'actor'} {owned.id.hex()}"


def _check_driver(state: State, live: dict[bytes, Task], driver: Driver) -> None:
    number = driver.number
    name = f"driver {number}"
    own = {id: task for id, task in live.items() if task.function.driver is driver}
    mine, detached = {id for id in own if own[id].driver}, {id for id in own if not own[id].driver}
    assert driver.tasks.keys() | driver.ending.keys() == mine, f"{name} has other calls than it counts"
    assert driver.detached.keys() == detached, f"{name} has other detached calls than it counts"
    actors = {
        id: actor
        for id, actor in state.actors.items()
        if actor.creation.function.driver is driver and actor.state != lifecycle.DEAD
    }
    mine = {id for id, actor in actors.items() if actor.driver}
    ending = {id for id in mine if actors[id].state == lifecycle.ENDING}
    assert mine - ending <= driver.actors.keys() <= mine, f"{name} has other actors than it counts"
    assert driver.detached_actors.keys() == actors.keys() - mine, f"{name} has other detached actors than it counts"
    executors = {id for id, executor in state.executors.items() if executor.driver is driver}
    assert driver.executors.keys() == executors, f"{name} has other executors than it counts"
    functions = {id for id, function in state.functions.items() if function.driver is driver}
    assert driver.functions.keys() == functions, f"{name} has other functions than it counts"
    queues = {key for key, queue in state.queues.items() if queue.function.driver is driver}
    assert queues <= driver.queues.keys(), f"{name} has other queues than it counts"
    groups = {id for id, group in state.groups.items() if group.driver == number}
    assert driver.groups.keys() == groups, f"{name} has other placement groups than it counts"
    if not driver.has_left:
        assert number in state.clients, f"{name} is gone, and nobody has noticed"
        return
    if driver in state.alarms:
        return
    is_done = not (driver.tasks or driver.actors or driver.groups or number in state.leaving)
    assert is_done, f"{name} has left, and what it had does not end"
    if not driver.detached and not driver.detached_actors:
        living = [one for one in driver.executors.values() if one.state != STOPPING]
        assert not living, f"{name} has left, and its executors do not end"
        assert is_kept(driver) or number in state.clients, (
            f"{name} has left, nothing of it is left, and it is remembered"
        )
        assert is_kept(driver) or not driver.functions, f"{name} has left, and its functions are remembered"
