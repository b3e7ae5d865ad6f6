"""Directories as values: packed where a call names them in its `runtime_env`, and unpacked where it runs.

An archive is a zip file without compression: packing costs no more than reading. The same content gives the same bytes,
so the hash identifies it. As in Ray, links are followed, and only files and directories are packed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mpi_runtime.errors import RuntimeEnvSetupError

if TYPE_CHECKING:
    import zipfile

    from pathspec import GitIgnoreSpec

CONTENT_BYTES_MAX = 500 << 20
"""The largest content of one archive, as in Ray. Each host that unpacks it has it in memory, so it is not for data."""
NAMED_MAX = 5
"""How many files are named in the error about a large directory."""
NEVER_PACKED = (".git", ".venv", "venv", "__pycache__")
"""Directories that are always left out, as in Ray."""

_File = tuple[str, str, int]
"""Name in the archive, path, and size in bytes. The name of an empty directory ends with a slash."""


def pack_directory(directory: str, excludes: Sequence[str], inside: str = "") -> bytes:
    """Pack the content of a directory as an archive, without the files that its `.gitignore` files name.

    Args:
        directory: its path.
        excludes: further patterns of files to leave out, as in `.gitignore`, relative to the directory.
        inside: the directory in the archive for the content; "": its top.

    Raises:
        ValueError: there is no such directory, or it cannot be read.
        RuntimeEnvSetupError: it is larger than CONTENT_BYTES_MAX.
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
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{directory!r} cannot be packed: the file name {error.object!r} is not UTF-8, and names in archives are. "
            "Rename the file, or leave it out with runtime_env={'excludes': [...]} or a .gitignore file."
        ) from None


def pack_file(path: str) -> bytes:
    """Pack one file as an archive.

    Raises:
        ValueError: it cannot be read.
        RuntimeEnvSetupError: it is too large.
    """
    try:
        size = os.stat(path).st_size
        _check_size(path, [(os.path.basename(path), size)])
        return _pack([(os.path.basename(path), path, size)])
    except OSError as error:
        raise ValueError(f"{path!r} cannot be packed: {error}") from error


def read_zip(path: str) -> bytes:
    """Read a zip file of the user as an archive.

    Raises:
        ValueError: it is not a zip file, or has entries with paths outside of one directory.
        RuntimeEnvSetupError: it is too large.
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
    """Unpack an archive into an empty directory. Only this user may read the files.

    Raises:
        ValueError: it has entries with paths outside of one directory.
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
    """Yield the files below a directory, in the order of their names.

    Args:
        directory: its real path.
        relative: its path below the top, with a slash at the end; empty: the top.
        excluded: patterns of files that are always left out.
        ignored: the `.gitignore` files from the top to here, each with the length of its path in `relative`.
        above: the real paths from the top to here. A link to one of them would be a circle, and is not followed.
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
    """Return the patterns of a `.gitignore` file. As in git, a pattern that cannot be read matches nothing."""
    from pathspec import GitIgnoreSpec  # not at the top: few jobs pack a directory

    kept = []
    for line in lines:
        line = line.rstrip("\r\n")
        if line.endswith("/**"):
            line += "/*"  # git means the content of the directory; pathspec would match the directory too
        with contextlib.suppress(ValueError, re.error):
            GitIgnoreSpec.from_lines([line])
            kept.append(line)
    return GitIgnoreSpec.from_lines(kept)


def decide(patterns: GitIgnoreSpec, path: str, is_directory: bool) -> bool | None:
    """Whether the patterns leave a path out; None: none of them matches. `path` is relative to their directory."""
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
            entry = zipfile.ZipInfo(name)  # with a fixed date, so that the same content gives the same bytes
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
    raise RuntimeEnvSetupError(
        f"{what!r} holds {total / 1e6:.1f} MB, and may hold {CONTENT_BYTES_MAX / 1e6:.0f} MB: every host gets a "
        f"copy. The largest files are {named}. Leave out files that calls do not need, with "
        "runtime_env={'excludes': [...]} or a .gitignore file, and have them read data where it lies."
    )


def _check_names(entries: list[zipfile.ZipInfo]) -> None:
    for entry in entries:
        parts = entry.filename.split("/")
        if entry.filename.startswith(("/", "\\")) or ".." in parts or "\0" in entry.filename:
            raise ValueError(
                f"the zip file has an entry {entry.filename!r}, which lies outside of the target directory, so "
                "nothing was unpacked. Make the archive again, from inside of its directory."
            )
