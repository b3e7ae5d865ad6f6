"""Chooses the commands of a run: all that are not done, or those that the user has named."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from mpi_runtime.batch.file.entries import unknown
from mpi_runtime.batch.file.parse import Group


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
        only: names of commands and arrays that run alone, done or not.
        begin: names of commands and arrays that run again with all their followers.
        is_retry: whether only failed commands and their followers run.

    Returns:
        The selection, and problems with the names.
    """
    members = {group.name: [command.name for command in group.commands] for group in groups}
    members |= {command.name: [command.name] for group in groups for command in group.commands}
    wrong = [unknown("command or array", name, [*members][:1000]) for name in (*only, *begin) if name not in members]
    if wrong:
        return Selection(), wrong
    again: set[str] = set()
    alone: set[str] | None = None
    if only:
        alone = {name for one in only for name in members[one]}
        again |= alone
    if begin:
        from_there = _with_followers(groups, {name for one in begin for name in members[one]})
        again |= from_there
        alone = alone | from_there if alone is not None else None
    if is_retry:
        alone = (alone or set()) | _with_followers(groups, {name for name in failed if name in members})
    return Selection(frozenset(again), frozenset(alone) if alone is not None else None, is_retry), []


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
