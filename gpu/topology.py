"""Which devices of a host belong together: pure arithmetic on how they are linked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

SUBSETS_MAX = 20_000
"""Sets of devices that are compared: all of 8 of 16, which takes some tens of milliseconds, once for each free set."""
SAME_NUMA = 20
BY_DISTANCE = {0: 60, 10: 50, 20: 40, 30: 30, 40: SAME_NUMA}
"""Weight of a connection over PCI, by NVML's levels."""
NVLINK = 100
"""From here on there is some."""


def pair_weight(nvlinks: int, distance: int) -> int:
    """How well two devices are connected: any NVLink is better than none, more are better than few, near than far."""
    by_pci = BY_DISTANCE.get(distance, 0)
    return NVLINK + 2 * nvlinks + bool(by_pci) if nvlinks else by_pci


def choose_set(candidates: Sequence[int], count: int, weights: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The devices among the candidates that are connected best, in order of their numbers.

    Where several sets are connected equally well: the one that leaves the best connected rest for who comes next,
    then the one with the lowest numbers.

    Args:
        candidates: numbers of devices, rising.
        count: how many of them; not more than there are.
        weights: `weights[a][b]` says how well a and b are connected.
    """
    if count == len(candidates):
        return tuple(candidates)
    to_all = {one: sum(weights[one][other] for other in candidates) for one in candidates}
    if not any(to_all.values()):
        return tuple(candidates[:count])

    def inside(chosen: tuple[int, ...]) -> int:
        return sum(weights[one][other] for one, other in combinations(chosen, 2))

    def merit(chosen: tuple[int, ...]) -> tuple[int, int]:
        own = inside(chosen)
        return own, own - sum(to_all[one] for one in chosen)  # the second differs from the rest's by a constant

    if comb(len(candidates), count) > SUBSETS_MAX:
        return max((_grown(one, candidates, count, weights) for one in candidates), key=merit)
    return max(combinations(candidates, count), key=merit)


def _grown(first: int, candidates: Sequence[int], count: int, weights: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """From one device, again and again the one that is connected best to what there is."""
    chosen = [first]
    while len(chosen) < count:
        rest = (one for one in candidates if one not in chosen)
        chosen.append(max(rest, key=lambda one: sum(weights[one][other] for other in chosen)))
    return tuple(sorted(chosen))
