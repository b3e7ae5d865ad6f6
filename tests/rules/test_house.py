"""Sizes, and what must not stand in a file."""

import ast
import importlib
import re

from tests.helpers import ROOT
from tests.rules.house import PACKAGE, PACKAGED, modules, python_files, statements, texts

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
FILE_LINES_AIM = 400
LONGER_THAN_AIM_MAX = 0.1
"""The share of files that may be longer than the aim."""
LONGER_BY_PERMISSION: dict[str, str] = {}
"""Files that may be longer than FILE_LINES_MAX, each with its reason."""
REASONS = "docs/decisions/1001-long-files.md"
"""Why files of the package are longer than FILE_LINES_AIM. A line of the list begins with the names of files."""

# Spelt so that this file does not hold what it looks for.
STRANGE = {
    "a path of one machine": re.compile(r"/(root|work|farm|opt/v)/[\w.]"),
    "the address of a package registry": re.compile(r"pypi\.org|python[h]osted|deb\.debian"),
    "advice to install a name that is not ours on any index": re.compile(r"pip install ['\"]*mpi[-_]runtime"),
    "a mark of unfinished work": re.compile(r"\b(T[O]DO|F[I]XME|X[X]X)\b"),
    "the trace of a merge": re.compile(r"^(<{7}|>{7})( |$)", re.MULTILINE),
}

EARLIER = "mpi_runtime.core.objects.first_version"
"""It names modules of before."""
NO_MODULES = {"mpi_runtime.port", "mpi_runtime.trial"}
"""Names that look like those of modules: of sockets, and of a tag of MLflow."""


def test_functions_fit_on_a_page() -> None:
    wrong = [
        f"{name}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1}"
        for name, text in python_files()
        for node in statements(ast.parse(text).body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not wrong, f"functions have at most {FUNCTION_LINES_MAX} lines"


def test_files_can_be_read_in_one_sitting() -> None:
    lengths = {str(name): text.count("\n") for name, text in python_files()}
    too_long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}
    assert too_long.keys() <= LONGER_BY_PERMISSION.keys(), f"files have at most {FILE_LINES_MAX} lines: {too_long}"
    long = sorted(name for name, lines in lengths.items() if lines > FILE_LINES_AIM)
    assert len(long) <= LONGER_THAN_AIM_MAX * len(lengths), (
        f"files aim at {FILE_LINES_AIM} lines; too many are longer: {long}"
    )


def test_each_long_file_of_the_package_has_its_reason() -> None:
    listed = re.findall(r"^- ((?:`[\w/.]+`(?: and )?)+)\. ", (ROOT / REASONS).read_text(), re.MULTILINE)
    reasons = {name for names in listed for name in re.findall(r"`([^`]+)`", names)}
    long = {
        str(name).removeprefix(f"{PACKAGE}/")
        for name, text in python_files()
        if name.parts[0] in PACKAGED and text.count("\n") > FILE_LINES_AIM
    }
    assert long <= reasons, f"divide the file, or say in {REASONS} why it is kept whole: {long - reasons}"


def test_no_strange_words() -> None:
    wrong = [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what}: {found.group()!r}"
        for name, text in texts()
        for what, pattern in STRANGE.items()
        for found in pattern.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_texts_end_with_one_newline_and_no_line_with_blanks() -> None:
    wrong = [str(name) for name, text in texts() if text and (not text.endswith("\n") or text.endswith("\n\n"))]
    wrong += [str(name) for name, text in texts() if re.search(r"[ \t]\n", text)]
    assert not wrong


def test_strings_that_name_modules_name_existing_ones() -> None:
    """An import that is done by name, or a check of a name, fails in silence when its module moves."""
    known = modules()
    wrong = []
    for module in known.values():
        for node in ast.walk(module.tree) if module.name != EARLIER else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                wrong += [
                    f"{module.where(node.lineno)}: {name}"
                    for name in named_modules(node.value)
                    if name not in known and name not in NO_MODULES
                ]
    assert not wrong


def named_modules(text: str) -> list[str]:
    """The modules that a string names, without what may be an attribute of the last."""
    known = modules()
    found = []
    for path in re.findall(rf"(?<![\w@/.]){PACKAGE}(?:\.[a-z_]+)+", text):
        parts = path.split(".")
        end = next((end for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in known), 0)
        attributes = parts[end:]
        is_attribute = len(attributes) == 1 and hasattr(importlib.import_module(".".join(parts[:end])), attributes[0])
        found.append(".".join(parts[:end]) if not attributes or is_attribute else path)
    return found
