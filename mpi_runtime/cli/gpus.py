"""The verb `gpus`: the GPUs that a rank started here would use, their links, and their problems.

The driver reports the processes that use them. The calls that hold a part of a GPU are known only in their job:
`nodes()[i]["gpus"]`.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import msgspec

from mpi_runtime.config import environment, find_gpus
from mpi_runtime.core.agent.gpus import Finder, Gpus
from mpi_runtime.core.host.launch import detect
from mpi_runtime.core.host.machine import read
from mpi_runtime.gpu.device import MIB, Device, Report, Use
from mpi_runtime.gpu.vendor import Vendor
from mpi_runtime.show.command_line import add_json, print_json
from mpi_runtime.show.tables import aligned

LIMIT_S = 20.0
"""Seconds that the driver may take, as in a job with the default `start_timeout_s`."""
_DISTANCES = {0: "SAME", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""The words of `nvidia-smi topo -m` for NVML's levels."""
_LINKS = {"NV": "NVLink", "XGMI": "XGMI", "XE": "Xe Link"}


def gpus(words: Sequence[str]) -> int:
    """Print the GPUs. Return 1 if there is a driver that does not answer, else 0."""
    options = gpus_parser().parse_args(words)
    found = Gpus(Finder(sys.path), LIMIT_S, None, detect(environment()).kind)
    report = found.report
    if options.json:
        print_json(as_facts(found))
    else:
        print(as_text(found))
    for problem in (*report.problems, *filter(None, [report.error])):
        print(f"mpi-runtime gpus: {problem}.", file=sys.stderr)
    return 1 if report.error else 0


def gpus_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime gpus`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime gpus", description="Show the GPUs that a rank started here, in this environment, would use."
    )
    add_json(parser)
    return parser


def as_facts(found: Gpus) -> dict[str, object]:
    """Return what was found as JSON values."""
    return {
        "host": os.uname().nodename,
        "gpus": [
            {"id": id, "token": found.token(device), **msgspec.structs.asdict(device)}
            for id, device in enumerate(found.report.devices)
        ],
        "links": [msgspec.structs.asdict(link) for link in found.report.links],
        "uses": [msgspec.structs.asdict(use) for use in found.report.uses],
        "problems": found.report.problems,
        "error": found.report.error,
    }


def as_text(found: Gpus) -> str:
    """Return what was found as text for people."""
    report = found.report
    if not report.devices:
        return f"No GPU for tasks on {os.uname().nodename}.{_why_none(report, found.vendor)}"
    shown_by = f"in {found.vendor.variable}"
    head = ("id", "type", "memory", "in use", "PCI address", "NUMA", "compute", shown_by, "processes")
    uses = {use.uuid: use for use in report.uses}
    rows: list[tuple[str, ...]] = [head]
    for id, device in enumerate(report.devices):
        rows.append(_row(id, device, uses.get(device.uuid), found.token(device)))
    parts = [f"GPUs for tasks on {os.uname().nodename}:", *_table(rows)]
    word = found.vendor.link
    if lines := _links(report, word):
        parts += ["", f"Links ({word}: how many of {_LINKS[word]}; else as nvidia-smi topo -m):", *lines]
    return "\n".join(parts)


def _why_none(report: Report, vendor: Vendor) -> str:
    if report.error or report.problems:
        return ""
    if report.cards:
        return f" The driver has {len(report.cards)}; {_words(vendor)} shows none of them to this process."
    if find_gpus() == "never":
        return " MPI_RUNTIME_FIND_GPUS=never: GPUs were not searched."
    return " There is no sign of a driver of NVIDIA, AMD or Intel. MPI_RUNTIME_FIND_GPUS=always looks without a sign."


def _words(vendor: Vendor) -> str:
    """Return the variables of which one hides the devices."""
    names = [name for name in vendor.narrowed_by if name in environment()]
    return " with ".join(names) or vendor.variable


def _row(id: int, device: Device, use: Use | None, token: str) -> tuple[str, ...]:
    kind = device.types[-1] if device.types else device.name
    version = ".".join(map(str, device.capability)) if any(device.capability) else "-"
    capability = version + (" exclusive" if device.is_exclusive else "")
    numa = str(device.numa) if device.numa >= 0 else "-"
    processes = ", ".join(_process(pid) for pid in (use.pids if use is not None else ())) or "-"
    in_use = _gib(use.memory) if use is not None else "-"  # not shown by the driver
    return str(id), kind, _gib(device.memory), in_use, device.bus, numa, capability, token, processes


def _gib(size: int) -> str:
    return f"{size / (MIB << 10):.1f} GiB"


def _process(pid: int) -> str:
    """Return the pid, with the name of the process if it can be read."""
    name = read(f"/proc/{pid}/comm")
    return f"{pid} ({name})" if name else str(pid)


def _links(report: Report, word: str) -> list[str]:
    """Return the lines of a table of connections between devices; empty if none is known."""
    known = {(link.first, link.second): link for link in report.links}
    ids = {device.uuid: id for id, device in enumerate(report.devices)}
    if not any(first in ids and second in ids for first, second in known):
        return []
    rows = [("", *(str(id) for id in ids.values()))]
    for one in ids:
        cells: list[str] = []
        for other in ids:
            link = known.get((one, other)) or known.get((other, one))
            far = (
                "-" if link is None else f"{word}{link.nvlinks}" if link.nvlinks else _DISTANCES.get(link.distance, "?")
            )
            cells.append("X" if one == other else far)
        rows.append((str(ids[one]), *cells))
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"  {line}".rstrip() for line in aligned(rows)]
