"""What the function of a trainer returns, as a file in the directory of its trial."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import cloudpickle

from mpi_runtime.show.writing import replace_file

_FILE = "return_value.pkl"


def keep_return_value(folder: Path, value: Any) -> None:
    """Write what the function returned, in place of that of an earlier attempt."""
    path = folder / _FILE
    path.unlink(missing_ok=True)
    if value is None:
        return
    try:
        data = cloudpickle.dumps(value, 5)
    except Exception as error:  # not a failure: the training itself has ended well
        warnings.warn(
            f"the function of the trainer returned a {type(value).__name__} that cannot be pickled ({error}), so "
            "Result.return_value will be None: return plain values, arrays, or nothing",
            stacklevel=2,
        )
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(os.fspath(path), data)


def return_value(folder: Path) -> Any:
    """What the function returned, or None."""
    try:
        return pickle.loads((folder / _FILE).read_bytes())
    except FileNotFoundError:
        return None
