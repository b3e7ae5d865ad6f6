"""File systems in which results may be: that of the host, or a directory of it."""

from pathlib import Path

import pytest

from mpi_runtime import train, tune
from mpi_runtime.tune.local_paths import local_path

fs = pytest.importorskip("pyarrow.fs")


def test_paths_inside_a_file_system() -> None:
    inside = fs.SubTreeFileSystem("/a/b", fs.LocalFileSystem())
    assert local_path("c/d", inside) == local_path("/c/d", inside) == Path("/a/b/c/d")
    assert local_path("x", fs.SubTreeFileSystem("c", inside)) == Path("/a/b/c/x")
    assert local_path("/c/d", fs.LocalFileSystem()) == local_path("/c/d") == local_path("file:///c/d") == Path("/c/d")


def test_a_file_system_that_is_elsewhere(tmp_path: Path) -> None:
    elsewhere = fs.SubTreeFileSystem("/a", fs._MockFileSystem())
    run = train.RunConfig(name="mine", storage_path="mine", storage_filesystem=elsewhere)
    trainer = train.DataParallelTrainer(lambda: None, run_config=run)
    for make in (trainer.fit, lambda: tune.Tuner(print, run_config=run), lambda: local_path(tmp_path, elsewhere)):
        with pytest.raises(
            ValueError, match=r"is not the file system of this host, nor a directory of it\..* mount it"
        ):
            make()
