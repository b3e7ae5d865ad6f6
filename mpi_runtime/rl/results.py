"""The directory and the status of a training, as RLlib 1.x had them; and a page about it."""

from __future__ import annotations

import base64
import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import mpi_runtime
from mpi_runtime.files.writing import make_new_directory, replace_file
from mpi_runtime.rl.algorithm import Algorithm, Result
from mpi_runtime.rl.evaluation import evaluate
from mpi_runtime.show import page
from mpi_runtime.show.numbers import count, seconds
from mpi_runtime.show.tables import boxed

COLUMNS = ("Trial name", "status", "loc", "iter", "time (s)", "ts", "reward")
GIB = 2**30


class Results:
    """Files of one training: `params.json`, `result.json` (a line for each iteration), events for TensorBoard.

    Checkpoints lie in `checkpoint_N/checkpoint-N`. TensorBoard's files need tensorboardX, and are left out without it.
    `job` is the id of a job that may be requeued: its directory is named by it, and each life of the job continues it.
    """

    def __init__(self, folder: Path, name: str, job: str = "") -> None:
        stamp = f"job{job}" if job else time.strftime("%Y-%m-%d_%H-%M-%S")
        self.name, self.folder = name, folder
        self.path = folder / f"{name}_{stamp}"
        if job:
            self.path.mkdir(parents=True, exist_ok=True)
        else:
            self.path = make_new_directory(self.path)
        self.rows: list[Result] = []
        """Of all iterations, those of earlier lives of the job too."""
        self._writer: Any = None
        try:
            import tensorboardX  # not at the top: it is optional
        except ImportError:
            pass
        else:
            self._writer = tensorboardX.SummaryWriter(str(self.path), flush_secs=5)

    def start(self, algorithm: Algorithm) -> None:
        """Write the parameters. Results after the checkpoint with which a requeued job continues are dropped."""
        content = {"algorithm": algorithm.name, "env": algorithm.maker.name, **vars(algorithm.parameters)}
        (self.path / "params.json").write_text(json.dumps(content, default=repr, indent=2) + "\n")
        file = self.path / "result.json"
        if file.exists():
            lines = file.read_text().splitlines(keepends=True)[: algorithm.iteration]
            replace_file(os.fspath(file), "".join(lines))
            self.rows = [json.loads(line) for line in lines]

    def add(self, result: Result) -> None:
        """Write the result of an iteration."""
        self.rows.append(result)
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

    def report(self, algorithm: Algorithm, path: str, pill: str) -> None:
        """Write a page about the training, with an episode of the policy as a video."""
        page.write(os.fspath(Path(path).expanduser()), document(self, algorithm, pill))

    def close(self) -> None:
        """Finish the files."""
        if self._writer is not None:
            self._writer.close()


def latest_checkpoint(folder: Path, job: str) -> str | None:
    """Return the last checkpoint that an earlier life of a job wrote, or None if it wrote nothing."""
    found = folder.glob(f"*_job{job}/checkpoint_*/checkpoint-*")
    numbered = {int(path.parent.name.rpartition("_")[2]): path for path in found if not path.suffix}
    return str(numbered[max(numbered)]) if numbered else None


def document(results: Results, algorithm: Algorithm, pill: str) -> page.Document:
    """Make the document of a training: its last figures, the curve, an episode, and the hyper-parameters."""
    last = results.rows[-1]
    share = last["sample_time_s"] / max(1e-9, last["time_this_iter_s"])
    steps = f"{count(last['timesteps_total'])} steps, {count(last['training_iteration'])} iterations"
    figures = [[name, f"{value:.3g}"] for name, value in list(last["info"].items())[:4]]
    mean = f"{last['episode_reward_mean']:.1f}"
    cards = [
        page.card("How good is the policy?", mean, "mean return of the last 100 episodes"),
        page.card("How long did it train?", seconds(last["time_total_s"]), steps),
        page.card("Where does the time go?", f"{share:.0%}", "sampling; the rest is learning", figures),
    ]
    points = [[one["training_iteration"], one["episode_reward_mean"]] for one in results.rows]
    points = [point for point in points if np.isfinite(point[1])]
    curve = {"id": "1", "status": "TERMINATED", "value": last["episode_reward_mean"], "ys": points, "top": True}
    blocks: list[page.Block] = [{"id": "answers", "kind": "cards", "cards": cards}]
    if points:
        said = "mean return after each iteration"
        more = {"metric": "episode_reward_mean", "mode": "max", "best": "1", "rungs": [], "trials": [curve]}
        blocks.append({"id": "curve", "kind": "reports", "title": "Learning", "said": said, **more})
    given = [[name, repr(value)] for name, value in vars(algorithm.parameters).items()]
    blocks += [_episode(algorithm), {"id": "parameters", "kind": "kv", "title": "Hyper-parameters", "rows": given}]
    meta = [algorithm.name, algorithm.maker.name, str(results.path)]
    return {"name": results.path.name, "pill": ["hollow", pill], "meta": meta, "colours": {}, "blocks": blocks}


def _episode(algorithm: Algorithm) -> page.Block:
    """Return a GIF of an episode, or the reason why it could not be recorded."""
    block: page.Block = {"id": "episode", "title": "An episode of the policy"}
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "episode.gif"
        try:
            found = evaluate(algorithm, episodes=1, video=str(video))
        except Exception as error:  # whatever an environment raises that draws nothing
            return {**block, "kind": "note", "text": f"There is no video: {error or type(error).__name__}"}
        source = "data:image/gif;base64," + base64.b64encode(video.read_bytes()).decode()
    return {**block, "kind": "picture", "src": source, "text": f"return {found.mean:.1f}, {found.lengths[0]} steps"}


def status(results: Results, algorithm: Algorithm, state: str, result: Result | None) -> str:
    """Return the status block: memory, resources, directory, and a table with the last result."""
    rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    has = mpi_runtime.cluster_resources() if mpi_runtime.is_initialized() else {"CPU": float(os.cpu_count() or 1)}
    cpus = max(1, algorithm.samplers.count)
    gpus = int(getattr(getattr(algorithm, "device", None), "type", "cpu") != "cpu")
    heap, objects = (has.get(name, 0.0) / GIB for name in ("memory", "object_store_memory"))
    row: list[object] = [results.path.name, state, "", "", "", "", ""]
    if result is not None:
        row[2:4] = f"{socket.gethostname()}:{os.getpid()}", result["training_iteration"]
        row[4:6] = f"{result['time_total_s']:.2f}", result["timesteps_total"]
        row[6] = f"{result['episode_reward_mean']:.2f}"
    return "\n".join(
        [
            "== Status ==",
            f"Memory usage on this node: {(total - free) / GIB:.1f}/{total / GIB:.1f} GiB",
            "Using FIFO scheduling algorithm.",
            f"Resources requested: {cpus}/{has.get('CPU', 0):g} CPUs, {gpus}/{has.get('GPU', 0):g} GPUs, "
            f"0.0/{heap:.2f} GiB heap, 0.0/{objects:.2f} GiB objects",
            f"Result logdir: {results.folder}",
            f"Number of trials: 1 (1 {state})",
            *boxed([COLUMNS, row]),
        ]
    )
