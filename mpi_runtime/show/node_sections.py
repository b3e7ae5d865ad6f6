"""The nodes on the page of a job."""

from __future__ import annotations

from typing import Any

from mpi_runtime.show.facts import Facts
from mpi_runtime.show.numbers import count, seconds, size, three
from mpi_runtime.show.page import Block, table

FEW_NODES = 8


def nodes(facts: Facts) -> Block:
    """The nodes: a table of few, a heat map of many."""
    nodes, in_all = facts.glance["nodes"], facts.glance["nodes_in_all"]
    store = {one["hostname"]: one for one in facts.store.get("nodes", [])}
    closed = [one for one in nodes if one["is_closed"] or one["problems"]]
    said = f"{count(in_all)}, {f'{len(closed)} to look at' if closed else 'all well'}"
    if facts.is_over:
        return _nodes_after(facts, nodes, store)
    if len(nodes) > FEW_NODES:
        return {"id": "nodes", "kind": "heat", "title": "Nodes", "said": said, **_heat(nodes, store)}
    has_gpus = any(one["gpus"] for one in nodes)
    rows = []
    for number, one in enumerate(nodes):
        kept = store.get(one["name"], {})
        row = [f"{number}", one["name"], _state_of(one), _share(one["cpus_used"], one["cpus"], three)]
        row += [_share(one["gpus_used"], one["gpus"], three)] if has_gpus else []
        row += [_share(one["memory_used"], one["memory"], size), _share(kept.get("used", 0), one["arena"], size)]
        rows.append([*row, kept.get("on_disk", 0), one["executors"]])
    wide = {"w": 1, "l": 1}
    columns = [("node", "mono", {"w": 1}), ("state", "pill"), ("CPUs given", "share", wide)]
    columns += [("GPUs given", "share", wide)] if has_gpus else []
    columns += [("memory given", "share", wide), ("object store", "share", wide), ("on disk", "bytes")]
    columns += [("processes", "count")]
    return table("nodes", "Nodes", columns, rows, said=said, sort=0)


def _nodes_after(facts: Facts, nodes: list[dict[str, Any]], store: dict[str, Any]) -> Block:
    """The nodes of a job that has ended: what they have done."""
    took_s = facts.known_s
    rows = []
    for number, one in enumerate(nodes):
        runs = [run for run in facts.runs if run[2] == one["name"]]
        busy_s = sum(run[8] * run[11] for run in runs) / 1e6
        failed = sum(run[9] != 0 for run in runs)
        kept = store.get(one["name"], {})
        rows.append(
            [
                f"{number}",
                one["name"],
                one["cpus"],
                _share(busy_s, one["cpus"] * took_s, seconds),
                len(runs),
                failed,
                kept.get("used", 0),
                kept.get("on_disk", 0),
            ]
        )
    columns = [
        ("node", "mono", {"w": 1}),
        ("CPUs", "num"),
        ("CPU time given", "share", {"w": 1, "l": 1}),
        ("attempts", "count"),
        ("failed", "count", {"bad": 1}),
        ("object store", "bytes"),
        ("on disk", "bytes"),
    ]
    return table("nodes", "Nodes", columns, rows, said=count(facts.glance["nodes_in_all"]), sort=0)


def _share(used: float, whole: float, form: Any) -> list[Any]:
    return [used, whole, f"{form(used)} of {form(whole)}"]


def _state_of(node: dict[str, Any]) -> str:
    return "full" if node["is_closed"] else "lost GPU" if node["problems"] else "runs"


def _heat(nodes: list[dict[str, Any]], store: dict[str, Any]) -> dict[str, Any]:
    metrics = [
        {"key": "cpus", "name": "CPUs given"},
        {"key": "memory", "name": "Memory given"},
        {"key": "store", "name": "Store"},
    ]
    if any(one["gpus"] for one in nodes):
        metrics.insert(1, {"key": "gpus", "name": "GPUs given"})
    cells = []
    for one in nodes:
        kept = store.get(one["name"], {})
        values = {key: one[f"{key}_used"] / (one[key] or 1) for key in ("cpus", "gpus", "memory")}
        flag = "its memory is nearly used up: no new call" if one["is_closed"] else "; ".join(one["problems"])
        facts = [
            ["CPUs", f"{three(one['cpus_used'])} of {three(one['cpus'])} given"],
            ["GPUs", f"{three(one['gpus_used'])} of {three(one['gpus'])} given"],
            ["memory", f"{size(one['memory_used'])} of {size(one['memory'])} given"],
            ["object store", f"{size(kept.get('used', 0))} of {size(one['arena'])}"],
            ["on disk", size(kept.get("on_disk", 0))],
        ]
        values["store"] = kept.get("used", 0) / (one["arena"] or 1)
        cells.append(
            {
                "id": one["name"],
                "values": values,
                "flag": flag,
                "facts": facts,
                "said": f"{count(one['executors'])} processes",
            }
        )
    return {"metrics": metrics, "nodes": cells}
