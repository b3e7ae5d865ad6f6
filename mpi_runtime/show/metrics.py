"""The numbers of a job as OpenMetrics text, which Prometheus reads.

https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md: names in base units, counters end in
`_total`, and the text ends with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, groupby

from mpi_runtime.scheduler.protocol.series import COUNTER, HISTOGRAM, Labels, Row
from mpi_runtime.scheduler.protocol.window_questions import FunctionEntry, NodeLoad, RecordedFrom
from mpi_runtime.show.facts import Facts

PREFIX = "mpi_runtime"
_Sample = tuple[dict[str, str], float]
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def rows_of(ask: Callable[[RecordedFrom], list[Row] | None]) -> list[Row]:
    """Ask the window of a job for all that its program counts, in parts that fit into an answer."""
    found: dict[tuple[str, Labels], Row] = {}
    first = 0
    while rows := ask(RecordedFrom(first)):
        first += len(rows)
        found.update({(row.family.name, row.labels): row for row in rows})
    return list(found.values())


def text(facts: Facts) -> str:
    """Return the numbers of a job."""
    lines = []
    for name, kind, unit, about, samples in _families(facts):
        full = f"{PREFIX}_{name}"
        lines += [f"# TYPE {full} {kind}", *([f"# UNIT {full} {unit}"] if unit else []), f"# HELP {full} {about}"]
        suffix = "_total" if kind == "counter" else ""
        lines += [f"{full}{suffix}{_labels(labels)} {value:.17g}" for labels, value in samples]
    for family, rows in groupby(sorted(facts.recorded, key=_place), lambda row: row.family):
        lines += [f"# TYPE {family.name} {family.kind}"]
        lines += [f"# HELP {family.name} {_escaped(family.about)}"] if family.about else []
        lines += [line for row in rows for line in _of_program(row)]
    return "\n".join([*lines, "# EOF", ""])


def _place(row: Row) -> tuple[str, Labels]:
    return row.family.name, row.labels


def _of_program(row: Row) -> Iterator[str]:
    """The lines of a metric that the program records."""
    name, labels = row.family.name, dict(row.labels)
    if row.family.kind != HISTOGRAM:
        yield f"{name}{'_total' if row.family.kind == COUNTER else ''}{_labels(labels)} {row.numbers[0]:.17g}"
        return
    total, *counts = row.numbers
    ends = [*map(repr, row.family.boundaries), "+Inf"]
    for end, below in zip(ends, accumulate(counts), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': end})} {below:.17g}"
    yield f"{name}_count{_labels(labels)} {sum(counts):.17g}"
    yield f"{name}_sum{_labels(labels)} {total:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _families(facts: Facts) -> Iterator[tuple[str, str, str, str, list[_Sample]]]:
    """Name, type, unit, help and samples of each family."""
    glance = facts.glance
    counts, functions = glance.counts, glance.functions

    def by_function(amount: Callable[[FunctionEntry], float]) -> list[_Sample]:
        return [({"function": one.name}, amount(one)) for one in functions]

    def by_node(amount: Callable[[NodeLoad], float]) -> list[_Sample]:
        return [({"node": one.name}, amount(one)) for one in glance.nodes]

    yield "up", "gauge", "", "1 while the job runs.", [({}, float(not facts.is_over))]
    yield "time_seconds", "gauge", "seconds", "Time since the start of the job.", [({}, facts.now_s - facts.begin_s)]
    if glance.end_us:
        left_s = glance.end_us / 1e6 - facts.now_s
        yield "time_left_seconds", "gauge", "seconds", "Time until the batch job must end.", [({}, left_s)]
    yield "calls_submitted", "counter", "", "Calls that were submitted.", by_function(lambda one: one.submitted)
    yield "calls_done", "counter", "", "Calls that have returned.", by_function(lambda one: one.done)
    failed = by_function(lambda one: one.failed)
    yield "calls_failed", "counter", "", "Calls that have failed, after all retries.", failed
    cancelled = by_function(lambda one: one.cancelled)
    yield "calls_cancelled", "counter", "", "Calls that were cancelled.", cancelled
    yield "calls_running", "gauge", "", "Calls that hold a process.", by_function(lambda one: one.running)
    yield (
        "calls_waiting",
        "gauge",
        "",
        "Calls that were submitted and do not run.",
        by_function(lambda one: one.waiting),
    )
    known = [({"function": one.name}, one.mean_us / 1e6) for one in functions if one.mean_us >= 0]
    yield "call_duration_seconds", "gauge", "seconds", "Moving mean of the duration of calls.", known
    yield "attempts_retried", "counter", "", "Attempts after which a call ran again.", [({}, counts.retried)]
    yield "actors", "gauge", "", "Actors that live or have handles.", [({}, counts.actors)]
    yield "actor_restarts", "counter", "", "Restarts of actors.", [({}, counts.restarted)]
    yield "processes", "gauge", "", "Processes that run calls and actors.", by_node(lambda one: one.executors)
    yield "objects", "gauge", "", "Objects in the store.", [({}, counts.objects)]
    yield "cpus", "gauge", "", "CPUs of the job.", by_node(lambda one: one.cpus)
    yield "cpus_given", "gauge", "", "CPUs reserved by calls and actors.", by_node(lambda one: one.cpus_used)
    yield "gpus", "gauge", "", "GPUs of the job.", by_node(lambda one: one.gpus)
    yield "gpus_given", "gauge", "", "GPUs reserved by calls and actors.", by_node(lambda one: one.gpus_used)
    yield "memory_bytes", "gauge", "bytes", "Memory of the job.", by_node(lambda one: one.memory)
    yield (
        "memory_given_bytes",
        "gauge",
        "bytes",
        "Memory reserved by calls and actors.",
        by_node(lambda one: one.memory_used),
    )
    yield "object_store_bytes", "gauge", "bytes", "Size of the object store.", by_node(lambda one: one.arena)
    stores = facts.store.nodes if facts.store is not None else []
    stored = [({"node": one.hostname}, float(one.used)) for one in stores]
    yield "object_store_used_bytes", "gauge", "bytes", "Bytes of the objects in the store.", stored
    spilled = [({"node": one.hostname}, float(one.on_disk)) for one in stores]
    yield "object_store_spilled_bytes", "gauge", "bytes", "Bytes of the objects that were spilled to disk.", spilled
    measured = facts.measured
    use = [({"node": name}, one.cpu) for name, one in measured.items() if one.cpu >= 0]
    yield "cpu_use_ratio", "gauge", "ratio", "Busy share of the processors of the host.", use
    used = [({"node": name}, float(one.memory_used)) for name, one in measured.items()]
    yield "memory_used_bytes", "gauge", "bytes", "Memory in use on the host, by all programs.", used
    gpus = [({"node": name, "gpu": gpu.uuid}, gpu) for name, one in measured.items() for gpu in one.gpus]
    busy = [(labels, gpu.use / 100) for labels, gpu in gpus if gpu.use >= 0]
    yield "gpu_use_ratio", "gauge", "ratio", "Busy share of the GPU.", busy
    taken = [(labels, float(gpu.memory_used)) for labels, gpu in gpus if gpu.memory_used >= 0]
    yield "gpu_memory_used_bytes", "gauge", "bytes", "Memory in use on the GPU, by all programs.", taken
    warm = [(labels, float(gpu.temperature)) for labels, gpu in gpus if gpu.temperature >= 0]
    yield "gpu_temperature_celsius", "gauge", "celsius", "Temperature of the GPU.", warm
    faults = [(labels, float(bool(gpu.fault))) for labels, gpu in gpus]
    yield "gpu_faults", "gauge", "", "1 if the GPU has a fault.", faults
