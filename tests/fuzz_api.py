"""Wrong arguments for every public function, against a running job: `python -m tests.fuzz_api [--calls N] [--seed N]`.

Each call has right arguments by the names of its parameters, and one or two that are wrong in type, size or content.
Half of the batches run in the driver, half inside an actor. After each batch a task must still run. A finding is a call
that takes too long or raises what is not for users (an AssertionError, an error of msgspec, any error but a TypeError
that no `raise` of ours has made), or the end of an actor or of the job. The same seed makes the same calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import io
import linecache
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy

import mpi_runtime as ray
from mpi_runtime import config as configuration
from mpi_runtime import slurm
from mpi_runtime.core.calls import options as option_rules
from mpi_runtime.tune import TuneError
from mpi_runtime.tune.unsupported import BadSettingError
from mpi_runtime.util import actor_pool, collective, futures, multiprocessing, queue, scheduling_strategies, state
from mpi_runtime.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from tests import fuzz_rooms

CALLS_EACH = 25
"""So many calls in a batch."""
MEMORY_MAX = 4 << 30
"""How much address space each process may have."""
LIMIT_S = 20.0
"""How long one call may take."""
LEFT_OUT = {
    "init": "it starts the job: `--init` calls it",
    "shutdown": "it ends the job",
    "install_as_ray": "it has no arguments",
    "ActorHandle": "nobody makes one: its methods are called",
    "ObjectRef": "as ActorHandle",
    "ObjectRefGenerator": "as ActorHandle",
    "DynamicObjectRefGenerator": "as ActorHandle",
    "RemoteFunction": "`remote` makes it, and its methods are called",
    "ActorClass": "as RemoteFunction",
    "Context": "what `init` returns",
    "Results": "what `f.map` returns",
    "RuntimeContext": "it has no arguments, and its methods are called",
}
"""Public names that are not called, and why."""
USERS = (
    *(TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError, KeyError, StopIteration, OSError),
    *(ImportError, slurm.SlurmError, TuneError),
    *(ray.errors.MpiRuntimeError, queue.Empty, queue.Full),
)
"""What may be raised, if code of ours raises it on purpose."""
NOT_FOR_USERS = (
    ray.errors.HeadDiedError,
    ray.errors.WorkerCrashedError,
    ray.errors.InternalError,
    UnicodeError,
    AssertionError,
)


MANY = ("iterable", "iterables", "items", "values")
"""Arguments of whose elements each makes a call."""
OF_OTHERS = ("my own error", "truth value of an array", "embedded null byte", "int() base")
"""Errors of objects that were given, and of the system, which are passed on."""


DEATHS = (ray.errors.HeadDiedError, ray.errors.WorkerCrashedError, ray.errors.ActorDiedError)
"""What a call must not end with: nothing here kills a process that is asked for a result."""


class TooLongError(BaseException):
    """A call has taken longer than LIMIT_S."""


class Junk:
    """Values that hardly any argument may have."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def __call__(self, depth: int = 0) -> Any:
        rng = self.rng
        scalars: list[Any] = [
            None, True, False, 0, 1, -1, 2, 10**30, -(10**30), 2**63, -(2**63) - 1, 2**31, 0.5, -0.0, 1e-9, 1e300,
            float("nan"), float("inf"), -float("inf"), 1j, "", "a", "\udc80", "a\0b", "x" * 70_000, "0" * 32, "é", b"",
            b"\xff" * 16, b"x" * 70_000, bytearray(b"a"), object(), int, len, Junk, ..., range(3), Ellipsis, 1 << 5000,
            numpy.zeros(3), numpy.float64("nan"), numpy.int64(3), ValueError("x"), ValueError, Unequal(), rng.random(),
        ]  # fmt: skip
        if depth < 2 and rng.random() < 0.3:
            made = [self(depth + 1) for _ in range(rng.randrange(4))]
            kinds: list[Callable[[], Any]] = [
                lambda: made,
                lambda: tuple(made),
                lambda: {rng.choice(["a", "CPU", "\udc80", "memory"]): one for one in made},
                lambda: {(one if _is_hashable(one) else "k"): 1 for one in made},
                lambda: iter(made),
                lambda: {one for one in made if _is_hashable(one)},
            ]
            return rng.choice(kinds)()
        return rng.choice(scalars)


class Unequal:
    """Compares badly."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("my own error")

    __hash__ = None  # type: ignore[assignment]


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except Exception:
        return False
    return True


class Subject:
    """A class for actors."""

    def add(self, value: int = 1) -> int:
        return value

    def two(self) -> tuple[int, int]:
        return 1, 2


def double(value: Any = 1) -> Any:
    return value


def raises(value: Any) -> Any:
    raise ValueError(value)


class Titled:
    """Its instances show themselves as they were told to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return self.value  # type: ignore[no-any-return]

    def own(self) -> Any:
        return self


def count(most: int = 2) -> Iterator[int]:
    yield from range(most)


class World:
    """What right arguments are made of."""

    def __init__(self) -> None:
        self.function = ray.remote(double)
        self.cls = ray.remote(num_cpus=0)(Subject)
        self.stream = ray.remote(count)
        self.handle = self.cls.remote()
        self.group = placement_group([{"CPU": 0.01}])
        self.queue = queue.Queue(3, actor_options={"num_cpus": 0})
        self.pool = multiprocessing.Pool(1, ray_remote_args={"num_cpus": 0})
        self.executor = futures.Executor(2)
        self.actors = actor_pool.ActorPool([self.cls.remote()])
        self.ref = ray.put(1)
        ray.get([self.handle.add.remote(), self.function.remote(), self.group.ready()])
        self.right: dict[str, Callable[[], Any]] = {
            **fuzz_rooms.right(),
            **dict.fromkeys(("refs", "object_refs"), lambda: [self.ref]),
            **dict.fromkeys(("ref",), lambda: self.ref),
            **dict.fromkeys(("actor", "handle"), lambda: self.handle),
            "actors": lambda: [self.handle],
            "ranks": lambda: [0],
            **dict.fromkeys(("timeout", "timeout_s", "timeout_seconds"), lambda: 0.05),
            **dict.fromkeys(
                ("num_returns", "world_size", "chunk_size", "chunksize", "chunk", "backpressure_size"), lambda: 1
            ),
            **dict.fromkeys(("rank", "dst_rank", "src_rank"), lambda: 0),
            **dict.fromkeys(("name", "namespace", "group_name", "placement_group_name"), lambda: "a"),
            "device": lambda: None,
            "backend": lambda: None,
            "bundles": lambda: [{"CPU": 0.01}],
            "strategy": lambda: "PACK",
            "lifetime": lambda: None,
            "placement_group": lambda: self.group,
            "placement_group_bundle_index": lambda: 0,
            "node_id": lambda: ray.nodes()[0]["NodeID"],
            "soft": lambda: True,
            **dict.fromkeys(("fn", "func", "function", "serializer", "deserializer", "callback"), lambda: double),
            **dict.fromkeys(("iterable", "items", "values", "iterables"), lambda: [1, 2]),
            **dict.fromkeys(("args",), lambda: (1,)),
            **dict.fromkeys(("kwargs", "kwds"), dict),
            "filters": lambda: [("node_id", "=", "a")],
            "limit": lambda: 3,
            "id": lambda: self.ref.hex(),
            "cls": lambda: Subject,
            "tensor": lambda: numpy.zeros(2),
            "tensor_list": lambda: [numpy.zeros(2)],
            "filename": lambda: None,
            "print_file": io.StringIO,
            "options": dict,
            "processes": lambda: 1,
            "ray_remote_args": lambda: {"num_cpus": 0},
            "actor_options": lambda: {"num_cpus": 0},
            "op": lambda: collective.ReduceOp.SUM,
        }

    def targets(self) -> dict[str, Callable[..., Any]]:
        """All that is called, by name."""
        found: dict[str, Callable[..., Any]] = {}
        for name in ray.__all__:
            if name not in LEFT_OUT and callable(value := getattr(ray, name)):
                found[name] = value
        for name in ray.util.__all__:
            found[f"util.{name}"] = getattr(ray.util, name)
        for module in (scheduling_strategies, collective, state):
            for name, value in vars(module).items():
                if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__ and callable(value):
                    found[f"{module.__name__.rpartition('.')[2]}.{name}"] = value
        found |= fuzz_rooms.targets()
        found["runtime_env.RuntimeEnv"] = ray.runtime_env.RuntimeEnv
        found["queue.Queue"] = queue.Queue
        found["futures.Executor"] = futures.Executor
        found["multiprocessing.Pool"] = multiprocessing.Pool
        subjects: dict[str, Any] = {
            "ref": self.ref, "function": self.function, "class": self.cls, "method": self.handle.add,
            "generator": self.stream.remote(), "group": self.group, "queue": self.queue, "pool": self.pool,
            "executor": self.executor, "actors": self.actors, "context": ray.get_runtime_context(),
            "marked": ray.util.as_completed([self.ref]),
        }  # fmt: skip
        closing = ("shutdown", "close", "terminate", "join", "kill")
        for name, subject in subjects.items():
            for member in dir(subject):
                if member.startswith(("_", "gi_")) or member in closing:
                    continue
                if isinstance(inspect.getattr_static(type(subject), member, None), property):
                    continue
                if callable(value := getattr(subject, member)):
                    found[f"{name}.{member}"] = value
        found["method.remote of Subject"] = self.handle.add.remote
        found["function.remote of raises"] = ray.remote(max_retries=0)(raises).remote
        found["class.remote of Titled"] = lambda value: ray.remote(num_cpus=0)(Titled).remote(value).own.remote()
        return found


OPTIONS = {
    "remote": option_rules.TASK_OPTIONS,
    "function.options": option_rules.TASK_OPTIONS,
    "class.options": option_rules.ACTOR_OPTIONS,
    "method.options": option_rules.METHOD_OPTIONS,
    "method": option_rules.METHOD_OPTIONS,
    "map_unordered": (),
}
"""The keyword arguments of functions that take `**options`."""


def call(name: str, target: Callable[..., Any], world: World, junk: Junk) -> tuple[Callable[[], Any], str]:
    """A call of the target, and its arguments in words."""
    rng = junk.rng
    if name in OPTIONS:
        options = {one: junk() for one in rng.sample(OPTIONS[name], rng.choice((1, 1, 2, 3)))}
        if "get_if_exists" in options or "lifetime" in options or rng.random() < 0.1:
            options.setdefault("name", rng.choice(["a", "b"]))
        return (lambda: use(name, target, options)), f"**{options!r}"
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    wrong = rng.sample(range(len(parameters)), min(len(parameters), rng.choice((1, 1, 1, 2)))) if parameters else []
    for place, one in enumerate(parameters):
        if one.kind is one.VAR_POSITIONAL:
            args += [_wrong(one, junk) for _ in range(rng.randrange(3))] if not kwargs else []
            continue
        if one.kind is one.VAR_KEYWORD:
            names = fuzz_rooms.OPTIONS.get(name, ("num_cpus", "name", "x", "max_retries"))
            if rng.random() < (0.8 if name in fuzz_rooms.OPTIONS else 0.3):
                kwargs[rng.choice(names)] = junk()
            continue
        if place in wrong:
            value = _wrong(one, junk)
        elif one.default is not one.empty and "timeout" not in one.name and rng.random() < 0.7:
            continue
        else:
            value = world.right.get(one.name, junk)()
        if (
            one.kind is one.KEYWORD_ONLY
            or kwargs
            or (one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY)
        ):
            kwargs[one.name] = value
        else:
            args.append(value)
    shown = ", ".join([*map(_shown, args), *(f"{key}={_shown(value)}" for key, value in kwargs.items())])
    return (lambda: target(*args, **kwargs)), shown


def _wrong(parameter: inspect.Parameter, junk: Junk) -> Any:
    """A value for a parameter with which the call may not rightly take long."""
    name = parameter.name
    while True:
        value = junk()
        is_endless = ("timeout" in name or name == "size") and _waits_long(value)
        if not is_endless and not (name in MANY and _is_long(value)):
            return value


def _is_long(value: Any) -> bool:
    """Whether calls for each of its elements would take too long."""
    return isinstance(value, (str, bytes, bytearray)) and len(value) > 1000


def _waits_long(value: Any) -> bool:
    """Whether a call with this timeout may rightly take for ever."""
    with contextlib.suppress(Exception):
        return value is None or bool(value > 1)
    return False


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except Exception as error:
        return f"<{type(value).__name__}: {error}>"


def use(name: str, target: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """State options, and make a call with them."""
    made = target(**options)
    if name == "remote":
        return made(double).remote()
    if name == "method":
        cls = type("Marked", (), {"f": made(lambda self: 1)})
        handle: Any = ray.remote(num_cpus=0)(cls).remote()
        return [handle, handle.f.remote()]
    return made.remote()


def tidy(result: Any) -> None:
    """End what a call has begun, and take its results, so that no CPU stays taken."""
    for one in reversed(result) if isinstance(result, (list, tuple)) else [result]:
        if isinstance(one, ray.ActorHandle):
            ray.kill(one)
        elif isinstance(one, multiprocessing.Pool):
            one.terminate()
        elif isinstance(one, queue.Queue):
            one.shutdown()
        elif isinstance(one, PlacementGroup) and not one.is_empty:
            remove_placement_group(one)
        elif isinstance(one, ray.ObjectRef) and not one.is_nil():
            try:
                ray.get(one, timeout=0.05)
            except ray.errors.GetTimeoutError:
                ray.cancel(one)
        elif isinstance(one, ray.ObjectRefGenerator):
            ray.cancel(one)


def judge(error: BaseException) -> str:
    """What is wrong with an error; empty: nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    if isinstance(error, TooLongError):
        return "takes too long"
    if any(text in str(error) for text in OF_OTHERS):
        return ""
    is_ours = any(os.sep + "mpi_runtime" + os.sep in frame.filename for frame in frames)
    if not is_ours:
        return ""  # Python has refused the call: an argument is missing or has no such name
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    is_raised = line.startswith("raise")
    if isinstance(error, NOT_FOR_USERS) and not isinstance(error, BadSettingError):  # Ray asserts
        return "is not for users"
    if not isinstance(error, USERS):
        return "is not for users"
    if not is_raised and not isinstance(error, (StopIteration, OSError, TypeError)):
        return f"comes from {os.path.basename(last.filename)}:{last.lineno} {line}"
    return ""


def batch(seed: str, calls: int, only: str = "") -> dict[str, str]:
    """Some calls in this process, and what was found."""
    junk = Junk(random.Random(seed))
    found: dict[str, str] = {}
    world: World = globals().get("_world") or World()
    globals()["_world"] = world
    targets = world.targets()
    names = [name for name in sorted(targets) if name.startswith(only)]
    names += [name for name in OPTIONS if name in names] * 8
    signal.signal(signal.SIGALRM, _too_long)
    for _ in range(calls):
        name = junk.rng.choice(names)
        act, shown = call(name, targets[name], world, junk)
        said = f"{name}({shown})"
        if os.environ.get("FUZZ_SHOW"):
            print(said[:300].encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)
        result = None
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            result = act()
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            elif inspect.isgenerator(result):
                next(result, None)
        except BaseException as error:
            problem = judge(error)
            if problem:
                what = f"{name}: {type(error).__name__} {problem}"
                found.setdefault(what, f"{str(error)[:200]} <- {said[:300]} in batch {seed}")
            if isinstance(error, ray.errors.HeadDiedError):
                return found
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            tidy(result)
        except (*DEATHS, ray.errors.InternalError, AssertionError) as error:
            if "was killed by kill()" not in str(error):  # another call of the batch may have done so
                what = f"the result of {name}: {type(error).__name__}"
                found.setdefault(what, f"{error} <- {said[:300]} in batch {seed}")
        except Exception:
            pass  # the error of a call, which is for users
        del result, act
    return found


def _too_long(*_: object) -> None:
    raise TooLongError


class Inside:
    """Runs batches in an executor."""

    def batch(self, seed: str, calls: int, only: str) -> dict[str, str]:
        return batch(seed, calls, only)


def run(calls: int, seed: int, first: int = 0, only: str = "") -> dict[str, str]:
    """So many calls, and what was found."""
    found: dict[str, str] = {}
    # What asks for too much gets a MemoryError, and does not use up the memory of the machine.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with ray.init(
        num_cpus=4,
        object_store_memory=200_000_000,
        log_to_driver="FUZZ_SHOW" in os.environ,
        ignore_unhandled_errors=True,
        quiet=True,
    ):
        inside = ray.remote(num_cpus=0)(Inside).remote()
        for number in range(first, first + -(-calls // CALLS_EACH)):
            name = f"{seed}/{number}"
            if number % 2:
                try:
                    found |= ray.get(inside.batch.remote(name, CALLS_EACH, only), timeout=600)
                except ray.errors.MpiRuntimeError as error:
                    found[f"batch {name} inside an actor"] = repr(error)[:600]
                    inside = ray.remote(num_cpus=0)(Inside).remote()
            else:
                found |= batch(name, CALLS_EACH, only)
            try:
                assert ray.get(ray.remote(double).remote(number), timeout=60) == number
            except BaseException as error:
                found[f"after batch {name} no task runs any more"] = repr(error)[:600]
                break
        globals().pop("_world", None)
    return found


def start_jobs(count: int, seed: int) -> dict[str, str]:
    """So many jobs with wrong arguments of `init()`, and what was found. What starts must work."""
    found: dict[str, str] = {}
    names = [*configuration.Config.__struct_fields__, "address", "runtime_env", "logging_level"]
    signal.signal(signal.SIGALRM, _too_long)
    for number in range(count):
        junk = Junk(random.Random(f"init {seed}/{number}"))
        options = {one: junk() for one in junk.rng.sample(names, junk.rng.choice((1, 1, 2)))}
        said = f"init(**{_shown(options)}) number {number}"
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            with ray.init(**{"num_cpus": 2, "quiet": True, "log_to_driver": False, **options}):
                assert ray.get(ray.remote(num_cpus=0)(double).remote(number)) == number
        except BaseException as error:
            problem = judge(error) or ("ends the head" * ("ended while it started" in str(error)))
            if problem:
                found.setdefault(f"init: {type(error).__name__} {problem}", f"{str(error)[:300]} <- {said}")
            ray.shutdown()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def main() -> int:
    """Run the calls that the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first batch")
    parser.add_argument("--only", default="", help="only functions with names that begin so, such as tune")
    parser.add_argument("--init", type=int, default=0, help="how often to start a job with wrong arguments")
    words = parser.parse_args()
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        fuzz_rooms.without_slurm(Path(folder, "bin"))
        found = run(words.calls, words.seed, words.first, words.only) if words.calls else {}
        found |= start_jobs(words.init, words.seed)
        os.chdir(home)
    for what, example in sorted(found.items()):
        print(f"{what}: {example}".encode("utf-8", "backslashreplace").decode())
    print(f"{words.calls} calls and {words.init} jobs, seed {words.seed}: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
