"""Slurm's short forms: `n[1-3,07],login` for names of nodes, `4(x2),1` for a number for each node."""

import re

HOSTS_MAX = 100_000
"""The most hosts of a job, of whatever batch system: a short text may stand for any number of them."""
NAME_MAX = 255
"""The longest name of a host: DNS has 253 letters."""
_PART = re.compile(r"((?:[^,\[\]]|\[[^\]]*\])+)(?:,|$)")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_REPEATED = re.compile(r"(\d{1,18})(?:\(x(\d{1,18})\))?")
_SHOWN_MAX = 100


def expand(text: str) -> list[str]:
    """Return the names in a node list, in its order.

    Raises:
        ValueError: the text is not a node list, or stands for more than HOSTS_MAX nodes.
    """
    names: list[str] = []
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"{shown(text)} is not a list of nodes: the error begins at {shown(text[position:])}")
        names += _expand_one(part[1], HOSTS_MAX - len(names))
        position = part.end()
    return names


def expand_counts(text: str) -> list[int]:
    """Return the number for each node: `4(x2),1` is 4, 4, 1.

    Raises:
        ValueError: the text is not a list of counts, or stands for more than HOSTS_MAX of them.
    """
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        found = _REPEATED.fullmatch(part)
        if found is None:
            raise ValueError(f"{shown(text)} is not a list of counts: {shown(part)} is not like 4 or 4(x2)")
        repeats = int(found[2] or 1)
        check_number(len(counts) + repeats)
        counts += [int(found[1])] * repeats
    return counts


def check_number(hosts: int) -> None:
    """Raise ValueError if these are more hosts than a job can have."""
    if hosts > HOSTS_MAX:
        raise ValueError(f"it stands for {hosts} hosts or more, and a job can have {HOSTS_MAX}")


def shown(text: str) -> str:
    """Return a text as messages quote it: its beginning, if it is long."""
    return repr(text) if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]!r}..."


def _expand_one(part: str, room: int) -> list[str]:
    """Return the names of one part, at most `room`. It may have several brackets, as in `rack[1-2]n[1-4]`."""
    names = [""]
    for index, piece in enumerate(_BRACKETS.split(part)):  # every second one was in brackets
        if index % 2 == 0:
            ends = [piece]
        else:
            ranges = [_range_of(one, part) for one in piece.split(",")]
            check_number(HOSTS_MAX - room + len(names) * sum(last - first + 1 for first, last, _ in ranges))
            ends = [f"{number:0{width}}" for first, last, width in ranges for number in range(first, last + 1)]
        names = [name + end for name in names for end in ends]
        if len(names[0]) > NAME_MAX:
            raise ValueError(f"{shown(part)} is not a list of nodes: names of hosts have at most {NAME_MAX} letters")
    check_number(HOSTS_MAX - room + len(names))
    return names


def _range_of(text: str, part: str) -> tuple[int, int, int]:
    """Return the first number, the last one and the width of `07-12`."""
    found = _NUMBERS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if found is None or first > last:
        raise ValueError(f"{shown(part)} is not a list of nodes: {shown(text)} is neither a number nor a range")
    return first, last, len(found[1])
