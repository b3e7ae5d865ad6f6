"""Slurm's short forms: `n[1-3,07],login` for names of nodes, `4(x2),1` for a number for each node."""

import re
from collections.abc import Iterator

_PART = re.compile(r"((?:[^,\[\]]|\[[^\]]*\])+)(?:,|$)")
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand(text: str) -> list[str]:
    """Return the names in a node list, in its order.

    Raises:
        ValueError: the text is not a node list.
    """
    names: list[str] = []
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"{text!r} is not a list of nodes: the error begins at {text[position:]!r}")
        names += _expand_one(part[1])
        position = part.end()
    return names


def expand_counts(text: str) -> list[int]:
    """Return the number for each node: `4(x2),1` is 4, 4, 1.

    Raises:
        ValueError: the text is not a list of counts.
    """
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        found = _REPEATED.fullmatch(part)
        if found is None:
            raise ValueError(f"{text!r} is not a list of counts: {part!r} is not like 4 or 4(x2)")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _expand_one(part: str) -> Iterator[str]:
    """Yield the names of one part. It may have several brackets, as in `rack[1-2]n[1-4]`."""
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    inside, _, after = rest.partition("]")
    ends = list(_expand_one(after))
    for one in inside.split(","):
        first, dash, last = one.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{part!r} is not a list of nodes: {one!r} is neither a number nor a range")
        for number in range(int(first), int(last or first) + 1):
            for end in ends:
                yield f"{before}{number:0{len(first)}}{end}"
