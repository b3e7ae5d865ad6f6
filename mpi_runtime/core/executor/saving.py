"""Saves the state of an actor between calls: pickles it, writes it, and reports it with the ends of calls.

A state and the end of the call after which it was saved are sent in one frame. So with `checkpoint_calls=1` the state
is saved when a process has the result of the call, unless the actor runs several calls at a time.

By default the state is saved every DEFAULT_S, and less often where saving takes long, so that it takes at most a
twentieth of the time. The state of an actor that runs several calls at a time is saved when none runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import Any

from mpi_runtime.core.client.client import Client
from mpi_runtime.errors import JournalError
from mpi_runtime.scheduler.protocol.events import ActorSpec, JournalFailed, Kept, Saved, Spec

DEFAULT_S = 10.0
SHARE = 20
"""By default saving takes at most one twentieth of the time."""
LOOK_S = 1.0
INLINE_BYTES_MAX = 1 << 16
NUMBER_BYTES = 16


class Saver:
    """Saves the state of the actor of this process."""

    def __init__(self, client: Client, name: str, spec: ActorSpec, actor: Any) -> None:
        self._client = client
        self._name = name
        self._spec = spec
        self._actor = actor
        self._lock = threading.Lock()
        self._under_way = 0
        """Number of calls that have begun and whose ends were not sent, if several may run at a time."""
        self._changed = 0
        """How many calls have ended since it was saved last."""
        self._is_wanted = False
        """Whether the scheduler or user code has asked for it."""
        self._last_s = time.monotonic()
        self._cost_s = 0.0

    def begins(self) -> None:
        """Note that a call begins, in an actor that runs several at a time."""
        with self._lock:
            self._under_way += 1

    def ends(self) -> None:
        """Note that a call has ended and its result was sent. If two end at once, neither was the last in `post`."""
        with self._lock:
            self._under_way -= 1
            if not self._under_way and self._is_due() and (saved := self._saved()) is not None:
                self._client.outbox.post_now(saved)

    def post(self, spec: Spec, message: object) -> bool:
        """Send the end of a call and the state if saving is due; else return False, and send nothing."""
        with self._lock:
            self._changed += not spec.keeps_state
            if self._under_way > 1 or not self._is_due() or (saved := self._saved()) is None:
                return False
            self._client.outbox.add(message)
            self._client.outbox.post_now(saved)
            return True

    def look(self, wanted: bool) -> None:
        """Save the state if it is due, or `wanted`, and no call runs."""
        with self._lock:
            self._is_wanted = self._is_wanted or (wanted and self._changed > 0)
            if not self._under_way and self._is_due() and (saved := self._saved()) is not None:
                self._client.outbox.post_now(saved)

    def save_now(self) -> bool:
        """Save the state in a call that does nothing else. False: others run; it is saved when they have ended.

        Raises:
            Exception: whatever `save_state` raises.
        """
        with self._lock:
            if self._under_way > 1:
                self._is_wanted = True
                return False
            self._client.outbox.post_now(self._save())
            return True

    def pause_s(self) -> float | None:
        """Return how long an idle process may sleep, in seconds; None: until a message arrives."""
        if not self._changed or (self._spec.save_calls and not self._spec.save_us):
            return None
        least_s = LOOK_S if self._under_way else 0.0  # in vain while a call runs
        return max(least_s, self._last_s + self._interval_s() - time.monotonic())

    def _interval_s(self) -> float:
        return self._spec.save_us / 1e6 if self._spec.save_us else max(DEFAULT_S, SHARE * self._cost_s)

    def _is_due(self) -> bool:
        if not self._changed:
            return False
        calls = self._spec.save_calls
        if self._is_wanted or (calls and self._changed >= calls):
            return True
        return not (calls and not self._spec.save_us) and time.monotonic() - self._last_s >= self._interval_s()

    def _saved(self) -> Saved | None:
        """Return the state, or None if saving failed (the traceback has been printed)."""
        try:
            return self._save()
        except Exception:
            self._last_s, self._changed, self._is_wanted = time.monotonic(), 0, False
            traceback.print_exc()
            print(
                f"The state of {self._name} could not be saved, as shown above. The last saved state counts.",
                file=sys.stderr,
            )
            return None

    def _save(self) -> Saved:
        began_s = time.monotonic()
        kept = self._kept(to_bytes(self._actor.save_state(), self._name))
        self._last_s = time.monotonic()
        self._cost_s = self._last_s - began_s
        self._changed, self._is_wanted = 0, False
        return Saved(os.urandom(NUMBER_BYTES), kept)

    def _kept(self, data: bytes) -> Kept:
        if len(data) <= INLINE_BYTES_MAX:
            return Kept(data)
        from mpi_runtime.core.journal import value_files  # not at the top: most jobs have none

        journal = self._client.store.journal
        try:
            file, digest = value_files.write(journal, f"state-{os.urandom(8).hex()}", [(0, data)], sync=True)
        except OSError as error:
            self._client.outbox.post(JournalFailed(f"{error.strerror or error} ({error.filename or journal})"))
            raise
        return Kept(b"", file, len(data), digest)


def to_bytes(state: object, name: str) -> bytes:
    """Return a state as bytes. Arrays in it are writable when it is read.

    Raises:
        JournalError: it has references inside, which no later run can follow.
    """
    import cloudpickle

    from mpi_runtime.core.objects.collecting import Collecting

    with Collecting() as found:
        data: bytes = cloudpickle.dumps(state, protocol=5)
    if found:
        raise JournalError(
            f"the state of {name} holds {len(found)} reference(s) or handle(s), which mean nothing in a later run: "
            "have save_state return values"
        )
    return data


def read(journal: str, kept: Kept) -> bytes | None:
    """Return a state as bytes; None: its file is missing or damaged."""
    if not kept.file:
        return kept.data
    from mpi_runtime.core.journal import value_files

    try:
        return b"".join(piece for _, piece in value_files.read(journal, kept))
    except (value_files.DamagedError, OSError):
        return None
