"""Cancelling: calls that run, that wait, that have children, and what cannot be cancelled."""

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
