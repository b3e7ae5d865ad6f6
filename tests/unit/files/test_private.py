"""Files whose loading runs code are read only if no other user can have written them."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime import tune
from mpi_runtime.files import private
from mpi_runtime.rl import checkpoints


class Attack:
    """What another user would have us load."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def of_everybody(path: Path) -> str:
    path.chmod(0o666)
    return "can be written to by other users"


def of_another(path: Path) -> str:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, -1)
    return "belongs to another user"


def a_link(path: Path) -> str:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))
    return "symbolic links"


@pytest.mark.parametrize("change", [of_everybody, of_another, a_link])
def test_what_another_user_may_have_written_is_not_loaded(change: Callable[[Path], str], tmp_path: Path) -> None:
    path, taken = tmp_path / "checkpoint.pickle", tmp_path / "attacked"
    path.write_bytes(pickle.dumps(Attack(taken)))
    path.chmod(0o644)
    with pytest.raises(checkpoints.CheckpointError, match="has another format"):
        checkpoints.read(path)
    taken.rmdir()  # a file of ours is loaded: the check that follows can fail
    why = change(path)
    with pytest.raises(OSError, match=why):
        private.read_file(path)
    with pytest.raises(checkpoints.CheckpointError, match=why):
        checkpoints.read(path)
    with pytest.raises(OSError, match=why):
        tune.Checkpoint(str(tmp_path)).to_dict()
    assert not taken.exists()


def test_a_file_of_ours_that_a_group_may_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    path.chmod(0o664)
    assert private.read_file(path) == b"content"
