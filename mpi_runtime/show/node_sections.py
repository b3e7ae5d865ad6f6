"""The nodes on the page of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi_runtime.scheduler.protocol.entries import NodeStore
from mpi_runtime.scheduler.protocol.past import RETURNED
from mpi_runtime.scheduler.protocol.window_questions import NodeLoad
from mpi_runtime.show.facts import Facts
from mpi_runtime.show.measures import CURVES, Measured
from mpi_runtime.show.numbers import count, plural, seconds, size, three
from mpi_runtime.show.page import Block, table

FEW_NODES = 8


def nodes(facts: Facts) -> Block:
    """The nodes: a table of few, a heat map of many."""
    nodes, in_all = facts.glance.nodes, facts.glance.nodes_in_all
    store = {one.hostname: one for one in facts.store.nodes} if facts.store is not None else {}
    closed = [one for one in nodes if _state_of(one, facts.measured.get(one.name) or Measured()) != "runs"]
    said = f"{count(in_all)}, {f'{len(closed)} to look at' if closed else 'all well'}"
    said += f"; the first {len(nodes)} are shown" if in_all > len(nodes) else ""
    if facts.is_over:
        return _nodes_after(facts, nodes, store)
    if len(nodes) > FEW_NODES:
        return {"id": "nodes", "kind": "heat", "title": "Nodes", "said": said, **_heat(facts, nodes, store)}
    has_gpus = any(one.gpus for one in nodes)
    is_measured = any(one.gpus for one in facts.measured.values())
    rows = []
    for number, one in enumerate(nodes):
        kept = store.get(one.name)
        found = facts.measured.get(one.name) or Measured()
        row: list[object] = [f"{number}", one.name, _state_of(one, found), _share(one.cpus_used, one.cpus, three)]
        row += [_share(one.gpus_used, one.gpus, three)] if has_gpus else []
        row += [_trend(found, "CPU use"), _trend(found, "memory in use")]
        row += [_trend(found, "GPU use"), _hottest(found)] if is_measured else []
        row += [_share(_used(kept), one.arena, size), one.executors]
        rows.append(row)
    wide = {"w": 1, "l": 1}
    columns: list[tuple[Any, ...]] = [("node", "mono", {"w": 1}), ("state", "pill"), ("CPUs given", "share", wide)]
    columns += [("GPUs given", "share", wide)] if has_gpus else []
    columns += [("CPU use", "trend", {"help": "of the host, by all programs, in the last minutes"})]
    columns += [("memory in use", "trend", {"help": "of the host or its control group, by all programs"})]
    if is_measured:
        columns += [("GPU use", "trend"), ("hottest GPU", "text")]
    columns += [("object store", "share", wide), ("processes", "count")]
    return table("nodes", "Nodes", columns, rows, said=said, sort=0, open=True)


def detail(facts: Facts, id: str) -> list[Block]:
    """What a node opens: its curves, and its GPUs."""
    nodes = enumerate(facts.glance.nodes)
    one = next((one for number, one in nodes if id in (str(number), one.name)), None)
    found = facts.measured.get(one.name) if one is not None else None
    if one is None or found is None:
        return [{"kind": "note", "text": "It has not measured anything yet: it does so every few seconds."}]
    used, whole = found.gpu_memory
    said = {
        "memory in use": f"{size(found.memory_used)} of {size(found.memory)}",
        "GPU memory": f"{size(used)} of {size(whole)}",
    }
    shown = {name: list(points) for name, points in found.curves.items() if len(points) > 1}
    series = [
        {"name": name, "of": 1, "form": "percent", "values": points, "said": said.get(name, f"{points[-1]:.0%}")}
        for name, points in shown.items()
    ]
    begin_s = facts.now_s - max(map(len, shown.values()), default=0) * found.period_s
    blocks: list[Block] = []
    if series:
        blocks.append({"kind": "areas", "from": begin_s, "to": facts.now_s, "clock": True, "series": series})
    if found.gpus:
        blocks.append(_gpus(found))
    stores = facts.store.nodes if facts.store is not None else []
    on_disk = next((kept.on_disk for kept in stores if kept.hostname == one.name), 0)
    rows = [["memory given to calls", f"{size(one.memory_used)} of {size(one.memory)}"]]
    rows += [["objects on disk", size(on_disk)]] if on_disk else []
    return [*blocks, {"kind": "kv", "rows": [*rows, *(["problem", text] for text in one.problems)]}]


def _gpus(found: Measured) -> Block:
    rows = []
    for number, gpu in enumerate(found.gpus):
        use = [gpu.use, 100, f"{gpu.use} %"] if gpu.use >= 0 else None
        memory = _share(gpu.memory_used, gpu.memory, size) if gpu.memory > 0 else None
        warmth = f"{gpu.temperature} °C" if gpu.temperature >= 0 else ""
        rows.append([gpu.uuid, str(number), gpu.uuid[:12], use, memory, warmth, gpu.fault])
    wide = {"w": 1, "l": 1}
    columns = [("GPU", "text"), ("id", "mono"), ("use", "share", wide), ("memory", "share", wide)]
    columns += [("temperature", "text"), ("fault", "text")]
    return table("gpus", "", columns, rows, noun="GPUs", sort=0)


def _trend(found: Measured, name: str) -> list[Any] | None:
    """The last number of a curve, its text and its points."""
    points = found.curves[name]
    return [points[-1], 1, f"{points[-1]:.0%}", [round(point, 3) for point in points]] if points else None


def _hottest(found: Measured) -> str:
    most = max((gpu.temperature for gpu in found.gpus), default=-1)
    return f"{most} °C" if most >= 0 else ""


def _nodes_after(facts: Facts, nodes: list[NodeLoad], store: dict[str, NodeStore]) -> Block:
    """The nodes of a job that has ended: what they have done."""
    took_s = facts.known_s
    rows = []
    for number, one in enumerate(nodes):
        runs = [run for run in facts.runs if run.host == one.name]
        busy_s = sum(run.duration_us * run.cpus for run in runs) / 1e6
        failed = sum(run.outcome != RETURNED for run in runs)
        kept = store.get(one.name)
        row = [f"{number}", one.name, one.cpus, _share(busy_s, one.cpus * took_s, seconds)]
        rows.append([*row, len(runs), failed, _used(kept), kept.on_disk if kept is not None else 0])
    columns = [("node", "mono", {"w": 1}), ("CPUs", "num"), ("CPU time given", "share", {"w": 1, "l": 1})]
    columns += [("attempts", "count"), ("failed", "count", {"bad": 1})]
    columns += [("object store", "bytes"), ("on disk", "bytes")]
    return table("nodes", "Nodes", columns, rows, said=count(facts.glance.nodes_in_all), sort=0)


def _used(kept: NodeStore | None) -> int:
    return kept.used if kept is not None else 0


def _share(used: float, whole: float, form: Callable[[float], str]) -> list[Any]:
    return [used, whole, f"{form(used)} of {form(whole)}"]


def _state_of(node: NodeLoad, found: Measured) -> str:
    if node.is_closed:
        return "full"
    return "problem" if node.problems or any(gpu.fault for gpu in found.gpus) else "runs"


def _heat(facts: Facts, nodes: list[NodeLoad], store: dict[str, NodeStore]) -> dict[str, Any]:
    metrics = {"cpus": "CPUs given"}
    if any(one.gpus for one in nodes):
        metrics |= {"gpus": "GPUs given", "GPU use": "GPU use"}
    metrics |= {"CPU use": "CPU use", "memory in use": "Memory in use", "store": "Store"}
    cells = []
    for one in nodes:
        kept = store.get(one.name)
        values = {
            "cpus": one.cpus_used / (one.cpus or 1),
            "gpus": one.gpus_used / (one.gpus or 1),
            "memory": one.memory_used / (one.memory or 1),
        }
        found = facts.measured.get(one.name) or Measured()
        values |= {
            name: found.curves[name][-1] for name in ("CPU use", "memory in use", "GPU use") if found.curves[name]
        }
        faults = [f"GPU {number}: {gpu.fault}" for number, gpu in enumerate(found.gpus) if gpu.fault]
        flag = "its memory is nearly used up: no new call" if one.is_closed else "; ".join(one.problems + faults)
        known = [
            ["CPUs", f"{three(one.cpus_used)} of {three(one.cpus)} given"],
            *([["GPUs", f"{three(one.gpus_used)} of {three(one.gpus)} given"]] if one.gpus else []),
            ["memory", f"{size(one.memory_used)} of {size(one.memory)} given"],
            ["object store", f"{size(_used(kept))} of {size(one.arena)}"],
            ["on disk", size(kept.on_disk if kept is not None else 0)],
        ]
        known += [[name, f"{found.curves[name][-1]:.0%}"] for name in CURVES if name in values]
        values["store"] = _used(kept) / (one.arena or 1)
        said = plural(one.executors, "process")
        cells.append({"id": one.name, "values": values, "flag": flag, "facts": known, "said": said})
    return {"metrics": [{"key": key, "name": name} for key, name in metrics.items()], "nodes": cells}
