"""Values that hang in `__reduce__`, or when they are loaded: only their own call, or thread, stands still."""

import pytest

from tests.helpers import run_program

HEAD = """
import os, signal, sys, threading, time
import mpi_runtime as ray

note = os.path.abspath("note")

def hang():
    open(note, "w").close()
    while True:
        time.sleep(0.01)

class Dumps:
    def __reduce__(self):
        hang()

class Loads:
    def __reduce__(self):
        return hang, ()

class Error(Exception):
    def __reduce__(self):
        hang()

def when_it_hangs():
    while not os.path.exists(note):
        time.sleep(0.01)
    os.unlink(note)

def interrupt():
    when_it_hangs()
    os.kill(os.getpid(), signal.SIGINT)

@ray.remote
def returns(kind):
    return kind()

@ray.remote
def takes(value):
    pass

@ray.remote
def fails():
    raise Error

@ray.remote
class Actor:
    def returns(self, kind):
        return kind()

def error_of(act):
    try:
        return act()
    except BaseException as error:
        return type(error).__name__

ray.init(num_cpus=2)
"""
CANCELLED = (
    HEAD
    + """
def cancelled(ref, force):
    when_it_hangs()
    ray.cancel(ref, force=force)
    return error_of(lambda: ray.get(ref, timeout=60))

for force in (False, True):
    for start in (lambda: returns.remote(Dumps), lambda: takes.remote(Loads()), fails.remote):
        print(cancelled(start(), force))
print(error_of(lambda: ray.get(returns.remote(Dumps), timeout=0.5)))
when_it_hangs()
actor = Actor.remote()
ref = actor.returns.remote(Dumps)
when_it_hangs()
ray.kill(actor)
print(error_of(lambda: ray.get(ref, timeout=60)), ray.get(takes.remote(1), timeout=60))
"""
)
INTERRUPTED = (
    HEAD
    + """
ref = returns.remote(Loads)
for act in (lambda: ray.put(Dumps()), lambda: takes.remote(Dumps()), lambda: ray.get(ref)):
    threading.Thread(target=interrupt).start()
    print(error_of(act))
threading.Thread(target=lambda: ray.put(Dumps()), daemon=True).start()
when_it_hangs()
print(ray.get(takes.remote(1), timeout=60), len(ray.get(ray.put(b"x" * 3_000_000), timeout=60)), flush=True)
ray.shutdown()
os._exit(0)
"""
)


@pytest.mark.parametrize("ranks", [None, 3])
def test_a_call_whose_value_hangs_is_cancelled_and_ends_with_its_process(ranks: int | None) -> None:
    done = run_program(CANCELLED, ranks=ranks).expect(0)
    cancelled = ["TaskError(TaskCancelledError)"] * 3 + ["TaskCancelledError"] * 3
    assert done.stdout.splitlines() == [*cancelled, "GetTimeoutError", "ActorDiedError None"]


def test_ctrl_c_ends_a_value_that_hangs_in_the_driver_and_other_threads_go_on() -> None:
    done = run_program(INTERRUPTED).expect(0)
    assert done.stdout.splitlines() == [*["KeyboardInterrupt"] * 3, "None 3000000"]
