"""Lines that are cut: after each frame, within frames, again and again; every frame arrives once, and in order."""

from __future__ import annotations

import random

import pytest

from mpi_runtime.core.lines.numbered import DATA, Cutter, LineError, Numbered, encoded
from mpi_runtime.core.lines.numbered import Frame as LineFrame


class End:
    """One end: what it sent, what it has passed on, and the line that it uses."""

    def __init__(self, numbered: Numbered) -> None:
        self.numbered = numbered
        self.sent: list[bytes] = []
        self.arrived: list[bytes] = []
        self.passed_on = 0
        self.cutter = Cutter()
        self.coming = b""
        """Bytes that are on their way to this end."""

    def put(self, payload: bytes) -> None:
        self.sent.append(payload)
        self.numbered.put(DATA, payload)

    def take(self, size: int) -> None:
        data, self.coming = self.coming[:size], self.coming[size:]
        for frame in self.cutter.feed(data):
            if self.numbered.take(frame):
                self.arrived.append(frame.payload)

    def pass_on(self, count: int) -> None:
        """Pass on some of what has arrived."""
        self.passed_on = min(len(self.arrived), self.passed_on + count)
        self.numbered.handled = self.passed_on

    def send(self, other: End, count: int, beats: bool = False) -> None:
        """Send some frames to the other end."""
        for _ in range(count):
            data = self.numbered.next()
            if data is None:
                break
            other.coming += data
        if beats:
            other.coming += self.numbered.beat()


def dial(here: End, there: End, epoch: int) -> None:
    """A new line: what was on its way is lost. Each end states what it has received."""
    for end in (here, there):
        end.coming, end.cutter = b"", Cutter()
    stated = here.numbered.received, there.numbered.received
    there.numbered.begin(epoch, stated[0])
    here.numbered.begin(epoch, stated[1])


def run(seed: int, kind: type[Numbered] = Numbered) -> None:
    """Two ends that send at random, on lines that are cut at random."""
    dice = random.Random(seed)
    ends = End(kind()), End(kind())
    epoch = 1
    dial(*ends, epoch)
    steps = dice.randrange(10, 120)
    for step in range(steps):
        here, there = ends if dice.random() < 0.5 else ends[::-1]
        action = dice.random()
        if action < 0.3:
            here.put(f"{step} {'x' * dice.choice((0, 1, 40))}".encode())
        elif action < 0.55:
            here.send(there, dice.randrange(4), beats=dice.random() < 0.3)
        elif action < 0.8:
            here.take(dice.choice((1, 3, 20, 26, 1000)))
        elif action < 0.9:
            here.pass_on(dice.randrange(4))
        elif action < 0.97:
            epoch += dice.choice((1, 1, 3))
            dial(*ends, epoch)
        else:  # a line that was dialled before arrives late
            with pytest.raises(LineError):
                here.numbered.begin(dice.randrange(epoch + 1), there.numbered.received)
    dial(*ends, epoch + 1)
    for _ in range(2):  # the second time for acknowledgements
        for here, there in (ends, ends[::-1]):
            here.send(there, 1000, beats=True)
            there.take(1 << 30)
            there.pass_on(1000)
    for here, there in (ends, ends[::-1]):
        here.send(there, 0, beats=True)
        there.take(1 << 30)
    for here, there in (ends, ends[::-1]):
        assert there.arrived == here.sent
        assert here.numbered.is_acknowledged
        assert here.numbered.kept_bytes == 0


@pytest.mark.parametrize("part", range(4))
def test_every_frame_arrives_once_on_lines_that_are_cut_at_random(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + 1000):
        run(seed)


class NotRepeated(Numbered):
    """Forgets that frames on a line that was cut may not have arrived."""

    def begin(self, epoch: int, received: int) -> None:
        sent = self._sent - (received - self._first + 1)
        super().begin(epoch, received)
        self._sent = max(0, sent)


class AllRepeated(Numbered):
    """Repeats what was not acknowledged, although it was received."""

    def begin(self, epoch: int, received: int) -> None:
        super().begin(epoch, self._first - 1)


class TakesAgain(Numbered):
    """Does not look at numbers."""

    def take(self, frame: LineFrame) -> bool:
        return super().take(frame._replace(number=self.received + 1))


class TakesAgainAndRepeats(TakesAgain, AllRepeated):
    """Both at once, so that no error shows it."""


class DropsTooMuch(Numbered):
    """Drops what was sent, whether it was acknowledged or not."""

    def beat(self) -> bytes:
        self._drop(self._first + self._sent - 1)
        return super().beat()


class AnyEpoch(Numbered):
    """Uses a line that is older than the present one."""

    def begin(self, epoch: int, received: int) -> None:
        self.epoch = -1
        super().begin(epoch, received)


@pytest.mark.parametrize("kind", [NotRepeated, AllRepeated, TakesAgainAndRepeats, DropsTooMuch, AnyEpoch])
def test_a_mistake_is_found(kind: type[Numbered]) -> None:
    def fails(seed: int) -> bool:
        try:
            run(seed, kind)
        except (AssertionError, LineError, IndexError, pytest.fail.Exception):
            return True
        return False

    assert any(fails(seed) for seed in range(300))


@pytest.mark.parametrize("way", [0, 1])
def test_a_cut_after_each_frame_and_within_it(way: int) -> None:
    payloads = [b"", b"a", b"\n" * 30, bytes(range(256)), b"last"]
    size = sum(len(encoded(LineFrame(DATA, 1, 0, one))) for one in payloads)
    for cut in range(size + 1):
        for answered in (False, True):
            ends = End(Numbered()), End(Numbered())
            here, there = ends if not way else ends[::-1]
            dial(*ends, 1)
            for one in payloads:
                here.put(one)
                there.put(one)
            here.send(there, 10)
            there.take(cut)
            if answered:  # the other direction still works, and acknowledges
                there.pass_on(10)
                there.send(here, 2, beats=True)
                here.take(1000)
            dial(*ends, 2)
            here.send(there, 10)
            there.send(here, 10)
            there.take(1 << 20)
            here.take(1 << 20)
            assert there.arrived == here.arrived == payloads


def test_bytes_that_are_no_frames_are_found_at_once() -> None:
    with pytest.raises(LineError, match="no frame starts with"):
        Cutter().feed(b"Last login: Tue Nov 24 10:00:00 2026 from login1\n")
    whole = encoded(LineFrame(DATA, 1, 0, b"12"))
    with pytest.raises(LineError, match="a frame ends with"):
        Cutter().feed(whole[:-1] + b"x")


def test_statements_that_cannot_be_right_are_refused() -> None:
    one = Numbered()
    one.put(DATA, b"x")
    with pytest.raises(LineError, match="states 2 frames"):
        one.begin(1, 2)
    one.begin(1, 0)
    with pytest.raises(LineError, match="was not sent"):
        one.take(LineFrame(DATA, 1, 1, b""))
    with pytest.raises(LineError, match="follows frame 0"):
        one.take(LineFrame(DATA, 2, 0, b""))
