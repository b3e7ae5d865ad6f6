"""Mutations of a source file: small changes, each of which a test should notice.

In functions only: a statement is dropped, a comparison flipped, a number changed by one, a truth value turned round, a
condition negated, `and` swapped with `or`. Assertions are left alone: without one nothing changes that can be seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

FLIPS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
DROPPED = (
    ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Delete, ast.Continue, ast.Break,
)  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One change of one file."""

    file: str
    line: int
    function: str
    start: int
    end: int
    replacement: bytes
    before: str
    """The lines that it touches, with single spaces."""
    after: str

    def applied(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.replacement + source[self.end :]


def mutations(file: str, source: bytes) -> list[Mutation]:
    """All mutations of a file, in order of place."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda one: (one.start, one.end, one.replacement))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.found: list[Mutation] = []
        self._starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        self._inside: list[str] = []
        self._functions = 0

    # Places. Those of the syntax tree count bytes.

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _add(self, start: int, end: int, replacement: bytes) -> None:
        if not self._functions:
            return
        source = self.source
        first = source.rfind(b"\n", 0, start) + 1
        last = source.find(b"\n", end)
        before, after = (
            " ".join(text.decode().split())
            for text in (source[first:last], source[first:start] + replacement + source[end:last])
        )
        line = source.count(b"\n", 0, start) + 1
        function = ".".join(self._inside)
        self.found.append(Mutation(self.file, line, function, start, end, replacement, before, after))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace an operator, of which the tree does not say where it stands."""
        start, end = self._end(left), self._start(right)
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        match = re.search(pattern.encode(), self.source[start:end])
        assert match is not None, f"{self.file}:{left.lineno}: no {old!r}"
        self._add(start + match.start(), start + match.end(), new.encode())

    # What is changed

    def visit(self, node: ast.AST) -> None:
        says_nothing = (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or (
            isinstance(node, ast.AnnAssign) and node.value is None
        )
        if isinstance(node, DROPPED) and not says_nothing:
            self._add(self._start(node), self._end(node), b"pass")
        super().visit(node)

    def _visit_inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        is_function = not isinstance(node, ast.ClassDef)
        self._inside.append(node.name)
        self._functions += is_function
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._functions -= is_function
        self._inside.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_inside

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            old, flipped = FLIPS[type(operator)]
            for new in flipped:
                self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, *words)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(self._start(node), self._end(node), str(not value).encode())
        elif isinstance(value, int):
            for other in (value - 1, value + 1):
                self._add(self._start(node), self._end(node), b"%d" % other if other >= 0 else b"(%d)" % other)

    def _negate(self, tests: Iterator[ast.expr]) -> None:
        for test in tests:
            start, end = self._start(test), self._end(test)
            self._add(start, end, b"not (%s)" % self.source[start:end])

    def _visit_test(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._negate(iter([node.test]))
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _visit_test

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._negate(iter(node.ifs))
        self.generic_visit(node)
