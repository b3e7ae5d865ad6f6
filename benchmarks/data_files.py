"""Files of each kind that `benchmarks.data` has read, with a known number of rows."""

from __future__ import annotations

import importlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FILES = 8
LINE = 100_000
"""Bytes of a row of text."""
MEGABYTE = 1_000_000
WIDTH, HEIGHT = 640, 480


def csv(folder: Path, size: int) -> int:
    """Lines with a number, ten others and a text."""
    return lines(folder, size, ".csv", lambda row, values: f"{row},{','.join(values)},{'text ' * 20}\n", CSV_HEADER)


CSV_HEADER = "id," + ",".join(f"x{number}" for number in range(10)) + ",text\n"


def json_lines(folder: Path, size: int) -> int:
    """The same as objects."""

    def line(row: int, values: list[str]) -> str:
        fields = {f"x{number}": float(value) for number, value in enumerate(values)}
        return json.dumps({"id": row, **fields, "text": "text " * 20}) + "\n"

    return lines(folder, size, ".json", line)


def lines(folder: Path, size: int, suffix: str, line: Callable[[int, list[str]], str], header: str = "") -> int:
    """Files with many lines, each of which has other numbers. Returns the number of rows."""
    random = np.random.default_rng(0)
    some = [line(row, [f"{value:.12f}" for value in random.random(10)]) for row in range(1000)]
    block = "".join(some)
    blocks = max(1, size // FILES // len(block))
    for number in range(FILES):
        with open(folder / f"{number}{suffix}", "w") as file:
            file.write(header)
            for _ in range(blocks):
                file.write(block)
    return FILES * blocks * len(some)


def text(folder: Path, size: int) -> int:
    """Long lines of text."""
    rows = max(1, size // FILES // LINE)
    for number in range(FILES):
        with open(folder / f"{number}.txt", "w") as file:
            for row in range(rows):
                file.write(chr(ord("a") + row % 26) * (LINE - 1) + "\n")
    return FILES * rows


def numpy(folder: Path, size: int) -> int:
    """Arrays of random numbers."""
    random = np.random.default_rng(0)
    rows, width = max(1, size // FILES // LINE), LINE // 8
    for number in range(FILES):
        np.save(folder / f"{number}.npy", random.standard_normal((rows, width)))
    return FILES * rows


def binary(folder: Path, size: int) -> int:
    """Files of a megabyte."""
    random = np.random.default_rng(0)
    rows = max(1, size // MEGABYTE)
    for number in range(rows):
        (folder / f"{number:06d}.bin").write_bytes(random.bytes(MEGABYTE))
    return rows


def webdataset(folder: Path, size: int) -> int:
    """Shards of samples with bytes and a class."""
    random = np.random.default_rng(0)
    rows = max(1, size // FILES // LINE)
    for number in range(FILES):
        with tarfile.open(folder / f"{number}.tar", "w") as shard:
            for row in range(rows):
                for name, content in (("bin", random.bytes(LINE)), ("cls", b"1")):
                    entry = tarfile.TarInfo(f"{number:03d}{row:06d}.{name}")
                    entry.size = len(content)
                    shard.addfile(entry, io.BytesIO(content))
    return FILES * rows


def images(folder: Path, size: int) -> int:
    """Pictures of one size, as JPEG. `size`: decoded."""
    image = importlib.import_module("PIL.Image")
    random = np.random.default_rng(0)
    rows = max(1, size // (3 * WIDTH * HEIGHT))
    for number in range(rows):
        small = random.integers(0, 255, (HEIGHT // 10, WIDTH // 10, 3), np.uint8)
        image.fromarray(small).resize((WIDTH, HEIGHT)).save(folder / f"{number:06d}.jpg", quality=85)
    return rows


MAKERS: dict[str, Callable[[Path, int], int]] = {
    "read_csv": csv,
    "read_json": json_lines,
    "read_text": text,
    "read_numpy": numpy,
    "read_binary_files": binary,
    "read_webdataset": webdataset,
    "read_images": images,
}
"""By reader: makes files of some bytes in a folder, and returns how many rows it reads of them."""
