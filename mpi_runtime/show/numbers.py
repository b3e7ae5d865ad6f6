"""Numbers for people: three digits, a unit, narrow gaps between thousands. `assets/kit.js` has the same rules."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

GAP = "\u202f"


def count(number: float) -> str:
    """Return a whole number with narrow gaps: 24 000."""
    return f"{round(number):,}".replace(",", GAP)


def three(number: float) -> str:
    """Return a number with three significant digits."""
    if not number or not math.isfinite(number):
        return "0" if not number else str(number)
    size = abs(number)
    if size >= 1e6 or size < 1e-3:
        return f"{number:.2e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("-", "\u2212")
    if size >= 1000:
        return count(float(f"{number:.3g}"))
    return f"{float(f'{number:.3g}'):g}"


def seconds(took: float) -> str:
    """Return a duration: 12.3 ms, 4.56 s, 3 min 05 s, 2 h 07 min. Below 0, as after a clock was put back: 0 s."""
    took = max(0.0, took)
    for limit, factor, unit in ((0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms"), (99.95, 1.0, "s")):
        if took < limit:
            return f"{three(took * factor)} {unit}" if took else "0 s"
    whole = round(took)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{count(whole // 3600)} h {whole % 3600 // 60:02d} min"


def size(amount: float) -> str:
    """Return a number of bytes: 1.31 TiB."""
    unit = 0
    while abs(amount) >= 1000 and unit < 5:
        amount, unit = amount / 1024, unit + 1
    return f"{three(amount)} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def clock(time_s: float, with_seconds: bool = True) -> str:
    """Return the time of the day, for seconds since 1970."""
    return _local(time_s, "%H:%M:%S" if with_seconds else "%H:%M")


def moment(time_s: float) -> str:
    """Return date and time, for seconds since 1970: a page may be read in another year."""
    return _local(time_s, "%Y-%m-%d %H:%M:%S")


def clock_on(time_s: float, day_s: float, with_seconds: bool = True) -> str:
    """Return the time of the day, after the date unless that is the date of `day_s`."""
    day, other = (_local(one, "%Y-%m-%d") for one in (time_s, day_s))
    return clock(time_s, with_seconds) if day == other else f"{day} {clock(time_s, with_seconds)}"


def _local(time_s: float, form: str) -> str:
    """Return a time as this host's clock shows it; "?" for numbers beyond its calendar, which users may report."""
    try:
        return time.strftime(form, time.localtime(time_s))
    except (OverflowError, ValueError, OSError):
        return "?"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the ends of ids, as long as it takes to tell these apart: the ids of a job begin with the same digits."""
    known = set(ids)
    length = next((one for one in (6, 12, 20) if len({id[-one:] for id in known}) == len(known)), 32)
    return {id: id[-length:] for id in known}


def plural(number: float, noun: str) -> str:
    """Return a count with its noun."""
    several = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count(number)} {noun if number == 1 else several}"


def bar(done: float, failed: float, running: float, whole: float, width: int = 20) -> str:
    """Return a bar of letters: # done, ! failed, > running, . waiting."""
    parts, used = "", 0
    for letter, amount in (("#", done), ("!", failed), (">", running)):
        cells = min(width - used, max(int(bool(amount)), round(width * amount / whole))) if whole else 0
        parts, used = parts + letter * cells, used + cells
    return parts + "." * (width - used)
