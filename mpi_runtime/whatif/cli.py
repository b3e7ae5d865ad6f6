"""The verb `whatif`: estimates how long a finished batch or job would take on other nodes."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mpi_runtime.batch.extend import NoBatchError, directory_of, planned_history
from mpi_runtime.errors import LaunchError
from mpi_runtime.extend import size_in_bytes
from mpi_runtime.scheduler.recording import NotARecordingError, Recording
from mpi_runtime.show import numbers
from mpi_runtime.show.command_line import add_json, print_json
from mpi_runtime.slurm.nodelist import HOSTS_MAX
from mpi_runtime.whatif.batches import Batch
from mpi_runtime.whatif.prospects import Prospect, in_lines, proposal
from mpi_runtime.whatif.recorded_calls import read_job
from mpi_runtime.whatif.recorded_jobs import Job
from mpi_runtime.whatif.virtual_cluster import Shape, custom


def whatif(words: Sequence[str]) -> int:
    """Print a table of the durations of a batch or a job on other nodes."""
    options = whatif_parser().parse_args(words)
    subject, own, title = _subject(options.name)
    cpus, memory = options.cpus_per_node or own.cpus, options.memory_per_node or own.memory
    gpus = options.gpus_per_node or [own.gpus]
    if max(options.nodes) * max(options.jobs) > HOSTS_MAX:
        raise LaunchError(f"--nodes and --jobs are at most {HOSTS_MAX} nodes together")
    shapes = [own._replace(cpus=cpus, gpus=one, memory=memory) for one in gpus]
    if isinstance(subject, Batch):
        prospects = [
            subject.on(jobs * nodes, shape, jobs)
            for shape in shapes
            for nodes in options.nodes
            for jobs in options.jobs
        ]
    elif options.jobs != [1]:
        raise LaunchError("--jobs is for batches: the calls of a program run in one job")
    else:
        prospects = [subject.on(nodes, shape) for shape in shapes for nodes in options.nodes]
    if options.json:
        print_json({"about": title, "prospects": [_facts(one) for one in prospects]})
        return 0
    print(title)
    print("\n".join(in_lines(prospects)))
    if options.jobs != [1] and (found := proposal(prospects)):
        print(found)
    return 0


def _facts(one: Prospect) -> dict[str, Any]:
    return {
        "jobs": one.jobs,
        "nodes": one.nodes,
        "cpus_per_node": one.shape.cpus,
        "gpus_per_node": one.shape.gpus,
        "memory_per_node": one.shape.memory,
        "seconds": one.seconds,
        "node_hours": one.node_hours,
        "core_hours": one.core_hours,
        "cpu_use": one.cpu_use,
        "gpu_use": one.gpu_use,
        "bound": one.bound,
        "never": one.never,
    }


def _subject(name: str) -> tuple[Batch | Job, Shape, str]:
    try:
        return _batch(directory_of(name))
    except NoBatchError as error:
        if os.path.isfile(name):
            return _job(name)
        raise LaunchError(f"{error}; or name the recording of a job, which MPI_RUNTIME_RECORD=FILE makes") from None


def _batch(directory: str) -> tuple[Batch, Shape, str]:
    """A finished batch, the largest node of its last run, and the number of its commands in words."""
    history = planned_history(directory)
    batch = Batch(history)
    if not batch.durations:
        raise LaunchError(f"no command of the batch {directory} has run")
    guessed = f", of {batch.guessed} the time is a guess" if batch.guessed else ""
    nodes = [Shape(one.cpus, one.gpus, int(one.memory), custom(one.resources)) for one in history.nodes()]
    return batch, _largest(nodes), numbers.plural(len(batch.durations), "command") + guessed


def _job(path: str) -> tuple[Job, Shape, str]:
    """A recorded job, its largest node, and the number of its calls in words."""
    try:
        record = read_job(Recording(Path(path).read_bytes()))
    except (OSError, NotARecordingError, msgspec.DecodeError) as error:
        raise LaunchError(
            f"{path} is not the recording of a job, which MPI_RUNTIME_RECORD=FILE makes: {error}"
        ) from error
    if not record.calls:
        raise LaunchError(f"{path} has no calls that have ended")
    left_out = f"; {record.unended} had not ended, and are left out" if record.unended else ""
    return Job(record), _largest(record.nodes), numbers.plural(len(record.calls), "call") + left_out


def _largest(nodes: Sequence[Shape]) -> Shape:
    """The largest amount of each resource on any of these nodes."""
    if not nodes:
        return Shape(1)
    resources = dict(sorted(pair for one in nodes for pair in one.resources))  # of a name the largest comes last
    return Shape(
        max(one.cpus for one in nodes),
        max(one.gpus for one in nodes),
        max(one.memory for one in nodes),
        tuple(resources.items()),
    )


def _numbers(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= one <= 1e6 for one in found):
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, not {text!r}")
    return found


def _bytes(text: str) -> int:
    try:
        return size_in_bytes("--memory-per-node", int(text) if text.isdecimal() else text)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _counts(text: str) -> list[int]:
    found = _numbers(text)
    if any(one < 1 or one != int(one) for one in found):
        raise argparse.ArgumentTypeError(f"must be whole numbers of 1 or more with commas between them, not {text!r}")
    return [int(one) for one in found]


def whatif_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime whatif`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime whatif",
        description="Estimate how long a batch or a job would take on other nodes: the scheduler runs its commands or "
        "calls in virtual time, with the durations that they had. Nothing is started.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help="a batch that has run (its file, its name, or the directory of its output), or the file of a job that was "
        "run with MPI_RUNTIME_RECORD=FILE",
    )
    help_nodes = "numbers of nodes to try; 1,2,4,8"
    parser.add_argument("--nodes", type=_counts, default=[1, 2, 4, 8], metavar="COUNT,...", help=help_nodes)
    help_jobs = "numbers of jobs to try, each with these nodes, on one batch; 1"
    parser.add_argument("--jobs", type=_counts, default=[1], metavar="COUNT,...", help=help_jobs)
    help_cpus = "CPUs of each; those of the largest node of the last run"
    parser.add_argument("--cpus-per-node", type=float, metavar="COUNT", help=help_cpus)
    parser.add_argument("--gpus-per-node", type=_numbers, metavar="COUNT,...", help="GPUs of each; those of that node")
    help_memory = "memory of each, such as 64GB; that of that node"
    parser.add_argument("--memory-per-node", type=_bytes, metavar="SIZE", help=help_memory)
    add_json(parser)
    return parser
