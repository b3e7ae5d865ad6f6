"""Cancelling: calls that run, that wait, that have children, and what cannot be cancelled.

Files are closed by `with`: CPython loses an interrupt that arrives while a destructor closes a file.
"""

import asyncio
import os
import time

import ray

from tests.ray_docs.helpers import eventually, raised, tally


def sleeping_tasks_end_when_cancelled():
    """A cancelled call raises TaskCancelledError, also where it ran already."""

    @ray.remote
    def f(path):
        open(path, "ab").write(b"x")
        for _ in range(1000):  # Ray does not interrupt a single long sleep
            time.sleep(0.05)

    with tally() as counts:
        ref = f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError", "WorkerCrashedError"))


def waiting_tasks_are_dropped_when_cancelled():
    """A call that has not started is not started any more."""

    @ray.remote(resources={"special": 2})
    def hold(path):
        while not os.path.exists(path):
            time.sleep(0.01)

    @ray.remote(resources={"special": 2})
    def never(path):
        open(path, "ab").write(b"x")

    with tally() as gate, tally() as counts:
        first, second = hold.remote(gate.path), None
        second = never.remote(counts.path)
        ray.cancel(second)
        open(gate.path, "w").close()
        print(raised(lambda: ray.get(second, timeout=30), "TaskCancelledError"), ray.get(first), counts.count)


def cancel_with_force():
    """`force=True` ends the process."""

    @ray.remote(max_retries=0)
    def f(path):
        open(path, "ab").write(b"x")
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass

    with tally() as counts:
        ref = f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref, force=True)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError", "WorkerCrashedError"))


def cancel_of_what_has_ended():
    """A call that has ended keeps its value."""
    ref = ray.remote(lambda: 4).remote()
    ray.get(ref)
    ray.cancel(ref)
    print(ray.get(ref))


def cancel_reaches_children():
    """`recursive` cancels what the call has submitted; it is the default."""

    @ray.remote
    def child(path):
        open(path, "ab").write(b"x")
        for _ in range(1000):
            time.sleep(0.05)

    @ray.remote
    def parent(path):
        refs = [child.remote(path)]
        open(path, "ab").write(b"y")
        return ray.get(refs)

    with tally() as counts:
        ref = parent.remote(counts.path)
        eventually(lambda: counts.count >= 2)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"))
        print(eventually(lambda: ray.available_resources().get("CPU", 0) == 4))


def cancel_refuses_other_things():
    """Only references and generators of calls can be cancelled."""
    print(raised(lambda: ray.cancel(1), "TypeError"))


def a_task_sees_that_it_is_cancelled():
    """`is_canceled()` of the runtime context tells a task that goes on."""

    @ray.remote
    def f(path):
        open(path, "ab").write(b"x")
        try:
            for _ in range(1000):
                time.sleep(0.05)
        except KeyboardInterrupt:
            if ray.get_runtime_context().is_canceled():
                open(path, "ab").write(b"x")
            raise

    with tally() as counts:
        ref = f.remote(counts.path)
        eventually(lambda: counts.count)
        print(ray.get(ray.remote(lambda: ray.get_runtime_context().is_canceled()).remote()))
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"), counts.count)


def cancel_of_a_waiting_method():
    """A call of a method that has not started can be cancelled; the actor lives on."""

    @ray.remote
    class A:
        def f(self, seconds):
            time.sleep(seconds)
            return seconds

    a = A.remote()
    ray.get(a.f.remote(0))
    first, second = a.f.remote(0.5), a.f.remote(0)
    time.sleep(0.1)
    ray.cancel(second)
    print(raised(lambda: ray.get(second), "TaskCancelledError"), ray.get(first), ray.get(a.f.remote(0)))


def force_is_refused_for_methods():
    """`cancel(force=True)` would end the actor."""

    @ray.remote
    class A:
        def f(self):
            time.sleep(2)

    a = A.remote()
    ref = a.f.remote()
    print(raised(lambda: ray.cancel(ref, force=True), "ValueError"))


def cancel_of_a_running_method():
    """A method that runs is not interrupted, but `get` raises."""

    @ray.remote
    class A:
        def __init__(self):
            self.done = 0

        def f(self, gate, counts):
            with open(counts, "ab") as file:
                file.write(b"x")
            while not os.path.exists(gate):
                time.sleep(0.01)
            self.done += 1
            return self.done

        def get(self):
            return self.done

    with tally() as gate, tally() as counts:
        a = A.remote()
        ref = a.f.remote(gate.path, counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        time.sleep(0.5)
        open(gate.path, "w").close()
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"), ray.get(a.get.remote()))


def cancel_of_a_running_method_in_a_thread():
    """Also of an actor with several threads."""

    @ray.remote(max_concurrency=2)
    class A:
        def f(self, gate, counts):
            with open(counts, "ab") as file:
                file.write(b"x")
            while not os.path.exists(gate):
                time.sleep(0.01)
            return 1

    with tally() as gate, tally() as counts:
        a = A.remote()
        ref = a.f.remote(gate.path, counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        time.sleep(0.5)
        open(gate.path, "w").close()
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"))


def a_coroutine_that_swallows_its_cancellation():
    """Its value is lost: the call was cancelled."""

    @ray.remote
    class A:
        async def f(self, counts):
            with open(counts, "ab") as file:
                file.write(b"x")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
            return 1

    with tally() as counts:
        a = A.remote()
        ref = a.f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"))


def a_task_that_swallows_its_cancellation():
    """A task that catches KeyboardInterrupt and returns."""

    @ray.remote
    def f(counts):
        try:
            with open(counts, "ab") as file:
                file.write(b"x")
            for _ in range(1000):
                time.sleep(0.05)
        except KeyboardInterrupt:
            return 7

    with tally() as counts:
        ref = f.remote(counts.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        found = []
        print(raised(lambda: found.append(ray.get(ref, timeout=30)), "TaskCancelledError"), found)


def kinds_of_the_error_of_a_cancelled_call():
    """The error of a call that ran is an error of a task too."""

    @ray.remote
    class A:
        async def f(self, counts):
            with open(counts, "ab") as file:
                file.write(b"x")
            await asyncio.sleep(60)

    @ray.remote
    def g(path):
        open(path, "ab").write(b"x")
        for _ in range(1000):
            time.sleep(0.05)

    for call in (g, A.remote().f):
        with tally() as counts:
            ref = call.remote(counts.path)
            eventually(lambda counts=counts: counts.count)
            ray.cancel(ref)
            print(raised(lambda ref=ref: ray.get(ref, timeout=30), "RayTaskError", "TaskCancelledError", "RayError"))


def kinds_of_the_error_of_a_call_that_did_not_run():
    """A call that has not started has run no code."""

    @ray.remote(resources={"special": 2})
    def hold(path):
        open(path, "ab").write(b"x")
        time.sleep(1)

    with tally() as counts:
        first = hold.remote(counts.path)
        eventually(lambda: counts.count)
        second = hold.remote(counts.path)
        ray.cancel(second)
        print(raised(lambda: ray.get(second, timeout=30), "RayTaskError", "TaskCancelledError"), ray.get(first))


def a_coroutine_cleans_up_with_a_call():
    """Calls made in `except CancelledError` run."""

    @ray.remote
    def clean(path):
        open(path, "ab").write(b"x")
        return 3

    @ray.remote
    class A:
        async def f(self, counts, cleaned):
            with open(counts, "ab") as file:
                file.write(b"x")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await clean.remote(cleaned)
                raise

    with tally() as counts, tally() as cleaned:
        a = A.remote()
        ref = a.f.remote(counts.path, cleaned.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"), eventually(lambda: cleaned.count, 5))


def a_task_cleans_up_with_a_call():
    """Also in `except KeyboardInterrupt` of a task."""

    @ray.remote
    def clean(path):
        open(path, "ab").write(b"x")
        return 3

    @ray.remote
    def f(counts, cleaned):
        with open(counts, "ab") as file:
            file.write(b"x")
        try:
            for _ in range(1000):
                time.sleep(0.05)
        except KeyboardInterrupt:
            ray.get(clean.remote(cleaned))
            raise

    with tally() as counts, tally() as cleaned:
        ref = f.remote(counts.path, cleaned.path)
        eventually(lambda: counts.count)
        ray.cancel(ref)
        print(raised(lambda: ray.get(ref, timeout=30), "TaskCancelledError"), eventually(lambda: cleaned.count, 5))


def a_cancelled_call_as_an_argument():
    """A call that needs the value of a cancelled one raises the same error."""

    @ray.remote
    def f(path):
        open(path, "ab").write(b"x")
        for _ in range(1000):
            time.sleep(0.05)

    with tally() as counts:
        first = f.remote(counts.path)
        second = ray.remote(lambda x: x).remote(first)
        eventually(lambda: counts.count)
        ray.cancel(first)
        print(raised(lambda: ray.get(second, timeout=30), "TaskCancelledError"))
