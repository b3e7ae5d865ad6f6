"""Jobs share batches while they are killed, stopped, woken and started again: `python -m tests.chaos.batch_strikes`.

Each command notes its begin and its end. A command may begin again only for a reason that the documentation states: its
job was killed, stood still for long, had to end, or a user cancelled it. Limits that all jobs share hold at all times.
Strikes are kills, stops, wakes, SIGTERMs and starts of the same line; requests of users come between.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mpi_runtime.batch.history.batch_history import used_by
from mpi_runtime.batch.history.requests import Request, leave
from tests.helpers import MARK, ROOT, kill_marked, marked

LIMIT = 2
"""How many commands with a licence, and of the group, run at a time."""
KINDS = ("", " resources=licence=1", f" group=few group_limit={LIMIT}")
COMMAND = (
    "trap 'sleep 0.3; echo - {n} $JOB $EPOCHREALTIME >> log; exit 1' TERM; echo + {n} $JOB $EPOCHREALTIME >> log; "
    "sleep {s}; echo - {n} $JOB $EPOCHREALTIME >> log #batch name={name}{kind}\n"
)
LONG_S = 9.0
"""A coordinator that stood still for longer may count as gone, and what it has begun begins elsewhere."""
DOUBT_S = 15.0
"""How long after it is awake what it runs may run elsewhere, too."""
STOPS_S = (0.05, 0.5), (0.5, 3.5), (5.0, 20.0)
"""How long jobs stand still: mostly too short to be noticed, sometimes long enough to be replaced."""
END_S = 240.0


@dataclass
class Life:
    """One start of the line."""

    name: str
    process: subprocess.Popen[bytes]
    killed_s: float = float("inf")
    termed_s: float = float("inf")
    stops: list[tuple[float, float]] = field(default_factory=list)
    """When it began to stand still, and when it is to be woken."""
    is_stopped: bool = False

    def signal(self, number: int, is_group: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if is_group else os.kill)(self.process.pid, number)

    def reason(self, begin_s: float, now_s: float) -> str:
        """Why another job may have begun again what this one has begun; empty: it may not."""
        if self.killed_s < now_s:
            return "killed"
        long = [(start, end) for start, end in self.stops if end - start > LONG_S]
        if any(start < now_s and begin_s < end + DOUBT_S for start, end in long):
            return "stood still"
        return "had to end" if self.termed_s < now_s else ""


class Shared:
    """One batch, its jobs, and what has happened to it."""

    def __init__(self, seed: int, jobs: int, commands: int, counts: Counter[str]) -> None:
        self.rng, self.jobs, self.counts = random.Random(seed), jobs, counts
        self.folder = Path(tempfile.mkdtemp(prefix="strikes-"))
        self.mark = f"{os.environ.setdefault(MARK, secrets.token_hex(4))}/{seed}"
        self.first = self.count = commands
        """Commands of the file, and with those that were added, which later runs of the file do not have."""
        self.lives: dict[str, Life] = {}
        self.cancelled: dict[int, float] = {}
        self.paused: list[str] = []
        text = "".join(self.line(n) for n in range(commands))
        (self.folder / "jobs.txt").write_text(f"#batch shell=bash grace=3s batch_resources=licence={LIMIT}\n{text}")
        for _ in range(jobs):
            self.start()

    def line(self, n: int) -> str:
        kind = KINDS[n % 3]
        return COMMAND.format(n=n, name=f"c{n}", s=self.rng.choice((0.05, 0.1, 0.2, 0.5)), kind=kind)

    def start(self) -> None:
        name = f"job{len(self.lives)}"
        env = os.environ | {MARK: self.mark, "JOB": name, "MPI_RUNTIME_NUM_CPUS": "2", "TMPDIR": str(self.folder)}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        words = [sys.executable, "-m", "mpi_runtime", "batch", "jobs.txt"]
        with open(self.folder / f"{name}.txt", "wb") as out:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.lives[name] = Life(name, process)

    def living(self) -> list[Life]:
        return [life for life in self.lives.values() if life.process.poll() is None]

    def strike(self) -> bool:
        """Strike once; return whether there was anything to strike."""
        now_s = time.time()
        living = self.living()
        late = [life for life in living if life.is_stopped and life.stops[-1][1] < now_s]
        if late:
            return self.wake(late[0])
        awake = [life for life in living if not life.is_stopped]
        if len(living) < self.jobs:
            self.start()
            return self.note("start")
        if not awake:
            return False
        leading = used_by(str(self.folder / "batch-jobs")) if self.rng.random() < 0.4 else ""
        chosen = [life for life in awake if f"pid {life.process.pid})" in leading] or awake
        life, is_group = self.rng.choice(chosen), self.rng.random() < 0.3
        kind = self.rng.choices(("stop", "kill", "term", "request"), (60, 10, 2, 12))[0]
        if kind == "stop":
            seconds = self.rng.uniform(*self.rng.choices(STOPS_S, (70, 27, 3))[0])
            life.signal(signal.SIGSTOP, is_group)
            life.stops.append((now_s, now_s + seconds))
            life.is_stopped = True
        elif kind == "kill":
            life.killed_s = now_s
            life.signal(signal.SIGKILL, is_group)
            life.process.wait()
            self.start()
            self.note("start")
        elif kind == "term":
            life.termed_s = now_s
            life.signal(signal.SIGTERM, False)
        else:
            self.request()
            return False
        return self.note(kind)

    def wake(self, life: Life) -> bool:
        life.signal(signal.SIGCONT, True)
        life.stops[-1] = (life.stops[-1][0], time.time())
        life.is_stopped = False
        return self.note("wake")

    def note(self, kind: str) -> bool:
        self.counts[kind] += 1
        return True

    def request(self) -> None:
        """Request something as a user does, without awaiting the answer."""
        journal = self.folder / "batch-jobs" / "journal"
        verb = self.rng.choice(("add", "cancel", "pause", "resume", "priority"))
        numbers = self.rng.sample(range(self.first), 2)
        names = tuple(f"c{n}" for n in numbers)
        if verb == "add":
            text = f"#batch shell=bash grace=3s batch_resources=licence={LIMIT}\n{self.line(self.count)}"
            request = Request(verb, text=text, form="lines", folder=str(self.folder))
        elif verb == "resume":
            request, self.paused = Request(verb, tuple(self.paused)), []
        else:
            request = Request(verb, names, self.rng.randrange(-3, 4))
        if verb == "resume" and not request.names:
            return
        with contextlib.suppress(FileNotFoundError):
            leave(journal, request)
            self.count += verb == "add"
            self.paused += names if verb == "pause" else ()
            self.cancelled |= dict.fromkeys(numbers if verb == "cancel" else (), time.time())
            self.counts[verb] += 1

    def is_over(self) -> bool:
        return any(life.process.poll() in (0, 1) for life in self.lives.values())

    def end(self) -> None:
        """Let it end, then run what users have cancelled."""
        for life in self.living():
            if life.is_stopped:
                self.wake(life)
        end_s = time.monotonic() + END_S
        journal = self.folder / "batch-jobs" / "journal"
        for turn in range(8):
            if journal.exists():
                leave(journal, Request("resume", tuple(f"c{n}" for n in range(self.first))))
            if turn or not self.living():
                self.start()
            while self.living():
                assert time.monotonic() < end_s, f"jobs do not end: {[life.name for life in self.living()]}"
                time.sleep(0.2)
            if [*self.lives.values()][-1].process.returncode == 0 and not [*journal.glob("request-*")]:
                return
        raise AssertionError("the batch does not end with 0")

    def judge(self) -> None:
        """State what is wrong, if anything is."""
        events = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        begins: defaultdict[int, list[tuple[float, Life]]] = defaultdict(list)
        running: dict[tuple[int, str], float] = {}
        for sign, word, job, at in events:
            n, now_s, life = int(word), float(at), self.lives[job]
            if sign == "-":
                running.pop((n, job), None)
                continue
            for begin_s, before in begins[n][-1:]:
                reason = before.reason(begin_s, now_s) or ("cancelled" if self.cancelled.get(n, now_s) < now_s else "")
                assert reason, f"c{n} began in {before.name} at {begin_s:.2f}, and again in {job} at {now_s:.2f}"
                self.counts[f"twice: {reason}"] += 1
            begins[n].append((now_s, life))
            running[n, job] = now_s
            for kind in (1, 2):
                if n % 3 == kind:
                    sure = [
                        one for one, since_s in running.items()
                        if one[0] % 3 == kind and not self.lives[one[1]].reason(since_s, now_s)
                    ]  # fmt: skip
                    self.counts["limits that are reached"] += len(sure) == LIMIT
                    assert len(sure) <= LIMIT, f"{KINDS[kind]} at {now_s:.2f}: {sure}"
        missing = sorted({*range(self.first)} - begins.keys())
        self.counts["added and forgotten"] += len({*range(self.first, self.count)} - begins.keys())
        assert not missing, f"{missing} never began"
        codes = Counter(life.process.returncode for life in self.lives.values())
        assert codes.keys() <= {0, 1, 75, -9, -15}, codes
        time.sleep(0.5)
        assert not marked(self.mark), "processes are left"
        self.counts["commands"] += self.count

    def close(self) -> None:
        kill_marked(self.mark)


def run(seed: int, strikes: int, sides: Sequence[int], folders: int, pause_s: float, commands: int) -> Counter[str]:
    """Strike batches until it is enough, several at a time; return what was done.

    Raises:
        AssertionError: something is wrong; the folder stays.
    """
    counts = Counter[str]()

    def batches(rng: random.Random) -> None:
        while struck(counts) < strikes:
            jobs = rng.choice(sides)
            batch = Shared(rng.randrange(1 << 30), jobs, commands + commands * min(jobs, 4) // 2, counts)
            try:
                while struck(counts) < strikes and not batch.is_over():
                    time.sleep(rng.uniform(0.5, 1.5) * pause_s if batch.strike() else 0.02)
                batch.end()
                batch.judge()
            except BaseException as error:
                counts[f"FAILED in {batch.folder} with {jobs} jobs: {error}"] += 1
                raise
            finally:
                batch.close()
            shutil.rmtree(batch.folder)
            counts["batches"] += 1

    with ThreadPoolExecutor(folders) as pool:
        threads = [pool.submit(batches, random.Random(seed * 1000 + number)) for number in range(folders)]
        shown_s = time.monotonic()
        while not all(one.done() for one in threads):
            time.sleep(0.2)
            if time.monotonic() - shown_s > 60:
                shown_s = time.monotonic()
                print(f"{time.strftime('%H:%M:%S')} {struck(counts)} strikes: {dict(counts)}", flush=True)
    for one in threads:
        one.result()
    return counts


def struck(counts: Counter[str]) -> int:
    return sum(counts[kind] for kind in ("stop", "wake", "kill", "term", "start"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.batch_strikes")
    parser.add_argument("--strikes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 3, 3, 16])
    parser.add_argument("--folders", type=int, default=5, help="batches at a time")
    parser.add_argument("--pause", type=float, default=0.35, help="seconds after a strike")
    parser.add_argument("--commands", type=int, default=200)
    chosen = parser.parse_args()
    found = run(chosen.seed, chosen.strikes, tuple(chosen.jobs), chosen.folders, chosen.pause, chosen.commands)
    print(f"{struck(found)} strikes: {dict(found)}")


if __name__ == "__main__":
    main()
