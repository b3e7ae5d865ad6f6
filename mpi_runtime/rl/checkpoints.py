"""Files of checkpoints: what they have, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from mpi_runtime.extend import first_version
from mpi_runtime.files import private
from mpi_runtime.rl.envs import Maker
from mpi_runtime.rl.parameters import Given
from mpi_runtime.rl.parts.episodes import Episodes
from mpi_runtime.rl.parts.nets_numpy import NetSpec

FORMAT = 1
"""Of checkpoint files."""
Learned = dict[str, Any]
"""The state of what learns, by the names of `saves`, without tensors."""


class State(TypedDict):
    """Everything that further training depends on."""

    own: dict[str, object]
    """Counters and moments, by the names of attributes."""
    episodes: Episodes
    rng: Mapping[str, Any]
    """Of the generator of actions."""
    learner: Learned
    samplers: list[bytes | None]


class Content(TypedDict):
    """A checkpoint file."""

    format: int
    algorithm: str
    maker: Maker
    parameters: Given
    net: NetSpec
    state: State


class CheckpointError(ValueError):
    """A checkpoint belongs to another algorithm or other spaces, or cannot be read. The message has all differences."""


def read(path: str | os.PathLike[str]) -> Content:
    """Return the content of a checkpoint: a file, or a directory that has one file named `checkpoint-...`."""
    file = Path(path).expanduser()
    if file.is_dir():
        inside = sorted(one for one in file.glob("checkpoint-*") if not one.suffix)  # else of a save that was killed
        if len(inside) != 1:
            raise CheckpointError(f"{file} is a directory without a single checkpoint-* in it: name the file")
        file = inside[0]
    try:
        content: Content = first_version.loads(private.read_file(file))
    except PermissionError as error:
        raise CheckpointError(f"{error.strerror}. If you trust it, load a copy of your own: cp {file} .") from error
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be read: {error}") from error
    except Exception as error:  # whatever unpickling some other file raises
        raise CheckpointError(f"{file} is not a checkpoint of mpi_runtime.rl: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{file} is not a checkpoint of mpi_runtime.rl, or has another format than {FORMAT}")
    return content
