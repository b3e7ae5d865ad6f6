"""Which names of Ray do packages use that this runtime lacks? Nothing of the packages runs.

    python -m tests.as_ray.scan SITE_PACKAGES/verl vllm-0.11.0.whl daft-0.6.tar.gz
    python -m tests.as_ray.scan          the libraries of `make as-ray` that are installed here

Reads each Python file, and tries what it imports of `ray` or looks up on it, under `install_as_ray()`. Prints a line
for each name that is missing, with the packages that use it: first those that fail with Python's own words, then those
whose error says what to do instead.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import tarfile
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

FOUND, EXPLAINED, MISSING = "found", "explained", "missing"
NOT_OURS = ("/tests/", "/test/", "/examples/", "/docs/")


def sources(path: Path) -> Iterator[str]:
    """The text of each file of Python of a package: a directory, a file, a wheel or an archive of sources."""
    if path.is_dir():
        for file in path.rglob("*.py"):
            yield file.read_text(errors="replace")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py") and not any(part in f"/{name}" for part in NOT_OURS):
                    yield wheel.read(name).decode(errors="replace")
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".py") and not any(part in f"/{member.name}" for part in NOT_OURS):
                    content = archive.extractfile(member)
                    yield content.read().decode(errors="replace") if content else ""
    else:
        yield path.read_text(errors="replace")


class Uses(ast.NodeVisitor):
    """The names of Ray that a file uses, with their modules: `ray.util.placement_group`."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._bound: dict[str, str] = {}
        """Names in the file that stand for something of Ray."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "ray":
                self.found.add(alias.name)
                self._bound[alias.asname or "ray"] = alias.name if alias.asname else "ray"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and (node.module or "").split(".")[0] == "ray":
            for alias in node.names:
                path = f"{node.module}.{alias.name}" if alias.name != "*" else str(node.module)
                self.found.add(path)
                self._bound[alias.asname or alias.name] = path

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self._bound and isinstance(node.ctx, ast.Load):
            self.found.add(".".join([self._bound[inner.id], *reversed(names)]))
        else:
            self.generic_visit(node)


def used(path: Path) -> set[str]:
    """The names of Ray that a package uses."""
    found: set[str] = set()
    for text in sources(path):
        if "ray" not in text:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        uses = Uses()
        uses.visit(tree)
        found |= uses.found
    return found


def tried(path: str) -> tuple[str, str]:
    """Whether a name is here, and the error if it is not. Members of what is no module are not looked up."""
    words = path.split(".")
    value: object = importlib.import_module("ray")
    for number, word in enumerate(words[1:], 2):
        if not isinstance(value, ModuleType):
            break
        try:
            value = getattr(value, word)
        except AttributeError as missing:
            try:
                value = importlib.import_module(".".join(words[:number]))
            except ImportError as error:
                reasons = [why for why in (str(missing), str(error)) if "is not here: " in why or "needs" in why]
                return (EXPLAINED, reasons[0]) if reasons else (MISSING, str(missing))
    return FOUND, ""


def installed() -> Iterator[str]:
    """The packages of the libraries that `test_libraries.py` runs, as far as they are installed."""
    from tests.as_ray.test_libraries import EXPECTED

    for name in dict.fromkeys(module.partition(".")[0] for module, _ in EXPECTED.values()):
        spec = importlib.util.find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec is not None else ()


def main(arguments: list[str]) -> int:
    """Print what is missing. The exit code is 1 if anything is, and no error explains it."""
    import mpi_runtime

    mpi_runtime.install_as_ray()
    users: dict[str, set[str]] = defaultdict(set)
    for word in arguments or installed():
        for name in used(Path(word)):
            users[name].add(Path(word).name.split("-")[0])
    outcomes = {name: tried(name) for name in users}
    for wanted in (MISSING, EXPLAINED):
        names = sorted(name for name, (outcome, _) in outcomes.items() if outcome == wanted)
        print(f"{wanted}: {len(names)} of {len(outcomes)} names")
        for name in names:
            why = f": {outcomes[name][1]}" if wanted == EXPLAINED else ""
            print(f"  {name}  ({', '.join(sorted(users[name]))}){why}")
    return any(outcome == MISSING for outcome, _ in outcomes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
