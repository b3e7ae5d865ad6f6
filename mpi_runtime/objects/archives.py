"""Directories as one value: packed where a call names them (`runtime_env`), unpacked where it runs.

An archive is a zip file without compression: packing costs no more than reading, and the same content makes the same
bytes, so that its hash names it. Links are followed, and what is no file or directory is left out, as in Ray.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zipfile

    from pathspec import GitIgnoreSpec

CONTENT_BYTES_MAX = 500 << 20
"""What one archive may hold: Ray's limit. It lies in the memory of each host that unpacks it: no place for data."""
NAMED_MAX = 5
"""How many files the refusal of a large directory names."""
NEVER_PACKED = (".git", ".venv", "venv", "__pycache__")
"""Directories that are left out without being asked, as in Ray."""

_File = tuple[str, str, int]
"""Its name in the archive, its path, and its size in bytes; an empty directory's name ends with a slash."""


def pack_directory(directory: str, excludes: Sequence[str], inside: str = "") -> bytes:
    """The content of a directory as an archive.

    Left out are what its `.gitignore` files and `excludes` (patterns of the same kind, relative to the directory) say,
    and NEVER_PACKED.

    Args:
        directory: its path.
        excludes: patterns.
        inside: the directory in the archive in which everything is; "": at its top.

    Raises:
        ValueError: there is no such directory, it cannot be read, or it is larger than CONTENT_BYTES_MAX.
    """
    patterns = read_patterns([f"{name}/" for name in NEVER_PACKED] + list(excludes))
    prefix = f"{inside}/" if inside else ""
    try:
        top = os.path.realpath(directory)
        files = list(_walk(top, "", patterns, [], (top,)))
        _check_size(directory, [(name, size) for name, _, size in files])
        return _pack([(prefix + name, path, size) for name, path, size in files])
    except OSError as error:
        raise ValueError(f"{directory!r} cannot be packed: {error}") from error


def pack_file(path: str) -> bytes:
    """One file as an archive.

    Raises:
        ValueError: it cannot be read, or is too large.
    """
    try:
        size = os.stat(path).st_size
        _check_size(path, [(os.path.basename(path), size)])
        return _pack([(os.path.basename(path), path, size)])
    except OSError as error:
        raise ValueError(f"{path!r} cannot be packed: {error}") from error


def read_zip(path: str) -> bytes:
    """A zip file that the user has made.

    Raises:
        ValueError: it is none, is too large, or has entries that do not belong into one directory.
    """
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        _check_size(path, [(entry.filename, max(entry.file_size, entry.compress_size)) for entry in entries])
        _check_names(entries)
        with open(path, "rb") as file:
            return file.read()
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path!r} cannot be read as a zip file: {error}") from error


def unpack(data: bytes | memoryview, directory: str) -> None:
    """Unpack an archive into an empty directory. All that is made belongs to this user alone.

    Raises:
        ValueError: it has entries that do not belong into one directory.
        OSError: there is no room, or the directory cannot be written.
    """
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        _check_names(entries)
        for entry in entries:
            path = os.path.join(directory, entry.filename)
            if entry.is_dir():
                os.makedirs(path, 0o700, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            may_run = (entry.external_attr >> 16) & stat.S_IXUSR
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if may_run else 0o600), "wb") as file:
                file.write(archive.read(entry))


def _walk(
    directory: str,
    relative: str,
    excluded: GitIgnoreSpec,
    ignored: list[tuple[int, GitIgnoreSpec]],
    above: tuple[str, ...],
) -> Iterator[_File]:
    """The files below a directory, in the order of their names.

    Args:
        directory: its real path.
        relative: where it is below the top, with a slash at its end unless it is the top.
        excluded: what is left out whatever else is said.
        ignored: the `.gitignore` files from the top to here, each with the length of its place in `relative`.
        above: the real paths from the top to here: a link to one of them would go round in circles.
    """
    gitignore = os.path.join(directory, ".gitignore")
    if os.path.isfile(gitignore):
        with open(gitignore, errors="replace") as file:
            ignored = [*ignored, (len(relative), read_patterns(file))]
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    if not found and relative:
        yield relative, directory, 0
    for entry in found:
        name, is_directory = relative + entry.name, entry.is_dir()
        if _is_left_out(name, is_directory, excluded, ignored):
            continue
        if is_directory:
            real = os.path.realpath(entry.path)
            if real not in above:
                yield from _walk(real, f"{name}/", excluded, ignored, (*above, real))
        elif entry.is_file():
            yield name, entry.path, entry.stat().st_size


def read_patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    """The patterns of a `.gitignore` file. One that git itself cannot read fits nothing, as with git."""
    from pathspec import GitIgnoreSpec  # not at the top: nearly no job packs a directory

    kept = []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.endswith("/**"):
            line += "/*"  # all that is in the directory: for pathspec also the directory itself
        with contextlib.suppress(ValueError, re.error):
            GitIgnoreSpec.from_lines([line])
            kept.append(line)
    return GitIgnoreSpec.from_lines(kept)


def decide(patterns: GitIgnoreSpec, path: str, is_directory: bool) -> bool | None:
    """Whether the patterns leave a path out; None if none of them fits. `path` is relative to their directory."""
    return patterns.check_file(f"{path}/" if is_directory else path).include


def _is_left_out(
    name: str, is_directory: bool, excluded: GitIgnoreSpec, ignored: list[tuple[int, GitIgnoreSpec]]
) -> bool:
    if decide(excluded, name, is_directory):
        return True
    for start, patterns in reversed(ignored):
        decided = decide(patterns, name[start:], is_directory)
        if decided is not None:
            return decided
    return False


def _pack(files: list[_File]) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path, _ in files:
            entry = zipfile.ZipInfo(name)  # with a date of its own: the same content is to make the same bytes
            if name.endswith("/"):
                archive.writestr(entry, b"")
                continue
            with open(path, "rb") as file:
                may_run = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
                entry.external_attr = (stat.S_IFREG | (0o700 if may_run else 0o600)) << 16
                archive.writestr(entry, file.read())
    return buffer.getvalue()


def _check_size(what: str, sizes: list[tuple[str, int]]) -> None:
    total = sum(size for _, size in sizes)
    if total <= CONTENT_BYTES_MAX:
        return
    largest = sorted(sizes, key=lambda one: -one[1])[:NAMED_MAX]
    named = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in largest)
    raise ValueError(
        f"{what!r} holds {total / 1e6:.1f} MB, and may hold {CONTENT_BYTES_MAX / 1e6:.0f} MB: every host gets a "
        f"copy. The largest files are {named}. Leave out what calls do not need, with "
        "runtime_env={'excludes': [...]} or a .gitignore file, and have them read data where it lies."
    )


def _check_names(entries: list[zipfile.ZipInfo]) -> None:
    for entry in entries:
        parts = entry.filename.split("/")
        if entry.filename.startswith(("/", "\\")) or ".." in parts or "\0" in entry.filename:
            raise ValueError(
                f"the zip file has an entry {entry.filename!r}, which lies outside of the directory into which it is "
                "to be unpacked: nothing of it is. Make it anew from inside of the directory."
            )
