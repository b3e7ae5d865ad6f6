"""The directory of results of a training, and the status that the command line prints, as RLlib 1.x had them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mpi_runtime
from mpi_runtime.rl.algorithm import Algorithm

COLUMNS = ("Trial name", "status", "loc", "iter", "time (s)", "ts", "reward")
GIB = 2**30


class Results:
    """Files of one training: `params.json`, `result.json` (a line for each iteration), events for TensorBoard.

    Checkpoints lie in `checkpoint_N/checkpoint-N`. TensorBoard's files need tensorboardX, and are left out without it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.folder = name, folder
        self.path = folder / f"{name}_{stamp}"
        number = 0
        while self.path.exists():
            number += 1
            self.path = folder / f"{name}_{stamp}_{number}"
        self.path.mkdir()
        self._writer: Any = None
        try:
            import tensorboardX  # not at the top: it is optional
        except ImportError:
            pass
        else:
            self._writer = tensorboardX.SummaryWriter(str(self.path), flush_secs=5)

    def start(self, algorithm: Algorithm) -> None:
        """Write the parameters."""
        content = {"algorithm": algorithm.name, "env": algorithm.maker.name, **vars(algorithm.parameters)}
        (self.path / "params.json").write_text(json.dumps(content, default=repr, indent=2) + "\n")

    def add(self, result: Mapping[str, Any]) -> None:
        """Write the result of an iteration."""
        with (self.path / "result.json").open("a") as file:
            file.write(json.dumps(result, default=float) + "\n")
        if self._writer is not None:
            flat = {**{key: value for key, value in result.items() if key != "info"}, **result["info"]}
            for key, value in flat.items():
                if isinstance(value, (int, float)):
                    self._writer.add_scalar(f"ray/tune/{key}", value, result["timesteps_total"])

    def checkpoint(self, algorithm: Algorithm) -> str:
        """Write a checkpoint, and return its path."""
        number = algorithm.iteration
        return algorithm.save(self.path / f"checkpoint_{number}" / f"checkpoint-{number}")

    def close(self) -> None:
        """Finish the files."""
        if self._writer is not None:
            self._writer.close()


def status(results: Results, algorithm: Algorithm, state: str, result: Mapping[str, Any] | None) -> str:
    """Return the status block: memory, resources, directory, and a table with the last result."""
    total, free = _memory()
    has = mpi_runtime.cluster_resources() if mpi_runtime.is_initialized() else {"CPU": float(os.cpu_count() or 1)}
    cpus = max(1, algorithm.samplers.count)
    gpus = int(getattr(getattr(algorithm, "device", None), "type", "cpu") == "cuda")
    heap, objects = (has.get(name, 0.0) / GIB for name in ("memory", "object_store_memory"))
    row: list[Any] = [results.path.name, state, "", "", "", "", ""]
    if result is not None:
        loc = f"{socket.gethostname()}:{os.getpid()}"
        reward = f"{result['episode_reward_mean']:.2f}"
        row[2:] = [
            loc,
            result["training_iteration"],
            f"{result['time_total_s']:.2f}",
            result["timesteps_total"],
            reward,
        ]
    return "\n".join(
        [
            "== Status ==",
            f"Memory usage on this node: {(total - free) / GIB:.1f}/{total / GIB:.1f} GiB",
            "Using FIFO scheduling algorithm.",
            f"Resources requested: {cpus}/{has.get('CPU', 0):g} CPUs, {gpus}/{has.get('GPU', 0):g} GPUs, "
            f"0.0/{heap:.2f} GiB heap, 0.0/{objects:.2f} GiB objects",
            f"Result logdir: {results.folder}",
            f"Number of trials: 1 (1 {state})",
            table(COLUMNS, [row]),
        ]
    )


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table with lines of dashes."""
    cells = [[str(one) for one in row] for row in rows]
    widths = [max(len(row[at]) for row in [list(names), *cells]) for at in range(len(names))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [
        "| " + " | ".join(f"{one:<{w}}" for one, w in zip(row, widths, strict=True)) + " |" for row in [names, *cells]
    ]
    return "\n".join([rule, lines[0], rule.replace("-", "="), *lines[1:], rule])


def _memory() -> tuple[int, int]:
    """Return the bytes of memory of this node, and those that are available."""
    rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, free
