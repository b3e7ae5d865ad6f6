"""Virtual lines of executors: the end of the process that serves one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from mpi_runtime.core.transport.channel import ChannelClosedError, Frame
from tests.simulation.world import Line, World


class Junk:
    """Bytes that user code writes where frames belong."""


class End:
    """The end of the line: the process is gone."""


class Channel:
    """The custodian's end of an executor's line."""

    def __init__(self, world: World, receive: Callable[[object], None]) -> None:
        self._world = world
        self._down = Line(world, world.options.socket_us, receive)
        self.up = Line(world, world.options.socket_us, self._arrive)
        """From the executor: frames, `Junk`, and at last an `End`."""
        self._arrived: deque[object] = deque()
        self._callback: Callable[[], None] | None = None
        self.splitter = SimpleNamespace(problem="")

    def send(self, frame: bytes) -> None:
        """Send the executor a frame."""
        self._down.send(frame)

    def receive(self) -> list[Frame]:
        """The frames that have arrived. Raises `ChannelClosedError` if there are none and there will be none."""
        if self._arrived and isinstance(self._arrived[0], End):
            raise ChannelClosedError
        frames: list[Frame] = []
        while self._arrived and not isinstance(self._arrived[0], End):
            message = self._arrived.popleft()
            if isinstance(message, Junk):
                self.splitter.problem = "junk"
            elif not self.splitter.problem:
                frames.append(cast(Frame, message))
        return frames

    def receive_rest(self) -> list[Frame]:
        """What was sent before the end, whether it would have arrived by now or not."""
        self._arrived.extend(self.up.drain())
        return self.receive() if not self._arrived or not isinstance(self._arrived[0], End) else []

    def close(self) -> None:
        """Nobody reads it any more."""
        self._callback = None

    def watch(self, callback: Callable[[], None] | None) -> None:
        """Call this whenever there is something to read; or nobody."""
        self._callback = callback
        if self._arrived:
            self._world.at(0, self._ready)

    def _arrive(self, message: object) -> None:
        self._arrived.append(message)
        self._ready()

    def _ready(self) -> None:
        if self._callback is not None and self._arrived:
            self._callback()
