"""Which devices the variables of AMD and Intel leave to a process, by the rules of their runtimes. Pure.

The rules are those of the sources of ROCR-Runtime, of HIP (clr), of Level Zero (compute-runtime) and of SYCL. They
differ from CUDA's and from each other: what an unknown or repeated entry does, in which order devices are numbered, and
what an empty value means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from mpi_runtime.gpu.device import Device, Report, Visible
from mpi_runtime.gpu.vendor import AMD, HIERARCHY, INTEL, MASK, NOTHING, PCI_ORDER, ROCR, SELECTOR

_UUID_LETTERS = range(5, 21)
"""The length of a UUID, or of its beginning, that ROCm accepts."""


# AMD


def of_amd(report: Report, environment: Mapping[str, str]) -> Visible:
    """Return what ROCm shows: first ROCr applies its variable, then HIP another one to what is left, by position."""
    shown = [card.uuid for card in report.cards]
    problem = ""
    rocr = environment.get(ROCR)
    if rocr is not None:
        shown, problem = _rocr(shown, rocr)
    # A task sees its devices by HIP's variable, which is set beside the job's list for ROCr.
    # UUIDs of parts, and those that we make for devices without serial numbers, have a dot: HIP does not know them.
    tokens = {
        uuid: uuid if report.missing and "." not in uuid else str(position) for position, uuid in enumerate(shown)
    }
    name = next((name for name in AMD.narrowed_by[1:] if environment.get(name)), "")
    if name and environment[name] != rocr:  # Slurm may write one list into both
        shown, more = _hip(shown, name, environment[name])
        problem = problem or more
    left = set(shown)
    return Visible([one for one in report.devices if one.uuid in left], tokens, problem)


def _rocr(uuids: Sequence[str], value: str) -> tuple[list[str], str]:
    """Return the devices that ROCr leaves, in the order of the entries, up to the first that is wrong or repeated."""
    found: list[str] = []
    for entry in value.split(",")[: len(uuids)] if value else ():
        named = _by_beginning(uuids, entry) if entry.strip()[:1] in ("G", "g") else _by_number(uuids, _c_number(entry))
        if named is None or named in found:
            return found, _stopped(ROCR, value, entry, len(found), "ROCr")
        found.append(named)
    return found, ""


def _hip(uuids: Sequence[str], name: str, value: str) -> tuple[list[str], str]:
    """Return the devices that HIP leaves, in the order of the entries. It skips an entry that is repeated."""
    found: list[str] = []
    for entry in value.split(","):
        if "GPU-" in entry:
            named = next((one for one in uuids if entry.lower() in one.lower()), None)
        else:  # HIP compares the entry with the text of its number: "01" names no device
            named = _by_number(uuids, int(entry) if re.fullmatch(r"0|[1-9]\d{0,8}", entry) else None)
        if named is None:
            return found, _stopped(name, value, entry, len(found), "HIP")
        if named not in found:
            found.append(named)
    return found, ""


def _by_beginning(uuids: Sequence[str], entry: str) -> str | None:
    wanted = entry.strip().lower()
    found = [one for one in uuids if one.lower().startswith(wanted)]
    return found[0] if len(found) == 1 and len(wanted) in _UUID_LETTERS else None


def _by_number(uuids: Sequence[str], number: int | None) -> str | None:
    return uuids[number] if number is not None and 0 <= number < len(uuids) else None


def _c_number(text: str) -> int | None:
    """Read a number as C does: with 0x in base 16, with 0 in base 8."""
    found = re.fullmatch(r"(0[xX][0-9a-fA-F]{1,8}|0[0-7]{0,9}|[1-9]\d{0,8})", text.strip())
    if found is None:
        return None
    digits = found[1].lower()
    return int(digits, 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10)


def _stopped(name: str, value: str, entry: str, count: int, who: str) -> str:
    """Return a message about the entry at which a list ends; empty if it shows no device on purpose."""
    if entry.strip() in NOTHING:
        return ""
    used = f"only the devices before it are used ({count})" if count else "no GPU is used"
    return (
        f"{name}={value}: there is no device {entry.strip()!r} for this process, or it is repeated; as in {who}, {used}"
    )


# Intel


def of_intel(report: Report, environment: Mapping[str, str]) -> Visible:
    """Return what Level Zero and then SYCL show. Their order is that of the hardware, whatever the entries' order."""
    by_card = environment.get(HIERARCHY) == "COMPOSITE"
    cards = list(report.cards)
    if environment.get(PCI_ORDER) == "1":
        cards.sort(key=lambda card: card.bus)  # else cards come before graphics within a processor
    tiles = [_tiles(report, card.uuid) for card in cards]
    # What each number means: a card with its tiles, or one tile. A device that cannot be used has no tiles here.
    numbered = tiles if by_card else [[tile] for of_card in tiles for tile in of_card or [None]]
    whole = {str(number): one for number, one in enumerate(numbered)}
    value = environment.get(MASK, "")
    names, problem = list(whole), ""
    if value not in ("", "default"):
        names, problem = _masked(whole, value, by_card)
    selector = environment.get(SELECTOR)
    if selector is not None and names:
        names, more = _selected(names, selector)
        problem = problem or more
    devices = {name: found for name in names if (found := _named(whole, name)) is not None}
    tokens = {device.uuid: name for name, device in devices.items()}
    more_variables = {} if selector is None else {SELECTOR: "level_zero:gpu"}
    return Visible(sorted(devices.values(), key=lambda one: one.place), tokens, problem, more_variables)


def _tiles(report: Report, card: str) -> list[Device | None]:
    return [one for one in report.devices if one.card == card]


def _named(whole: Mapping[str, Sequence[Device | None]], name: str) -> Device | None:
    """Return the device of a number, or of a number and a tile; a card of several tiles becomes one device."""
    number, _, tile = name.partition(".")
    tiles = [one for one in whole[number] if one is not None]
    if not tiles:
        return None
    if tile or len(tiles) == 1:
        return tiles[int(tile or 0)]
    return msgspec.structs.replace(tiles[0], uuid=tiles[0].card, memory=sum(one.memory for one in tiles))


def _masked(whole: Mapping[str, Sequence[Device | None]], value: str, by_card: bool) -> tuple[list[str], str]:
    """Return the numbers that a mask leaves. Entries without a device are skipped, text is an error."""
    if value in NOTHING or value == INTEL.nothing:
        return [], ""
    wanted: dict[str, set[int]] = {}
    wrong = ""
    for entry in value.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\.(\d{1,9}))?", entry.strip())
        if found is None:
            return [], f"{MASK}={value}: {entry!r} is not the number of a device. No GPU is used"
        number, tile = str(int(found[1])), found[2]
        tiles = range(len(whole.get(number, ())))
        if not tiles or (tile is not None and (not by_card or int(tile) not in tiles)):
            wrong = wrong or entry.strip()
            continue
        wanted.setdefault(number, set()).update(tiles if tile is None else [int(tile)])
    names = []
    for number in sorted(wanted, key=int):
        chosen = wanted[number]
        parts = len(chosen) < len(whole[number])
        names += [f"{number}.{tile}" for tile in sorted(chosen)] if parts else [number]
    problem = f"{MASK}={value}: there is no device {wrong!r}; as in Level Zero, it is skipped" if wrong else ""
    return names, problem


def _selected(names: list[str], selector: str) -> tuple[list[str], str]:
    """Return what SYCL's selector leaves of these, whose positions are its numbers."""
    accepts: list[int] = []
    refuses: set[int] = set()
    terms = [term.strip() for term in selector.lower().split(";") if term.strip()]
    for term in terms:
        backend, _, listed = term.lstrip("!").partition(":")
        if backend not in ("level_zero", "*"):
            continue
        found: list[int] = []
        for one in listed.split(","):
            if one in ("gpu", "*"):
                found += range(len(names))
            elif one.isdecimal() and len(one) < 10:
                found += [int(one)] if int(one) < len(names) else []
            elif one not in ("cpu", "fpga"):
                return (
                    [],
                    f"{SELECTOR}={selector}: {one!r} is not understood here. No GPU is used; name devices by number",
                )
        if term.startswith("!"):
            refuses.update(found)
        else:
            accepts += found
    if all(term.startswith("!") for term in terms):
        accepts = list(range(len(names)))
    left = [names[number] for number in sorted(set(accepts) - refuses)]
    return left, "" if left or not names else f"{SELECTOR}={selector} leaves no device of Level Zero. No GPU is used"
