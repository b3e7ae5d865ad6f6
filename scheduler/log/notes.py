"""Log lines for the user about a running job, each with its level of `logging`.

A frequent event is logged a few times, and then each time that its count has doubled.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi_runtime.scheduler.protocol.amounts import amount, gib
from mpi_runtime.scheduler.protocol.effects import UNHANDLED, Note
from mpi_runtime.scheduler.protocol.limits import LOGGED_SINGLY_MAX, UNIT
from mpi_runtime.scheduler.records.records import Node, Rank
from mpi_runtime.scheduler.records.state import Failure, State

WARNING, ERROR = 30, 40
"""As in `logging`."""
HOSTS_NAMED_MAX = 4


def log(state: State, level: int, event: str, text: str, rank: Rank | None = None) -> None:
    """Add a log line about the whole job, or about a rank."""
    number, host = (rank.number, rank.node.hostname) if rank is not None else (0, "")
    state.effects.notes.append(Note(level, event, text, number, host))


def log_often(state: State, level: int, event: str, name: str, text: str, rank: Rank | None) -> None:
    """Add a log line about an event that may be frequent for functions or classes of this name."""
    state.logs.times[event, name] = times = state.logs.times.get((event, name), 0) + 1
    if times <= LOGGED_SINGLY_MAX:
        log(state, level, event, text, rank)
    elif times & (times - 1) == 0:
        log(state, level, event, f"{text} So far this has happened {times} times.", rank)


def unhandled(state: State, failure: Failure) -> None:
    """Log an error that no client has read."""
    is_first = not any(event == UNHANDLED for event, _ in state.logs.times)
    hint = " (MPI_RUNTIME_IGNORE_UNHANDLED_ERRORS=1 silences such lines)" if is_first else ""
    text = f"unhandled error of {failure.name}(), for which nobody has called get(): {failure.text}{hint}."
    log_often(state, ERROR, UNHANDLED, failure.name, text, failure.rank)


def start(state: State) -> str:
    """Return the resources of the job in one line."""
    nodes = list(state.nodes.values())
    gpus = sum(len(node.inventory.devices) for node in nodes)
    memory = sum(node.total.memory for node in nodes)
    cpus = amount(sum(node.total.cpu for node in nodes))
    has = [counted(cpus, "CPU"), counted(gpus, "GPU"), f"{gib(memory)} of memory"]
    return f"{counted(len(state.ranks), 'rank')} on {_hosts(nodes)}: {', '.join(has)}"


def totals(state: State, took_us: int) -> str:
    """Return the totals of the job in one line."""
    cpu_s = took_us / 1e6 * sum(node.total.cpu for node in state.nodes.values()) / UNIT
    failed = state.failed - state.cancelled
    counts = ((failed, "failed"), (state.cancelled, "cancelled"), (state.retried, "run again"))
    ends = ", ".join(f"{count} {what}" for count, what in counts if count)
    restarted = f" ({state.restarted} restarted)" if state.restarted else ""
    parts = [
        f"{counted(state.finished + state.failed, 'call')} ended" + (f" ({ends})" if ends else ""),
        f"{counted(state.totals.actors, 'actor')} created{restarted}",
        f"{gib(state.totals.put_bytes)} put",
        f"durations of calls add up to {state.totals.busy_us / 1e6:.1f} s, the time of all CPUs to {cpu_s:.1f} s",
    ]
    return f"the job took {took_us / 1e6:.1f} s: {', '.join(parts)}"


def _hosts(nodes: list[Node]) -> str:
    names = [node.hostname for node in nodes[:HOSTS_NAMED_MAX]]
    more = [f"{len(nodes) - HOSTS_NAMED_MAX} more"] if len(nodes) > HOSTS_NAMED_MAX else []
    return f"{counted(len(nodes), 'host')} ({', '.join(names + more)})"


def listed(words: Sequence[str], most: int) -> str:
    """Return the first words in a row, with the number of the others."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def counted(number: int | str, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if str(number) == "1" else f"{number} {what}s"
