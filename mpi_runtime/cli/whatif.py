"""The verb `whatif`: how long a batch that has run would take with other nodes."""

import argparse
from collections.abc import Sequence

from mpi_runtime.batch.past import History, read_history
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.whatif.batches import Batch, in_lines
from mpi_runtime.whatif.virtual_cluster import Shape


def whatif(words: Sequence[str]) -> int:
    """Print a table of what a batch would take on other nodes."""
    options = _parser().parse_args(words)
    try:
        history = read_history(options.directory)
    except (JournalError, OSError) as error:
        raise LaunchError(str(error)) from error
    batch = Batch(history)
    if not batch.durations:
        raise LaunchError(f"{options.directory} has no batch: name the directory of one that has run, as batch-NAME is")
    own = _node_of(history)
    cpus, memory = options.cpus_per_node or own.cpus, options.memory_per_node or own.memory
    gpus = options.gpus_per_node or [own.gpus]
    prospects = [batch.on(nodes, Shape(cpus, one, memory)) for one in gpus for nodes in options.nodes]
    print(f"{len(batch.durations)} commands" + (f", of {batch.guessed} the time is a guess" if batch.guessed else ""))
    print("\n".join(in_lines(prospects)))
    return 0


def _node_of(history: History) -> Shape:
    """The largest node of the last run."""
    nodes = history.runs[-1].nodes if history.runs else []
    if not nodes:
        return Shape(1)
    return Shape(max(one.cpus for one in nodes), max(one.gpus for one in nodes), int(max(one.memory for one in nodes)))


def _numbers(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= one <= 1e6 for one in found):
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, not {text!r}")
    return found


def _counts(text: str) -> list[int]:
    found = _numbers(text)
    if any(one < 1 or one != int(one) for one in found):
        raise argparse.ArgumentTypeError(f"must be whole numbers of 1 or more with commas between them, not {text!r}")
    return [int(one) for one in found]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpi-runtime whatif",
        description="How long a batch would take on other nodes: its commands, with the durations of its journal, "
        "through the scheduler in virtual time. Nothing is run.",
    )
    parser.add_argument("directory", help="of a batch that has run, such as batch-NAME")
    parser.add_argument("--nodes", type=_counts, default=[1, 2, 4, 8], metavar="N,...", help="1,2,4,8")
    parser.add_argument("--cpus-per-node", type=float, metavar="N", help="as the largest node of the last run had")
    parser.add_argument("--gpus-per-node", type=_numbers, metavar="N,...", help="as that node had")
    parser.add_argument("--memory-per-node", type=int, metavar="BYTES", help="as that node had")
    return parser
