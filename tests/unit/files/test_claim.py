"""Claims of a journal: every order of steps in the model, then the same steps on files."""

import errno
import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi_runtime.errors import JournalError
from mpi_runtime.files import claim
from mpi_runtime.files.claim import Claim, InUseError, Step, taking

FREE = b"free"


class Process:
    """One job of the model. Its history determines its state: a run is repeated from the start for each order."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.steps: Generator[Step, Any, int] = taking(lambda content: "free" if content == FREE else "unknown")
        self.step: Step | None = next(self.steps)
        self.number = 0
        self.is_linked_as = 0
        self.is_stopped = self.was_stopped = False
        self.state = "claims"
        self.history: list[object] = []


class Model:
    """The directory: names and the processes that own their files. Removal only drops the name."""

    def __init__(self, count: int) -> None:
        self.names: dict[int, Process] = {}
        self.processes = [Process(name) for name in range(count)]
        self.replaced: set[int] = set()

    def actions(self) -> list[tuple[str, int]]:
        found = []
        for one in self.processes:
            if one.is_stopped:
                found.append(("wake", one.name))
            elif one.state in ("claims", "owns"):
                found.append(("run" if one.state == "claims" else "beat", one.name))
                if one.state == "owns":
                    found.append(("release", one.name))
                if one.name == 0 and not one.was_stopped:
                    found.append(("stop", one.name))
        return found

    def act(self, action: str, name: int) -> None:
        one = self.processes[name]
        if action == "stop":
            one.is_stopped = one.was_stopped = True
        elif action == "wake":
            one.is_stopped = False
        elif action == "release":
            one.state = "released"
        elif action == "beat":
            is_replaced = max(self.names, default=0) > one.number
            assert one.was_stopped or not is_replaced, "a job that never stood still lost its journal"
            if not is_replaced:
                assert one.name not in self.replaced, "a job that was replaced does not notice"
                assert self.names[one.number] is one, "its file is another's"
            one.state = "lost" if is_replaced else "owns"
            one.history.append(one.state)
        else:
            self._run(one)

    def _run(self, one: Process) -> None:
        assert one.step is not None
        what, number = one.step
        answer: Any = None
        if what == "numbers":
            answer = tuple(sorted(self.names))
        elif what == "link":
            answer = number not in self.names
            if answer:
                self.names[number] = one
        elif what == "remove":
            assert number < max(self.names, default=0), "the name of the owner was removed"
            self.names.pop(number, None)
        elif number in self.names:
            owner = self.names[number]
            ended = owner.state in ("released", "lost", "refused")
            moves = b"" if owner.is_stopped else b" %d" % len(one.history)  # a job that runs beats between two looks
            answer = (FREE if ended else b"job %d%s" % (owner.name, moves)), True
        one.history.append((what, number, answer if what != "read" else answer and answer[0][:6]))
        try:
            one.step = one.steps.send(answer)
        except InUseError:
            one.state = "refused"
        except StopIteration as end:
            one.number, one.state = end.value, "owns"
            for other in self.processes:
                if other is not one and other.state == "owns":
                    assert other.was_stopped or one.was_stopped, "two jobs that never stood still have the journal"
                    if other.number < one.number:
                        self.replaced.add(other.name)

    def key(self) -> object:
        names = tuple(sorted((number, one.name) for number, one in self.names.items()))
        return names, tuple(
            (p.state, p.is_stopped, p.was_stopped, p.number, p.step, tuple(p.history)) for p in self.processes
        )


def explore(count: int, most_beats: int = 1) -> tuple[int, set[tuple[str, ...]]]:
    """Every order of steps: how many states there are, and how the processes can end."""
    seen: set[object] = set()
    ends: set[tuple[str, ...]] = set()
    paths: list[list[tuple[str, int]]] = [[]]
    while paths:
        path = paths.pop()
        model = Model(count)
        for action in path:
            model.act(*action)
        key = model.key()
        if key in seen:
            continue
        seen.add(key)
        further = [one for one in model.actions() if one[0] != "beat" or path.count(one) < most_beats]
        if not further:
            ends.add(tuple(one.state for one in model.processes))
        paths += [[*path, one] for one in further]
    return len(seen), ends


def test_in_every_order_of_steps_one_job_has_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOOKS", 1)
    states, ends = explore(2)
    assert states > 100
    assert ("released", "released") in ends
    assert ("lost", "released") in ends, "one that was stopped is replaced, and notices"
    assert ("refused", "refused") not in ends


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if max(numbers, default=0) != last + 1:", "if False:"),
        ("if number <= last:", "if number <= last + 1:"),
        ("content != first", "False"),
    ],
)
def test_the_model_finds_planted_mistakes(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(claim.__file__).read_text()
    assert source.count(old) == 1
    scope: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(source.replace(old, new), "mutant", "exec"), scope)
    scope["LOOKS"] = 1
    scope["InUseError"] = InUseError
    monkeypatch.setitem(globals(), "taking", scope["taking"])
    with pytest.raises((AssertionError, KeyError)):
        explore(3 if "max" in old else 2)


@pytest.fixture(autouse=True)
def _no_claim_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files of all claims that a test has made."""
    made: list[Claim] = []
    begin = Claim.__init__

    def recorded(self: Claim, directory: Path, job: str) -> None:
        begin(self, directory, job)
        made.append(self)

    monkeypatch.setattr(Claim, "__init__", recorded)
    yield
    for one in made:
        one.release()


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "LOOK_S", 0.01)
    monkeypatch.setattr(claim, "LOOKS", 3)


def owners(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("owner*"))


def test_two_jobs_at_once_are_refused_and_the_first_is_named(tmp_path: Path) -> None:
    first = Claim(tmp_path, "job one (pid 1 on here)")
    with pytest.raises(JournalError, match=r"in use by job one \(pid 1 on here\)"):
        Claim(tmp_path, "job two")
    assert claim.owner_of(tmp_path) == "job one (pid 1 on here)"
    first.release()
    assert claim.owner_of(tmp_path) == ""
    Claim(tmp_path, "job two").release()
    assert owners(tmp_path) == ["owner-2"]
    assert (tmp_path / "owner-2").stat().st_mode & 0o777 == 0o600


def test_a_copy_of_a_journal_in_use_has_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner's process lives, but writes to the original: without this the copy was in use as long as that ran."""
    at_once(monkeypatch)
    (tmp_path / "own").mkdir()
    first = Claim(tmp_path / "own", "the first")
    shutil.copytree(tmp_path / "own", tmp_path / "copy")
    with pytest.raises(JournalError, match="in use by the first"):
        Claim(tmp_path / "own", "another")
    second = Claim(tmp_path / "copy", "the second")
    first.beat()
    second.beat()
    assert (claim.owner_of(tmp_path / "own"), claim.owner_of(tmp_path / "copy")) == ("the first", "the second")


def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Claim:
    """A claim of a job on another host."""
    with monkeypatch.context() as there:
        there.setattr(claim, "here", lambda: "elsewhere")
        return Claim(folder, "the first")


def test_a_journal_of_another_host_is_free_when_its_beat_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    first = elsewhere(tmp_path, monkeypatch)

    def beats(seconds: float) -> None:
        first._beat_s = -100.0
        first.beat()

    with monkeypatch.context() as alive:
        alive.setattr(time, "sleep", beats)
        with pytest.raises(JournalError, match="in use by the first"):
            Claim(tmp_path, "the second")
        assert claim.living_owner_of(tmp_path) == "the first"
    assert claim.living_owner_of(tmp_path) == "the first", "it was written just now"
    os.utime(tmp_path / "owner-1", (1, 1))
    with monkeypatch.context() as alive:
        alive.setattr(time, "sleep", beats)
        assert claim.living_owner_of(tmp_path) == "the first", "the clocks of the hosts differ"
    os.utime(tmp_path / "owner-1", (1, 1))
    assert claim.living_owner_of(tmp_path) == ""
    assert claim.owner_of(tmp_path) == "the first", "a job that would begin looks for itself"
    with monkeypatch.context() as known:
        known.setattr(time, "sleep", pytest.fail)
        assert claim.living_owner_of(tmp_path) == "", "it has been looked at"
    Claim(tmp_path, "the third")
    assert owners(tmp_path) == ["owner-2"]


def test_an_owner_that_was_replaced_writes_nothing_over_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    first = elsewhere(tmp_path, monkeypatch)
    second = Claim(tmp_path, "the second")
    content = (tmp_path / "owner-2").read_bytes()
    with pytest.raises(OSError, match="the second has taken the journal over"):
        first.beat()
    first.release()
    assert (tmp_path / "owner-2").read_bytes() == content
    second.beat()
    assert claim.owner_of(tmp_path) == "the second"


def test_a_look_that_fails_or_is_late_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A living owner whose file cannot be read for a while keeps the journal: ESTALE is not damage."""
    at_once(monkeypatch)
    first = elsewhere(tmp_path, monkeypatch)
    read, looks = claim._content, 0

    def stale(path: Path) -> bytes:
        nonlocal looks
        looks += 1
        if looks % 3:
            return read(path)
        if looks > 12:
            first._beat_s = -100.0
            first.beat()
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(claim, "_content", stale)
    with pytest.raises(JournalError, match="in use by the first"):
        Claim(tmp_path, "the second")
    assert looks > 12
    assert owners(tmp_path) == ["owner-1"]
    monkeypatch.setattr(claim, "QUICK_S", 0.0)
    monkeypatch.setattr(claim, "LIMIT_S", 0.1)
    monkeypatch.setattr(claim, "_content", read)
    with pytest.raises(TimeoutError, match="too slow or fails"):
        Claim(tmp_path, "the third")


def test_a_link_whose_answer_is_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def lost(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lost)
    Claim(tmp_path, "the first")
    assert owners(tmp_path) == ["owner-1"]
    assert claim.owner_of(tmp_path) == "the first"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", bytes(range(200, 250))])
def test_a_damaged_claim_is_replaced_when_it_stands_still(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    (tmp_path / "owner-7").write_bytes(content)
    Claim(tmp_path, "the next").release()
    assert owners(tmp_path) == ["owner-8"]


def test_a_claim_with_a_flipped_byte_is_in_use_or_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    monkeypatch.setattr(claim, "LOOKS", 0)
    Claim(tmp_path, "the first")
    data = (tmp_path / "owner-1").read_bytes()
    seen = set()
    for position in range(len(data)):
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / "owner-1").write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            Claim(tmp_path, "the next").release()
            seen.add("replaced")
        except JournalError:
            seen.add("in use")
        assert len(owners(tmp_path)) == 1
    assert seen == {"in use", "replaced"}
