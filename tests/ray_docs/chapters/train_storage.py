"""Training: where its files are: file systems of pyarrow."""

import os
import tempfile
from pathlib import Path

import pyarrow.fs
import ray.train
from ray.train import Checkpoint, Result, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def _loop():
    for epoch in range(2):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "epoch").write_text(str(epoch))
            checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch}, checkpoint, checkpoint_dir_name=f"epoch={epoch}")


def _trained(**given):
    scaling = ScalingConfig(num_workers=1)
    return DataParallelTrainer(_loop, scaling_config=scaling, run_config=RunConfig(name="mine", **given)).fit()


def the_local_file_system():
    """It may be given."""
    with tempfile.TemporaryDirectory() as folder:
        result = _trained(storage_path=folder, storage_filesystem=pyarrow.fs.LocalFileSystem())
        print(
            os.path.relpath(result.path, folder), result.metrics, isinstance(result.filesystem, pyarrow.fs.FileSystem)
        )
        read = Result.from_path(os.path.join(folder, "mine"), storage_filesystem=pyarrow.fs.LocalFileSystem())
        print(len(read.best_checkpoints), Path(folder, "mine", "epoch=1", "epoch").read_text())
        print(Path(read.checkpoint.path, "epoch").read_text())


def addresses_of_files():
    """`file://` is a path of this host."""
    with tempfile.TemporaryDirectory() as folder:
        result = _trained(storage_path=f"file://{folder}")
        print(os.path.relpath(result.path, folder), Path(folder, "mine", "epoch=1", "epoch").read_text())
        print(len(Result.from_path(f"file://{folder}/mine").best_checkpoints))


def a_directory_as_file_system():
    """Paths are below it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        inside = pyarrow.fs.SubTreeFileSystem(folder, pyarrow.fs.LocalFileSystem())
        result = _trained(storage_path="runs", storage_filesystem=inside)
        print(result.metrics, len(result.best_checkpoints))
        print(Path(folder, "runs", "mine", "epoch=1", "epoch").read_text())
        read = Result.from_path("runs/mine", storage_filesystem=inside)
        print(len(read.best_checkpoints), [report["epoch"] for _, report in read.best_checkpoints])
        with read.checkpoint.as_directory() as place:
            print(Path(place, "epoch").read_text())


def checkpoints_in_a_directory_as_file_system():
    """They are read from it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "one").mkdir()
        Path(folder, "one", "state").write_text("5")
        inside = pyarrow.fs.SubTreeFileSystem(folder, pyarrow.fs.LocalFileSystem())
        checkpoint = Checkpoint("one", filesystem=inside)
        with checkpoint.as_directory() as place:
            print(Path(place, "state").read_text())
        checkpoint.set_metadata({"a": 1})
        print(Checkpoint("one", filesystem=inside).get_metadata())


def a_file_system_of_fsspec():
    """Through pyarrow's adapter."""
    try:
        from fsspec.implementations.dirfs import DirFileSystem
        from fsspec.implementations.local import LocalFileSystem
    except ImportError:
        print("[0, 1] 1")
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(DirFileSystem(path=folder, fs=LocalFileSystem())))
        result = _trained(storage_path="bucket", storage_filesystem=inside)
        kept = [report["epoch"] for _, report in result.best_checkpoints]
        print(kept, Path(folder, "bucket", "mine", "epoch=1", "epoch").read_text())


def settings_can_be_shown():
    """With any file system."""
    kinds = [pyarrow.fs.LocalFileSystem(), pyarrow.fs._MockFileSystem()]
    print([isinstance(repr(RunConfig(storage_filesystem=one)), str) for one in kinds])
