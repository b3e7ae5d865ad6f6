"""Tar files with a sample of several files for each row: "7.jpg" and "7.cls" are the columns "jpg" and "cls"."""

from __future__ import annotations

import fnmatch
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

from mpi_runtime.data import blocks
from mpi_runtime.errors import optional

if TYPE_CHECKING:
    import pyarrow

KEY, URL = "__key__", "__url__"
"""Columns with the name that the files of a sample have in common, and with the path of the tar file."""
TEXTS = ("txt", "text", "transcript")
NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
JSONS = ("json", "jsn")
IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm")
SAMPLES = 256
TABLE_BYTES = 1 << 20
"""The most rows of a table, and about the most bytes of files in it: while it is made they exist twice."""
Coder = Callable[[dict[str, object]], dict[str, object]]


def samples(path: str, options: Mapping[str, object]) -> Iterator[pyarrow.Table]:
    """Rows of a tar file, in the order of its files."""
    rows: list[dict[str, object]] = []
    size = 0
    for sample in _raw(path, options["suffixes"], options["fileselect"], options["filerename"]):
        size += sum(len(value) for value in sample.values() if isinstance(value, bytes))
        decoder = options["decoder"]
        for one in decoder if isinstance(decoder, list | tuple) else [decoder]:
            if callable(one):
                sample = one(sample)
            elif one is not None and one is not False:
                sample = {name: _decoded(name, value, one) for name, value in sample.items()}
        if options["expand_json"]:
            sample = {**_entries(sample["json"]), **sample}
        rows.append(sample)
        del sample
        if len(rows) == SAMPLES or size >= TABLE_BYTES:
            yield _taken(rows)
            size = 0
    if rows:
        yield _taken(rows)


def _taken(rows: list[dict[str, object]]) -> pyarrow.Table:
    """A table of these rows, which the caller no longer keeps."""
    made = blocks.of_rows(rows)
    rows.clear()
    return made


def _entries(value: object) -> Mapping[str, object]:
    """The entries of an object of JSON, decoded or not."""
    found = json.loads(value) if isinstance(value, bytes | str) else value
    if not isinstance(found, Mapping):
        raise TypeError(f"expand_json=True needs an object in the file .json of each sample, not {found!r}")
    return found


def _raw(path: str, suffixes: object, select: object, rename: object) -> Iterator[dict[str, object]]:
    sample: dict[str, object] = {}
    with tarfile.open(path) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep what it knows of all files before
            whole = _renamed(member.name, rename)
            folder, slash, file = whole.rpartition("/")
            name, _, suffix = file.partition(".")
            if not member.isfile() or not suffix or not name:  # such as folders, and what macOS adds
                continue
            key = folder + slash + name
            if sample and sample[KEY] != key:
                yield {**sample, URL: path}
                sample = {}
            if not _is_wanted(whole, select) or not (suffixes is None or _is_wanted(suffix, suffixes)):
                continue
            sample = sample or {KEY: key}
            content = tar.extractfile(member)
            assert content is not None
            sample[suffix] = content.read()
    if sample:
        yield {**sample, URL: path}


def _renamed(name: str, rename: object) -> str:
    if callable(rename):
        return str(rename(name))
    for old, new in rename or ():  # type: ignore[attr-defined]
        name = name.replace(old, new)
    return name


def _is_wanted(name: str, wanted: object) -> bool:
    if wanted is None or callable(wanted):
        return wanted is None or bool(wanted(name))
    assert isinstance(wanted, Sequence)
    return any(fnmatch.fnmatch(name, "*" + one if one.startswith(".") else one) or "." + name == one for one in wanted)


def _decoded(name: str, value: object, how: object) -> object:
    """A value by the ending of its name; `how`: True, or the form of images."""
    if not isinstance(value, bytes) or name in (KEY, URL):
        return value
    ending = name.rpartition(".")[2].lower()
    if ending in TEXTS:
        return value.decode()
    if ending in NUMBERS:
        return int(value)
    if ending in JSONS:
        return json.loads(value)
    if ending == "npy":
        return numpy.load(io.BytesIO(value), allow_pickle=False)
    if ending in IMAGES:
        image = optional.load("read_webdataset", "PIL.Image", "pillow").open(io.BytesIO(value))
        return image if how == "PIL" else numpy.asarray(image)
    return value


def write(table: pyarrow.Table, path: str, options: Mapping[str, object]) -> None:
    """Write a tar file, with files of each row."""
    encoder = options["encoder"]
    with tarfile.open(path, "w") as tar:
        for number, row in enumerate(blocks.to_rows(table)):
            row = {KEY: f"{number:06d}", **row}
            for one in encoder if isinstance(encoder, list | tuple) else [encoder]:
                if callable(one):
                    row = one(row)
                elif one is not None and one is not False:
                    row = {name: _encoded(name, value) for name, value in row.items()}
            for name, value in row.items():
                if name.startswith("__") or value is None:
                    continue
                data = value.encode() if isinstance(value, str) else value
                if not isinstance(data, bytes):
                    raise TypeError(f"the file {row[KEY]}.{name} needs bytes or a text, not {type(value).__name__}")
                member = tarfile.TarInfo(f"{row[KEY]}.{name}")
                member.size, member.mtime, member.mode = len(data), time.time(), 0o444
                tar.addfile(member, io.BytesIO(data))


def _encoded(name: str, value: object) -> object:
    """The bytes of a value, by the ending of its name."""
    ending = name.rpartition(".")[2].lower()
    if value is None or isinstance(value, bytes | str) or name.startswith("__"):
        return value
    if ending in (*TEXTS, *NUMBERS):
        return str(value)
    if ending in JSONS:
        return json.dumps(value)
    data = io.BytesIO()
    if ending == "npy":
        numpy.save(data, numpy.asarray(value))
    elif ending in IMAGES:
        image = optional.load("write_webdataset", "PIL.Image", "pillow").fromarray(numpy.asarray(value))
        image.save(data, {"jpg": "jpeg"}.get(ending, "ppm" if ending[0] == "p" and ending != "png" else ending))
    else:
        return value
    return data.getvalue()
