"""The screen of `top --watch` on terminals of any size, and its lines without one."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mpi_runtime.cli.running_job import ROWS, in_lines
from mpi_runtime.scheduler.protocol.entries import ActorEntry, DriverEntry
from mpi_runtime.scheduler.protocol.window_questions import Listed
from mpi_runtime.show.facts import Facts, Waiting
from tests.unit.show.test_pages import facts, glance_of

CLEARS = "clears\x1b[2Jthe screen"


def driver(number: int, away_ms: int = 0) -> DriverEntry:
    return DriverEntry(
        driver=number, program=CLEARS, pid=number, state="AWAY" if away_ms else "CONNECTED", joined_ms=1,
        away_ms=away_ms, open_calls=3, running_calls=1, actors=0, detached_actors=1, groups=0, executors=1,
    )  # fmt: skip


def many() -> Facts:
    glance = glance_of()
    (one,) = glance.functions
    names = [CLEARS, "long" * 100, *(f"f{number}" for number in range(48))]
    glance.functions = [replace(one, name=name, failed=0, running=0, waiting=0) for name in names]
    glance.functions[-1].failed = 1
    glance.functions_in_all = 300
    glance.errors = [replace(glance.errors[0], function=CLEARS, text="ValueError: " + "wrong " * 100)] * 4
    glance.drivers = [driver(1), driver(2, away_ms=1)] + [driver(number) for number in range(3, 21)]
    glance.drivers_in_all = 30
    actor = ActorEntry("0a", "A", "ALIVE", "", CLEARS, "", None, 5, 0, None, 0)
    return facts(glance=glance, actors=Listed(50, [actor] * 30), errors={}, waits=[Waiting("for room", 7, CLEARS)])


@pytest.mark.parametrize(("width", "height", "has_errors"), [(40, 10, False), (80, 24, True), (200, 60, True)])
@pytest.mark.parametrize("key", ["", "d"])
def test_the_screen_fits(width: int, height: int, has_errors: bool, key: str) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    from rich.console import Console

    from mpi_runtime.cli.top_screen import Screen

    screen = Screen(cast(Any, SimpleNamespace(facts=many())))
    screen._press(key)
    console = Console(width=width, height=height, file=io.StringIO())
    lines = ["".join(one.text for one in line) for line in console.render_lines(screen.picture(console), pad=False)]
    assert len(lines) <= height
    assert lines[-1].startswith("q ends, s sorts")
    assert any("clears" in line for line in lines)
    assert not any("\x1b[2J" in line for line in lines)
    assert any("✕" in line for line in lines) == has_errors
    assert (
        any("away for" in line for line in lines)
        == any("and 22 more drivers" in line for line in lines)
        == (height == 60)
    )


def test_lines_say_what_they_leave_out_and_move_no_cursor() -> None:
    text = "\n".join(in_lines(many()))
    assert "\x1b" not in text
    assert f"  and {300 - ROWS} more functions" in text
    assert f"  and {50 - ROWS} more actors" in text
    assert f"  and {30 - ROWS} more drivers" in text
    assert "  driver 1 clears\\x1b[2Jthe screen (pid 1), connected: 1 call runs, 2 waiting, 1 detached actor" in text
    assert "(pid 2), away for " in text
    assert "\nwaiting: 7 of clears\\x1b[2Jthe screen, the oldest for room\n" in text
    assert "] f47: 1 done, 1 failed" in text, "what has failed is among the first"
