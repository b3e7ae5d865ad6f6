"""Label selectors: conditions on the labels of nodes, as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mpi_runtime.scheduler.protocol.events import IN, NOT_IN, Label

_LABEL = re.compile(r"[\w./:@-]+")
"""The characters of a label's name, and of its value."""
_SELECTOR = re.compile(r"(?P<negated>!?)(?:in\((?P<values>[^()]*)\)|(?P<value>[^!(),]+))")


def meets(labels: Mapping[str, str], conditions: Sequence[Label]) -> bool:
    """Whether the labels of a node meet the conditions of a selector."""
    return all((labels.get(one.key) in one.values) == (one.operator == IN) for one in conditions)


def check_selector(name: str, selector: object) -> tuple[Label, ...]:
    """Check a `label_selector`, and return its conditions."""
    if not isinstance(selector, dict):
        raise TypeError(f"{name} must be a dictionary of labels and values, not {selector!r}")
    labels = []
    for key, text in selector.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must have strings as keys and values, not {{{key!r}: {text!r}}}")
        found = _SELECTOR.fullmatch(text)
        values = tuple(one.strip() for one in (found["value"] or found["values"]).split(",")) if found else ()
        if found is None or not _LABEL.fullmatch(key) or not all(map(_LABEL.fullmatch, values)):
            raise ValueError(
                f"{name} must be like {{'zone': 'a'}}, with 'a', '!a', 'in(a,b)' or '!in(a,b)' as values, not "
                f"{{{key!r}: {text!r}}}"
            )
        labels.append(Label(key, NOT_IN if found["negated"] else IN, values))
    return tuple(labels)
