"""Assertions on the whole state of the scheduler, for unit tests and the simulator.

- `executors.py`: executors, grants, queues, nodes, groups, actors
- `objects.py`: calls and objects: references, copies, fetches, lineage
"""


class BrokenInvariantError(AssertionError):
    """The state contradicts itself: a bug of the runtime. Please report it with the text."""


def holds(condition: object, message: str) -> None:
    """Raise unless the condition is true."""
    if not condition:
        raise BrokenInvariantError(message)
