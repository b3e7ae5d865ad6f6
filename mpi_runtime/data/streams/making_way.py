"""Finds who gives way if a stream waits for what it keeps itself, such as a GPU.

Actors keep what they need while they have no call, and while their call rests after a block or waits for one. Tasks
keep all but CPUs while they rest. Meanwhile others may wait for that: actors for which there is no room, such as those
of a lost host, and tasks that rebuild blocks.

    rests, or waits for a block ──► gives way        waits for resources, and has work ──► is next

The calls of an actor that waits go to another actor of its stage, if one has resources. For others that wait, actors
and tasks begin again. They come after those for which they gave way, since the scheduler serves equal requests in their
order, and lose what they have made of their present block. So actors with calls, and tasks, give way only if nothing of
the stream works, and actors without calls only then or for other actors. Each time a block is made that would not be
made otherwise: by a call that does not rest, or by a rebuild, of which there is a finite number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from mpi_runtime import ActorHandle
from mpi_runtime.data.streams.calls import Call
from mpi_runtime.data.streams.lost_blocks import is_rebuild
from mpi_runtime.data.streams.records import Stage, Task
from mpi_runtime.extend import ask
from mpi_runtime.scheduler.protocol.entries import ActorEntry, TaskEntry
from mpi_runtime.scheduler.protocol.questions import Actors, Tasks

WAITS_FOR_RESOURCES = "PENDING_NODE_ASSIGNMENT"
WAITS_FOR_BLOCKS = "PENDING_ARGS_AVAIL"
CREATION = "ACTOR_CREATION_TASK"
Place = tuple[int, int]
"""A stage, and the number of an actor."""
Names = frozenset[str]
"""Names of resources."""


class Found(Struct):
    """What the calls of a stream do, and what its actors keep."""

    works: bool = False
    """Whether something makes a block."""
    waiting: list[Names] = field(default_factory=list)
    """What those need that have work, and wait for resources."""
    waiting_actors: int = 0
    """How many of them are actors."""
    created: list[Place] = field(default_factory=list)
    """Actors that waited before, and do not any more."""
    moves: list[tuple[Place, Place]] = field(default_factory=list)
    """Actors that wait, and those that get their calls."""
    idle: list[tuple[Place, Names]] = field(default_factory=list)
    resting: list[tuple[Place | Task, Names]] = field(default_factory=list)

    def giving(self) -> list[Place | Task]:
        """The actors and tasks that give way, as many as wait."""
        wanted = frozenset().union(*self.waiting)
        most = self.waiting_actors if self.works else len(self.waiting)
        holders = [*self.idle, *(() if self.works else self.resting)]
        return [holder for holder, kept in holders if kept & wanted][:most]


def look(stages: Sequence[Stage], calls: Mapping[int, Call], actors: Mapping[Place, ActorHandle]) -> Found:
    """Ask what the calls and actors of a stream do."""
    live = {entry.task_id: entry for entry in ask(Tasks())}
    found = Found()
    for id in filter(is_rebuild, live):
        _note(found, live[id])
    for call in calls.values():
        if call.task.actor < 0 and (entry := live.get(call.generator.completed().hex())):
            if not _rests(call):
                _note(found, entry)
            elif entry.state != WAITS_FOR_RESOURCES:
                found.resting.append((call.task, _names(entry) - {"CPU"}))
    if actors:
        _look_at_actors(found, stages, calls, actors, live)
    return found


def _look_at_actors(
    found: Found,
    stages: Sequence[Stage],
    calls: Mapping[int, Call],
    actors: Mapping[Place, ActorHandle],
    live: Mapping[str, TaskEntry],
) -> None:
    creations = {entry.actor_id: entry for entry in live.values() if entry.type == CREATION}
    alive = {entry.actor_id: _names(entry) for entry in ask(Actors()) if entry.state == "ALIVE"}
    kept = {place: alive[id] for place, handle in actors.items() if (id := handle._actor_id.hex()) in alive}
    for (stage, actor), handle in actors.items():
        place = stage, actor
        first = next(_calls_of(stages[stage].actors.get(actor, ()), calls), None)
        if place in kept and actor in stages[stage].waiting:
            found.created.append(place)
        if first is None:
            found.idle += [(place, kept[place])] if place in kept else []
            continue
        entry = live.get(first.generator.completed().hex())
        waits = _rests(first) or (entry is not None and entry.state == WAITS_FOR_BLOCKS)
        creation = creations.get(handle._actor_id.hex())
        if place in kept:
            found.works |= not waits
            found.resting += [(place, kept[place])] if waits else []
        elif creation is not None and creation.state == WAITS_FOR_RESOURCES:
            others = [other for other in kept if other[0] == stage]
            if others:
                found.moves.append((place, min(others, key=lambda other: len(stages[stage].actors[other[1]]))))
            elif not waits:
                found.waiting_actors += 1
                found.waiting.append(_names(creation))
        elif creation is not None:
            found.works |= not waits


def _calls_of(tasks: Sequence[Task], calls: Mapping[int, Call]) -> Iterator[Call]:
    return (calls[id(task)] for task in tasks if id(task) in calls)


def _rests(call: Call) -> bool:
    """Whether a call waits for the stream, which may not have looked for a while."""
    return call.task.is_paused or call.generator.next_ready()


def _note(found: Found, entry: TaskEntry) -> None:
    """Note a call that is to make a block."""
    if entry.state == WAITS_FOR_RESOURCES and (names := _names(entry)):
        found.waiting.append(names)
    elif entry.state != WAITS_FOR_BLOCKS:
        found.works = True


def _names(entry: TaskEntry | ActorEntry) -> Names:
    return frozenset(entry.required_resources)
