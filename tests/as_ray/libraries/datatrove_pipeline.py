"""datatrove: a pipeline of four tasks on `RayPipelineExecutor`."""

import tempfile
from pathlib import Path

from datatrove.data import Document
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.logging import logger

logger.remove()
place = tempfile.mkdtemp()
documents = [Document(text="x" * length, id=str(length)) for length in range(20)]
steps = [documents, LambdaFilter(lambda document: len(document.text) % 2 == 0), JsonlWriter(place, compression=None)]
RayPipelineExecutor(steps, tasks=4, workers=2, cpus_per_task=1, logging_dir=f"{place}/logs").run()
print(sum(len(path.read_text().splitlines()) for path in Path(place).glob("*.jsonl")))
