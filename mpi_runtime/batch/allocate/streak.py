"""How many jobs in a row were of no use. Pure."""

from mpi_runtime.show.numbers import plural

USELESS_MAX = 3
"""Nothing more is submitted after as many jobs in a row in which no command has run to its end ..."""
LOST_MAX = 10
"""... or as many that were preempted or lost with a node: a command may be what ends its node."""
_LOST = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL")
"""Ends of jobs that most often say nothing about their commands."""


class Streak:
    """Jobs in a row in which no command has ended."""

    def __init__(self) -> None:
        """There are none."""
        self._useless = self._lost = 0

    def __bool__(self) -> bool:
        return bool(self._useless or self._lost)

    @property
    def is_enough(self) -> bool:
        """Whether another job would most likely be of no use either."""
        return self._useless >= USELESS_MAX or self._lost >= LOST_MAX

    def add(self, state: str, words: str) -> str:
        """Note a job that has ended so, as `words` describe it. With the one that is enough, return what that means."""
        was_enough, is_lost = self.is_enough, state in _LOST
        self._lost += is_lost
        self._useless += not is_lost
        if was_enough or not self.is_enough:
            return ""
        count = plural(self._lost if is_lost else self._useless, "job")
        return (
            f"{count} in a row {'were preempted or lost with a node' if is_lost else 'have ended'}, and no command has "
            f"ended in them: nothing more is submitted. The last one: {words}"
        )
