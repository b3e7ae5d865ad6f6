"""Chooses the best connected devices of a host. Pure: it only compares the weights of their links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

SUBSETS_MAX = 20_000
"""Up to this many sets all are compared, else a greedy search is made. All sets of 8 of 16 devices are compared, which
takes some tens of milliseconds, once for each combination of free devices."""
SAME_NUMA = 20
BY_DISTANCE = {0: 60, 10: 50, 20: 40, 30: 30, 40: SAME_NUMA}
"""Weight of a connection over PCI, by NVML's levels."""
NVLINK = 100
"""Connections with this weight or more have NVLink."""


def pair_weight(nvlinks: int, distance: int) -> int:
    """Return the weight of a connection.

    Any NVLink is better than none, and more links are better than fewer. Without NVLink a short way over PCI is better
    than a long one.
    """
    by_pci = BY_DISTANCE.get(distance, 0)
    return NVLINK + 2 * nvlinks + bool(by_pci) if nvlinks else by_pci


def choose_set(candidates: Sequence[int], count: int, weights: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the devices among the candidates that are connected best, in rising order.

    If several sets are connected equally well, take the one that leaves the best connected rest for later requests;
    if these are equal too, the one with the lowest numbers.

    The candidates are numbers of devices, in rising order, at least as many as `count`. `weights[a][b]` is the weight
    of the connection between a and b.
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
    """Start with one device and add, one at a time, the device that is connected best to those chosen so far."""
    chosen = [first]
    while len(chosen) < count:
        rest = (one for one in candidates if one not in chosen)
        chosen.append(max(rest, key=lambda one: sum(weights[one][other] for other in chosen)))
    return tuple(sorted(chosen))
