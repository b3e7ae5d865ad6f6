"""The workers of a training share the stream of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from mpi_runtime import data, train

pytestmark = pytest.mark.usefixtures("job")
INIT = {"num_cpus": 2}


def test_workers_share_a_data_set(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        shard = train.get_dataset_shard("train")
        for epoch in range(2):
            rows = [row["id"] for row in shard.iter_rows()]
            rank = train.get_context().get_world_rank()
            (tmp_path / f"{epoch}-{rank}").write_text(" ".join(map(str, rows)))
            train.report({"rows": len(rows)})

    ds = data.range(100, override_num_blocks=8).map(lambda row: {"id": row["id"] + 1})
    result = train.DataParallelTrainer(
        loop,
        train_loop_config={},
        datasets={"train": ds},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    assert result.metrics is not None
    assert result.metrics["rows"] == 50
    for epoch in range(2):
        rows = [int(n) for rank in range(2) for n in (tmp_path / f"{epoch}-{rank}").read_text().split()]
        assert sorted(rows) == list(range(1, 101))
