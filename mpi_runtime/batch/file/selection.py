"""Chooses the commands of a run: all that are not done, or those that the user has named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from mpi_runtime.batch.file.entries import unknown
from mpi_runtime.batch.file.parse import Group

NAMES_MAX = 1000
"""How many names are compared with one that is unknown."""
_RANGE = re.compile(r"(.+[.-])(\d{1,9})-(\d{1,9})")


class Selection(msgspec.Struct, frozen=True):
    """The commands of a run. Its sets are only for membership."""

    again: frozenset[str] = frozenset()
    """Commands that run although they are done."""
    only: frozenset[str] | None = None
    """The only commands that run; None: all."""
    is_retry: bool = False
    """Whether failed commands run again, also if the batch is not finished."""
    keeps_done: bool = False
    """Whether a command that is done stays done, though it has changed since."""


def select(
    groups: Sequence[Group], failed: Collection[str], only: Sequence[str], begin: Sequence[str], is_retry: bool
) -> tuple[Selection, list[str]]:
    """Select the commands that the options of a command line mean.

    Args:
        groups: of the batch.
        failed: commands that failed the last time.
        only: commands, arrays and ranges that run alone, done or not.
        begin: those that run again with all their followers.
        is_retry: whether only failed commands and their followers run.

    Returns:
        The selection, and problems with the names.
    """
    members = {group.name: [command.name for command in group.commands] for group in groups}
    commands = {command.name for group in groups for command in group.commands}
    members |= {name: [name] for name in commands}
    found = {one: expanded([one], members.get, commands, members) for one in (*only, *begin)}
    if wrong := [why for _, why in found.values() if why]:
        return Selection(), wrong
    again: set[str] = set()
    alone: set[str] | None = None
    if only:
        alone = {name for one in only for name in found[one][0]}
        again |= alone
    if begin:
        from_there = _with_followers(groups, {name for one in begin for name in found[one][0]})
        again |= from_there
        alone = alone | from_there if alone is not None else None
    if is_retry:
        alone = (alone or set()) | _with_followers(groups, {name for name in failed if name in members})
    return Selection(frozenset(again), frozenset(alone) if alone is not None else None, is_retry), []


def expanded(
    asked: Sequence[str],
    members_of: Callable[[str], Sequence[str] | None],
    commands: Collection[str],
    names: Iterable[str],
) -> tuple[list[str], str]:
    """The commands that names, arrays and ranges (`train.3-7`, `line-3-7`) mean, and what is wrong with them.

    Of an array all in a range must be there. Lines have gaps: comments, and commands with a name.
    """
    found: dict[str, None] = {}
    for name in asked:
        members = members_of(name)
        if members is None and (parts := _RANGE.fullmatch(name)):
            last = min(int(parts[3]), int(parts[2]) + len(commands))  # further ones are unknown
            wanted = [f"{parts[1]}{number}" for number in range(int(parts[2]), last + 1)]
            found_here = [one for one in wanted if one in commands]
            is_known = found_here and (parts[1].endswith("-") or len(found_here) == len(wanted))
            members = found_here if is_known else None
        if members is None:
            return [], unknown("command or array", name, [*itertools.islice(names, NAMES_MAX)])
        found |= dict.fromkeys(members)
    return [*found], ""


def _with_followers(groups: Sequence[Group], names: set[str]) -> set[str]:
    """These commands and all their followers."""
    array_of = {command.name: group.name for group in groups if group.is_array for command in group.commands}
    followers: dict[str, list[list[str]]] = {}
    for group in groups:
        if group.is_element_wise:
            for command in group.commands:
                for name in command.after:
                    followers.setdefault(name, []).append([command.name])
            continue
        own = [command.name for command in group.commands]
        for name in group.after:
            followers.setdefault(name, []).append(own)
    found = set(names)
    left = [*names]
    looked_at: set[str] = set()
    while left:
        name = left.pop()
        for one in (name, array_of.get(name, name)):
            if one in looked_at:
                continue
            looked_at.add(one)
            new = [follower for own in followers.get(one, ()) for follower in own]
            left += [name for name in new if name not in found]
            found.update(new)
    return found
